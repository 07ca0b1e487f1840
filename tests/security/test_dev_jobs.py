"""Jobs of `dev up` by root: they run as other users where a range or a user is given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import running_cluster, until
from launcher_site import as_root, in_namespaces

from torrentdist.supervisor.process.output_files import Stream, read_output

pytestmark = [as_root, in_namespaces, pytest.mark.case("F1")]
SCRIPT = "id -u; id -un; cat bundle/who.sh > /dev/null && echo read; ls -A ..; echo DONE"


@pytest.fixture
def closed_directory() -> Iterator[Path]:
    """A directory below root's home, which is closed to the users of jobs and may hold the Python
    that runs these tests."""
    with tempfile.TemporaryDirectory(dir=Path.home(), ignore_cleanup_errors=True) as made:
        yield Path(made)


def said(home: Path) -> str:
    return read_output(home, Stream.STDOUT, 0).data.decode()


def test_dev_up_of_root_isolates_jobs(closed_directory: Path) -> None:
    """If this fails, a job of a first try by root is root on the whole machine."""
    job = closed_directory / "job"
    job.mkdir()
    (job / "job.toml").write_text('name = "who"\ncommand = ["sh", "who.sh"]\nrestart = "never"\n')
    (job / "who.sh").write_text(SCRIPT)
    settings = {"jobs": {"user": "20000-20009"}}
    with running_cluster(settings, work=closed_directory / "dev", masters=1, supervisors=1) as cluster:
        cluster.run("job", "submit", job).ok()
        until(lambda: any("DONE" in said(home) for home in cluster.dir.glob("supervisor-1/guard/*/0")), seconds=60)
        words = said(next(cluster.dir.glob("supervisor-1/guard/*/0"))).split()

    assert 20000 <= int(words[0]) <= 20009
    assert [f"job-{words[0]}", "read", "0", "DONE"] == words[1:]
