"""Decides the command that starts a Spark application whose Python and data are bundles.

Always: what the user sets stays as it is. Executors and a driver in the cluster are told their
bundles by their environment, and run the program that waits for them.
Pure: no I/O. Each value comes from the caller.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.view import View
from torrentdist.spark.submission.submit_arguments import SparkArguments

ENV: Final = "TORRENTDIST_ENV"
BUNDLES: Final = "TORRENTDIST_BUNDLES"
PYTHON: Final = "spark.pyspark.python"
DRIVER_PYTHON: Final = "spark.pyspark.driver.python"
PATIENCE: Final = "3600s"
"""How long YARN waits for a driver whose environment still arrives. Its own limit is 100 s."""


class SparkEngine(StrEnum):
    LOCAL = "local"
    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"


class SparkCommandView(View, frozen=True, kw_only=True):
    """The command that `torrentdist spark-submit` runs."""

    environment: dict[str, str]
    command: list[str]

    def shell(self) -> str:
        """Returns the command as a shell understands it."""
        return " ".join([f"{name}={shlex.quote(text)}" for name, text in self.environment.items()] + [self._quoted()])

    def _quoted(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True)
class SubmitRequest:
    spark: SparkArguments
    env: BundleId | None
    bundles: tuple[BundleId, ...]
    ids_dir: str
    program: str
    """The spark-submit of this host."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The properties of Spark's own files."""
    gateway: str = ""
    """URL of the gateway of each host; empty: each host's supervisor tells it."""

    def setting(self, key: str) -> str:
        return self.spark.conf.get(key, self.defaults.get(key, ""))

    @property
    def master(self) -> str:
        return self.spark.values.get("master") or self.setting("spark.master") or "local[*]"

    @property
    def engine(self) -> SparkEngine:
        master = self.master
        if master.startswith(("spark://", "local-cluster")):
            return SparkEngine.STANDALONE
        if master.startswith("k8s://"):
            return SparkEngine.KUBERNETES
        if master in ("yarn", "local") or master.startswith("local["):
            return SparkEngine.YARN if master == "yarn" else SparkEngine.LOCAL
        detail = f"there is no way to tell executors of {master!r} their bundles: use local, spark://, yarn or k8s://"
        raise TorrentdistError("usage", detail=detail)

    @property
    def drives_here(self) -> bool:
        """Whether the driver is a process of this host."""
        mode = self.spark.values.get("deploy-mode") or self.setting("spark.submit.deployMode")
        return mode != "cluster" or self.engine is SparkEngine.LOCAL

    @property
    def is_python(self) -> bool:
        return self.spark.application.partition("#")[0].endswith((".py", ".pyc")) or not self.spark.application

    @property
    def drives_with_bundle(self) -> bool:
        """Whether a driver on this host runs the environment of the bundle."""
        return self.is_python and self.drives_here and self.setting(DRIVER_PYTHON) in ("", program_of(self.ids_dir))


def program_of(ids_dir: str) -> str:
    """Returns the path of the program that waits for bundles, the same on all hosts."""
    return f"{ids_dir.rstrip('/')}.spark/python"


def plan_command(request: SubmitRequest) -> SparkCommandView:
    if request.env is not None and not request.is_python:
        detail = f"--env is a Python environment, and {request.spark.application} is no Python file: use --bundle"
        raise TorrentdistError("usage", detail=detail)
    set_here = request.spark.conf.keys()
    added = [(key, value) for key, value in _settings(request) if key not in set_here]
    options = [part for key, value in added for part in ("--conf", f"{key}={value}")]
    spark = request.spark
    command = [request.program, *options, *spark.options]
    if spark.application:
        command += [spark.application, *spark.arguments]
    return SparkCommandView(environment=_told(request) if request.drives_here else {}, command=command)


def _told(request: SubmitRequest) -> dict[str, str]:
    """Returns the variables by which a process knows its bundles."""
    told = {ENV: request.env or "", BUNDLES: ",".join(request.bundles), "TORRENTDIST_GATEWAY": request.gateway}
    return {name: text for name, text in told.items() if text}


def _settings(request: SubmitRequest) -> Iterator[tuple[str, str]]:
    """Yields what the engine needs, as far as neither the user nor Spark's files say it."""
    if request.is_python:
        yield PYTHON, program_of(request.ids_dir)
    for name, text in _told(request).items():
        yield f"spark.executorEnv.{name}", text
        if not request.drives_here and request.engine is SparkEngine.YARN:
            yield f"spark.yarn.appMasterEnv.{name}", text
        if not request.drives_here and request.engine is SparkEngine.KUBERNETES:
            yield f"spark.kubernetes.driverEnv.{name}", text
    if not request.drives_here and request.engine is SparkEngine.YARN and not request.setting("spark.yarn.am.waitTime"):
        yield "spark.yarn.am.waitTime", PATIENCE
    if request.engine is SparkEngine.KUBERNETES:
        yield from _volumes(request)


def _volumes(request: SubmitRequest) -> Iterator[tuple[str, str]]:
    """Yields the volume by which a pod sees its host's bundles."""
    path = request.ids_dir.rstrip("/").rpartition("/")[0] or "/"
    for side in ("executor",) if request.drives_here else ("driver", "executor"):
        volume = f"spark.kubernetes.{side}.volumes.hostPath.torrentdist"
        yield f"{volume}.mount.path", path
        yield f"{volume}.mount.readOnly", "true"
        yield f"{volume}.options.path", path


def hosts_to_wait_for(request: SubmitRequest, share: float | None) -> float:
    """Returns the share of hosts that must have the bundles before the application starts. A JVM
    does not wait for them."""
    if share is not None:
        return share
    return 0.0 if request.is_python else 1.0


def all_bundles(env: BundleId | None, bundles: Sequence[BundleId]) -> list[BundleId]:
    return list(dict.fromkeys([*([env] if env else []), *bundles]))
