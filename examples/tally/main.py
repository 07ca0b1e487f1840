"""Counts the lines of this worker's share of a directory's files, and writes the result to its own
directory."""

import json
import os
import sys
from pathlib import Path

from tally import count_lines

worker, workers = int(os.environ["TORRENTDIST_WORKER"]), int(os.environ["TORRENTDIST_WORKERS"])
files = sorted(Path(sys.argv[1]).iterdir())[worker::workers]
counts = {path.name: count_lines(path) for path in files}
Path("counts.json").write_text(json.dumps(counts))
print(f"worker {worker} of {workers}: {counts}")
