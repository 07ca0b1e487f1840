"""What operators read in the logs of a cluster in which nothing goes wrong: daemons that warn of
what is nobody's trouble, or fail and mend it unseen, show here.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulation.steps import Step

HURTS = ("hurt wave", "hurt pairs")
LOCKED = ("undropped",)
REFUSALS = ("rule", "young rule", "submit past lock")
CAUSES = {
    "fetch failed": (*HURTS, "lose masters", "leave upload", "silence"),
    "events are lost": (*HURTS, *LOCKED),
    "cannot write the workers' local state": (*HURTS, *LOCKED),
    **dict.fromkeys(
        (
            "replication step failed",
            "the records could not be saved",
            "the history of distributions could not be saved",
            "a removed bundle keeps its id",
            "the plug-in did not forget a bundle",
            "action failed, will be retried",
            "the link of a bundle is not right, will be retried",
        ),
        LOCKED,
    ),
    **dict.fromkeys(("every copy of a bundle is lost", "a removed bundle is not forgotten yet"), ("lose masters",)),
    "a record waits": REFUSALS,
    "a supervisor is silent, its workers move": ("silence",),
    **dict.fromkeys(
        ("not registered, trying again", "the lease has ended", "this master has lost its leadership"),
        ("zookeeper away",),
    ),
}
"""The steps that a warning or an error belongs to."""
ALWAYS = "no TLS"


def needless_warnings(said: Iterable[str], steps: Iterable[Step]) -> Iterator[str]:
    """Yields the warnings that no step accounts for."""
    kinds = {step.kind for step in steps}
    for event in sorted(set(said)):
        if kinds.isdisjoint(CAUSES.get(event, ())) and not event.startswith(ALWAYS):
            yield f"a daemon warns: {event}"
