"""A process that is killed anywhere while it packs, writes or publishes leaves nothing wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import remove_wrong_packs, verify_content, verify_packs
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.arriving_files import ArrivingFiles
from torrentdist.bundle.packs.pack_files import read_pack, write_files, write_packs
from torrentdist.bundle.packs.pack_update import apply_update, make_update
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.store import Store
from torrentdist.testing.sample_trees import some_bytes, write_tree

TREE = {f"d{number % 5}/f{number:03}": some_bytes(900 + number, number) for number in range(120)}
NEXT = TREE | {"d3/f003": b"patched", "d1/new": b"new"}
KINDS = ("open", "rename", "unlink", "mkdir", "chmod", "symlink", "link")
"""The calls before which the process is killed."""
VICTIM = """
import json, os, sys
from pathlib import Path
from test_packs_crash import WAYS

how, top, kinds = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]

def attempt(data, nth):
    left = [nth]

    def counted(call):
        def act(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return call(*args, **options)
        return act

    def begin():
        for name in kinds:
            setattr(os, name, counted(getattr(os, name)))

    WAYS[how](top, data, begin)
    return nth - left[0]

def killed_at(data, nth):
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(into, str(attempt(data, nth)).encode())
        os._exit(0)
    os.close(into)
    _, status = os.waitpid(pid, 0)
    with open(out) as said:
        return os.waitstatus_to_exitcode(status), said.read()

steps = int(killed_at(top / "whole", 1_000_000)[1])
places = sorted({1 + number * steps // 7 for number in range(7)})
print(json.dumps({nth: killed_at(top / str(nth), nth)[0] for nth in places}))
"""
"""A program that forks for each attempt. The tests have threads, so they don't fork themselves."""


def bring(top: Path, data: Path, begin: Callable[[], None]) -> None:
    """Publishes `old` from its packs, as the swarm brings them."""
    meta = make_metafile(top / "old")
    begin()
    store = Store.open(data)
    if store.get(meta.digest) is None:
        home = store.begin(meta)
        write_packs(meta, top / "old", home)
        write_files(meta, home)
        store.publish(meta.digest)
    store.close()


def bring_by_update(top: Path, data: Path, begin: Callable[[], None]) -> None:
    """Publishes `new` by an update from `old`. What a killed process left is made from packs."""
    bring(top, data, lambda: None)
    old, meta = make_metafile(top / "old"), make_metafile(top / "new")
    raw = make_update(old, meta, lambda files: read_pack(top / "new", files)) or b""
    begin()
    store = Store.open(data)
    if store.get(meta.digest) is None:
        update = apply_update(raw, old, meta.digest)
        home = store.begin(update.meta)
        reuse = StoreReuse(store)
        reuse.may_link = True
        reuse.fill(update.meta, lambda: True, sent=update.files)
        remove_wrong_packs(meta, home)
        write_packs(meta, top / "new", home)
        write_files(update.meta, home)
        store.publish(meta.digest)
    store.close()


def bring_in_pieces(top: Path, data: Path, begin: Callable[[], None]) -> None:
    """Publishes `old` as the swarm brings it: half of its files while it arrives."""
    meta = make_metafile(top / "old")
    begin()
    store = Store.open(data)
    if store.get(meta.digest) is None:
        home = store.begin(meta)
        write_packs(meta, top / "old", home)
        files = ArrivingFiles(meta, home)
        files.write([number % 2 == 0 for number in range(meta.num_pieces)], lambda: True)
        files.write_rest()
        store.publish(meta.digest)
    store.close()


WAYS = {"bring": bring, "bring_by_update": bring_by_update, "bring_in_pieces": bring_in_pieces}


def killed_at_steps(how: str, top: Path) -> dict[int, int]:
    """Kills a process before each seventh of its steps, and returns the exit codes. Each has a
    store of its own, named after the step."""
    command = [sys.executable, "-c", VICTIM, how, str(top), *KINDS]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    return {int(nth): code for nth, code in json.loads(ran.stdout).items()}


@pytest.mark.case("N2")
@pytest.mark.parametrize("how", list(WAYS))
def test_a_process_that_dies_at_any_step_loses_and_publishes_nothing_wrong(tmp_path: Path, how: str) -> None:
    """A host that loses power would keep a bundle with files that nobody uploaded, or never finish
    it."""
    write_tree(tmp_path / "old", TREE)
    write_tree(tmp_path / "new", NEXT)
    metas = [make_metafile(tmp_path / name) for name in (["old", "new"] if how == "bring_by_update" else ["old"])]
    codes = killed_at_steps(how, tmp_path)
    ends = []
    for nth, code in codes.items():
        data = tmp_path / str(nth)
        WAYS[how](tmp_path, data, lambda: None)
        store = Store.open(data)
        homes = [store.object_dir(meta.digest) for meta in metas]
        damage = [
            [*verify_content(m, home / "content"), *verify_packs(m, home)] for m, home in zip(metas, homes, strict=True)
        ]
        ends.append((code, [store.get(meta.digest) is not None for meta in metas], damage))
        store.close()

    assert 7 == len(codes)
    assert [(9, [True] * len(metas), [[]] * len(metas))] * len(codes) == ends
    assert os.listdir(tmp_path / "whole" / "transit") == []
