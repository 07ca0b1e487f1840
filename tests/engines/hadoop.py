"""HDFS and YARN as an operator runs them: a NameNode and a ResourceManager on one host, a DataNode
and a NodeManager on each of the others, every daemon a process of its own.

Always: Hadoop's own classes, from scripts/engines. One configuration, in /mnt/conf, for all hosts
and clients. Intervals are shorter than Hadoop's, so that a test waits seconds for a dead DataNode.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from engines.engine_hosts import EngineLab, java_home

from bench.lab.namespaces import ROOT, Host, wait_until

VERSION = "3.5.0"
FETCHED = ROOT / "build/engines"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
LIBRARIES = ("hadoop-client-api", "hadoop-client-runtime", "log4j", "slf4j", "jcl-over", "commons-", "snappy", "jsr305")
CONF = "/mnt/conf"
NAMENODE_WEB = 9870
START_SECS = 600.0
EXECUTOR_HOST_MB = 1024
"""Memory of a NodeManager: one of our executors, and one application master beside it."""

_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_CLASSES = {
    "namenode": "hdfs.server.namenode.NameNode",
    "datanode": "hdfs.server.datanode.DataNode",
    "resourcemanager": "yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "yarn.server.nodemanager.NodeManager",
}
HTTPFS_MAY = {"hadoop.proxyuser.root.hosts": "*", "hadoop.proxyuser.root.groups": "*"}
"""HttpFS runs as root, and asks HDFS in the name of its callers."""
FIFO = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
FILE_STORE = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
"""A ResourceManager that is started again knows its applications."""
_LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class Hadoop:
    def __init__(self, lab: EngineLab, head: Host, workers: Sequence[Host]) -> None:
        self._lab = lab
        self.head = head
        self.workers = workers
        self._write_configuration()

    @property
    def web(self) -> str:
        """The NameNode's host and port for WebHDFS."""
        return f"{self.head.name}:{NAMENODE_WEB}"

    def start(self) -> None:
        """Starts all daemons at the same time. They wait for each other."""
        self.start_daemon("resourcemanager", self.head)
        for host in self.workers:
            self.start_daemon("datanode", host)
            self.start_daemon("nodemanager", host)
        formatted = self._lab.call(self.head, self._java("namenode", "-format", "-nonInteractive"))
        if formatted.returncode:
            raise RuntimeError(formatted.stderr[-3000:])
        self.start_namenode()
        wait_until(lambda: len(self.live_datanodes()) == len(self.workers), "DataNodes", START_SECS)
        self.admin("MKDIRS", "/user/root", permission="777")
        self.admin("MKDIRS", "/tmp", permission="1777")
        wait_until(lambda: self._nodes() == len(self.workers), "NodeManagers", START_SECS)

    def start_namenode(self) -> None:
        self.start_daemon("namenode", self.head)
        wait_until(lambda: self._overview() is not None, "the NameNode", START_SECS)

    def start_daemon(self, kind: str, host: Host) -> None:
        self._lab.start(host, self._java(kind), name=f"{kind}-{host.name}", variables=self.variables())

    def live_datanodes(self) -> list[str]:
        overview = self._overview()
        return sorted(name.partition(":")[0] for name in json.loads(overview["LiveNodes"])) if overview else []

    def is_safe(self) -> bool:
        """Whether the NameNode is in safe mode."""
        overview = self._overview()
        return overview is None or bool(overview["Safemode"])

    def admin(self, operation: str, path: str, user: str = "root", **parameters: str) -> Any:
        """Asks WebHDFS, as a user, for an operation that changes something."""
        values = {"op": operation, "user.name": user, **parameters}
        query = "&".join(f"{key}={value}" for key, value in values.items())
        request = urllib.request.Request(f"http://{self.web}/webhdfs/v1{path}?{query}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def dfsadmin(self, *arguments: str) -> None:
        """Runs the operator's command `hdfs dfsadmin`."""
        done = self._lab.call(self.head, self._command("org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def yarn(self, path: str) -> Any:
        """Reads from the ResourceManager's REST interface."""
        with urllib.request.urlopen(f"http://{self.head.name}:8088/ws/v1/cluster/{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def written(self) -> int:
        """Returns the bytes that DataNodes have written, each copy counted."""
        url = "http://{}:9864/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity-*"
        total = 0
        for host in self.workers:
            with urllib.request.urlopen(url.format(host.name), timeout=30) as answer:
                total += sum(int(bean["BytesWritten"]) for bean in json.loads(answer.read())["beans"])
        return total

    def variables(self) -> dict[str, str]:
        """Returns the environment of daemons and clients."""
        return {"HADOOP_CONF_DIR": CONF, "YARN_CONF_DIR": CONF, "JAVA_HOME": java_home(), "HADOOP_USER_NAME": "root"}

    def container_logs(self, application: str) -> str:
        """Returns what the application's containers printed, on all hosts."""
        found = [
            path for host in self.workers for path in (self._lab.srv(host) / "yarn/logs").glob(f"{application}/*/std*")
        ]
        return "\n".join(f"== {path.parent.name} {path.name}\n{path.read_text()[-3000:]}" for path in sorted(found))

    def _nodes(self) -> int:
        try:
            metrics = self.yarn("metrics")["clusterMetrics"]
        except (urllib.error.URLError, OSError):
            return 0
        return int(metrics["activeNodes"])

    def _overview(self) -> dict[str, Any] | None:
        url = f"http://{self.web}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                beans: list[dict[str, Any]] = json.loads(answer.read())["beans"]
        except (urllib.error.URLError, OSError):
            return None
        return beans[0] if beans and "LiveNodes" in beans[0] else None

    def _java(self, kind: str, *arguments: str) -> list[str]:
        return self._command(f"org.apache.hadoop.{_CLASSES[kind]}", *arguments)

    def _command(self, name: str, *arguments: str) -> list[str]:
        jars = [str(jar) for jar in sorted(SPARK_JARS.glob("*.jar")) if jar.name.startswith(LIBRARIES)]
        path = ":".join([CONF, str(FETCHED / "classes"), f"{FETCHED}/jars/*", *jars])
        return ["java", "-Xmx200m", *_JVM, "-cp", path, name, *arguments]

    def _write_configuration(self) -> None:
        conf = self._lab.shared / "conf"
        conf.mkdir()
        (conf / "log4j2.properties").write_text(_LOG4J)
        for file, values in _settings(self.head.name).items():
            properties = "".join(
                f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in values.items()
            )
            (conf / f"{file}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")


def _settings(head: str) -> Mapping[str, Mapping[str, object]]:
    return {
        "core-site": {"fs.defaultFS": f"hdfs://{head}:8020", "hadoop.tmp.dir": "/srv/hadoop", **HTTPFS_MAY},
        "hdfs-site": {
            "dfs.replication": 3,
            "dfs.namenode.http-address": f"{head}:{NAMENODE_WEB}",
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 2000,
            "dfs.namenode.stale.datanode.interval": 4000,
            "dfs.namenode.avoid.read.stale.datanode": "true",
            "dfs.namenode.avoid.write.stale.datanode": "true",
            "dfs.namenode.safemode.extension": 1000,
            "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
            "dfs.namenode.fs-limits.min-block-size": 1024,
        },
        "yarn-site": {
            "yarn.resourcemanager.hostname": head,
            "yarn.nodemanager.resource.memory-mb": EXECUTOR_HOST_MB,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.local-dirs": "/srv/yarn/local",
            "yarn.nodemanager.log-dirs": "/srv/yarn/logs",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
            "yarn.nodemanager.delete.debug-delay-sec": 600,
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.resourcemanager.scheduler.class": FIFO,
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 300,
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.resourcemanager.store.class": FILE_STORE,
            "yarn.resourcemanager.fs.state-store.uri": "file:///srv/resourcemanager",
            "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": 1000,
            "yarn.resourcemanager.connect.retry-interval.ms": 1000,
        },
        "capacity-scheduler": {},
    }
