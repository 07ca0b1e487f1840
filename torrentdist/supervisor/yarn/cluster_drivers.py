"""Carries out the plan for drivers in YARN: holds a run back until it may submit, and follows its
application until YARN says that it has ended.

Always: every decision comes from application_plan.py. A run counts as running for as long as its
application may be alive, so its barrier stays held. A supervisor that was restarted finds the
application by its tag.
Never: submit anything.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from torrentdist.http.connection_pool import Http
from torrentdist.launcher.run.run_lease import clock
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.jobs.local_state import RunRecord
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.running import Handle
from torrentdist.supervisor.process.spark_applications import Application
from torrentdist.supervisor.worker.worker_types import Key, Measure
from torrentdist.supervisor.yarn import resource_manager
from torrentdist.supervisor.yarn.application_plan import (
    ApplicationEnd,
    Followed,
    YarnApplication,
    after_submission,
    before_submission,
)
from torrentdist.supervisor.yarn.yarn_place import YarnPlace

log = get_logger()

LOOK_SECS = 1.0
SILENCE_SECS = 10.0
"""How long a ResourceManager may be silent until its answer counts as none."""
HELD_SECS = 10.0
"""How long one attempt to start waits for what an earlier run left. Then it is tried again."""


@dataclass
class _Told:
    """What reports say about a driver."""

    run: str
    application: Application = field(default_factory=Application)
    trouble: str = ""


class ClusterDrivers:
    def __init__(self, handle_of: Callable[[Key], Handle | None], on_change: Callable[[], None]) -> None:
        self._handle_of = handle_of
        self._on_change = on_change
        self._told: dict[Key, _Told] = {}

    def of(self, key: Key) -> Application:
        """Returns the application of this driver, or an empty one if it is not known."""
        return self._told[key].application if key in self._told else Application()

    def trouble(self, key: Key) -> str:
        """Returns why nothing is known of a running driver; empty if it is followed."""
        return self._told[key].trouble if key in self._told else ""

    async def hold_back(self, key: Key, run: RunRecord) -> None:
        """Returns when this run may submit its application, and has those of earlier runs killed.

        Raises `earlier_application` or `yarn_unavailable` if it may not yet.
        """
        place, since, until = _place_of(run), None, time.monotonic() + HELD_SECS
        self._told[key] = _Told(run.id)
        async with _http() as http:
            while True:
                found = await resource_manager.applications(http, place, run.fencing)
                gate = before_submission(found, run.fencing, since, time.monotonic())
                if gate.may_submit:
                    return
                since = gate.clear_since
                await self._kill(http, place, gate.kill, key)
                if gate.waits_for and (not gate.kill or time.monotonic() >= until):
                    raise TorrentdistError("earlier_application", job=key[0], detail=gate.waits_for)
                await asyncio.sleep(LOOK_SECS)

    async def outlived(self, key: Key, run: RunRecord, status: GuardianStatus | None) -> GuardianStatus | None:
        """Follows the application of a run whose processes on this host have ended, until it has
        ended too. Returns how the run ended in all. `status` is that of its guardian."""
        self._told.setdefault(key, _Told(run.id))
        end = await self._end_of(key, run)
        self._told[key].trouble = ""
        if end.code is None:
            return status
        stopped = self._measure(key) is not Measure.NONE
        before = status if status is not None else GuardianStatus(run.id, "gone", 0, 0)
        detail = "" if stopped or not end.code else end.detail
        log.info("application ended", job=key[0], exit_code=end.code, detail=end.detail)
        return msgspec.structs.replace(
            before, exit_code=end.code, reason="stop" if stopped else "", detail=detail, at=clock()
        )

    async def _end_of(self, key: Key, run: RunRecord) -> ApplicationEnd:
        place, followed = _place_of(run), Followed(run.fencing)
        async with _http() as http:
            while True:
                found = await self._look(http, key, run)
                wanted = self._measure(key) is Measure.NONE
                look = after_submission(followed, found, time.monotonic(), wanted=wanted)
                followed = look.followed
                if followed.last is not None:
                    self._note(key, followed.last)
                if look.end is not None:
                    return look.end
                with contextlib.suppress(TorrentdistError):  # the next look tries again, and reports say it
                    await self._kill(http, place, look.kill, key)
                await asyncio.sleep(LOOK_SECS)

    async def _look(self, http: Http, key: Key, run: RunRecord) -> Sequence[YarnApplication] | None:
        try:
            found = await resource_manager.applications(http, _place_of(run), run.fencing)
        except TorrentdistError as error:
            self._say(key, error.message)
            return None
        self._say(key, "")
        return found

    async def _kill(self, http: Http, place: YarnPlace, applications: Sequence[str], key: Key) -> None:
        for application in applications:
            log.info("killing an application", job=key[0], application=application)
            try:
                await resource_manager.kill(http, place, application)
            except TorrentdistError as error:
                self._say(key, error.message)
                raise

    def _measure(self, key: Key) -> Measure:
        handle = self._handle_of(key)
        return Measure.NONE if handle is None else handle.measure

    def _note(self, key: Key, application: YarnApplication) -> None:
        known = Application(application.id, application.url)
        if self._told[key].application != known:
            self._told[key].application = known
            self._on_change()

    def _say(self, key: Key, trouble: str) -> None:
        if self._told[key].trouble != trouble:
            self._told[key].trouble = trouble
            if trouble:
                log.warning("an application is not followed", job=key[0], reason=trouble)
            self._on_change()


def _place_of(run: RunRecord) -> YarnPlace:
    assert run.yarn is not None
    return run.yarn


def _http() -> Http:
    return Http(connect_secs=SILENCE_SECS, silence_secs=SILENCE_SECS)
