"""The audit of one master: what it remembers, shows and reads again after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.master.access import audit_trail
from torrentdist.master.access.audit_trail import AuditApi, AuditTrail, told_in
from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.events import AccessAudited, HashFailed, Writer
from torrentdist.security.authorization import LOCAL, Principal, Proof, Role

pytestmark = pytest.mark.anyio
NOW = 1000.0
ANN = Principal("ann", Role.UPLOADER, Proof.TOKEN, reads=("etl-*",))


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def fact(target: str, who: str = "ann", bundle: str = "", result: str = "ok") -> AccessAudited:
    return AccessAudited(
        who=who, sender_role="uploader", how="token", operation="DELETE", target=target, bundle=bundle,
        source="10.0.0.1", result=result,
    )  # fmt: skip


def events_in(directory: Path, clock: float | None = None) -> EventLog:
    return EventLog(directory, EventsConfig(), Writer(node="m1", role="master", rack="", run="r"), lambda: clock)


def seen_by(trail: AuditTrail, sender: Principal = LOCAL, within: float = 100.0, **wanted: Any) -> list[str]:
    asked: dict[str, Any] = {"who": "", "bundle": "", "most": 10, **wanted}
    found = trail.entries(sender, within, **asked)
    return [entry.target for entry in found]


def trail_of_three(directory: Path) -> tuple[AuditTrail, Clock]:
    """Returns a trail of three changes, ten seconds apart; it is NOW when the last one comes."""
    clock = Clock()
    trail = AuditTrail("m1", events_in(directory), clock)
    for ago, one in ((20, fact("a", bundle="etl-1")), (10, fact("b", "bob")), (0, fact("c", "bob", "lib"))):
        clock.now = NOW - ago
        trail.log.changed(one)
    return trail, clock


def test_changes_are_told_the_newest_first(tmp_path: Path) -> None:
    """If this fails, an operator who asks for the last changes gets the first ones."""
    trail, _ = trail_of_three(tmp_path)

    assert ["c", "b", "a"] == seen_by(trail)
    assert ["c", "b"] == seen_by(trail, most=2)
    assert ["c"] == seen_by(trail, most=1)


def test_changes_are_found_by_their_time_their_author_and_their_bundle(tmp_path: Path) -> None:
    """If this fails, an operator looks for a change in those of everybody."""
    trail, _ = trail_of_three(tmp_path)

    assert (["c", "b"], ["c"]) == (seen_by(trail, within=10.0), seen_by(trail, within=9.9))
    assert (["a"], ["c", "b"]) == (seen_by(trail, who="ann"), seen_by(trail, who="bob"))
    assert (["a"], ["c"]) == (seen_by(trail, bundle="etl-1"), seen_by(trail, bundle="lib"))
    assert [] == seen_by(trail, who="ann", bundle="lib")


def test_a_team_sees_its_own_changes_and_those_of_its_bundles(tmp_path: Path) -> None:
    """If this fails, a team reads the names of bundles that are hidden from it, or misses its own
    changes."""
    trail, _ = trail_of_three(tmp_path)
    trail.log.changed(fact("d", "bob", "etl-2"))

    assert ["d", "a"] == seen_by(trail, ANN)
    assert ["d"] == seen_by(trail, ANN, who="bob")
    assert ["d"] == seen_by(trail, ANN, most=1)


def test_refusals_are_shown_before_they_are_written(tmp_path: Path) -> None:
    """If this fails, an operator who looks for an attack does not see the last seconds of it."""
    trail, clock = trail_of_three(tmp_path)
    clock.now += 50
    for _ in range(3):
        trail.log.refused(fact("x", "eve", result="forbidden"))
    (entry,) = trail.entries(LOCAL, 100.0, "eve", "", 10)

    assert ("x", 3, NOW + 50, "m1", "uploader") == (entry.target, entry.count, entry.at, entry.master, entry.role)
    assert ["x", "c", "b", "a"] == seen_by(trail)


def test_the_memory_of_changes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a master that runs for a year keeps each change in its memory."""
    monkeypatch.setattr(audit_trail, "MOST_ENTRIES", 2)
    trail, _ = trail_of_three(tmp_path)

    assert ["c", "b"] == seen_by(trail)


def tear(directory: Path) -> None:
    """Adds a line of which only the beginning was written."""
    (written,) = directory.glob("events-*.jsonl")
    written.write_bytes(written.read_bytes() + b'{"node":"m1","at":1.0,"event":"access_audited","who":"torn')


async def test_changes_are_read_again_after_a_restart(tmp_path: Path) -> None:
    """If this fails, an operator loses the authors of all changes with each restart of a master."""
    events = events_in(tmp_path, clock=5.0)
    trail = AuditTrail("m1", events, Clock())
    trail.log.changed(fact("a", bundle="etl-1"))
    events.emit(HashFailed(digest="d" * 64, piece=1))
    trail.log.changed(fact("b"))
    events.close()
    times = [entry.at for entry in told_in(tmp_path)]
    tear(tmp_path)
    again = AuditTrail("m1", events_in(tmp_path / "new"), lambda: times[-1])
    await again.load(tmp_path)

    assert ["b", "a"] == seen_by(again)
    assert ["a"] == seen_by(again, bundle="etl-1")
    (entry,) = again.entries(LOCAL, 100.0, "", "etl-1", 10)
    assert ("ann", "uploader", "token", "DELETE", "10.0.0.1", "ok", "m1") == (
        entry.who, entry.role, entry.how, entry.operation, entry.source, entry.result, entry.master,
    )  # fmt: skip


def line(target: str, at: float, clock: str = "null") -> bytes:
    head = f'{{"node":"m9","at":{at},"clock":{clock},"event":"access_audited","who":"ann","sender_role":"r","how":"h",'
    return f'{head}"operation":"o","target":"{target}","bundle":"","source":"s","result":"ok"}}\n'.encode()


def write_files(directory: Path) -> None:
    """Writes three files whose names tell their order by their last part alone."""
    for name, target in (("z-0001", "first"), ("a-0003", "third"), ("m-0002", "second")):
        (directory / f"events-{name}.jsonl").write_bytes(line(target, 100.0, "2.5") + line(f"{target}'", 101.0))


def test_files_of_events_are_read_in_their_order(tmp_path: Path) -> None:
    """If this fails, the changes after a restart stand in the order of the hosts' names."""
    write_files(tmp_path)
    found = [*told_in(tmp_path)]

    assert ["first", "first'", "second", "second'", "third", "third'"] == [entry.target for entry in found]
    assert [102.5, 101.0, "m9"] == [found[0].at, found[1].at, found[0].master]


@pytest.mark.parametrize(("files", "less", "expected"), [(3, 0, 3), (3, 1, 2), (1, 0, 1), (1, 1, 0)])
def test_the_newest_files_are_read_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, less: int, expected: int
) -> None:
    """If this fails, a master with many events takes minutes and gigabytes to start."""
    write_files(tmp_path)
    sizes = [(tmp_path / f"events-{name}.jsonl").stat().st_size for name in ("a-0003", "m-0002", "z-0001")]
    monkeypatch.setattr(audit_trail, "MOST_BYTES", sum(sizes[:files]) - less)

    found = [entry.target for entry in told_in(tmp_path) if not entry.target.endswith("'")]
    assert ["first", "second", "third"][3 - expected :] == found


async def test_the_audit_over_http_takes_what_it_is_asked_for(tmp_path: Path) -> None:
    """If this fails, `torrentdist audit` with a filter shows everything, or nothing."""
    trail, _ = trail_of_three(tmp_path)
    app = api_app(operations_of(AuditApi(trail)))

    async def as_ann(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: LOCAL}, receive, send)

    queries = ("", "?n=1", "?within=15", "?who=ann", "?bundle=lib")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=as_ann), base_url="http://m1") as client:
        answers = [await client.get(f"/v1/audit{query}") for query in queries]
        refused = [(await client.get(f"/v1/audit?n={n}")).status_code for n in (0, audit_trail.MOST_ENTRIES + 1)]

    told = [[one["target"] for one in answer.json()] for answer in answers]
    assert [["c", "b", "a"], ["c"], ["c", "b"], ["a"], ["c"]] == told
    assert [400, 400] == refused
