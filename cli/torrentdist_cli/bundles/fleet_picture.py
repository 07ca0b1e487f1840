"""Shows the fleet while a bundle spreads: how many hosts have it, how fast the others are, and
which are stuck and why.

Always: the display fits the terminal, however many hosts there are. A summary comes first, then the
hosts that need attention, then the slowest ones.
Never: decide when the distribution is over.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torrentdist.api.transfer_display import stderr_console
from torrentdist.model.ids import SupervisorId
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState, ZoneView
from torrentdist.model.wording import counted, printable
from torrentdist_cli.frame.command import Session
from torrentdist_cli.frame.progress_bar import lines_of
from torrentdist_cli.frame.rendering import duration, percent, rate, size
from torrentdist_cli.frame.table_layout import shorten_apart

Show = Callable[[FleetView], None]

_ORDER = (
    HostState.FAILED,
    HostState.GONE,
    HostState.STUCK,
    HostState.FETCHING,
    HostState.WAITING,
    HostState.DONE,
)
_WORDS = {HostState.FETCHING: "in progress"}
_STYLES = {HostState.DONE: "green", HostState.FAILED: "red", HostState.GONE: "red", HostState.STUCK: "yellow"}
_FRAME_ROWS = 4
"""Summary, column heads, the line about the remaining hosts, and one row that stays free."""
_BAR_WIDTH = 20
_NAME_WIDTH = 16
_NAMED_IN_LINE = 3
_ZONES_IN_LINE = 5


@contextmanager
def fleet_display(session: Session) -> Iterator[Show]:
    """Yields the function to call with every new view of the fleet."""
    lines = lines_of(session.progress_style, line)
    if lines is not None:
        yield lines
    else:
        with _live() as show:
            yield show


def eta(host: HostProgress) -> float:
    """Returns the seconds until this host is done at its present rate; infinite while nothing
    arrives."""
    left = host.size - host.done
    return 0.0 if left <= 0 and host.size else left / host.rate if host.rate > 0 else math.inf


def summary(fleet: FleetView) -> str:
    """Returns a line such as `12 of 16 hosts done, 3 in progress, 1 stuck, 75% of the bytes, 1.2
    GiB/s`."""
    counts = {state: sum(host.state is state for host in fleet.hosts) for state in _ORDER}
    others = [
        f"{count} {_WORDS.get(state, state.value)}"
        for state, count in counts.items()
        if count and state is not HostState.DONE
    ]
    wanted = fleet.size * len(fleet.hosts)
    there = sum(fleet.size if host.state is HostState.DONE else min(host.done, fleet.size) for host in fleet.hosts)
    flow = sum(host.rate for host in fleet.hosts if host.state is HostState.FETCHING)
    return ", ".join(
        [
            f"{counts[HostState.DONE]} of {counted(len(fleet.hosts), 'host')} done",
            *others,
            *([f"{percent(there / wanted)} of the bytes"] if wanted else []),
            *([rate(flow)] if flow else []),
            *([f"wave {fleet.wave} of {fleet.waves}"] if fleet.waves > 1 else []),
            *([f"{duration(fleet.time_left)} left"] if fleet.time_left else []),
            *([f"copies into {copies_into(fleet.zones)}"] if fleet.zones else []),
        ]
    )


def copies_into(zones: Sequence[ZoneView]) -> str:
    """Returns how often the bundle came into each zone, such as `east 0.00, west 1.02`."""
    shown = [f"{printable(one.zone)} {one.copies:.2f}" for one in zones[:_ZONES_IN_LINE]]
    return ", ".join(shown) + (" …" if len(zones) > _ZONES_IN_LINE else "")


def shown_hosts(hosts: Sequence[HostProgress], rows: int) -> list[HostProgress]:
    """Returns the hosts that get a row: all hosts by name if they fit, otherwise those in trouble,
    then the slowest."""
    if len(hosts) <= rows:
        return sorted(hosts, key=lambda host: host.supervisor)
    ranked = sorted(
        (host for host in hosts if not host.is_later),
        key=lambda host: (_ORDER.index(host.state), -eta(host), host.done, host.supervisor),
    )
    return ranked[: max(rows, 0)]


def line(fleet: FleetView) -> str:
    """Returns one line for a log: the summary, and the first hosts in trouble."""
    trouble = [host for host in shown_hosts(fleet.hosts, 0 if not fleet.hosts else len(fleet.hosts)) if _stands(host)]
    named = [f"{host.supervisor} {host.state.value} ({host.reason or 'no reason given'})" for host in trouble]
    more = [f"and {len(named) - _NAMED_IN_LINE} more"] if len(named) > _NAMED_IN_LINE else []
    return "; ".join([summary(fleet), *named[:_NAMED_IN_LINE], *more])


def cells(host: HostProgress) -> dict[str, str]:
    """Returns the cells of a host's row, by column."""
    done = host.state is HostState.DONE
    share = 1.0 if done else host.done / host.size if host.size else 0.0
    filled = math.floor(share * _BAR_WIDTH)
    under_way = host.state is HostState.FETCHING
    received = host.from_masters + host.from_peers
    known = host.local / host.size if host.size else 0.0
    return {
        "HOST": printable(host.supervisor),
        "STATE": _WORDS.get(host.state, host.state.value),
        "": "━" * filled + "╌" * (_BAR_WIDTH - filled),
        "DONE": percent(share),
        "RATE": rate(host.rate) if under_way else "",
        "LEFT": duration(eta(host)) if under_way else "",
        "HAD": percent(known) if known else "",
        "FROM": f"{percent(host.from_peers / received)} peers" if received else "",
        "WHY": printable(host.reason),
    }


def _stands(host: HostProgress) -> bool:
    return host.state in (HostState.FAILED, HostState.GONE, HostState.STUCK)


def picture(fleet: FleetView, height: int, width: int) -> Any:
    """Returns the fleet as a rich renderable, at most `height` rows high. A narrow terminal gets
    fewer columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    hosts = shown_hosts(fleet.hosts, height - _FRAME_ROWS)
    headers = _headers(width)
    names = _names([host.supervisor for host in hosts], max(_NAME_WIDTH, width // 4))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=True, overflow="ellipsis")
    for host, name in zip(hosts, names, strict=True):
        row = {**cells(host), "HOST": name}
        table.add_row(*(Text(row[header], style=_STYLES.get(host.state, "")) for header in headers))
    rest = len(fleet.hosts) - len(hosts)
    title = printable(f"{fleet.id} ({size(fleet.size)}): {summary(fleet)}")
    heading = Text(title, no_wrap=True, overflow="ellipsis")
    more = f"and {rest} more {'host' if rest == 1 else 'hosts'}"
    return Group(heading, table, *([Text(more, style="dim")] if rest else []))


def _headers(width: int) -> tuple[str, ...]:
    """Returns the columns that fit. The problem of a host is always shown."""
    if width >= 100:
        return ("HOST", "STATE", "", "DONE", "RATE", "LEFT", "HAD", "FROM", "WHY")
    return ("HOST", "STATE", "DONE", "RATE", "LEFT", "WHY") if width >= 70 else ("HOST", "STATE", "DONE", "WHY")


def _names(supervisors: list[SupervisorId], room: int) -> list[str]:
    names = [printable(supervisor) for supervisor in supervisors]
    return shorten_apart(names, room) or names


@contextmanager
def _live() -> Iterator[Show]:
    from rich.live import Live

    console = stderr_console()
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda fleet: live.update(picture(fleet, *reversed(console.size)), refresh=True)
