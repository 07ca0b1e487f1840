"""`make demo`: follows a bundle through a whole cluster on this machine, with the commands that a
user would type.

With --hold the cluster runs until Ctrl-C before it is stopped. Further arguments after the
program's name are passed to `torrentdist report`.
Always: nothing keeps running and nothing stays on disk except the report, even after a failure or
Ctrl-C. A line appears every few seconds.
"""

import contextlib
import filecmp
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torrentdist.dev.dev_cluster import DevCluster, DevSpec
from torrentdist.model.errors import TorrentdistError

EXAMPLE = Path(__file__).parent.parent / "examples" / "wordcount"
DATA_BYTES = 8 * 1024 * 1024
JOB, BUNDLE = "wordcount", "wordcount-1"
JOB_SECS = 240.0
FAILOVER_SECS = 60.0
BEAT_SECS = 3.0
HOLD = "--hold"
REPORT = Path("torrentdist-demo-report")


def make_sample(directory: Path) -> Path:
    """Copies the packaged example, with more data than a repository should hold, a link and an
    empty directory."""
    bundle = directory / JOB
    shutil.copytree(EXAMPLE, bundle)
    (bundle / "scratch").mkdir()
    (bundle / "latest").symlink_to("main.py")
    words = ["swarm", "peer", "piece", "bundle", "leader", "master", "epoch", "holder", "host", "spark"]
    chooser = random.Random(7)
    line = " ".join(chooser.choices(words, weights=range(len(words), 0, -1), k=2000)) + "\n"
    with (bundle / "data" / "generated.txt").open("w") as file:
        for number in range(DATA_BYTES // len(line)):
            file.write(f"{number} {line}")
    return bundle


@contextlib.contextmanager
def heartbeat(what: str) -> Iterator[None]:
    """Says every few seconds that `what` goes on, until the block ends."""
    began, ended = time.monotonic(), threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECS):
            print(f"  ... {what} ({time.monotonic() - began:.0f} s)", flush=True)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()


def torrentdist(cluster: DevCluster, *arguments: str) -> None:
    """Prints a command as one would type it, and runs it."""
    print(f"\n$ torrentdist {shlex.join(arguments)}", flush=True)
    with heartbeat("still at it"):
        code = subprocess.run(_command(cluster, *arguments), check=False).returncode
    if code:
        raise SystemExit(code)


def _command(cluster: DevCluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torrentdist_cli", "--config", str(cluster.dir / "client.toml"), *arguments]


def tour(cluster: DevCluster, home: Path, report_options: Sequence[str], *, hold: bool) -> None:
    bundle = make_sample(home)
    copy = home / "copy"
    torrentdist(cluster, "cluster")
    torrentdist(cluster, "upload", str(bundle), "--id", BUNDLE, "--min-replicas", "3")
    torrentdist(cluster, "bundle", "distribute", BUNDLE, "--wait", "100%")
    torrentdist(cluster, "download", BUNDLE, str(copy))
    torrentdist(cluster, "download", "--no-supervisor", BUNDLE, str(home / "as-a-peer"))
    torrentdist(cluster, "bundle", "verify", BUNDLE, str(copy))
    differing = filecmp.dircmp(bundle, copy).diff_files
    if differing:
        raise SystemExit(f"the copy differs in {differing}")
    run_job(cluster)
    fail_over(cluster)
    if hold:
        wait_for_interrupt(cluster)
    show_report(cluster, report_options)


def say_console(cluster: DevCluster) -> None:
    print(f"\nThe console: {cluster.masters()[0]}/ui/ (the token is in {cluster.token_file})", flush=True)


def wait_for_interrupt(cluster: DevCluster) -> None:
    say_console(cluster)
    print(f"The cluster runs until Ctrl-C. Commands: torrentdist --config {cluster.dir}/client.toml ...", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600.0)


def run_job(cluster: DevCluster) -> None:
    """Runs the same bundle as a Spark job. Its driver runs where the swarm has put the bundle."""
    torrentdist(cluster, "job", "submit", BUNDLE)
    deadline = time.monotonic() + JOB_SECS
    with heartbeat("Spark counts the words"):
        while not _has_ended(cluster):
            if time.monotonic() > deadline:
                torrentdist(cluster, "job", "show", JOB)
                raise SystemExit(f"the job has not ended within {JOB_SECS:.0f} s")
            time.sleep(1.0)  # Each look is a command, and the job needs the processors.
    torrentdist(cluster, "job", "show", JOB)
    torrentdist(cluster, "job", "logs", JOB, "--stream", "stdout")


def _has_ended(cluster: DevCluster) -> bool:
    shown = subprocess.run(_command(cluster, "-o", "json", "job", "show", JOB), check=True, capture_output=True)
    workers = json.loads(shown.stdout)["workers"]
    return bool(workers) and all(worker["exit_code"] is not None for worker in workers)


def _leader(cluster: DevCluster) -> str:
    """Returns the leader's id, or an empty string."""
    asked = subprocess.run(_command(cluster, "-q", "ha", "leader"), check=False, capture_output=True, text=True)
    return asked.stdout.strip()


def fail_over(cluster: DevCluster) -> None:
    """Kills the leader, so that there is a failover to see."""
    before = _leader(cluster)
    print(f"\n$ kill -9 {cluster.member(before).pid}      # {before}, the leader", flush=True)
    cluster.signal(before, signal.SIGKILL)
    deadline = time.monotonic() + FAILOVER_SECS
    with heartbeat("the others elect a leader"):
        while _leader(cluster) in ("", before):
            if time.monotonic() > deadline:
                raise SystemExit(f"nobody has led for {FAILOVER_SECS:.0f} s")
            time.sleep(0.3)
    torrentdist(cluster, "ha", "failovers", "-n", "1")
    with heartbeat(f"{before} starts again"):
        cluster.start(before)  # It then publishes its last events.
        cluster.wait_started(before)


def show_report(cluster: DevCluster, report_options: Sequence[str]) -> None:
    """Stops the cluster, and shows the events that its daemons wrote."""
    print("\n$ torrentdist dev down", flush=True)
    with heartbeat("the cluster stops"):
        cluster.down()  # This closes the files that are still being written.
    torrentdist(cluster, "report", f"{cluster.dir}/*/events", "--out", str(REPORT), *report_options)


def main(report_options: Sequence[str] = (), *, hold: bool = False) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torrentdist-demo-") as home:
        os.environ.setdefault("XDG_CACHE_HOME", f"{home}/cache")
        cluster = DevCluster(DevSpec(dir=Path(home) / "cluster", tls=True))
        print("$ torrentdist dev up --tls", flush=True)
        try:
            with heartbeat("the cluster starts"):
                cluster.up(say=lambda text: print(text, flush=True))
            say_console(cluster)
            tour(cluster, Path(home), report_options, hold=hold)
        except TorrentdistError as error:
            print(f"error[{error.code}]: {error.message}\nhint: {error.hint}", file=sys.stderr)
            return error.exit_code
        finally:
            cluster.down()
    print(f"everything is stopped and cleaned up after {time.monotonic() - began:.0f} s; see {REPORT}/report.html")
    return 0


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if word != HOLD], hold=HOLD in sys.argv))
