"""The display of a transfer and of the fleet."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from torrentdist.api.transfer_display import Progress, paced, sentence, shown
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage, UploadProgress
from torrentdist.model.ids import BundleId, Digest, MasterId, SupervisorId
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist_cli.bundles.fleet_picture import cells, eta, line, picture, shown_hosts, summary
from torrentdist_cli.frame.command import Session
from torrentdist_cli.frame.progress_bar import transfer_display

MIB = 1024 * 1024


def host(name: str, state: HostState = HostState.FETCHING, **fields: Any) -> HostProgress:
    return HostProgress(supervisor=SupervisorId(name), state=state, size=100 * MIB, **fields)


def fleet(*hosts: HostProgress) -> FleetView:
    return FleetView(id=BundleId("etl-42"), digest=Digest("0" * 64), size=100 * MIB, hosts=list(hosts))


def rendered(view: FleetView, height: int, width: int = 100) -> list[str]:
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as capture:
        console.print(picture(view, height, width))
    return capture.get().splitlines()


MIXED = fleet(
    host("h1", HostState.DONE, done=100 * MIB),
    host("h2", done=50 * MIB, rate=10 * MIB, from_peers=32 * MIB, from_masters=8 * MIB, local=10 * MIB),
    host("h3", HostState.STUCK, done=20 * MIB, reason="disk full"),
    host("h4", HostState.WAITING),
)


def test_the_summary_counts_hosts_and_bytes() -> None:
    """The numbers in the summary line would not add up."""
    text = summary(MIXED)

    assert text == "1 of 4 hosts done, 1 stuck, 1 in progress, 1 waiting, 42% of the bytes, 10.0 MiB/s"


def test_a_host_in_progress_shows_rate_and_time_left_and_a_stuck_one_its_reason() -> None:
    """A stuck host without a reason sends the operator to its logs."""
    rows = [tuple(cells(view).values()) for view in MIXED.hosts]

    assert rows[1][1:] == ("in progress", "━" * 10 + "╌" * 10, "50%", "10.0 MiB/s", "5.0s", "10%", "80% peers", "")
    assert rows[2][1:2] + rows[2][-1:] == ("stuck", "disk full")


def test_a_fleet_that_fits_is_listed_by_name() -> None:
    """Rows that change their order cannot be read."""
    names = [view.supervisor for view in shown_hosts([host("h2"), host("h1", HostState.STUCK)], 5)]

    assert names == ["h1", "h2"]


def test_a_fleet_that_does_not_fit_shows_trouble_first_and_then_the_slowest() -> None:
    """With a thousand hosts, those that delay the rest would not be on the screen."""
    hosts = [
        host("done", HostState.DONE, done=100 * MIB),
        host("fast", done=10 * MIB, rate=50 * MIB),
        host("slow", done=90 * MIB, rate=1),
        host("silent", done=10 * MIB),
        host("failed", HostState.FAILED),
        host("waiting", HostState.WAITING),
    ]
    names = [view.supervisor for view in shown_hosts(hosts, 5)]

    assert names == ["failed", "silent", "slow", "fast", "waiting"]


@pytest.mark.parametrize("height", [5, 24, 60])
def test_the_picture_of_a_thousand_hosts_fits_the_terminal(height: int) -> None:
    """A picture that is higher than the terminal scrolls away and flickers."""
    rows = rendered(fleet(*(host(f"h{number:04}", done=number) for number in range(1000))), height)

    assert len(rows) < height
    assert rows[-1].strip() == f"and {1000 - (height - 4)} more hosts"


def test_a_reason_cannot_break_the_picture() -> None:
    """A reason comes from another host: it must neither steer the terminal nor be read as
    markup."""
    rows = rendered(fleet(host("h1", HostState.FAILED, reason="[bold]no\nroom\x1b[2J")), 24)

    assert not [row for row in rows if "\x1b[2J" in row]
    assert "[bold]no" in "".join(rows)


def test_a_line_for_a_log_names_the_hosts_in_trouble() -> None:
    """Without a terminal the log is all there is to see."""
    text = line(fleet(*(host(f"h{n}", HostState.FAILED, reason="disk full") for n in range(5))))

    assert text.endswith("; h0 failed (disk full); h1 failed (disk full); h2 failed (disk full); and 2 more")


def test_nothing_arriving_means_no_end_in_sight() -> None:
    """A rate of zero would cause a division by zero."""
    left = eta(host("h1", done=1))

    assert left == float("inf")


def test_a_download_is_told_in_one_line() -> None:
    """A user would not see rate, time left and the share from peers."""
    text = sentence(
        TransferProgress(
            phase=TransferStage.FETCHING, done=45, size=100, rate=MIB, eta=12, from_masters=1, from_peers=3, peers=7
        )
    )

    assert text == "fetching 45%, 45 B of 100 B, 1.0 MiB/s, 12s left, 75% from peers, 7 peers"


def test_an_upload_is_told_with_its_replicas() -> None:
    """A user would not see how many masters hold the upload."""
    text = sentence(UploadProgress(phase=TransferStage.SEEDING, done=0, size=0, replicas=1, wanted=3))

    assert text == "seeding 0%, 0 B of 0 B, 1 of 3 replicas"


@pytest.mark.parametrize(("done", "replicas", "told"), [(2, 1, ", m2 has 50 %"), (1, 1, ""), (2, 2, "")])
def test_an_upload_names_the_masters_that_it_waits_for(done: int, replicas: int, told: str) -> None:
    """A user whose upload has sent everything would wait without knowing for whom, or read of a
    master that nothing waits for."""
    lacking = {MasterId("m2"): "has 50 %"}
    text = sentence(
        UploadProgress(phase=TransferStage.SEEDING, done=done, size=2, replicas=replicas, wanted=2, lacking=lacking)
    )

    assert text == f"seeding {50 * done}%, {done} B of 2 B, {replicas} of 2 replicas{told}"


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    """A line per picture would fill a log with thousands of lines."""
    now, lines = [0.0], list[int]()
    show = paced(lines.append, clock=lambda: now[0])
    for second in range(31):
        now[0] = float(second)
        show(second)

    assert lines == [10, 20, 30]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that asked for one value would get something else on the screen."""
    with transfer_display(Session(quiet=True)) as show:
        show(TransferProgress(phase=TransferStage.FETCHING, done=1, size=2))

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("progress", "terminal", "is_shown"),
    [(None, True, True), (None, False, False), (True, True, True), (False, True, False), (False, False, False)],
)
def test_a_call_shows_a_bar_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    progress: bool | None,
    terminal: bool,
    is_shown: bool,
) -> None:
    """A notebook would show nothing for an hour, or a log be full of a bar's control characters."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    wanted: Progress[TransferProgress] = progress
    with shown(wanted) as show:
        show(TransferProgress(phase=TransferStage.FETCHING, done=1, size=2))

    assert is_shown is bool(capsys.readouterr().err)


def test_a_function_gets_every_report() -> None:
    """A program that draws its own bar would miss the end."""
    heard: list[int] = []

    def hear(picture: TransferProgress) -> None:
        heard.append(picture.done)

    with shown(hear) as show:
        for done in range(3):
            show(TransferProgress(phase=TransferStage.FETCHING, done=done, size=2))

    assert [0, 1, 2] == heard
