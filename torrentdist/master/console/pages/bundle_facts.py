"""What the console says of bundles themselves: the rows of their list, and the facts of one, such
as its new bytes and whether it goes next when room is needed.

Pure: values in, HTML out.
Always: what is not known is called unknown.
"""

from collections.abc import Sequence

from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup
from torrentdist.master.console.console_views import DistributionView
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.model.policies.why_it_stays import in_words
from torrentdist.model.wire.bundle_messages import BundleView, EarlierView
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist.model.wire.view import View
from torrentdist.model.wording import counted

MOST_NAMED = 3
"""Earlier bundles that the page names."""


class BundleLineView(BundleView, frozen=True, kw_only=True):
    """A bundle in the console's list."""

    room: RoomView | None = None
    """Null: ZooKeeper's clock is not known."""


class BundlePageView(View, frozen=True, kw_only=True):
    bundle: BundleView
    distribution: DistributionView
    jobs: list[str]
    """The live jobs that need it."""
    past: list[DistributionSummary]
    """Its last distributions, the newest first."""
    earlier: EarlierView | None
    """What earlier bundles have of it. Null: this master does not know it yet."""
    room: RoomView | None
    """Null: ZooKeeper's clock is not known."""


def bundle_line(view: BundleView, room: RoomView | None) -> BundleLineView:
    return BundleLineView(**{name: getattr(view, name) for name in BundleView.__struct_fields__}, room=room)


def bundles_table(views: Sequence[BundleLineView]) -> Markup:
    rows = [
        (
            m.to("bundles", view.id),
            m.badge(view.state, "good" if view.state == "available" else "bad"),
            m.bytes_of(view.size),
            m.text(f"{view.files:,}"),
            m.badge(f"{view.replicas} of {view.min_replicas}", "" if view.replicas >= view.min_replicas else "warn"),
            m.text("pinned" if view.pinned else ""),
            m.text(len(view.signers)),
            m.duration(view.age_secs),
            _next_in_short(view.room),
        )
        for view in views
    ]
    heads = ("Bundle", "State", "Size", "Files", "Copies", "Pinned", "Signatures", "Age", "For room")
    return m.table("Bundles", heads, rows, "No bundle matches.")


def _next_in_short(room: RoomView | None) -> Markup:
    if room is None:
        return m.UNKNOWN
    if room.goes:
        return m.badge("goes next", "warn")
    return m.text("stays" if room.stays else "may go")


def bundle_facts(view: BundlePageView) -> Markup:
    bundle = view.bundle
    return m.facts(
        [
            ("State", m.badge(bundle.state, "good" if bundle.state == "available" else "bad")),
            ("Digest", Markup(f"<code>{m.text(bundle.digest)}</code>")),
            ("Size", m.text(f"{m.bytes_of(bundle.size)} in {bundle.files:,} files")),
            ("New", new_bytes(view.earlier)),
            ("Copies", m.text(f"{bundle.replicas} of {bundle.min_replicas} wanted")),
            ("Held by", m.join([m.to("masters", holder) for holder in bundle.holders], ", ") or m.text("nobody")),
            ("Pinned", m.text("yes" if bundle.pinned else "no")),
            ("Signed by", m.text(", ".join(bundle.signers) or "nobody")),
            ("Used by jobs", m.join([m.to("jobs", job) for job in view.jobs], ", ") or m.text("none")),
            ("Retention", retention(view.room)),
            ("If room is needed", eviction(view.room)),
            ("Created", m.moment(bundle.created_at)),
        ]
    )


def new_bytes(earlier: EarlierView | None) -> Markup:
    """Returns words such as `24.8 MiB (6%); the rest is in env-42`."""
    if earlier is None:
        return m.UNKNOWN
    named, parts = _names(earlier.reused_from), []
    if not earlier.reused_bytes:
        parts.append(m.text("all of it: no earlier bundle has any of it"))
    elif not earlier.new_bytes:
        parts += [m.text("nothing: all of it is in "), named]
    else:
        share = m.share(earlier.new_bytes, earlier.size)
        parts += [m.text(f"{m.bytes_of(earlier.new_bytes)} ({share}); the rest is in "), named]
    if earlier.not_compared:
        parts.append(m.text(f"; {counted(earlier.not_compared, 'earlier bundle')} not here to compare with"))
    return m.join(parts)


def _names(bundles: Sequence[BundleId]) -> Markup:
    more = len(bundles) - MOST_NAMED
    shown = m.join([m.to("bundles", bundle) for bundle in bundles[:MOST_NAMED]], ", ")
    return m.join([shown, m.text(f" and {more} more")]) if more > 0 else shown


def retention(room: RoomView | None) -> Markup:
    """Returns whether the leader removes it next, and why."""
    if room is None:
        return m.UNKNOWN
    if room.goes:
        return m.join([m.badge("goes next", "warn"), m.text(f" {room.goes}")])
    if not room.rules:
        return m.text("no rule matches it")
    rules = ", ".join(room.rules[:MOST_NAMED])
    return m.text(f"stays by {rules}: {in_words(room.rules_keep)}")


def eviction(room: RoomView | None) -> Markup:
    """Returns whether hosts and `bundle prune --cluster` remove it, and why."""
    if room is None:
        return m.UNKNOWN
    if room.stays:
        return m.text(f"stays: {in_words(room.stays)}")
    return m.text("may go: nobody uses it, so hosts drop it, and bundle prune --cluster removes it")
