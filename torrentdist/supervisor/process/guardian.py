"""The small process above each run, outside its namespaces: keeps its output, watches its lease, and ends it.

Always: no process of the run outlives the lease, even if the supervisor or the run's init is dead or stopped; this
process says "gone" only when nothing of the run is left. If it dies, the kernel kills the init, and with it the run.
Never: import anything but the standard library (there is one for each worker, so it is quick and small).
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time

from torrentdist.launcher import bare_program, privileges, run_spec
from torrentdist.launcher.control_group import ControlGroup
from torrentdist.launcher.namespaces import wrapped
from torrentdist.launcher.privileges import User
from torrentdist.launcher.process_tree import birth_of, kill_descendants
from torrentdist.launcher.run_init import CANNOT_START, KILL_PERIOD_SECS, KILLED, MOST_BYTES
from torrentdist.launcher.run_lease import NEVER, LeaseStep, LeaseTerm, clock, read_lease
from torrentdist.launcher.run_spec import RunSpec

__all__ = ["NEVER", "birth_of", "clock", "read_lease", "write_whole"]

SPEC, STATUS, LOCK, GUARDIAN_LOG = "spec.json", "status.json", "lock", "guardian.log"
INIT = "torrentdist.launcher.run_init"
RUN_MARK = "TORRENTDIST_RUN"
"""In the environment of every process of a run: its id."""

CHUNK = 65536
FREE_FD = 16
"""Descriptors from here on are not the ones that an init begins with."""
CREDENTIALS = struct.Struct("3i")


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
    def __init__(self, home: str, spec: RunSpec, caller: User, namespaces: bool, groups: str) -> None:
        """`groups`: the directory in which each run has a control group; empty: there is none."""
        self._home = home
        self._spec = spec
        self._caller = caller
        self._namespaces = namespaces
        self._groups = groups
        self._group: ControlGroup | None = None
        self._term = LeaseTerm(spec.lease_file, spec.run, spec.grace)
        self._child = 0
        """bubblewrap, or the init itself."""
        self._init = self._worker = 0
        self._code: int | None = None
        self._reason = self._failure = ""
        self._asked_to_stop = self._asked_to_kill = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._logs: dict[int, Log] = {}
        self._control: socket.socket | None = None
        """To the init; None: it has closed its end."""

    def run(self) -> None:
        if self._term.over:
            self._write_status("gone", reason="lease")
            return
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        self._start()
        privileges.become_keeping_kill(self._caller)
        while self._code is None:
            self._wait()
            self._reap()
            self._keep_time()
        self._end_tree()
        self._drain()
        self._write_status("gone", reason=self._reason)

    # the init

    def _start(self) -> None:
        streams = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.setblocking(False)
        privileges.act_as_root()
        self._group = ControlGroup(self._groups, self._spec.run)
        privileges.act_as(self._caller)
        guardian = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                self._become_init(guardian, streams[0][1], streams[1][1], theirs)
            except BaseException as exc:
                theirs.send(f"failed {exc}".encode(errors="replace")[:MOST_BYTES])
            os._exit(CANNOT_START)
        theirs.close()
        self._control = ours
        for (out, end), name in zip(streams, ("stdout", "stderr"), strict=True):
            os.close(end)
            os.set_blocking(out, False)
            self._logs[out] = Log(self._home, name, self._spec.log_bytes, self._spec.log_files)

    def _become_init(self, guardian: int, stdout: int, stderr: int, control: socket.socket) -> None:
        command = bare_program.command(INIT)
        privileges.act_as_root()
        if self._group is not None:
            self._group.enter()
        if self._namespaces:
            command = wrapped(command, self._spec.read_only, privileged=os.geteuid() == 0)
            privileges.die_with_parent()
            if os.getppid() != guardian:
                os._exit(CANNOT_START)
        orders = os.memfd_create("specification")
        with os.fdopen(orders, "wb", closefd=False) as file:
            file.write(self._spec.encode())
        os.lseek(orders, 0, os.SEEK_SET)
        nothing = os.open(os.devnull, os.O_RDONLY)
        fds = [
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD)
            for fd in (nothing, stdout, stderr, control.fileno(), orders)
        ]
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.execvpe(command[0], command, {"PATH": os.environ.get("PATH", os.defpath), RUN_MARK: self._spec.run})

    def _on_signal(self, number: int, _: object) -> None:
        self._asked_to_stop |= number == signal.SIGTERM
        self._asked_to_kill |= number == signal.SIGUSR1

    def _wait(self) -> None:
        poll = select.poll()
        for fd in (self._wake_in, *self._logs, *([self._control.fileno()] if self._control else [])):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(max(0.0, self._term.next_at - clock()) * 1000 + 1):
            if fd == self._wake_in:
                os.read(fd, CHUNK)
            elif fd in self._logs:
                self._copy(fd)
            else:
                self._hear()

    def _hear(self) -> None:
        """Everything that the init has said so far."""
        while self._control is not None:
            try:
                message, extra, _, _ = self._control.recvmsg(MOST_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._control.close()
                self._control = None
                return
            # The kernel tells the sender's pid as this process sees it.
            pid = next((CREDENTIALS.unpack(data)[0] for _, kind, data in extra if kind == socket.SCM_CREDENTIALS), 0)
            self._note(pid, *message.decode(errors="replace").partition(" ")[::2])

    def _note(self, pid: int, word: str, rest: str) -> None:
        if word == "begun":
            self._init = pid
            self._write_status("starting")
        elif word == "worker":
            self._worker = pid
        elif word == "exit":
            code, _, why = rest.partition(" ")
            self._code, self._reason = int(code), self._reason or why
        else:
            self._failure = rest
            self._tell_of_start()

    def _tell_of_start(self) -> None:
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
                self._hear()  # its last words
                self._note_end(os.waitstatus_to_exitcode(status))

    def _note_end(self, code: int) -> None:
        """Of the init, if it has not said how the worker ended: it was killed, or could not begin."""
        if self._code is None and self._init:
            self._code = KILLED
        elif self._code is None:
            self._code = CANNOT_START
            self._failure = self._failure or f"the run's init did not start (code {code}); stderr may say why"

    # its time

    def _keep_time(self) -> None:
        if self._code is not None:
            return
        now = clock()
        if self._asked_to_stop and not self._term.stopping:
            self._term.ask_to_stop(now)
            self._stop("stop")
        due = LeaseStep.KILL if self._asked_to_kill else self._term.due(now)
        if due is LeaseStep.STOP:
            self._stop("lease")
        elif due is LeaseStep.KILL:
            self._reason = self._reason or ("kill" if self._asked_to_kill else "lease")
            self._end_tree()

    def _stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._control is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._control.send(reason.encode())

    def _end_tree(self) -> None:
        """Kill whatever is left until nothing is. Orphans become our children, so none is missed."""
        while self._reap():
            if self._group is not None:
                self._group.kill()
            kill_descendants()
            for fd in list(self._logs):
                self._copy(fd)
            time.sleep(KILL_PERIOD_SECS)

    def _write_status(self, state: str, reason: str = "") -> None:
        status = {
            "run": self._spec.run,
            "state": state,
            "guardian": os.getpid(),
            "guardian_birth": birth_of(os.getpid()),
            "init": self._init,
            "init_birth": birth_of(self._init) if self._init else None,
            "pid": self._worker,
            "exit_code": self._code,
            "reason": reason,
            "detail": self._failure,
            "namespaces": self._namespaces,
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


def main(arguments: list[str]) -> int:
    home, run, how, uid, gid, groups = arguments
    caller = User(int(uid), int(gid))
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    privileges.adopt_orphans()
    privileges.act_as(caller)
    os.dup2(os.open(f"{home}/{GUARDIAN_LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), 2)
    # Held to the end: another process that gets this lock knows that no other guardian of this worker lives.
    lock = os.open(f"{home}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(f"{home}/{SPEC}", "rb") as file:
        spec = run_spec.parse(file.read(run_spec.MOST_BYTES + 1), caller)
    if spec.run != run:
        return 1
    Guardian(home, spec, caller, how == "namespaces", groups).run()
    return 0
