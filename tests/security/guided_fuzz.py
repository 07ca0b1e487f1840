"""Coverage-guided inputs of every format that comes from outside: `make fuzz` runs this where
atheris is installed. Each format gets a process of its own, for a given time.

Always: an input that crashes, takes over a second or takes too much memory ends the process with an
error, and is written beside the corpus. It then becomes a test in test_fuzz.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["torrentdist"]):
    from security import test_fuzz

MOST_MIB = 1024
"""Memory of one process, libFuzzer's and Python's own included."""


def formats(directory: Path) -> dict[str, tuple[Callable[[bytes], None], list[bytes]]]:
    """Returns what reads each format, and good inputs of it. `directory` is for files that are
    read."""
    metafile = test_fuzz.made_metafile(directory / "source")
    return {
        "metafiles": (test_fuzz.try_metafile, [metafile]),
        "bencode": (test_fuzz.try_bencode, [b"d1:ali1e2:bcd1:xi-5eee1:bi0ee"]),
        "queries": (test_fuzz.try_query, [test_fuzz.QUERY]),
        "announces": (test_fuzz.try_announce, [test_fuzz.ANNOUNCE]),
        "requests": (test_fuzz.try_request, [test_fuzz.HEAD]),
        "answers": (test_fuzz.try_answer, [test_fuzz.ANSWER]),
        "events": (lambda raw: test_fuzz.try_events(directory, raw), [test_fuzz.EVENT]),
        "jobs": (test_fuzz.try_job, [test_fuzz.JOB]),
    }


def _fuzz(name: str, directory: Path, seconds: int) -> None:
    """Tries one format in this process, and never returns."""
    work, good = formats(directory)[name]
    corpus = directory / "corpus"
    corpus.mkdir()
    for number, data in enumerate(good):
        (corpus / f"good-{number}").write_bytes(data)
    options = [f"-max_total_time={seconds}", "-timeout=2", f"-rss_limit_mb={MOST_MIB}", "-print_final_stats=1"]
    options.append(f"-artifact_prefix={directory}/found-")
    atheris.Setup([sys.argv[0], *options, str(corpus)], work)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secs", type=int, default=60, help="seconds for each format")
    parser.add_argument("--format", help="only this one, in this process")
    args = parser.parse_args()
    if args.format:
        _fuzz(args.format, Path(tempfile.mkdtemp(prefix=f"torrentdist-fuzz-{args.format}-")), args.secs)
    with tempfile.TemporaryDirectory() as directory:
        names = list(formats(Path(directory)))
    print(f"guided: {len(names)} formats, {args.secs} s each: {len(names) * args.secs // 60 + 1} minutes", flush=True)
    command = [sys.executable, __file__, "--secs", str(args.secs), "--format"]
    failed = [name for name in names if subprocess.run([*command, name], check=False).returncode]
    print(f"guided: found something in {', '.join(failed)}" if failed else "guided: found nothing", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
