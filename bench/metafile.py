"""How long making a metafile takes, against libtorrent's own hashing of the same file, in one run.

Each pair reads a file that is in the page cache; the first of the two alternates. Prints one JSON line: medians in
seconds, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import libtorrent as lt

from torrentdist.bundle.make import choose_piece_length, make_metafile

MIB = 1024 * 1024


def write_random(path: Path, mib: int) -> None:
    with path.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(MIB))


def reference(path: Path) -> None:
    create = lt.create_torrent(
        lt.list_files(str(path)), choose_piece_length(path.stat().st_size), lt.create_torrent.v2_only
    )
    lt.set_piece_hashes(create, str(path.parent))
    create.generate()


def ours(path: Path) -> None:
    make_metafile(path)


def seconds(function: Callable[[Path], None], path: Path) -> float:
    start = time.perf_counter()
    function(path)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None, help="where the file is written")
    args = parser.parse_args()
    taken: dict[str, list[float]] = {"ours": [], "reference": []}
    with tempfile.TemporaryDirectory(dir=args.dir) as directory:
        path = Path(directory) / "data.bin"
        write_random(path, args.mib)
        pair = [("ours", ours), ("reference", reference)]
        for _ in range(args.runs):
            for name, function in pair:
                taken[name].append(seconds(function, path))
            pair.reverse()
    medians = {name: statistics.median(times) for name, times in taken.items()}
    result = {"what": "metafile", "mib": args.mib, "runs": args.runs}
    result |= {name: round(median, 4) for name, median in medians.items()}
    print(json.dumps(result | {"ratio": round(medians["ours"] / medians["reference"], 3)}))


if __name__ == "__main__":
    main()
