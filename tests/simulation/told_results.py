"""What a user is told by a call that went well, where nothing else goes on.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from typing import Any

from simulation.steps import Step

ALL_AT_ONCE = ("distribute", "stand", "send")
"""Orders whose users wait until every host has the bundle."""


def wrong_result(step: Step, told: Any, hosts: int) -> str:
    """Returns what is not as it must be; empty: nothing. `hosts`: how many there are."""
    wanted = 1 if step.kind == "send" else hosts
    match step.kind:
        case "upload":
            right = told.achieved and told.replicas >= told.min_replicas >= 1
        case _ if step.kind in ALL_AT_ONCE:
            right = told.hosts == told.done == wanted and not told.failed
        case "pin" | "unpin":
            right = told.pinned == (step.kind == "pin") and told.id == step.what
        case "remove":
            right = told.id == step.what and told.state == "removed"
        case "sign":
            right = told.id == step.what and bool(told.signers)
        case "read":
            right = not told.is_old
        case _:
            return ""
    return "" if right else f"is told {told}"
