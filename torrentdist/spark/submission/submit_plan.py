"""Decides the command that starts a Spark application whose Python and data are bundles.

Always: what the user sets stays as it is. Executors and a driver in the cluster are told their
bundles by their environment, and run the program that waits for them.
Pure: no I/O. Each value comes from the caller.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.view import View
from torrentdist.spark.submission.pod_template import pod_template, template_path
from torrentdist.spark.submission.submit_arguments import SparkArguments

ENV: Final = "TORRENTDIST_ENV"
BUNDLES: Final = "TORRENTDIST_BUNDLES"
IDS_DIR: Final = "TORRENTDIST_IDS_DIR"
"""Where bundles lie on each host, and in pods. On hosts, the program that waits for bundles tells
Python."""
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
    files: dict[str, str]
    """The contents of files, by path, that the command names and that are ours."""

    def shell(self) -> str:
        """Returns the command as a shell understands it."""
        return " ".join([f"{name}={shlex.quote(text)}" for name, text in self.environment.items()] + [self._quoted()])

    def _quoted(self) -> str:
        return shlex.join(self.command)


class SubmitRequest(msgspec.Struct, frozen=True):
    spark: SparkArguments
    env: BundleId | None
    bundles: tuple[BundleId, ...]
    ids_dir: str
    program: str
    """The spark-submit of this host."""
    defaults: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The properties of Spark's own files."""
    gateway: str = ""
    """URL of the gateway of each host; empty: each host's supervisor tells it."""
    templates: str = "."
    """The directory for templates of pods."""

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
    environment = _told(request, in_pod=False) if request.drives_here else {}
    return SparkCommandView(environment=environment, command=command, files=_files(request))


def _told(request: SubmitRequest, *, in_pod: bool) -> dict[str, str]:
    """Returns the variables by which a process knows its bundles."""
    told = {
        ENV: request.env or "",
        BUNDLES: ",".join(request.bundles),
        IDS_DIR: "" if request.is_python and not in_pod else request.ids_dir,
        "TORRENTDIST_GATEWAY": request.gateway,
    }
    return {name: text for name, text in told.items() if text}


def _settings(request: SubmitRequest) -> Iterator[tuple[str, str]]:
    """Yields what the engine needs, as far as neither the user nor Spark's files say it."""
    in_pods = request.engine is SparkEngine.KUBERNETES
    if in_pods:
        yield from _of_pods(request)
    elif request.is_python:
        yield PYTHON, program_of(request.ids_dir)
    for name, text in _told(request, in_pod=in_pods).items():
        yield f"spark.executorEnv.{name}", text
        if not request.drives_here and request.engine is SparkEngine.YARN:
            yield f"spark.yarn.appMasterEnv.{name}", text
        if not request.drives_here and in_pods:
            yield f"spark.kubernetes.driverEnv.{name}", text
    if not request.drives_here and request.engine is SparkEngine.YARN and not request.setting("spark.yarn.am.waitTime"):
        yield "spark.yarn.am.waitTime", PATIENCE


def _of_pods(request: SubmitRequest) -> Iterator[tuple[str, str]]:
    """Yields what gives pods their bundles as volumes: they start with them, so nothing waits in
    them."""
    if request.env is not None:
        yield PYTHON, f"{request.ids_dir.rstrip('/')}/{request.env}/bin/python3"
    if request.drives_with_bundle:
        yield DRIVER_PYTHON, program_of(request.ids_dir)
    for path in _files(request):
        for side in ("executor",) if request.drives_here else ("driver", "executor"):
            if not request.setting(f"spark.kubernetes.{side}.podTemplateFile"):
                yield f"spark.kubernetes.{side}.podTemplateFile", path


def _files(request: SubmitRequest) -> dict[str, str]:
    bundles = all_bundles(request.env, request.bundles)
    if request.engine is not SparkEngine.KUBERNETES or not bundles:
        return {}
    text = pod_template(bundles, request.ids_dir)
    return {template_path(request.templates, text): text}


def hosts_to_wait_for(request: SubmitRequest, share: float | None) -> float:
    """Returns the share of hosts that must have the bundles before the application starts. Python
    and pods wait for them; a JVM does not."""
    if share is not None:
        return share
    return 0.0 if request.is_python or request.engine is SparkEngine.KUBERNETES else 1.0


def all_bundles(env: BundleId | None, bundles: Sequence[BundleId]) -> list[BundleId]:
    return list(dict.fromkeys([*([env] if env else []), *bundles]))
