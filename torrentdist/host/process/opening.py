"""What both daemons do first, in this order: the store's lock, the engine's port. Nothing is announced yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from torrentdist.bundle.store.store import Store
from torrentdist.distributor.loader import load_distributor
from torrentdist.distributor.protocol import CodeDistributor, HostServices
from torrentdist.host.http.web import is_loopback
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import engine_config


def token_of(config: Config) -> str | None:
    """The cluster's bearer token; refuses to listen beyond loopback without one."""
    if config.api.token_file:
        return read_secret(config.api.token_file)
    if not is_loopback(config.api.listen):
        raise TorrentdistError("insecure_listen", address=config.api.listen)
    return None


def open_plugin(config: Config, runtime: HostRuntime, host: HostServices) -> CodeDistributor:
    """The plug-in of the configuration, prepared and at the runtime's disposal."""
    plugin_dir = runtime.store.data_dir / "distributor"
    plugin_dir.mkdir(exist_ok=True)
    conf = {"options": config.codedistributor.options, "data_dir": str(plugin_dir), "host": host}
    runtime.distributor = load_distributor(config.codedistributor.class_, conf)
    return runtime.distributor


async def open_runtime(
    config: Config, data_dir: str, *, node: str, role: str, server_now: Callable[[], float | None]
) -> HostRuntime:
    store = await asyncio.to_thread(
        lambda: Store.open(
            Path(data_dir), limit_bytes=config.store.limit_bytes, reserve_bytes=config.store.reserve_bytes
        )
    )
    try:
        engine = Engine(engine_config(config.swarm, config.api.listen))
        await engine.start()
        engine.allow(())  # nobody is known yet
    except BaseException:
        await asyncio.to_thread(store.close)
        raise
    rack = config.events.rack or config.supervisor.labels.get("rack", "")
    events = EventLog(store.data_dir / "events", config.events, node=node, role=role, rack=rack, clock=server_now)
    return HostRuntime(store, engine, events)
