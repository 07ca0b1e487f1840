"""The assignment of a resource group's resources, as a function of values."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster.rebalance.assignment import assign, moved

names = st.text("abcdefgh", min_size=1, max_size=1)
members = st.lists(names, min_size=1, max_size=6, unique=True)
resources = st.sets(st.integers(0, 12).map(str), max_size=13)
previous = st.dictionaries(st.integers(0, 12).map(str), names).map(
    lambda owner: {member: tuple(r for r in owner if owner[r] == member) for member in set(owner.values())}
)


@given(members, resources, previous)
def test_c14_all_are_assigned_evenly(
    members: list[str], resources: set[str], previous: dict[str, tuple[str, ...]]
) -> None:
    """C14: if this fails, a resource is forgotten or given twice, or one member has two more than
    another."""
    found = assign(members, resources, previous)
    loads = [len(found.get(member, ())) for member in members]

    assert sorted(resources) == sorted(r for held in found.values() for r in held)
    assert set(found) <= set(members)
    assert max(loads) - min(loads) <= 1


@given(members, resources, previous)
def test_c14_no_more_moves_than_must(
    members: list[str], resources: set[str], previous: dict[str, tuple[str, ...]]
) -> None:
    """C14: if this fails, resources move although another plan, just as even, would have left
    them."""
    found = assign(members, resources, previous)
    kept = [len([r for r in previous.get(member, ()) if r in resources]) for member in members]
    share, left_over = divmod(len(resources), len(members))
    shapes = [shape for shape in product((share, share + 1), repeat=len(members)) if sum(shape) == len(resources)]
    if not left_over:
        shapes = [(share,) * len(members)]
    best = max(sum(map(min, kept, shape)) for shape in shapes)

    assert len(resources) - best == moved(previous, found)


@given(members, resources, previous)
def test_c3_a_plan_that_is_even_stays(
    members: list[str], resources: set[str], previous: dict[str, tuple[str, ...]]
) -> None:
    """C3: if this fails, a new coordinator, or a spare member, changes a plan that is already
    even."""
    found = assign(members, resources, previous)
    spare = [member for member in members if member not in found]

    assert found == assign(members, resources, found)
    assert found == assign([member for member in members if member not in spare] or members, resources, found)


def test_nobody_gets_nothing() -> None:
    """If this fails, a group without members or resources ends in an error instead of an empty
    plan."""
    assert {} == assign([], {"r"}, {})
    assert {} == assign(["a"], set(), {"a": ("r",)})
