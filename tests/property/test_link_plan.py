"""The links of bundles by their ids are right after each plan, whatever was there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import BundleId
from torrentdist.supervisor.ids.link_plan import HostLinks, PutLink, RemoveLink, plan_links

names = st.sampled_from([BundleId(name) for name in "abcdef"])
targets = st.sampled_from(["/1", "/2", "/3"])
hosts = st.builds(
    HostLinks,
    here=st.dictionaries(names, targets),
    kept=st.frozensets(names),
    present=st.dictionaries(names, targets),
    knows_orders=st.booleans(),
)


def after(host: HostLinks) -> dict[str, str]:
    links = dict(host.present)
    for action in plan_links(host):
        match action:
            case PutLink(bundle, target):
                links[bundle] = target
            case RemoveLink(name):
                del links[name]
    return links


@given(hosts)
def test_a_link_names_a_bundle_that_is_here_and_kept(host: HostLinks) -> None:
    """An executor would read a bundle that is not whole, or miss one that it was promised."""
    links = after(host)
    kept = {bundle: target for bundle, target in host.here.items() if bundle in host.kept}

    assert kept.items() <= links.items()
    assert links.items() <= host.here.items()
    assert not host.knows_orders or links == kept


@given(hosts)
def test_what_is_right_stays_while_the_orders_are_not_known(host: HostLinks) -> None:
    """A restart during an outage of ZooKeeper would take the environment from under a running
    application."""
    right = host.here.items() & host.present.items()

    assert host.knows_orders or right <= after(host).items()


@given(hosts)
def test_the_next_plan_is_empty(host: HostLinks) -> None:
    """A link that is replaced in each round would be missing or wrong for a moment each time."""
    again = HostLinks(here=host.here, kept=host.kept, present=after(host), knows_orders=host.knows_orders)

    assert [] == plan_links(again)
