"""The references of the bench: bare libtorrent as a process for each peer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.stage import BARE, ON_LOOPBACK, bare_fetch, bare_seeder
from torrentdist.bundle.metafile_maker import make_metafile

SIZE = 3 * 1024 * 1024


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Writes a bundle's content, and returns its metafile beside it."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content/a").write_bytes(os.urandom(SIZE))
    (tmp_path / "content/b").write_bytes(b"b")  # libtorrent reads a directory with a single file as that file
    (tmp_path / "metafile").write_bytes(make_metafile(tmp_path / "content").raw)
    return tmp_path / "metafile"


def test_a_reference_fetches_what_another_one_seeds(bundle: Path, tmp_path: Path) -> None:
    """If this fails, `make bench` compares us with a program that does not run."""
    with bare_seeder(bundle, bundle.parent) as port:
        bare_fetch(bundle, tmp_path / "fetched", port)

    assert (bundle.parent / "content/a").read_bytes() == (tmp_path / "fetched/content/a").read_bytes()


@pytest.mark.parametrize("kind", ["tuned", "loopback:max_allowed_in_request_queue=4"])
def test_a_reference_of_the_lab_begins_on_a_signal_and_says_when_it_is_done(bundle: Path, kind: str) -> None:
    """If this fails, a broadcast in the lab has no reference, or times it wrongly."""
    fetched = bundle.parent / "fetched"
    command = [sys.executable, str(BARE), "wait", kind, str(bundle), str(fetched), ON_LOOPBACK]
    with (
        bare_seeder(bundle, bundle.parent) as port,
        subprocess.Popen([*command, f"127.0.0.1:{port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting,
    ):
        assert waiting.stdout is not None
        first = waiting.stdout.readline()
        begun = (fetched / "content").exists()
        try:
            waiting.communicate(b"go\n", timeout=60)
        finally:
            waiting.kill()

        assert (b"ready\n", False) == (first, begun)
    assert (fetched / "done").exists()
    assert (bundle.parent / "content/a").read_bytes() == (fetched / "content/a").read_bytes()
