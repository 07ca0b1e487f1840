"""A store survives being killed before any single change that it makes on disk.

This file is also the program that gets killed. A forked child takes a store through all its
operations and kills itself before its Nth change on disk. The test opens what is left and judges
it. N rises until a child survives.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.model.ids import BundleId, Digest

CHANGES = {
    *("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.link"),
    *("os.chmod", "os.utime", "os.truncate", "open"),
}
NAME = BundleId("etl-1")


def is_change(event: str, args: tuple[object, ...]) -> bool:
    if event != "open":
        return event in CHANGES
    flags = args[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def kill_before_change(number: int) -> None:
    """Kills this process with SIGKILL right before its `number`th change on disk from now on."""
    left = number

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if is_change(event, args):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


class Scene:
    """Four bundles: kept and damaged are published, given up and new are not."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.kept, self.damaged, self.given_up, self.new = (
            self._make(name) for name in ("kept", "damaged", "given up", "new")
        )
        store = Store.open(top / "base")
        for meta in (self.kept, self.damaged):
            self._fill(store, meta)
            store.publish(meta.digest)
        self._fill(store, self.given_up)
        store.close()

    def _make(self, name: str) -> Metafile:
        folder = self.top / "sources" / name
        (folder / "empty").mkdir(parents=True)
        (folder / "a").write_bytes(name.encode() * 100)
        (folder / "b").symlink_to("a")
        return make_metafile(folder)

    def _fill(self, store: Store, meta: Metafile) -> None:
        if store.get(meta.digest):
            return
        [name] = [path for path in (self.top / "sources").iterdir() if make_metafile(path).digest == meta.digest]
        shutil.copyfile(name / "a", store.begin(meta) / "content" / "a")

    def play(self, store: Store) -> list[tuple[str, Callable[[], object]]]:
        """Returns all operations of a store, step by step. Each may be repeated."""
        return [
            ("discard", lambda: store.discard(self.kept.digest)),
            ("set aside", lambda: store.set_aside(self.damaged.digest, "a test")),
            ("begin again", lambda: self._fill(store, self.damaged)),
            ("publish again", lambda: store.publish(self.damaged.digest)),
            ("abandon", lambda: store.abandon(self.given_up.digest)),
            ("begin", lambda: self._fill(store, self.new)),
            ("bind", lambda: store.bind(NAME, self.new.digest)),
            ("pin", lambda: store.pin(self.new.digest)),
            ("publish", lambda: store.publish(self.new.digest)),
        ]

    def judge(self, store: Store, done: list[str]) -> list[str]:
        """Returns what is wrong after the steps in `done` were completed, and perhaps half of
        another one."""
        published, arriving = store.published(), store.arriving()
        faults = [f"{d} is published and damaged" for d in published if store.verify(d) or store.check_quick(d)]
        faults += [f"{path} is left over" for path in (store.data_dir / "transit").iterdir()]
        faults += [f"{path} is torn" for path in store.data_dir.glob(".*")]
        faults += [f"{d} is published and arriving" for d in arriving if d in published]
        faults += [f"{d} is arriving without a metafile" for d in arriving if store.metafile(d) is None]
        links = {path.name for path in (store.data_dir / "bundles").iterdir()}
        objects = {path.name for path in (store.data_dir / "objects").iterdir()}
        if links != set(published) or objects != {*published, *arriving}:
            faults.append("the directories and the answers differ")

        def place(meta: Metafile) -> str:
            d: Digest = meta.digest
            return "published" if d in published else "arriving" if d in arriving else "gone"

        expected = {
            "kept": (place(self.kept), {"gone"} if "discard" in done else {"gone", "published"}),
            "damaged": (
                place(self.damaged),
                {"published"} if "publish again" in done else {"arriving", "published"},
            ),
            "given up": (place(self.given_up), {"gone"} if "abandon" in done else {"arriving", "gone"}),
            "new": (
                place(self.new),
                {"published"}
                if "publish" in done
                else {"arriving", "published"}
                if "begin" in done
                else {"gone", "arriving"},
            ),
        }
        faults += [f"{name} is {found}" for name, (found, allowed) in expected.items() if found not in allowed]
        if "bind" in done and store.lookup(NAME) != self.new.digest:
            faults.append("the name is lost")
        if "pin" in done and "publish" in done and not published[self.new.digest].pinned:
            faults.append("the pin is lost")
        return faults

    def attempt(self, number: int) -> tuple[bool, list[str]]:
        """Returns whether a child survived that was to die before change `number`, and what is
        wrong with what it left."""
        data = self.top / f"try-{number}"
        shutil.copytree(self.top / "base", data, symlinks=True)
        progress = self.top / f"progress-{number}"
        progress.touch()
        pid = os.fork()
        if pid == 0:
            self._die_playing(data, progress, number)
        _, status = os.waitpid(pid, 0)
        done = progress.read_text().splitlines()
        store = Store.open(data, lock_wait=0)
        faults = self.judge(store, done)
        for _, step in self.play(store):
            step()
        everything = [name for name, _ in self.play(store)]
        faults += [f"after a second run {fault}" for fault in self.judge(store, everything)]
        store.close()
        shutil.rmtree(data)
        return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, [f"{number} after {done}: {f}" for f in faults]

    def _die_playing(self, data: Path, progress: Path, number: int) -> None:
        code = 1
        try:
            fd = os.open(progress, os.O_WRONLY | os.O_APPEND)
            kill_before_change(number)
            store = Store.open(data, lock_wait=0)
            for name, step in self.play(store):
                step()
                os.write(fd, f"{name}\n".encode())
            store.close()
            code = 0
        finally:
            os._exit(code)

    def trace_publish(self) -> list[str]:
        """Returns the changes of a publication in their order, with the files that were opened for
        a sync."""
        store = Store.open(self.top / "base")
        events: list[str] = []

        def note(event: str, args: tuple[object, ...]) -> None:
            paths = [Path(os.fsdecode(arg)) for arg in args if isinstance(arg, str | bytes | Path)]
            if is_change(event, args):
                events.append(f"{event} in {paths[0 if event == 'open' else -1].parent.name}")
            elif event == "open" and paths[0].is_dir():
                events.append(f"sync {paths[0].name}")

        sys.addaudithook(note)
        store.publish(self.given_up.digest)
        return list(events)


def main(mode: str, where: str) -> None:
    with tempfile.TemporaryDirectory(dir=where) as top:
        scene = Scene(Path(top))
        if mode == "trace":
            print(json.dumps({"events": scene.trace_publish(), "digest": scene.given_up.digest}))
            return
        faults: list[str] = []
        number, survived = 0, False
        while not survived and number < 1000:
            number += 1
            survived, found = scene.attempt(number)
            faults += found
        print(json.dumps({"changes": number - 1, "faults": faults}))


def run_this(mode: str, where: Path) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, __file__, mode, str(where)], capture_output=True, check=False, text=True, timeout=120
    )
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_store_survives_a_kill_before_any_change_on_disk(tmp_path: Path) -> None:
    """A crash would publish half a bundle, lose a bundle or a name, resurrect what was removed, or
    leave its bytes."""
    found = run_this("kill", tmp_path)

    assert found["faults"] == []
    assert 50 < found["changes"] < 1000


def test_publish_syncs_every_byte_before_the_link_and_the_link_at_last(tmp_path: Path) -> None:
    """After a power failure the link of a bundle could be there and its bytes not, or a published
    bundle be gone."""
    found = run_this("trace", tmp_path)

    assert [
        f"sync {found['digest']}",
        "os.symlink in transit",
        "os.rename in bundles",
        "sync bundles",
    ] == found["events"][-4:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
