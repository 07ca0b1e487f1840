"""Settings that become constants: no user needs to change them, and each has a reason for its
value.

Always: one release still honours a configured value, with a warning; the next one refuses the key.
Never: list a key that the documentation tells operators to change.
"""

from collections.abc import Iterator, Mapping
from typing import Final

FIXED: Final[Mapping[str, str]] = {
    "api.max_request_bytes": "64 MiB hold the metafile of the largest bundle that is allowed",
    "events.file_bytes": "8 MiB are small enough to ship and large enough for Spark",
    "events.file_secs": "a minute is as late as a report may be",
    "events.progress_secs": "the report draws no finer curves than every 5 s",
    "master.snapshot_changes": "saving the records costs less than a hundredth of a processor",
    "master.snapshot_secs": "saving the records costs less than a hundredth of a processor",
    "master.upgrade_after_secs": "ten minutes are enough to notice a release that has to go back",
    "replication.abandon_secs": "an uploader that is silent for an hour does not come back",
    "replication.tombstone_secs": "a master that was away for a week must still learn what was removed",
    "requests.keep_secs": "no client repeats a request for longer than ten minutes",
    "swarm.fetching_secs": "faster announces bring no faster swarm; slower ones do",
    "swarm.seeding_secs": "an idle seeder costs nothing at this rate",
    "zookeeper.operation_timeout_secs": "half of the session timeout's default: a retry still fits in",
}
"""Each key with the reason for its value. The value is the default in config.py."""


def warnings(origins: Mapping[str, str], default_origin: str) -> Iterator[str]:
    """Yields a sentence for each fixed setting that is configured."""
    for key, reason in FIXED.items():
        if origins[key] != default_origin:
            yield f"{key} ({origins[key]}) becomes a constant: {reason}; the next release refuses the key"
