"""What a host keeps, fetches and drops is right after each plan, whatever it had and was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.policies.bundle_terms import Priority
from torrentdist.supervisor.bundles.keeping_plan import (
    UNWANTED_SECS,
    BeginSeeding,
    CancelFetch,
    DropArrival,
    DropBundle,
    FetchBundle,
    KeepingState,
    StopSeeding,
    plan,
)

NOW = 1000.0
BUNDLES = [BundleId(name) for name in "abcd"]
CONTENTS = [Digest(digit * 64) for digit in "123"]
some_bundles, some_contents = st.frozensets(st.sampled_from(BUNDLES)), st.frozensets(st.sampled_from(CONTENTS))
ages = st.sampled_from([0.0, 50.0, UNWANTED_SECS])


@st.composite
def hosts(draw: Any) -> KeepingState:
    """Any state of a host. What is unwanted is not published, and nobody fetches it. What is called
    removed has no name, unless it is here or arrives."""
    assigned, requested, fetching = draw(some_bundles), draw(some_bundles), draw(some_bundles)
    bindings = draw(st.dictionaries(st.sampled_from(BUNDLES), st.sampled_from(CONTENTS)))
    published = draw(st.dictionaries(st.sampled_from(CONTENTS), ages))
    arriving = {bindings[bundle] for bundle in fetching if bundle in bindings}
    used = {bindings[bundle] for bundle in assigned | requested if bundle in bindings} | arriving | published.keys()
    unwanted = draw(st.dictionaries(st.sampled_from(CONTENTS), ages))
    return KeepingState(
        assigned=assigned,
        requested=requested,
        bindings=bindings,
        idle_secs=published,
        seeding=draw(some_contents),
        fetching=fetching,
        removed=draw(some_contents).difference(used - arriving - published.keys()),
        not_before=draw(st.dictionaries(st.sampled_from(BUNDLES), st.sampled_from([NOW, NOW + 1.0]))),
        seed_secs=draw(st.sampled_from([-1.0, 0.0, 50.0])),
        priorities=draw(st.dictionaries(st.sampled_from(BUNDLES), st.sampled_from(Priority))),
        needed=draw(some_bundles) & assigned,
        limited=draw(some_bundles) & assigned,
        stuck=draw(some_bundles),
        unwanted_secs={digest: secs for digest, secs in unwanted.items() if digest not in used},
        held=draw(some_contents),
        lacks_room=draw(st.booleans()),
    )


def without(here: Mapping[Digest, float], gone: Digest) -> dict[Digest, float]:
    return {digest: secs for digest, secs in here.items() if digest != gone}


def after(host: KeepingState) -> KeepingState:
    """Returns the host after its plan. What is dropped has no name any more, leaves its swarm, and
    ends its fetches, which are tried again later."""
    for action in plan(host, NOW):
        match action:
            case DropBundle(digest) | DropArrival(digest):
                named = {bundle for bundle, of in host.bindings.items() if of == digest}
                ended = named & host.fetching
                host = replace(
                    host,
                    idle_secs=without(host.idle_secs, digest),
                    unwanted_secs=without(host.unwanted_secs, digest),
                    bindings={bundle: of for bundle, of in host.bindings.items() if bundle not in named},
                    seeding=host.seeding - {digest},
                    fetching=host.fetching - ended,
                    not_before={**host.not_before, **dict.fromkeys(ended, NOW + 1.0)},
                )
            case FetchBundle(bundle):
                host = replace(host, fetching=host.fetching | {bundle}, stuck=host.stuck - {bundle})
            case CancelFetch(bundle):
                host = replace(host, fetching=host.fetching - {bundle})
            case BeginSeeding(digest):
                host = replace(host, seeding=host.seeding | {digest})
            case StopSeeding(digest):
                host = replace(host, seeding=host.seeding - {digest})
    return host


def wanted(host: KeepingState) -> frozenset[BundleId]:
    return host.assigned | host.requested


@given(hosts())
def test_only_what_was_removed_or_waits_in_vain_is_dropped(host: KeepingState) -> None:
    """If this failed, a host would drop what somebody has mounted, or what it was told to keep."""
    dropped = {action.digest for action in plan(host, NOW) if isinstance(action, DropBundle)}
    parts = {action.digest for action in plan(host, NOW) if isinstance(action, DropArrival)}
    old = {digest for digest, secs in host.unwanted_secs.items() if host.lacks_room or secs >= UNWANTED_SECS}

    assert dropped <= host.removed - host.held
    assert parts <= old - host.removed - host.held


@given(hosts())
def test_what_is_wanted_comes_and_nothing_else(host: KeepingState) -> None:
    """If this failed, a host would never get what it was told to keep, or a user would wait for
    others; or it would go on to fetch what nobody wants."""
    then = after(host)
    comes = then.fetching | {bundle for bundle, at in then.not_before.items() if at > NOW}
    comes |= {bundle for bundle, of in then.bindings.items() if of in then.idle_secs and of not in host.removed}
    arriving = (wanted(host) & then.fetching) - then.stuck - host.requested - host.limited
    before_others = [host.rank(bundle) for bundle in arriving]

    assert host.requested | host.needed <= comes
    assert all(host.rank(bundle) < max(before_others, default=-1) for bundle in host.assigned - comes)
    assert all(then.bindings.get(bundle) in host.removed for bundle in then.fetching - wanted(host))


@given(hosts())
def test_what_is_kept_is_seeded_and_what_is_idle_is_not(host: KeepingState) -> None:
    """If this failed, masters would not count a host that has what it should, or never tell it that
    a bundle was removed; or it would give its line to others for ever."""
    then = after(host)
    names = {digest: {bundle for bundle, of in then.bindings.items() if of == digest} for digest in then.idle_secs}
    kept = {digest for digest, bundles in names.items() if not bundles or bundles & wanted(host)}
    idle = {digest for digest, secs in then.idle_secs.items() if secs > host.seed_secs >= 0}

    assert kept - host.removed <= then.seeding
    assert not (idle - kept - host.removed) & then.seeding


@given(hosts())
def test_a_host_comes_to_rest(host: KeepingState) -> None:
    """If this failed, a host would be busy with its bundles for ever. A fetch that ends may let
    those of lower priority begin."""
    for _ in BUNDLES:
        host = after(host)

    assert [] == plan(host, NOW)
