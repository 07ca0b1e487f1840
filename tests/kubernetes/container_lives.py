"""A container of a pod as its kubelet sees it: whether it runs, how it ended, how often it was
started again, and what its probes say.

Always: a container whose startup probe has not passed is probed by nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubernetes.containers import RunningContainer
from kubernetes.pod_status import ContainerReport

CALM = 3
"""How many times as seldom a container is probed once it is ready. Two processors run all nodes."""


@dataclass
class Probe:
    said: Mapping[str, Any]
    due: float = 0.0
    failures: int = 0
    complaint: str = ""
    """What the command said when it last failed."""

    def passes(self, container: RunningContainer) -> bool:
        command = self.said.get("exec", {}).get("command")
        if command is None:
            return True
        try:
            ended = container.run(command, self.said.get("timeoutSeconds", 1) * 5.0)
        except subprocess.TimeoutExpired:
            self.complaint = "no answer in time"
            return False
        self.complaint = ended.stdout + ended.stderr
        return ended.returncode == 0


@dataclass
class ContainerLife:
    said: Mapping[str, Any]
    process: RunningContainer | None = None
    began: str = ""
    ended: str = ""
    code: int | None = None
    restarts: int = 0
    again_at: float = 0.0
    is_up: bool = False
    is_ready: bool = False
    probes: dict[str, Probe] = field(default_factory=dict)

    def report(self) -> ContainerReport:
        waits = "CrashLoopBackOff" if self.restarts else "ContainerCreating"
        image = self.said["image"]
        began = self.began if self.process is not None or self.code is not None else ""
        return ContainerReport(
            self.said["name"], image, began, self.ended, self.code, self.is_ready, self.restarts, waits
        )

    def arm(self) -> None:
        kinds = ("startup", "liveness", "readiness")
        self.probes = {kind: Probe(self.said[f"{kind}Probe"]) for kind in kinds if f"{kind}Probe" in self.said}
        self.is_up = "startup" not in self.probes
        self.is_ready = self.is_up and "readiness" not in self.probes

    def look(self, now: float) -> bool:
        """Asks the probes that are due. Returns whether the container has to be killed."""
        assert self.process is not None
        for kind, probe in self.probes.items():
            if now < probe.due or (kind == "startup") == self.is_up:
                continue
            passed = probe.passes(self.process)
            calm = CALM if self.is_ready else 1
            probe.due = now + probe.said.get("periodSeconds", 10) * (0.2 if kind == "startup" else calm)
            probe.failures = 0 if passed else probe.failures + 1
            if probe.failures == 1:
                print(f"{self.said['name']}: the {kind} probe failed: {probe.complaint}", flush=True)
            if kind == "startup":
                self.is_up = passed
                self.is_ready = passed and "readiness" not in self.probes
            elif kind == "readiness":
                self.is_ready = passed
            if kind != "readiness" and probe.failures >= probe.said.get("failureThreshold", 3):
                return True
        return False
