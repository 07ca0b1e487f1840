"""`make engines`: runs the tests of this folder inside a lab, which ends with everything in it.

`python -m engines.ring [arguments of pytest]`. Ends with pytest's code, or with 75 where this
machine can't have such hosts.

Always: all files are below one directory, which goes when the ring ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.lab import namespaces as labs

CANNOT = 75
ROOT = Path(__file__).parent.parent.parent
RING = "tests/engines"
ON_S3 = ("tests/contract/test_s3_distributor.py", "tests/integration/test_object_upload.py")
"""Tests of other rings that use SeaweedFS where it is on the PATH."""
INSIDE_LAB = "TORRENTDIST_ENGINES"
"""The ring's directory. Set for tests that run inside the lab."""
TAKES_MB = 6000
OWN_FOLDERS = ("/srv", "/mnt", "/tmp")
"""Each host has its own, so what lies there is not seen by its processes."""
_TRY = "hostname engines && mount --bind /tmp /mnt && mount --bind /etc/hosts /etc/hosts && mount -t sysfs none /sys"


def why_not() -> str:
    """Returns why this machine can't have the engines' hosts; empty if it can."""
    missing = [tool for tool in ("java", "nsenter", "hostname", "mount") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} missing"
    if reason := labs.why_not():
        return reason
    for folder in OWN_FOLDERS:
        if ROOT.is_relative_to(folder):
            return f"the sources lie below {folder}, of which each host has its own"
    tried = subprocess.run(["unshare", "--mount", "--uts", "--net", "sh", "-c", _TRY], capture_output=True, text=True)
    if tried.returncode:
        return tried.stderr.strip()
    return "" if free_mb() >= TAKES_MB else f"less than {TAKES_MB} MB of memory are free"


def free_mb() -> int:
    """Returns how much memory programs can have that start now."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) // 1024


def main() -> int:
    if os.environ.get(labs.INSIDE):
        labs.enter("engines.ring", sys.argv[1:])
        return pytest.main(["-q", *sys.argv[1:], RING, *(ON_S3 if shutil.which("weed") else ())])
    if reason := why_not():
        print(f"engines: this machine can't have their hosts: {reason}", file=sys.stderr)
        return CANNOT
    directory = tempfile.mkdtemp(prefix="torrentdist-engines-")
    try:
        os.mkdir(f"{directory}/tmp")
        os.environ.update({INSIDE_LAB: directory, "TMPDIR": f"{directory}/tmp"})
        labs.enter("engines.ring", sys.argv[1:])  # ends this process with pytest's code
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
