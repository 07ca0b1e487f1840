"""Invitations, certificates of hosts and revocations, as decisions on a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from records_of import master, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot, InvitationEntry
from torrentdist.cluster.session.znode_operations import Delete, Op, Set
from torrentdist.master.access import host_operations as hosts
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.swarm.swarm_records import SwarmRecords
from torrentdist.model.access.host_messages import InvitationBody, MembershipState
from torrentdist.model.access.host_record import InvitationRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId, StoreId, SupervisorId
from torrentdist.model.records import OwnCertificate, SupervisorRecord, encode
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.security.authority.certificates import CertificateFacts, facts_of, issue, new_authority, new_key
from torrentdist.security.authority.pem_texts import certificate_pem
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.tokens import hash_of
from torrentdist.swarm.directory.directory import SwarmDirectory

NOW = 1_800_000_000.0
DAY = 86_400.0
EMPTY = ClusterSnapshot()
SECRET = "a-secret"
SUPERVISOR = CertificateRole.SUPERVISOR


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(TorrentdistError) as caught:
        work()
    return caught.value.code


def body(**changes: Any) -> InvitationBody:
    given: dict[str, Any] = {"id": "h1", "role": "supervisor", "addresses": ["10.0.0.7"], "ttl_secs": 3600.0}
    return InvitationBody(**(given | {"hash": hash_of(SECRET)} | changes))


def applied(snapshot: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    return predicted(snapshot, ops)


def inviting(snapshot: ClusterSnapshot = EMPTY, now: float = NOW, **changes: Any) -> ClusterSnapshot:
    record = hosts.new_invitation(body(**changes), "ann", now)
    return applied(snapshot, hosts.invitation_ops(snapshot, record, now))


def facts(
    serial: str = "01", begins: float = NOW, role: CertificateRole = CertificateRole.SUPERVISOR
) -> CertificateFacts:
    return CertificateFacts(CertificateIdentity("prod", role, "h1"), ("10.0.0.7",), serial, begins, begins + 30 * DAY)


def invitation(
    snapshot: ClusterSnapshot, key: str = "key-1", secret: str = SECRET, now: float = NOW
) -> InvitationRecord:
    return hosts.invited(snapshot, "h1", secret, key, now)


def joined(snapshot: ClusterSnapshot | None = None, key: str = "key-1", **of: Any) -> ClusterSnapshot:
    snapshot = snapshot or inviting()
    ops = hosts.redemption_ops(snapshot, invitation(snapshot, key), "PEM", facts(**of), key)
    return applied(snapshot, ops)


def revoking(snapshot: ClusterSnapshot, now: float = NOW) -> ClusterSnapshot:
    return applied(snapshot, hosts.revocation_ops(snapshot, "h1", "ann", now))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"role": "person"}, "invalid_request"),
        ({"role": "root"}, "invalid_request"),
        ({"addresses": []}, "invalid_request"),
        ({"addresses": ["*"]}, "invalid_address"),
        ({"ttl_secs": 0.0}, "invalid_request"),
        ({"ttl_secs": 8 * DAY}, "invalid_request"),
        ({"hash": "x"}, "invalid_request"),
        ({"id": "../h1"}, "invalid_id"),
    ],
)
@pytest.mark.case("F6")
def test_what_no_host_may_become_is_not_invited(changes: dict[str, Any], code: str) -> None:
    """An invitation would make a certificate for a person, for any address, or for ever."""
    assert code == error_of(lambda: inviting(**changes))


@pytest.mark.case("F6")
@pytest.mark.parametrize(
    ("asked", "now"), [({"secret": "guess"}, NOW), ({"key": "key-2"}, NOW), ({}, NOW + 3600.0)],
    ids=["another secret", "used by another key", "expired"],
)  # fmt: skip
def test_an_invitation_is_good_for_one_key_and_a_while(asked: dict[str, str], now: float) -> None:
    """A stolen or forgotten invitation would make a second host."""
    snapshot = joined() if "key" in asked else inviting()

    assert error_of(lambda: invitation(snapshot, now=now, **asked)) == "invitation_invalid"


@pytest.mark.case("F15")
def test_the_same_key_gets_the_same_certificate_again_even_later() -> None:
    """A lost answer would cost the host its invitation."""
    snapshot = joined()

    assert hosts.issued_already(snapshot, invitation(snapshot, now=NOW + 2 * DAY))
    assert "PEM" == snapshot.hosts["h1"].record.certificate


@pytest.mark.case("F15")
def test_a_revoked_hosts_invitation_gives_nothing_any_more() -> None:
    """A host that was shut out would let itself in again."""
    snapshot = revoking(joined())

    assert error_of(lambda: hosts.issued_already(snapshot, invitation(snapshot))) == "invitation_invalid"


@pytest.mark.case("F6")
def test_a_second_host_under_a_live_id_is_refused() -> None:
    """Two hosts would be one, and take each other's work."""
    snapshot = joined()

    assert error_of(lambda: inviting(snapshot)) == "host_exists"
    assert inviting(revoking(snapshot)).invitations["h1"].record.key == ""


def test_two_hosts_that_redeem_at_once_do_not_both_join() -> None:
    """The slower one would replace the faster one's certificate."""
    before = inviting()
    late = invitation(before, "key-2")
    after = joined(before)

    assert error_of(lambda: hosts.redemption_ops(after, late, "PEM", facts(), "key-2")) == "invitation_invalid"


def with_invitations(*records: InvitationRecord) -> ClusterSnapshot:
    return msgspec.structs.replace(EMPTY, invitations={each.id: InvitationEntry(each, 7) for each in records})


def test_only_open_invitations_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose hosts come and go would invite no more of them one day."""
    monkeypatch.setattr(hosts, "MOST_OPEN", 2)
    used, expired, first, second = (
        hosts.new_invitation(body(id=id_), "ann", NOW) for id_ in ("used", "old", "open-1", "open-2")
    )
    used, expired = msgspec.structs.replace(used, key="k"), msgspec.structs.replace(expired, expires_at=NOW)

    assert "h1" in inviting(with_invitations(used, expired, first)).invitations
    assert "h1" in inviting(inviting(with_invitations(first))).invitations
    assert error_of(lambda: inviting(with_invitations(first, second))) == "too_large"


def test_invitations_that_ended_long_ago_are_forgotten() -> None:
    """The invitations of years would fill ZooKeeper and every master's memory."""
    long_ago = NOW - hosts.KEEP_SECS
    ends = {"old": long_ago - 1, "used": long_ago - 1, "void": 0.0, "kept": long_ago, "h1": 0.0}
    records = [
        msgspec.structs.replace(
            hosts.new_invitation(body(id=id_), "ann", NOW), expires_at=at, key=id_ if id_ == "used" else ""
        )
        for id_, at in ends.items()
    ]
    record = hosts.new_invitation(body(), "ann", NOW)
    written, *forgotten = hosts.invitation_ops(with_invitations(*records), record, NOW)
    many = [msgspec.structs.replace(record, id=f"old-{number}", expires_at=0.0) for number in range(60)]

    assert Set("/invitations/h1", encode(record), 7) == written
    assert [Delete(f"/invitations/{id_}", 7) for id_ in ("old", "used", "void")] == forgotten
    assert 1 + hosts.MOST_FORGOTTEN == len(hosts.invitation_ops(with_invitations(*many), record, NOW))


@pytest.mark.case("F6")
def test_a_revocation_covers_every_certificate_until_now_and_none_after() -> None:
    """A revoked host would be back by its next request, or its successor never be let in."""
    revoked = revoking(joined(begins=NOW - DAY))
    again = joined(inviting(revoked), begins=hosts.earliest(revoked, "h1"))
    old, new = (hosts.earliest(snapshot, "h1") for snapshot in (EMPTY, revoked))

    assert (0.0, NOW + hosts.SKEW_SECS) == (old, new)
    assert revoked.hosts["h1"].record.refuses(NOW + DAY)
    assert [True, False] == [again.hosts["h1"].record.refuses(begins) for begins in (NOW, new)]


@pytest.mark.case("F6")
@pytest.mark.parametrize("late", [60.0, DAY], ids=["a minute late", "a day late"])
def test_a_leader_whose_clock_is_late_revokes_the_certificate_too(late: float) -> None:
    """After the next invitation of its id, a stolen certificate would be good again for weeks."""
    authority, key = new_authority("prod", new_key(), NOW - DAY), new_key().public_key()
    certificate = issue(authority, CertificateIdentity("prod", SUPERVISOR, "h1"), ["10.0.0.7"], key, NOW)
    given = facts_of(certificate)
    invited = inviting()
    pem = certificate_pem(certificate).decode()
    snapshot = applied(invited, hosts.redemption_ops(invited, invitation(invited), pem, given, "key-1"))
    revoked = revoking(snapshot, given.begins_at - late)
    again = joined(inviting(revoked), "key-2", begins=hosts.earliest(revoked, "h1"))

    assert again.hosts["h1"].record.refuses(given.begins_at)
    assert not again.hosts["h1"].record.refuses(hosts.earliest(revoked, "h1"))


def test_a_revocation_voids_the_open_invitation() -> None:
    """The thief of an invitation would still join after the operator has acted."""
    snapshot = revoking(inviting())

    assert error_of(lambda: invitation(snapshot)) == "invitation_invalid"
    assert error_of(lambda: revoking(EMPTY)) == "not_found"


@pytest.mark.case("F6")
def test_a_host_that_was_never_seen_is_revoked_on_demand() -> None:
    """A stolen certificate of `ca issue` could not be revoked before its thief used it."""
    snapshot = applied(EMPTY, hosts.revocation_ops(EMPTY, "h1", "ann", NOW, unknown=True))

    assert snapshot.hosts["h1"].record.refuses(NOW)


@pytest.mark.parametrize(
    ("make", "key", "old", "code"),
    [
        (joined, "key-2", facts(), "host_exists"),
        (joined, "key-1", facts(role=CertificateRole.MASTER), "host_exists"),
        (lambda: revoking(joined()), "key-1", facts(), "host_revoked"),
        (lambda: joined(inviting(revoking(joined()))), "key-1", facts(begins=NOW), "host_revoked"),
        (lambda: EMPTY, "key-1", facts(role=CertificateRole.PERSON), "certificate_refused"),
    ],
    ids=["another key", "another role", "revoked", "from before a revocation", "a person"],
)
@pytest.mark.case("F6")
def test_only_the_holder_renews_and_only_while_not_revoked(
    make: Callable[[], ClusterSnapshot], key: str, old: CertificateFacts, code: str
) -> None:
    """A stolen certificate would be renewed for ever, or for another key or role."""
    snapshot = make()

    assert code == error_of(lambda: hosts.renewal_ops(snapshot, old, "PEM2", facts("02"), key))


def test_an_expired_certificate_is_renewed_and_so_is_one_of_ca_issue() -> None:
    """A control outage of a month would end the data path."""
    late = facts("02", NOW + 40 * DAY)
    renewed = [applied(s, hosts.renewal_ops(s, facts(), "PEM2", late, "key-1")) for s in (joined(), EMPTY)]

    assert ["02", "02"] == [snapshot.hosts["h1"].record.serial for snapshot in renewed]


def test_hosts_are_shown_in_the_state_that_they_are_in() -> None:
    """An operator would not see who may still come, or who is out."""
    snapshots = [(inviting(), NOW), (joined(), NOW), (joined(), NOW + 31 * DAY), (revoking(joined()), NOW)]
    states = [view.state for snapshot, now in snapshots for view in hosts.host_views(snapshot, now, now)]

    assert [MembershipState.INVITED, MembershipState.LIVE, MembershipState.EXPIRED, MembershipState.REVOKED] == states
    assert [] == hosts.host_views(inviting(), NOW, NOW + 2 * DAY)


@pytest.mark.case("F6")
def test_a_registered_host_of_ca_issue_is_shown_with_its_certificate() -> None:
    """An operator would not see half of the cluster for two weeks, until it renews its
    certificates."""
    own = OwnCertificate(serial="0a", expires_at=NOW + DAY)
    node = msgspec.structs.replace(supervisor("h1"), certificate=own)
    running = msgspec.structs.replace(EMPTY, supervisors={node.id: node, SupervisorId("plain"): supervisor("plain")})
    first = msgspec.structs.replace(master("m1"), certificate=own)
    shown = hosts.host_views(msgspec.structs.replace(running, masters={first.id: first}), NOW, NOW)
    limited = hosts.host_views(allowing(running, "etl-*"), NOW + 2 * DAY, NOW)
    shut = hosts.host_views(revoking(running), NOW, NOW)

    live = MembershipState.LIVE
    assert [("h1", "supervisor", "0a", NOW + DAY, live), ("m1", "master", "0a", NOW + DAY, live)] == [
        (view.id, view.role, view.serial, view.expires_at, view.state) for view in shown
    ]
    assert [("h1", "etl-*", MembershipState.EXPIRED)] == [(view.id, view.bundles, view.state) for view in limited]
    assert [("h1", MembershipState.REVOKED)] == [(view.id, view.state) for view in shut]


@pytest.mark.case("F6")
def test_a_revoked_host_leaves_the_swarms_at_once() -> None:
    """A stolen host would go on fetching until it is silent, since its address stays admitted."""
    supervisor = SupervisorRecord(
        id=SupervisorId("h1"), host="10.0.0.7", gateway="", swarm_port=1, store=StoreId("s"), version="1"
    )
    snapshots = [
        msgspec.structs.replace(s, supervisors={supervisor.id: supervisor}) for s in (joined(), revoking(joined()))
    ]
    current = [snapshots[0]]
    directory = SwarmDirectory()
    records = SwarmRecords(directory, lambda: current[0])
    entry = SwarmEntry(digest=Digest("a" * 64), complete=True)
    announce = SwarmAnnounce(peer=PeerId("h1"), role=PeerRole.SUPERVISOR, port=7071, swarms=[entry])
    records.follow()
    directory.announce(announce, source_host="10.0.0.7", now=1.0, facts=records.facts_of)
    before = directory.addresses(records.registered_hosts(current[0]), 0.0)
    current[0] = msgspec.structs.replace(snapshots[1], version=1)
    records.follow()
    after = directory.addresses(records.registered_hosts(current[0]), 0.0)

    assert (["10.0.0.7"], []) == (before, after)


def allowing(snapshot: ClusterSnapshot, bundles: str) -> ClusterSnapshot:
    return applied(snapshot, hosts.bundles_ops(snapshot, "h1", bundles))


def with_running(snapshot: ClusterSnapshot = EMPTY) -> ClusterSnapshot:
    """A cluster in which the supervisor h1 runs."""
    return msgspec.structs.replace(snapshot, supervisors={SupervisorId("h1"): supervisor("h1")})


@pytest.mark.case("F6")
def test_the_pattern_of_a_host_comes_with_its_invitation_and_stays() -> None:
    """A host that renews its certificate could have every bundle again."""
    snapshot = joined(inviting(bundles="etl-*"))
    changed = allowing(snapshot, "")
    late = facts("02", NOW + 40 * DAY)
    renewed = applied(changed, hosts.renewal_ops(changed, facts(), "PEM2", late, "key-1"))

    assert ["etl-*", "", ""] == [each.hosts["h1"].record.bundles for each in (snapshot, changed, renewed)]
    assert "*" == joined(inviting(revoking(renewed))).hosts["h1"].record.bundles


@pytest.mark.case("F6")
def test_a_host_of_ca_issue_gets_a_pattern_and_still_renews_its_certificate() -> None:
    """A host without a recorded certificate could not be limited, or would be shut out by it."""
    limited = allowing(with_running(), "etl-*")
    renewed = applied(limited, hosts.renewal_ops(limited, facts(), "PEM2", facts("02"), "key-1"))

    assert ("etl-*", "02") == (renewed.hosts["h1"].record.bundles, renewed.hosts["h1"].record.serial)
    assert MembershipState.LIVE is hosts.host_view(limited.hosts["h1"].record, NOW).state
    assert error_of(lambda: inviting(limited)) == "host_exists"
    assert inviting(msgspec.structs.replace(limited, supervisors={})).invitations["h1"].record.key == ""


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (lambda: allowing(EMPTY, "etl-*"), "not_found"),
        (lambda: allowing(joined(inviting(role="master"), role=CertificateRole.MASTER), "x"), "invalid_request"),
        (lambda: inviting(role="master", bundles="etl-*"), "invalid_request"),
        (lambda: inviting(bundles="etl/*"), "invalid_pattern"),
    ],
    ids=["a host that nobody knows", "a master", "a master's invitation", "no pattern"],
)  # fmt: skip
def test_a_pattern_is_for_supervisors(work: Callable[[], object], code: str) -> None:
    """A master would seem to be limited, and is not; or a typing error would pass for a limit."""
    assert code == error_of(work)
