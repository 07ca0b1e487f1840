"""What each user may do in ZooKeeper's tree, and how a tree is checked and repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from torrentdist.cluster.session.acl import TreeIdentity, check_tree, read_identity, repair_tree
from torrentdist.cluster.session.acl_table import OPEN, Acl, AclTable, digest_acl, is_theirs, sasl_acl
from torrentdist.model.access.zookeeper_identity import Credentials, derived
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

SECRET = "s" * 32
OWN = Credentials("masters", SECRET)
GRADED = AclTable(digest_acl(OWN), secret=SECRET)
READ, OWNS, WRITES = 1, 1 | 4 | 8, 1 | 2


def others(path: str, data: bytes = b"") -> dict[str, int]:
    """Returns what everybody but the masters may do at a znode, by the user's name."""
    own, *more = GRADED.of(path, data)
    assert digest_acl(OWN) == own
    for acl in more:
        user = acl.identity.partition(":")[0]
        assert digest_acl(derived(SECRET, user), acl.permissions) == acl
    return {acl.identity.partition(":")[0]: acl.permissions for acl in more}


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("/", b"", {}),
        ("/cluster", b"host-h1", {"readers": READ}),
        ("/epoch", b"", {"readers": READ}),
        ("/masters", b"", {"readers": READ}),
        ("/masters/m1", b"", {"readers": READ}),
        ("/masters/m1/x", b"", {}),
        ("/assignments", b"", {}),
        ("/assignments/h1", b"", {"readers": READ}),
        ("/removals", b"", {"readers": READ}),
        ("/removals/h1", b"", {}),
        ("/places/h1", b"host-h1", {"host-h1": OWNS}),
        ("/places/h1", b"", {}),
        ("/places/h1/place", b"host-h1", {}),
        ("/tokens/ann", b"host-h1", {}),
        ("/groups", b"", {"readers": READ}),
        ("/groups/jobs", b"", {}),
        ("/groups/jobs/members", b"", {}),
        ("/groups/jobs/members/j1", b"host-h1", {"host-h1": OWNS}),
        ("/groups/jobs/barriers/j1", b"host-h1", {"readers": READ, "host-h1": OWNS}),
        ("/groups/jobs/status", b"", {}),
        ("/groups/web", b"", {"group-web": WRITES}),
        ("/groups/web/members", b"", {"group-web": OWNS}),
        ("/groups/web/barriers", b"", {"group-web": OWNS}),
        ("/groups/web/stopped", b"", {"group-web": OWNS}),
        ("/groups/web/status", b"", {"group-web": WRITES}),
        ("/groups/web/plan", b"", {"group-web": WRITES}),
        ("/groups/web/epoch", b"", {"group-web": WRITES}),
        ("/groups/web/resources", b"", {"group-web": READ}),
        ("/groups/web/other", b"", {}),
    ],
)
def test_others_may_do_what_the_table_says(path: str, data: bytes, expected: dict[str, int]) -> None:
    """A stolen host changes what others run, or a group's members do not find each other."""
    assert expected == others(path, data)


@pytest.mark.parametrize(
    ("path", "is_of_a_host"),
    [
        ("/places/h1", False),
        ("/places/h1/place", True),
        ("/groups/jobs/members/j1", False),
        ("/groups/jobs/members/j1/w1", True),
        ("/groups/jobs/barriers/j1", False),
        ("/groups/jobs/barriers/j1/w1", True),
        ("/groups/jobs/status/x", False),
        ("/groups/web/members", False),
        ("/groups/web/members/m", True),
        ("/groups/web/barriers/b/m", True),
        ("/groups/web/stopped/m", True),
        ("/groups/web/status/x", False),
        ("/masters/m1", False),
    ],
)
def test_the_masters_judge_what_is_theirs(path: str, is_of_a_host: bool) -> None:
    """A cluster whose hosts register is called open, or a znode that a host opened to all is
    overlooked."""
    closed = AclTable(digest_acl(OWN))

    assert (is_of_a_host, not is_of_a_host, True) == (is_theirs(path), GRADED.judges(path), closed.judges(path))


def test_only_what_names_its_holder_depends_on_its_data() -> None:
    """A check reads every record of a cluster, or takes a host's own znode for a stranger's."""
    paths = ["/places/h1", "/groups/jobs/members/j1", "/groups/jobs/barriers/j1", "/groups/web", "/masters/m1"]

    assert [True, True, True, False, False] == [GRADED.depends_on_data(path) for path in paths]
    assert not AclTable(digest_acl(OWN)).depends_on_data("/places/h1")


def test_a_table_without_identities_is_the_same_everywhere() -> None:
    """What a host creates is closed to those who read it."""
    also = digest_acl(Credentials("readers", "r"), 1)
    table = AclTable(digest_acl(OWN), (also,))

    assert {(digest_acl(OWN), also)} == {table.of(path, b"host-h1") for path in ("/cluster", "/places/h1")}
    assert (False, False, True) == (table.is_graded, table.is_open, AclTable(OPEN).is_open)


def identity(tmp_path: Path, text: str, *, sasl: bool = False, identities: bool = False) -> TreeIdentity:
    path = tmp_path / "auth"
    path.write_text(text)
    path.chmod(0o600)
    return read_identity(ZooKeeperConfig(auth_file=str(path), sasl=sasl, identities=identities))


def test_an_auth_file_says_who_we_are(tmp_path: Path) -> None:
    """A daemon shows the wrong name to ZooKeeper, or gives strangers what it creates."""
    host = f"host-h1:h\nother:o\nreaders:r\nreaders:{SECRET}\n"
    readers = Credentials("readers", "r")
    graded = identity(tmp_path, f"masters:{SECRET}\nreaders:r\n", identities=True)
    one = identity(tmp_path, "host-h1:h\n")
    many = identity(tmp_path, host)

    assert TreeIdentity(GRADED, (OWN, derived(SECRET, "readers"))) == graded
    assert TreeIdentity(AclTable(digest_acl(Credentials("host-h1", "h"))), (Credentials("host-h1", "h"),)) == one
    assert (Credentials("host-h1", "h"), readers) == many.credentials
    assert (digest_acl(readers, READ),) == many.table.also
    assert ("h1", "host-h1", "", "") == (many.host, many.host_user, one.host_user, graded.host_user)


def test_a_ticket_of_kerberos_names_its_user_alone(tmp_path: Path) -> None:
    """A cluster with SASL locks itself out of its own tree."""
    found = identity(tmp_path, "td:pw\nreaders:r\n", sasl=True)

    assert TreeIdentity(AclTable(sasl_acl(Credentials("td", "pw"))), (Credentials("td", "pw"),)) == found
    assert Acl("sasl", "td", 31) == found.table.own


def test_identities_need_a_secret_that_nobody_guesses(tmp_path: Path) -> None:
    """A host guesses the masters' password from its own, and takes the cluster."""
    identity(tmp_path, f"masters:{SECRET}", identities=True)
    with pytest.raises(TorrentdistError) as short:
        identity(tmp_path, f"masters:{SECRET[1:]}", identities=True)
    with pytest.raises(TorrentdistError) as missing:
        read_identity(ZooKeeperConfig(identities=True))

    assert ("secret_invalid", "config_missing") == (short.value.code, missing.value.code)
    assert TreeIdentity(AclTable(OPEN)) == read_identity(ZooKeeperConfig())


class Tree:
    """A tree in memory, as ZooKeeper would show it."""

    def __init__(self, identity: TreeIdentity, nodes: dict[str, tuple[bytes, list[Acl]]]) -> None:
        self.identity = identity
        self.nodes = nodes
        self.secured: dict[str, list[Acl]] = {}
        self.at_once = 0
        self.most_at_once = 0

    async def get(self, path: str) -> tuple[bytes, object] | None:
        found = self.nodes.get(path)
        return None if found is None else (found[0], None)

    async def children(self, path: str) -> list[str] | None:
        inside = path.rstrip("/") + "/"
        below = [other.removeprefix(inside) for other in self.nodes if other.startswith(inside) and other != "/"]
        return sorted((name for name in below if "/" not in name), reverse=True) if path in self.nodes else None

    async def acls(self, path: str) -> list[Acl] | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        found = self.nodes.get(path)
        return None if found is None else found[1]

    async def secure(self, path: str, acls: Sequence[Acl]) -> None:
        self.secured[path] = list(acls)


def tree(table: AclTable = GRADED, **wrong: list[Acl]) -> Tree:
    """Returns a tree whose ACLs are right, but for those given."""
    paths = ("/", "/cluster", "/places", "/places/h1", "/places/h1/own", "/tokens", "/tokens/ann", "/tokens/bob")
    data = {"/places/h1": b"host-h1"}
    nodes = {path: (data.get(path, b""), list(table.of(path, data.get(path, b"")))) for path in paths}
    for name, acls in wrong.items():
        nodes["/" + name.replace("_", "/")] = (nodes["/" + name.replace("_", "/")][0], acls)
    return Tree(TreeIdentity(table), nodes)


def test_a_tree_is_whole_or_the_first_flaw_is_named() -> None:
    """A tree that everybody may write to passes for a closed one."""
    asyncio.run(check_tree(tree()))
    asyncio.run(check_tree(tree(places_h1_own=[OPEN])))
    with pytest.raises(TorrentdistError) as caught:
        asyncio.run(check_tree(tree(tokens_bob=[OPEN], tokens_ann=[digest_acl(OWN), OPEN])))

    assert "acl_mismatch" == caught.value.code
    assert ("/tokens/ann", "it grants world:anyone") == (caught.value.fields["path"], caught.value.fields["detail"])


def test_a_place_that_its_host_has_lost_is_no_flaw() -> None:
    """No master starts again if all end while a host that was shut out loses its place."""
    asyncio.run(check_tree(tree(places_h1=[digest_acl(OWN)])))
    places = [tree(places_h1=acls) for acls in ([], [digest_acl(OWN, READ)], [OPEN], [digest_acl(OWN), OPEN])]
    for wrong in (*places, tree(cluster=[digest_acl(OWN)])):
        with pytest.raises(TorrentdistError):
            asyncio.run(check_tree(wrong))


def test_an_open_tree_has_nothing_to_check() -> None:
    """A cluster without credentials never starts."""
    asyncio.run(check_tree(tree(AclTable(OPEN), cluster=[digest_acl(OWN)])))


def test_a_repair_sets_what_is_wrong_and_nothing_else() -> None:
    """A repair leaves a znode open, or takes a host its own place."""
    broken = tree(cluster=[OPEN], places_h1=[digest_acl(OWN)], places_h1_own=[OPEN])
    mended = asyncio.run(repair_tree(broken))

    assert 2 == mended
    assert {"/cluster": list(GRADED.of("/cluster")), "/places/h1": list(GRADED.of("/places/h1", b"host-h1"))} == (
        broken.secured
    )


@pytest.mark.parametrize("becomes", [None, b"host-h2"])
def test_what_changes_while_it_is_looked_at_is_no_flaw(becomes: bytes | None) -> None:
    """A master does not start, or a repair takes a barrier from its holder, because a worker moved
    at that moment."""

    class Moving(Tree):
        async def acls(self, path: str) -> list[Acl] | None:
            found = await super().acls(path)
            if path == "/places/h1" and becomes is None:
                self.nodes.pop(path, None)
            elif path == "/places/h1" and becomes is not None:
                self.nodes[path] = (becomes, list(GRADED.of(path, becomes)))
            return found

    for walk in (check_tree, repair_tree):
        moving = Moving(TreeIdentity(GRADED), tree().nodes)
        asyncio.run(walk(moving))

        assert {} == moving.secured


def test_a_large_tree_is_read_a_part_at_a_time() -> None:
    """The check of a large cluster floods ZooKeeper with requests."""
    large = tree()
    large.nodes |= {f"/tokens/t{number}": (b"", list(GRADED.of("/tokens/t"))) for number in range(200)}
    asyncio.run(check_tree(large))

    assert 64 == large.most_at_once
