"""The small process above each worker: starts it, keeps its output, and ends it with everything that it has started.

Always holds: no process of the worker outlives the lease, whatever becomes of the supervisor, and "gone" is said only
when none is left. Must not do: import anything but the standard library (it is run by its path, once per worker, and
has to be quick and small), or outlive a tree that it has not seen the end of.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

SPEC, STATUS, LOCK = "spec.json", "status.json", "lock"

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
KILL_PERIOD_SECS = 0.01
READ_TRIES = 5
CHUNK = 65536
NEVER = float("-inf")
CANNOT_START = 127

_libc = ctypes.CDLL(None, use_errno=True)


def clock() -> float:
    """Seconds since the host was booted, sleep included: no process of the host sees another."""
    return time.clock_gettime(CLOCK)


def birth_of(pid: int) -> int | None:
    """When a process was started, in ticks since boot: with it a pid is never mistaken. None: there is no such."""
    fields = _stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def descendants_of(root: int) -> set[int]:
    """Every process below `root`, dead ones that nobody has reaped included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat_of(int(name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    below = list(children.get(root, []))
    while below:
        pid = below.pop()
        found.add(pid)
        below.extend(children.get(pid, []))
    return found


def _stat_of(pid: int) -> list[str] | None:
    """From the state on: the name before it may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def read_lease(path: str, run: str) -> tuple[float, float]:
    """Until when to run, and when to be gone; NEVER if there is no lease for this run."""
    for _ in range(READ_TRIES):
        try:
            with open(path, encoding="ascii") as file:
                stop, kill = json.load(file)["runs"][run]
            return float(stop), float(kill)
        except ValueError:  # it may just be written over
            time.sleep(KILL_PERIOD_SECS)
        except (OSError, KeyError, TypeError):
            break
    return NEVER, NEVER


class Log:
    """One stream of output in files named by the offset at which they begin; the oldest go."""

    def __init__(self, directory: str, name: str, max_bytes: int, max_files: int) -> None:
        self._directory, self._name = directory, name
        self._max_bytes, self._max_files = max_bytes, max_files
        offsets = self._offsets()
        self._start = offsets[-1] if offsets else 0
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    @property
    def room(self) -> int:
        """How much to write at once."""
        left = self._max_bytes - self._size
        return min(CHUNK, left if left > 0 else self._max_bytes)

    def write(self, data: bytes) -> None:
        """What cannot be written is dropped: a full disk must not hold up the worker."""
        try:
            if self._size >= self._max_bytes:
                self._rotate()
            self._size += os.write(self._fd, data)
        except OSError:
            pass

    def _rotate(self) -> None:
        os.close(self._fd)
        self._start += self._size
        self._fd, self._size = self._open(), 0
        for offset in self._offsets()[: -self._max_files]:
            os.unlink(self._path(offset))

    def _offsets(self) -> list[int]:
        parts = (name.partition(".") for name in os.listdir(self._directory))
        return sorted(int(rest) for name, _, rest in parts if name == self._name and rest.isdigit())

    def _open(self) -> int:
        return os.open(self._path(self._start), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{self._name}.{offset:015d}"


class Guardian:
    def __init__(self, home: str, spec: dict[str, Any]) -> None:
        self._home = home
        self._spec = spec
        self._stop_at, self._kill_at = self._lease()
        self._child = 0
        self._code: int | None = None
        self._reason = self._failure = ""
        self._stopping = False
        self._patience = NEVER
        """Until when a stop that was asked for may take, while the lease lasts."""
        self._asked_to_stop = self._asked_to_kill = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._logs: dict[int, Log] = {}
        self._told = -1
        """Says why the program could not be started, or ends when it has taken over."""

    def run(self) -> None:
        if clock() >= self._stop_at:
            self._write_status("gone", reason="lease")
            return
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        self._start()
        while self._code is None:
            self._wait()
            self._reap()
            self._keep_time()
        self._end_tree()
        self._drain()
        if self._told >= 0:
            self._hear_of_start()
        self._write_status("gone", reason=self._reason)

    # the child

    def _start(self) -> None:
        streams = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
        told_in, told_out = os.pipe2(os.O_CLOEXEC)
        guardian = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                _become_worker(self._spec, guardian, streams[0][1], streams[1][1])
            except BaseException as exc:
                os.write(told_out, str(exc).encode(errors="replace")[:1000])
            os._exit(CANNOT_START)
        self._child = child
        os.close(told_out)
        for (out, end), name in zip(streams, ("stdout", "stderr"), strict=True):
            os.close(end)
            os.set_blocking(out, False)
            self._logs[out] = Log(self._home, name, self._spec["log_bytes"], self._spec["log_files"])
        self._told = told_in

    def _on_signal(self, number: int, _: object) -> None:
        self._asked_to_stop |= number == signal.SIGTERM
        self._asked_to_kill |= number == signal.SIGUSR1

    def _wait(self) -> None:
        poll = select.poll()
        for fd in (self._wake_in, *self._logs, *([self._told] if self._told >= 0 else [])):
            poll.register(fd, select.POLLIN)
        due = self._kill_at if self._stopping else self._stop_at
        for fd, _ in poll.poll(max(0.0, due - clock()) * 1000 + 1):
            if fd == self._wake_in:
                os.read(fd, CHUNK)
            elif fd == self._told:
                self._hear_of_start()
            else:
                self._copy(fd)

    def _hear_of_start(self) -> None:
        self._failure = os.read(self._told, 1000).decode(errors="replace")
        os.close(self._told)
        self._told = -1
        self._write_status("running")
        with contextlib.suppress(OSError):  # the supervisor may be gone
            os.write(1, b"running\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)

    def _copy(self, fd: int) -> bool:
        """Whether there was anything."""
        try:
            data = os.read(fd, self._logs[fd].room)
        except BlockingIOError:
            return False
        if not data:
            del self._logs[fd]
            os.close(fd)
            return False
        self._logs[fd].write(data)
        return True

    def _drain(self) -> None:
        for fd in list(self._logs):
            while self._copy(fd):
                pass

    def _reap(self) -> bool:
        """Whether there are children left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    # its time

    def _lease(self) -> tuple[float, float]:
        return read_lease(self._spec["lease_file"], self._spec["run"])

    def _keep_time(self) -> None:
        if self._code is not None:
            return
        now = clock()
        if self._asked_to_stop and not self._stopping:
            self._patience = now + self._spec["grace"]
            self._begin_stop("stop", min(self._patience, self._lease()[1]))
        if self._stopping and now >= self._kill_at:
            self._kill_at = min(self._patience, self._lease()[1])  # was it renewed?
        if self._asked_to_kill or (self._stopping and now >= self._kill_at):
            self._begin_end("kill")
            return
        if not self._stopping and now >= self._stop_at:
            self._stop_at, self._kill_at = self._lease()  # was it renewed?
            if now >= self._kill_at:
                self._begin_end("lease")
            elif now >= self._stop_at:
                self._begin_stop("lease", self._kill_at)

    def _begin_stop(self, reason: str, kill_at: float) -> None:
        self._stopping, self._kill_at = True, kill_at
        self._reason = self._reason or reason
        with contextlib.suppress(ProcessLookupError, PermissionError):  # dead already
            os.killpg(self._child, signal.SIGTERM)
            os.killpg(self._child, signal.SIGCONT)

    def _begin_end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._end_tree()

    def _end_tree(self) -> None:
        """Kill whatever is left until nothing is. Its orphans come to us, so none is missed."""
        while self._reap():
            for pid in descendants_of(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):  # dead already
                    os.kill(pid, signal.SIGKILL)
            for fd in list(self._logs):
                self._copy(fd)
            time.sleep(KILL_PERIOD_SECS)

    def _write_status(self, state: str, reason: str = "") -> None:
        status = {
            "run": self._spec["run"],
            "state": state,
            "guardian": os.getpid(),
            "guardian_birth": birth_of(os.getpid()),
            "pid": self._child,
            "exit_code": self._code,
            "reason": reason,
            "detail": self._failure,
            "at": clock(),
        }
        write_whole(f"{self._home}/{STATUS}", json.dumps(status).encode())


def write_whole(path: str, data: bytes) -> None:
    """Readers see the old content or the new one. It need not survive the host.

    On a full disk a small file is written over instead, which takes no room; who reads then may have to look again."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(path):
            raise
        _write_over(path, data)


def _write_over(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data.ljust(os.fstat(fd).st_size), 0)
    finally:
        os.close(fd)


def _become_worker(spec: dict[str, Any], guardian: int, stdout: int, stderr: int) -> None:
    os.setsid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guardian:
        os._exit(CANNOT_START)
    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    memory = spec["memory_bytes"]
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(spec["cwd"])
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def main(home: str, run: str) -> int:
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    # Held to the end: who has it knows that no other guardian of this worker lives.
    lock = os.open(f"{home}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(f"{home}/{SPEC}", encoding="utf-8") as file:
        spec = json.load(file)
    if spec["run"] != run:
        return 1
    Guardian(home, spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
