"""`torrentdist report` as a user runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster_fixtures import until
from event_fixtures import write_lines
from spark.conftest import BRIEF
from spark.test_report import story

FOLLOW_SECS = 240.0


def test_ctrl_c_ends_a_followed_report_without_a_trace(tmp_path: Path) -> None:
    """The documented way to end it printed a stack trace of Java, Python and Spark."""
    write_lines(tmp_path / "in", story("h1", at=time.time()))
    command = [sys.executable, "-m", "torrentdist_cli", "report", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    with (tmp_path / "err").open("wb") as err:
        options = ["--follow", "--every", "1s", "--conf", f"spark.driver.extraJavaOptions={BRIEF}"]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=err)
    try:
        page = tmp_path / "out" / "report.html"
        until(lambda: page.exists() or process.poll() is not None, "the first report", FOLLOW_SECS)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=FOLLOW_SECS)
    finally:
        process.kill()
        process.wait()

    said = (tmp_path / "err").read_text()
    assert (0, True) == (process.returncode, "the same command continues from here" in said), said
    assert not re.search("Traceback|Exception|Error", said), said
