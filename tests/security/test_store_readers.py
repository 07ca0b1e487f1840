"""The users of a host that read the bundles of its supervisor as files."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_site import as_root, as_user

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.bundle.store.store_readers import admit_readers, readers_of
from torrentdist.launcher.privileges import User
from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.gateway_calls import is_readable

pytestmark = [as_root, pytest.mark.case("I3")]
DAEMON, STRANGER, READERS, SHIPPERS = 61002, 61001, 61003, 61004


@pytest.fixture
def home() -> Iterator[Path]:
    """A supervisor's data directory with a bundle, where every user can get to."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    top.chmod(0o755)
    (top / "source").mkdir()
    (top / "source" / "data").write_bytes(b"secret" * 100)
    meta = make_metafile(top / "source")
    store = Store.open(top / "home")
    content = store.begin(meta) / "content"
    shutil.copytree(top / "source", content, dirs_exist_ok=True)
    store.publish(meta.digest)
    store.bind("etl-1", meta.digest)  # type: ignore[arg-type]
    (top / "home" / "events").mkdir()
    for folder, folders, files in os.walk(top / "home"):
        for name in (".", *folders, *files):
            os.chown(os.path.join(folder, name), DAEMON, SHIPPERS, follow_symlinks=False)
    yield top / "home"
    store.close()
    shutil.rmtree(top)


def can_read(home: Path, user: int, group: int, *names: str) -> list[bool]:
    """What `bundle_path` asks, in a process of this user."""
    found = as_user(User(user, group), lambda: sum(is_readable(home / name) << at for at, name in enumerate(names)))
    return [bool(found >> at & 1) for at in range(len(names))]


@pytest.mark.parametrize(
    ("readable_by", "stranger", "member"),
    [("owner", False, False), (f"group {READERS}", False, True), ("everyone", True, True)],
)
def test_those_read_bundles_whom_the_setting_names(home: Path, readable_by: str, stranger: bool, member: bool) -> None:
    """Any user of a supervisor's host could read every bundle, also what was 0600 in the uploader's
    directory."""
    home.chmod(0o755)  # as an earlier release had it
    admit_readers(home, readable_by)
    [link] = (home / "bundles").iterdir()
    content = f"bundles/{link.name}/content"
    found = [can_read(home, STRANGER, group, content) for group in (STRANGER, READERS, SHIPPERS)]
    others = can_read(home, STRANGER, READERS, "catalog.log", "transit", "events")

    assert [[stranger], [member], [stranger]] == found
    assert [False] * 3 == others
    assert can_read(home, DAEMON, DAEMON, content)[0]
    assert can_read(home, STRANGER, SHIPPERS, "events")[0]
    assert readable_by == readers_of(home)


def test_a_group_that_is_not_there_is_refused(home: Path) -> None:
    """A supervisor with a misspelt group would start, and executors would find their bundles
    closed."""
    with pytest.raises(TorrentdistError, match=r"store\.readable_by.*no group nobody-has-this"):
        admit_readers(home, "group nobody-has-this")
