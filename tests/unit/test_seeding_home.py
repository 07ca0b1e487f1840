"""Where an upload writes its packs, and what becomes of those that a killed one has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.client_peer import SEEDING, seeding_home
from torrentdist.client.storage import temporary_homes
from torrentdist.client.storage.temporary_homes import LEFT_SECS
from torrentdist.testing.sample_trees import some_bytes, write_tree


@pytest.fixture
def roomy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for large temporary files."""
    (tmp_path / "roomy").mkdir()
    monkeypatch.setattr(temporary_homes, "LARGE_PLACE", str(tmp_path / "roomy"))
    monkeypatch.delenv("TMPDIR", raising=False)
    return tmp_path / "roomy"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_tree(tmp_path / "source", {f"f{number:03}": some_bytes(900, number) for number in range(120)})
    return tmp_path / "source"


def test_packs_lie_where_there_is_room(roomy: Path, source: Path) -> None:
    """An upload of a large environment would fill /tmp, which is memory on many hosts."""
    with seeding_home(make_metafile(source), source) as home:
        where = home.parent, (home / "packs/00000").is_file()

    assert (roomy, True) == where
    assert [] == os.listdir(roomy)


def test_what_a_killed_upload_left_goes_and_what_a_running_one_uses_stays(roomy: Path, source: Path) -> None:
    """Each killed upload would take a quarter of its environment on the disk for ever, or an upload
    would remove what the user's other programs keep there."""
    (roomy / f"{SEEDING}left").mkdir()
    (roomy / "of-another-program").mkdir()
    meta = make_metafile(source)
    with seeding_home(meta, source) as running:
        for path in roomy.iterdir():
            os.utime(path, (0, path.stat().st_mtime - 2 * LEFT_SECS))
        with seeding_home(meta, source) as second:
            there = {path.name for path in roomy.iterdir()}

    assert {running.name, second.name, "of-another-program"} == there
