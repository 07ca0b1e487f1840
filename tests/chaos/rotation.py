"""Every certificate and the CAs of a cluster are replaced under the load of a chaos run, without
other faults: nothing fails.

Always: an answer about the work itself, such as that a bundle was just removed, is no failure.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from chaos.load import Load
from cluster_fixtures import until
from rotation_steps import Rotation, shown_ports

from torrentdist.dev.dev_cluster import DevCluster, DevSpec
from torrentdist.model.errors import ERRORS, EXIT_CONFLICT, EXIT_NOT_FOUND

LONGEST_SECS = 120.0
"""Limit for a loaded machine. A quiet one takes 25 s."""
MASTERS, SUPERVISORS = 2, 1


@dataclass
class RotationReport:
    seconds: float = 0.0
    work: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


async def rotate_under_load(directory: Path, seed: int) -> RotationReport:
    """Starts a cluster with TLS in `directory`, and replaces everything while it works."""
    began = time.monotonic()
    cluster = DevCluster(DevSpec(dir=directory / "cluster", masters=MASTERS, supervisors=SUPERVISORS, tls=True))
    try:
        await asyncio.to_thread(cluster.up)
        load = Load(directory, cluster.masters(), cluster.token_file, seed, str(cluster.dir / "ca" / "ca.pem"))
        ports = await asyncio.to_thread(_ports, cluster)
        async with asyncio.timeout(LONGEST_SECS), asyncio.TaskGroup() as group:
            group.create_task(load.run(LONGEST_SECS))
            try:
                await _rotate(Rotation(cluster.dir / "ca", directory, ports), load)
            finally:
                load.end()
    finally:
        await asyncio.to_thread(cluster.down)
    failed = [f"{what}, {count} times" for what, count in load.refused.items() if not _is_answer(what)]
    findings = [f"while certificates were replaced: {finding}" for finding in (*load.findings, *failed)]
    work = {**load.done, **load.refused}
    return RotationReport(round(time.monotonic() - began, 1), work, findings)


async def _rotate(rotation: Rotation, load: Load) -> None:
    steps = (
        rotation.replace_leaves,
        rotation.trust_both,
        rotation.replace_leaves,
        rotation.trust_only_new,
        rotation.swarm_has_both,
        rotation.swarm_prefers_new,
    )
    for step in steps:
        await asyncio.to_thread(step)
    async with load.hush.silence():
        pass  # what began under the old CA of the swarm has ended
    await asyncio.to_thread(rotation.swarm_has_only_new)


def _ports(cluster: DevCluster) -> dict[str, int]:
    """Returns where each daemon shows its certificate, once all are registered."""
    with httpx.Client(trust_env=False, timeout=10.0, headers=cluster.headers(), verify=cluster.trust()) as http:

        def ask() -> dict[str, int]:
            return shown_ports(http.get(f"{cluster.masters()[0]}/v1/cluster").json())

        until(lambda: len(ask()) == MASTERS + SUPERVISORS, "every member is registered")
        return ask()


def _is_answer(what: str) -> bool:
    """Whether a refusal, as the load counts it, is about the work itself."""
    return ERRORS[what.partition(": ")[2]].exit_code in (EXIT_CONFLICT, EXIT_NOT_FOUND)
