"""What the API says about who changed what."""

import msgspec

from torrentdist.model.wire.view import View


class AuditView(View, frozen=True, kw_only=True):
    """One change, or several refusals of one source."""

    at: float
    """ZooKeeper's time, or this master's while that is not known."""
    who: str
    role: str
    operation: str
    target: str
    """The bundle, job, host, master or token that it was about."""
    source: str = msgspec.field(name="from")
    """The address of the sender."""
    result: str
    """`ok`, or the code of the error."""
    count: int = 1
    """How often; more than 1 for refusals only."""
    bundle: str = ""
    """The bundle that it was about, also where the target is a job."""
    how: str = ""
    """The proof of the name."""
    master: str = ""
    """The master that was asked."""
