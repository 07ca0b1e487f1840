"""Full garbage collections of a daemon that keeps much."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from torrentdist.host.event_loop.short_collections import short_collections


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_a_long_collection_left_is_passed_over() -> None:
    """Each full collection of a master of 1,000 hosts would hold up its event loop for 60 ms."""
    with short_collections(0.0):
        kept = [[number] for number in range(1000)]
        gc.collect()
        visited = {id(one) for one in gc.get_objects()}

        assert gc.get_freeze_count() >= len(kept)
        assert not visited & {id(one) for one in kept}


def test_a_short_collection_keeps_looking_for_cycles() -> None:
    """Otherwise a small daemon would never free a cycle."""
    before = gc.get_freeze_count()
    with short_collections(60.0):
        gc.collect()

    assert gc.get_freeze_count() == before


def test_nothing_is_passed_over_by_collections_of_the_young() -> None:
    """What is just being done would count as kept."""
    before = gc.get_freeze_count()
    with short_collections(0.0):
        gc.collect(0)
        gc.collect(1)

    assert gc.get_freeze_count() == before


def test_collections_are_as_before_once_a_daemon_has_ended() -> None:
    """A process of tests would keep the cycles of all of them."""
    usual = gc.get_threshold()
    with short_collections(0.0):
        often = gc.get_threshold()
    before = gc.get_freeze_count()
    gc.collect()

    assert gc.get_freeze_count() == before
    assert often[2] < usual[2]
    assert usual == gc.get_threshold()
