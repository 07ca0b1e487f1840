"""Describes this master's role to the other masters and to users."""

from __future__ import annotations

import time

from torrentdist import __version__
from torrentdist.bundle.store.store import StoreView
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import lag
from torrentdist.master.master_health import MasterHealth
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.ha_views import RoleView


class OwnRole:
    """`url` is where others reach this master."""

    def __init__(
        self, me: MasterId, url: str, health: MasterHealth, leadership: Leadership, records: Records, store: StoreView
    ) -> None:
        self._me = me
        self._url = url
        self._health = health
        self._leadership = leadership
        self._records = records
        self._store = store

    def view(self) -> RoleView:
        snapshot, failing = self._records.snapshot(), self._health.failing()
        asked_secs, granted_secs = self._health.session_secs()
        return RoleView(
            id=self._me,
            url=self._url,
            state=self._leadership.state(),
            epoch=snapshot.epoch,
            lag=lag(snapshot, self._store.published_digests()),
            version=__version__,
            ready=not failing,
            failing=failing,
            now=time.time(),
            session_secs=asked_secs,
            granted_secs=granted_secs,
            write_secs=self._health.write_secs(),
        )
