"""An embedded ZooKeeper for development and tests: one real server, or an ensemble of three, on
loopback.

Always: every server is a process group of its own that outlives its starter until stopped. Nothing
is written outside the given directory. Never: hold data that matters; nothing is fsynced. Calls
block. Longer than most files: a server and the ensemble of three are described together.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torrentdist.host.process.listening_sockets import free_ports
from torrentdist.model.errors import TorrentdistError

HOST = "127.0.0.1"
TICK_MS = 500
_STANDALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_QUORUM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_START_ATTEMPTS = 3

# The jars that a server loads, of the 300 next to PySpark. Naming them halves the start time.
_PYSPARK_JARS = (
    *("zookeeper", "netty", "jackson", "metrics-core", "snappy-java", "commons-io", "commons-cli"),
    *("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl"),
)

_JVM = (
    "-Xshare:auto",  # class data of the JDK is mapped, not parsed
    "-XX:TieredStopAtLevel=1",  # these servers live for minutes: start fast rather than run fast
    "-XX:+UseSerialGC",
    "-Xmx128m",
    "-XX:-UsePerfData",  # writes to /tmp otherwise
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",  # KiB per transaction log; 64 MiB by default
)

CLASSES = Path(sys.prefix, "share", "torrentdist", "zookeeper.jsa")
"""Where java_classes.py puts the classes of a server, ready to be mapped."""

_LOG4J = """\
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1} %m%n
"""


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home, "bin", "java") if home else None
    java = str(candidate) if candidate and candidate.exists() else shutil.which("java")
    if java is None:
        raise TorrentdistError("java_missing", what="an embedded ZooKeeper")
    return java


def find_classpath() -> str:
    """Finds the jars of PySpark, of a Debian installation, or of $ZOOKEEPER_HOME, in this order."""
    for found in (_pyspark_jars(), _debian_jars(), _apache_jars()):
        if found:
            return ":".join(str(jar) for jar in found)
    raise TorrentdistError(
        "missing_dependency",
        detail="there is no ZooKeeper: not beside PySpark, not of Debian, not in $ZOOKEEPER_HOME",
        package="torrentdist[spark]",
    )


def _pyspark_jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    jars = Path(spec.origin).parent / "jars"
    found = [jar for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(_PYSPARK_JARS)]
    return found if any(jar.name.startswith("zookeeper") for jar in found) else []


def _debian_jars() -> list[Path]:
    jars = Path("/usr/share/java")
    if not (jars / "zookeeper.jar").exists():
        return []
    wanted = ("zookeeper", "slf4j", "netty", "log4j", "jackson", "metrics", "commons-cli", "commons-io", "snappy")
    return [Path("/etc/zookeeper/conf"), *(jar for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(wanted))]


def _apache_jars() -> list[Path]:
    home = os.environ.get("ZOOKEEPER_HOME")
    if not home:
        return []
    return sorted([*Path(home).glob("zookeeper*.jar"), *Path(home, "lib").glob("*.jar")])


class SecurePort(msgspec.Struct, frozen=True):
    """What a server needs to listen with TLS too, on a free port of loopback."""

    keystore: Path
    """Its key and its certificate, in one PEM file."""
    ca: Path
    """The CA that has to have issued its clients' certificates."""

    def lines(self, port: int) -> list[str]:
        """Returns what zoo.cfg says of this port."""
        return [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={port}",
            f"secureClientPortAddress={HOST}",
            f"ssl.keyStore.location={self.keystore}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.ca}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
            "client.certReload=true",  # both files are read again after a rotation
        ]


class ZooKeeperServer:
    """One server process.

    `config` holds lines of zoo.cfg beyond those of every server. `within` is a command that starts
    it elsewhere, for example in another network, where it listens on `host`.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        number: int = 0,
        config: Sequence[str] = (),
        host: str = HOST,
        within: Sequence[str] = (),
    ) -> None:
        self._host = host
        self._within = tuple(within)
        self.directory = directory
        self.port = port
        self.secure_port = 0
        """The port on which `config` makes it listen with TLS. 0: there is none."""
        self.number = number
        self._config = tuple(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log_file(self) -> Path:
        return self.directory / "zookeeper.log"

    def spawn(self, java: str = f"-XX:SharedArchiveFile={CLASSES}") -> None:
        """Starts the process, with this option for Java, and returns at once. Earlier data is
        kept."""
        program, classpath = find_java(), find_classpath()
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self.number:
            (data / "myid").write_text(str(self.number))
        lines = [
            f"tickTime={TICK_MS}",
            "initLimit=40",
            "syncLimit=4",  # a follower that is cut off stops serving before any session can have expired
            "minSessionTimeout=1000",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self._host}",
            *self._config,
        ]
        (self.directory / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (self.directory / "log4j2.properties").write_text(_LOG4J)
        command = [
            *self._within,
            program,
            *_JVM,
            java,
            f"-Djava.io.tmpdir={self.directory}",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            classpath,
            _QUORUM if self.number else _STANDALONE,
            str(self.directory / "zoo.cfg"),
        ]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
            )

    def command(self, word: str) -> str:
        """Returns the answer to a four-letter word, or an empty string."""
        try:
            with socket.create_connection((self._host, self.port), timeout=1.0) as sock:
                sock.sendall(word.encode())
                return b"".join(iter(lambda: sock.recv(65536), b"")).decode()
        except OSError:
            return ""

    def serves(self) -> bool:
        """Whether it accepts requests. A member of an ensemble without a quorum answers but does
        not serve."""
        return "Mode: " in self.command("srvr")

    def exited(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def port_was_taken(self) -> bool:
        return "Address already in use" in self.log_file.read_text(errors="replace")

    def pause(self) -> None:
        """Returns when the server has stopped: it may still answer for a moment after the
        signal."""
        self._signal(signal.SIGSTOP)
        if self._process is not None and self._process.poll() is None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the server, as a crash would."""
        self._signal(signal.SIGKILL)
        self._reap(10.0)

    def stop(self, timeout: float = 5.0) -> None:
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if not self._reap(timeout):
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _reap(self, timeout: float) -> bool:
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
        self._process = None
        return True


def wait_until_serving(servers: Sequence[ZooKeeperServer], timeout: float) -> None:
    """Returns when each server accepts requests. Raises `zookeeper_unavailable`."""
    deadline = time.monotonic() + timeout
    for server in servers:
        while not server.serves():
            if server.exited():
                raise TorrentdistError("zookeeper_unavailable", detail=f"it ended at once, see {server.log_file}")
            if time.monotonic() > deadline:
                raise TorrentdistError(
                    "zookeeper_unavailable", detail=f"not up within {timeout:g} s, see {server.log_file}"
                )
            time.sleep(0.02)


class EmbeddedZooKeeper:
    """One server or an ensemble of three in `directory`.

    `ports`: client ports, free ones by default. `within`: a command that runs each server, such as
    `env NAME=VALUE`. `secure`: listen with TLS too.
    """

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 1,
        ports: Sequence[int] = (),
        config: Sequence[str] = (),
        within: Sequence[str] = (),
        secure: SecurePort | None = None,
    ) -> None:
        if servers not in (1, 3):
            raise TorrentdistError("usage", detail="an embedded ZooKeeper has 1 server or 3")
        if ports and len(ports) != servers:
            raise TorrentdistError("usage", detail=f"{servers} ZooKeeper servers need as many ports")
        self.directory = directory.absolute()
        self._count = servers
        self._ports = tuple(ports)
        self._config = tuple(config)
        self._within = tuple(within)
        self._secure = secure
        self.start_seconds = 0.0
        self.servers: list[ZooKeeperServer] = []

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    @property
    def secure_addresses(self) -> list[str]:
        """The addresses for clients with TLS; empty without `secure`."""
        return [f"{HOST}:{server.secure_port}" for server in self.servers if server.secure_port]

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers if server.pid]

    def start(self, timeout: float = 30.0) -> None:
        """Starts every server and waits until all serve. Raises `zookeeper_unavailable`."""
        began = time.monotonic()
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.servers = self._plan()
            try:
                for server in self.servers:
                    server.spawn()
                self.wait_until_serving(timeout - (time.monotonic() - began))
                self.start_seconds = time.monotonic() - began
                return
            except BaseException as exc:
                taken = any(server.exited() and server.port_was_taken() for server in self.servers if server.pid)
                self.kill()
                # A free port can be taken before the server binds it; one that was asked for will
                # not get freer.
                if not (taken and isinstance(exc, TorrentdistError)):
                    raise
                if self._ports or attempt == _START_ATTEMPTS:
                    address = ", ".join(self.addresses)
                    raise TorrentdistError(
                        "port_in_use", what="ZooKeeper", address=address, detail="the address is already in use"
                    ) from exc
                shutil.rmtree(self.directory)

    def wait_until_serving(self, timeout: float) -> None:
        wait_until_serving(self.servers, timeout)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def _plan(self) -> list[ZooKeeperServer]:
        if self._secure is None:
            return self._planned([self._config] * self._count)
        ports = free_ports(self._count)
        servers = self._planned([(*self._config, *self._secure.lines(port)) for port in ports])
        for server, port in zip(servers, ports, strict=True):
            server.secure_port = port
        return servers

    def _planned(self, configs: Sequence[Sequence[str]]) -> list[ZooKeeperServer]:
        ports = list(self._ports) or free_ports(self._count)
        if self._count == 1:
            return [ZooKeeperServer(self.directory / "server-1", ports[0], config=configs[0], within=self._within)]
        inner = free_ports(2 * self._count)
        members = [
            f"server.{n + 1}={HOST}:{inner[2 * n]}:{inner[2 * n + 1]};{HOST}:{ports[n]}" for n in range(self._count)
        ]
        return [
            ZooKeeperServer(
                self.directory / f"server-{n + 1}",
                ports[n],
                number=n + 1,
                config=(*configs[n], *members),
                within=self._within,
            )
            for n in range(self._count)
        ]
