"""A process that is killed anywhere while it packs, writes or publishes leaves nothing wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import verify_content, verify_packs
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_files, write_packs
from torrentdist.bundle.store.store import Store
from torrentdist.testing.sample_trees import some_bytes, write_tree

TREE = {f"d{number % 5}/f{number:03}": some_bytes(900 + number, number) for number in range(120)}
KINDS = ("open", "rename", "unlink", "mkdir", "chmod", "symlink")
"""The calls before which the process is killed."""
VICTIM = """
import os, sys
from pathlib import Path
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_files, write_packs
from torrentdist.bundle.store.store import Store

source, data, nth, kinds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
meta = make_metafile(source)
left = [nth]

def counted(call):
    def act(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)
        return call(*args, **options)
    return act

for kind in kinds:
    setattr(os, kind, counted(getattr(os, kind)))
store = Store.open(data)
home = store.begin(meta)
write_packs(meta, source, home)
write_files(meta, home)
store.publish(meta.digest)
print(nth - left[0])
"""


def killed_at(source: Path, data: Path, nth: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", VICTIM, str(source), str(data), str(nth), *KINDS]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.case("N2")
def test_a_process_that_dies_at_any_step_loses_and_publishes_nothing_wrong(tmp_path: Path) -> None:
    """A host that loses power would keep a bundle with files that nobody uploaded, or never finish
    it. Each step takes a process of its own."""
    source = tmp_path / "source"
    write_tree(source, TREE)
    meta = make_metafile(source)
    steps = int(killed_at(source, tmp_path / "whole", 1_000_000).stdout)
    places = sorted({1 + number * steps // 8 for number in range(8)})
    ends = []
    for nth in places:
        data = tmp_path / str(nth)
        code = killed_at(source, data, nth).returncode
        store = Store.open(data)
        if store.get(meta.digest) is None:
            home = store.begin(meta)
            write_packs(meta, source, home)
            write_files(meta, home)
            store.publish(meta.digest)
        home = store.object_dir(meta.digest)
        ends.append((code, verify_content(meta, home / "content"), verify_packs(meta, home)))
        store.close()

    assert [(9, [], [])] * len(places) == ends
    assert os.listdir(tmp_path / "whole" / "transit") == []
