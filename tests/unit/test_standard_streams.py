"""Output that cannot be written ends no process, and is counted: closed streams, a full device, a
reader that stops reading."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.standard_streams import LossyOutput

pytestmark = pytest.mark.case("G6")
TORRENTDIST = f"{sys.executable} -m torrentdist_cli"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", "2> >(exec true)"])
@pytest.mark.parametrize(("command", "code"), [("config show api.port -q", 0), ("config show no.such.key", 2)])
def test_a_command_ends_with_its_own_code(closed: str, command: str, code: int) -> None:
    """If this fails, a command that has done its work exits with 1 and tracebacks, because its
    output is closed."""
    ran = shell(f"{TORRENTDIST} {command} {closed}")

    assert code == ran.returncode
    assert "Traceback" not in ran.stdout + ran.stderr
    assert ran.stdout == ("" if ">&-" in closed.split() or code else "7060\n")


def test_data_that_the_output_does_not_take_is_an_error() -> None:
    """If this failed, a script would take a full disk for success, or be shown a traceback."""
    ran = shell(f"{TORRENTDIST} config show > /dev/full")

    assert ran.returncode == 8
    assert ran.stderr.startswith("error[disk_error]")
    assert "Traceback" not in ran.stderr


def test_a_reader_that_wants_one_line_gets_it() -> None:
    """If this fails, `torrentdist ... | head -1` shows a traceback."""
    ran = shell(f"{TORRENTDIST} config show 2>&1 | head -1")

    assert len(ran.stdout.splitlines()) == 1
    assert (0, "") == (ran.returncode, ran.stderr)


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """If this fails, the first file that a command opens becomes its stderr, and a message is
    written into it."""
    program = (
        "from torrentdist.standard_streams import protect_streams; protect_streams();"
        f"kept = open({str(tmp_path / 'kept')!r}, 'w'); assert kept.fileno() > 2, kept.fileno();"
        "import os; os.write(2, b'a warning of some library')"
    )
    ran = shell(f'{sys.executable} -c "{program}" <&- >&- 2>&-')

    assert ran.returncode == 0
    assert (tmp_path / "kept").read_bytes() == b""


def test_who_reads_again_is_told_how_much_is_missing() -> None:
    """If this fails, an event loop stands still while a user reads the log page by page, or lines
    vanish without a count."""
    reading, writing = os.pipe()
    output = LossyOutput(writing)
    output.patience_ms = 0
    line = b"x" * 1023 + b"\n"
    for _ in range(1000):
        output.write(line)
    lost = output.dropped
    got = os.read(reading, 1 << 20)
    output.write(b"again\n")
    rest = os.read(reading, 1 << 20).splitlines()
    os.close(reading)
    output.write(b"nobody reads this\n")
    os.close(writing)

    assert 1000 == lost + len(got) // 1024
    assert lost > 0
    assert [f"{lost} lines could not be written here".encode(), b"again"] == rest
    assert lost + 1 == output.dropped
