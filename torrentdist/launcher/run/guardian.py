"""The small process above each run: it keeps the run's output, watches its lease, and ends it.

It runs outside the run's namespaces. Always: no process of the run outlives the lease, even if the
supervisor or the run's init is dead or stopped. The status says "gone" only when nothing of the run
is left. If this process dies, the kernel kills the init, and with it the run. Never: import
anything but the standard library. Each worker has a guardian, so it is quick and small.
Longer than most files: one process with one loop, which must stay quick to start.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time

from torrentdist.launcher import bare_program, privileges
from torrentdist.launcher.job_users import NOBODY, job_users
from torrentdist.launcher.privileges import User
from torrentdist.launcher.process_tree import birth_of, kill_descendants
from torrentdist.launcher.run import run_spec, run_view
from torrentdist.launcher.run.control_group import ControlGroup
from torrentdist.launcher.run.namespaces import wrapped
from torrentdist.launcher.run.output_log import CHUNK, OutputLog
from torrentdist.launcher.run.run_files import GUARDIAN_LOG, LOCK, RUN_MARK, SPEC, STATUS, write_whole
from torrentdist.launcher.run.run_init import CANNOT_START, KILL_PERIOD_SECS, KILLED, LEASE_DIR, MOST_BYTES
from torrentdist.launcher.run.run_lease import LeaseStep, LeaseTerm, clock
from torrentdist.launcher.run.run_spec import RunSpec
from torrentdist.launcher.run.run_view import FREE_FD

INIT = "torrentdist.launcher.run.run_init"
CREDENTIALS = struct.Struct("3i")


class Guardian:
    def __init__(self, home: str, spec: RunSpec, caller: User, namespaces: bool, groups: str) -> None:
        """`groups` is the directory in which each run has a control group; empty: runs have
        none."""
        self._home = home
        self._spec = spec
        self._caller = caller
        self._namespaces = namespaces
        self._groups = groups
        self._group: ControlGroup | None = None
        self._term = LeaseTerm(spec.lease_file, spec.run, spec.grace)
        self._child = 0
        """Pid of bubblewrap, or of the init itself where runs have no namespaces."""
        self._init = self._worker = 0
        self._code: int | None = None
        self._reason = self._failure = ""
        self._asked_to_stop = self._asked_to_kill = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._logs: dict[int, OutputLog] = {}
        """The worker's output streams, by the descriptor that each is read from."""
        self._control: socket.socket | None = None
        """Socket to the init; None once the init has closed its end."""

    def run(self) -> None:
        if self._term.over:
            self._write_status("gone", reason="lease")
            return
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        try:
            self._start()
        except (OSError, ValueError) as exc:
            self._code, self._failure = CANNOT_START, str(exc)
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
        if self._namespaces:
            run_view.hand_over(self._spec, self._caller)
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
            self._logs[out] = OutputLog(self._home, name, self._spec.log_bytes, self._spec.log_files)

    def _become_init(self, guardian: int, stdout: int, stderr: int, control: socket.socket) -> None:
        command = bare_program.command(INIT)
        lease_dir, lease = os.path.split(self._spec.lease_file)
        leases = os.open(lease_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        privileges.act_as_root()
        if self._group is not None:
            self._group.enter()
        if self._namespaces:
            files = run_view.files_of(self._spec, self._caller)
            command = wrapped(command, files, privileged=os.geteuid() == 0)
            privileges.die_with_parent()
            if os.getppid() != guardian:
                os._exit(CANNOT_START)
        orders = os.memfd_create("specification")
        with os.fdopen(orders, "wb", closefd=False) as file:
            # The run does not see the lease's directory. Only this descriptor leads there.
            file.write(self._spec._replace(lease_file=f"/proc/self/fd/{LEASE_DIR}/{lease}").encode())
        os.lseek(orders, 0, os.SEEK_SET)
        nothing = os.open(os.devnull, os.O_RDONLY)
        fds = [
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD)
            for fd in (nothing, stdout, stderr, control.fileno(), orders, leases)
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
        """Reads every message that the init has sent so far."""
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
            # The init does not know its pid on the host; the kernel translates it.
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
            self._report_start()

    def _report_start(self) -> None:
        self._write_status("running")
        with contextlib.suppress(OSError):  # the supervisor may have died
            os.write(1, b"running\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)

    def _copy(self, fd: int) -> bool:
        """Moves one chunk of output to its log. Returns False if there was none."""
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
        """Collects children that have ended. Returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._hear()  # messages that it sent before it ended
                self._note_end(os.waitstatus_to_exitcode(status))

    def _note_end(self, code: int) -> None:
        """Decides the exit code if the init ended without a word: it was killed, or could not
        begin."""
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
        """Kills the processes of the run until none is left. Orphans become our children, so none
        is missed."""
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


def _close_inherited() -> None:
    """Closes everything but the standard streams. libtorrent's sockets are inherited."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of this very listing
                os.close(int(name))


def main(arguments: list[str]) -> int:
    home, run, how, uid, gid, users, groups = arguments
    caller = User(int(uid), int(gid))
    _close_inherited()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    privileges.adopt_orphans()
    privileges.act_as(caller)
    os.dup2(os.open(f"{home}/{GUARDIAN_LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), 2)
    # Held until this process ends: a process that gets this lock knows that the guardian is gone.
    lock = os.open(f"{home}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(f"{home}/{SPEC}", "rb") as file:
        spec = run_spec.parse(file.read(run_spec.MOST_BYTES + 1), caller, job_users(users) if users else NOBODY)
    if spec.run != run:
        return 1
    Guardian(home, spec, caller, how == "namespaces", groups).run()
    return 0
