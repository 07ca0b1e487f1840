"""Where a run's application is found in YARN: the ResourceManagers to ask, and the tags that the
application has.

Always: two jobs never share a tag, whatever their names are, in one cluster or in two. A later run
of a job has a greater number in its tag.
Pure: no I/O and no clock.
"""

import hashlib
import re

import msgspec

from torrentdist.model.ids import JobId

MOST_SHOWN = 40
"""Most characters of a job's name in a tag. YARN allows 100 for the whole tag."""
DIGEST_DIGITS = 12
_NUMBER = re.compile(r"[0-9]{1,20}")


class YarnPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor needs to find the application of a run, after its own restart too."""

    resource_managers: tuple[str, ...]
    """URLs of their web interfaces. Only the active one answers."""
    tag: str
    """The tag that all applications of the job have."""
    user: str
    """The user that YARN knows the application by."""


def tag_of_job(cluster: str, job: JobId) -> str:
    """Returns the tag of all applications of a job. YARN writes tags in lower case."""
    digest = hashlib.sha256(f"{cluster}/{job}".encode()).hexdigest()[:DIGEST_DIGITS]
    return f"torrentdist:{job.lower()[:MOST_SHOWN]}-{digest}"


def tag_of_run(tag: str, fencing: int) -> str:
    """Returns the tag of the application of one run."""
    return f"{tag}:{fencing}"


def fencing_in(tags: str, tag: str) -> int | None:
    """Returns the number of the run that an application belongs to. None: it is not of this job.

    `tags`: all tags of the application, as YARN lists them.
    """
    for text in tags.split(","):
        head, _, number = text.strip().rpartition(":")
        if head == tag and _NUMBER.fullmatch(number):
            return int(number)
    return None
