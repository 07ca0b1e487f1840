"""What a hostile host writes about itself, in its registration and its announces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.records.registration import daemon_address, listens_at
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, HostEntry, ReadTree, updated
from torrentdist.cluster.session.znode_operations import Stat
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.ids import BundleId, PeerId, StoreId, SupervisorId, digest
from torrentdist.model.records import AssignmentRecord, SupervisorRecord, encode
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, Proof, Role, certificate_holder
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

pytestmark = pytest.mark.case("F6")

STAT = Stat(version=0, ephemeral_owner=1, mtime=1.0, created_zxid=1, modified_zxid=1)
SOUND = SupervisorRecord(
    id=SupervisorId("s"),
    host="10.0.0.2",
    gateway="http://127.0.0.1:7070",
    swarm_port=7000,
    store=StoreId("st"),
    version="1",
    slots=4,
    url="https://10.0.0.2:7071",
)
CERTIFIED = HostRecord(id="s", role="supervisor", addresses=("10.0.0.2", "h1.example"))
OWN, FOREIGN, UNKNOWN = digest("1" * 64), digest("2" * 64), digest("3" * 64)
NAMES = {OWN: [BundleId("own-1")], FOREIGN: [BundleId("secret-1")], UNKNOWN: []}


def registered(registration: bytes, host: HostRecord | None = CERTIFIED) -> SupervisorRecord | None:
    """Returns what a master reads of a registration."""
    nodes = {"/supervisors/s": registration} | ({} if host is None else {paths.host("s"): encode(host)})
    tree = ReadTree({path: (data, STAT) for path, data in nodes.items()})
    return updated(ClusterSnapshot(), tree, nodes, lambda path, error: None).supervisors.get(SupervisorId("s"))


def with_fields(fields: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(encode(SOUND)), **fields})


def test_a_registration_says_only_what_the_certificate_says() -> None:
    """Masters would hand the address of a stranger to every host, as a peer that has everything."""
    elsewhere = replace(SOUND, host="203.0.113.9", url="https://203.0.113.9:7071")

    assert SOUND == registered(encode(SOUND))
    assert replace(elsewhere, host="", url="") == registered(encode(elsewhere))
    assert elsewhere == registered(encode(elsewhere), None)  # hosts without certificates are trusted as a whole


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": -5},
        {"slots": 2**62},
        {"swarm_port": 70_000},
        {"host": "h" * 301},
        {"labels": {str(n): "x" for n in range(101)}},
        {"unknown": "x" * 900_000},
    ],
)
def test_a_registration_without_measure_is_no_registration(fields: Mapping[str, Any]) -> None:
    """One host could take all jobs, or the memory of every master and console."""
    assert registered(with_fields({})) is not None
    assert registered(with_fields(fields)) is None


@pytest.mark.parametrize("url", ["https://[10.0.0.2:7071", "https://10.0.0.2]/", "https://[h]:1"])
def test_a_registration_with_a_broken_url_stops_no_other_record(url: str) -> None:
    """One host could keep every master from all changes of records that come with its own."""
    nodes = {
        "/supervisors/s": with_fields({"url": url}), paths.host("s"): encode(CERTIFIED),
        "/supervisors/t": encode(replace(SOUND, id=SupervisorId("t"))),
    }  # fmt: skip
    tree = ReadTree({path: (data, STAT) for path, data in nodes.items()})
    found = updated(ClusterSnapshot(), tree, nodes, lambda path, error: None).supervisors

    assert {"s": "", "t": SOUND.url} == {id_: record.url for id_, record in found.items()}


def heard(principal: Principal, pattern: str = "") -> list[str]:
    """Returns the first digit of each swarm in which a master counts the sender, which claims to
    have everything."""
    entries = [SwarmEntry(digest=each, complete=True) for each in NAMES]
    snapshot = ClusterSnapshot(
        hosts={"s": HostEntry(replace(CERTIFIED, bundles=pattern), 0)},
        assignments={SupervisorId("s"): AssignmentEntry(AssignmentRecord(bundles=(BundleId("own-1"),)), 0, 0.0)},
    )
    announce = SwarmAnnounce(peer=PeerId("s"), role=PeerRole.SUPERVISOR, port=1, swarms=entries, stored=list(NAMES))
    bundles = HostBundles(lambda: snapshot, lambda each: NAMES[each])
    told = bundles.allowed(bundles.with_rights(principal), announce)
    assert [entry.digest for entry in told.swarms] == told.stored
    return [entry.digest[0] for entry in told.swarms]


def test_a_host_is_in_no_swarm_of_what_it_may_not_have() -> None:
    """A thief of the certificate of a limited host would claim to have a bundle, be dialled by its
    peers, and get every byte."""
    host = certificate_holder(CertificateIdentity("c", CertificateRole.SUPERVISOR, "s"))

    assert ["1"] == heard(host)
    assert ["1", "2", "3"] == heard(host, "*")


def test_a_person_is_in_no_swarm_of_what_it_may_not_read() -> None:
    """A reader of one bundle would be dialled by the peers of every other."""
    person = Principal("ann", Role.READER, Proof.TOKEN, reads=("own-*",))

    assert ["1", "3"] == heard(person)  # an uploader announces before anybody knows the bundle
    assert ["1", "2", "3"] == heard(TOKEN_HOLDER)


@pytest.mark.parametrize("gateway", ["http://[127.0.0.1:7070", "http://127.0.0.1:seven", "http://127.0.0.1:70700"])
def test_a_record_with_a_broken_address_tells_none(gateway: str) -> None:
    """A daemon whose id another one took would end at its start with `Invalid IPv6 URL`, instead
    of saying that the id is taken."""
    assert ("127.0.0.1", 7070) == daemon_address(SOUND)
    assert daemon_address(replace(SOUND, gateway=gateway)) is None


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["a..b", "x" * 70])
async def test_nobody_listens_at_what_is_no_host(host: str) -> None:
    """The same, with an error about an idna codec."""
    assert not await listens_at(host, 7070)
