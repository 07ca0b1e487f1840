"""`torrentdist doctor`: finds what is wrong with this host or its cluster, within a minute."""

from collections.abc import Sequence

import click

from torrentdist.client.diagnosis import of_error
from torrentdist.client.doctor import examine, timed
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.doctor_views import DoctorView, Finding, Verdict, exit_code, worst
from torrentdist_cli.frame.asking_masters import run
from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.rendering import grid, show


@click.command(cls=Command)
def doctor(session: Session) -> int:
    """Say what is wrong with this host or its cluster.

    It changes nothing, and is done within a minute. It checks the configuration, the modes of
    secret files, open files, disk, ZooKeeper with its limits and timeouts, ACLs, every master, the
    links between them, clocks, versions, the leader, bundles, swarm ports in both directions and
    the supervisor. With a daemon's --config it also checks what that daemon needs.

    Exits with the code of the first failing check, which is the likeliest cause; warnings exit 0.

    With -q: ok, warn or fail.
    """
    try:
        loaded = session.loaded()
    except TorrentdistError as error:
        findings, seconds = [of_error("configuration", "", error)], 0.0
    else:
        findings, seconds = run(timed(examine(loaded.config, loaded.origins)))
    view = DoctorView(verdict=worst(findings), findings=findings, seconds=seconds)
    show(session, view, value=view.verdict.value, table=lambda: _table(view))
    return exit_code(findings)


def _table(view: DoctorView) -> str:
    rows = [(f.verdict.value, f.check, f.subject, f.detail) for f in view.findings]
    hints = _hints(view.findings)
    counts = ", ".join(f"{sum(f.verdict is v for f in view.findings)} {v.value}" for v in Verdict)
    parts = [grid(("", "CHECK", "WHERE", "WHAT"), rows), *(["\n".join(hints)] if hints else []), counts]
    return "\n\n".join(parts)


def _hints(findings: Sequence[Finding]) -> list[str]:
    """Returns each hint once, those of failures first."""
    ordered = sorted((f for f in findings if f.hint), key=lambda f: f.verdict is not Verdict.FAIL)
    return list(dict.fromkeys(f"hint: {f.check}: {f.hint}" for f in ordered))
