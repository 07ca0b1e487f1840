"""Assigns resources to members: as evenly as possible, moving as few as possible.

Always: every resource has one member, loads differ by at most one, and no other plan with such
loads moves fewer resources.
Pure: the result depends only on the arguments.
"""

from collections.abc import Collection, Mapping, Sequence

Assignment = Mapping[str, tuple[str, ...]]
"""Each member's resources, in order. Members without resources are absent."""


def assign(members: Sequence[str], resources: Collection[str], previous: Assignment) -> dict[str, tuple[str, ...]]:
    """Returns the next assignment. `members` are in the order in which they joined."""
    if not members:
        return {}
    wanted = set(resources)
    kept = {member: [r for r in sorted(previous.get(member, ())) if r in wanted] for member in members}
    share, left_over = divmod(len(wanted), len(members))
    # Members with the most resources keep the extra one, so that the fewest move.
    richest = sorted(members, key=lambda member: (-len(kept[member]), members.index(member)))
    limits = {member: share + (place < left_over) for place, member in enumerate(richest)}
    for member in members:
        del kept[member][limits[member] :]
    free = iter(sorted(wanted - {r for held in kept.values() for r in held}))
    for member in members:
        kept[member].extend(r for _, r in zip(range(limits[member] - len(kept[member])), free, strict=False))
    return {member: tuple(sorted(held)) for member, held in kept.items() if held}


def moved(before: Assignment, after: Assignment) -> int:
    """Counts the resources that get a new member, including resources that get their first."""
    owner = {r: member for member, held in before.items() for r in held}
    return sum(owner.get(r) != member for member, held in after.items() for r in held)
