"""The record of a retention rule in ZooKeeper: how many versions of a bundle the cluster keeps."""

from torrentdist.model.records import Record


class RetentionRecord(Record, frozen=True, kw_only=True):
    """The record at /retention/<name>, where the name is a hash of the pattern."""

    pattern: str
    """The pattern of bundle ids, such as `etl-*`."""
    keep: int
    """Number of newest bundles that stay."""
    for_secs: float = 0.0
    """A bundle stays for this number of seconds after its record was written."""
    created_by: str = ""
