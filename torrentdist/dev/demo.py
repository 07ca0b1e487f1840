"""`make demo`: the whole way of a bundle on this machine, by the commands that a user would type.

Always holds: nothing is left running and nothing is left on disk, also after a failure or Ctrl-C.
"""

from __future__ import annotations

import filecmp
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torrentdist.dev.cluster import DevCluster, DevSpec
from torrentdist.model.errors import TorrentdistError

DATA_BYTES = 24 * 1024 * 1024


def make_sample(directory: Path) -> Path:
    """A bundle as a job author would have one: code, something executable, data, a link, an empty directory."""
    bundle = directory / "wordcount"
    (bundle / "lib").mkdir(parents=True)
    (bundle / "scratch").mkdir()
    (bundle / "main.py").write_text('print("counting words")\n')
    (bundle / "lib" / "words.py").write_text("def count(text: str) -> int:\n    return len(text.split())\n")
    (bundle / "run.sh").write_text('#!/bin/sh\nexec python3 "$(dirname "$0")/main.py"\n')
    (bundle / "run.sh").chmod(0o755)
    (bundle / "latest").symlink_to("main.py")
    (bundle / "corpus.bin").write_bytes(random.Random(7).randbytes(DATA_BYTES))
    return bundle


def torrentdist(cluster: DevCluster, *arguments: str) -> None:
    """Show a command as one would type it, and run it."""
    print(f"\n$ torrentdist {shlex.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "torrentdist_cli", "--config", str(cluster.dir / "client.toml"), *arguments]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise SystemExit(code)


def tour(cluster: DevCluster, home: Path) -> None:
    bundle = make_sample(home)
    copy = home / "copy"
    torrentdist(cluster, "cluster")
    torrentdist(cluster, "upload", str(bundle), "--id", "wordcount-1", "--min-replicas", "3")
    torrentdist(cluster, "bundle", "distribute", "wordcount-1", "--wait", "100%")
    torrentdist(cluster, "download", "wordcount-1", str(copy))
    torrentdist(cluster, "download", "--no-supervisor", "wordcount-1", str(home / "as-a-peer"))
    torrentdist(cluster, "bundle", "show", "wordcount-1")
    torrentdist(cluster, "bundle", "verify", "wordcount-1", str(copy))
    differing = filecmp.dircmp(bundle, copy).diff_files
    if differing:
        raise SystemExit(f"the copy differs in {differing}")


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torrentdist-demo-") as home:
        os.environ.setdefault("XDG_CACHE_HOME", f"{home}/cache")
        cluster = DevCluster(DevSpec(dir=Path(home) / "cluster"))
        print("$ torrentdist dev up", flush=True)
        try:
            cluster.up(say=lambda text: print(text, flush=True))
            tour(cluster, Path(home))
        except TorrentdistError as error:
            print(f"error[{error.code}]: {error.message}\nhint: {error.hint}", file=sys.stderr)
            return error.exit_code
        finally:
            print("\n$ torrentdist dev down", flush=True)
            cluster.down()
    print(f"everything is stopped and cleaned up after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
