"""The first process of a run: it starts the worker, waits for it, and ends the run with its lease
or its guardian.

Always: nothing of the run is left when this process has ended. In a PID namespace the kernel sees
to that, even if this process is killed. Elsewhere this process first kills all its descendants.
Never: import anything but the standard library.

    descriptors    0 nothing, 1 and 2 the worker's output, 3 the guardian's socket,
                   4 the specification, 5 the directory of the lease
    to guardian    begun, worker (sent by the worker itself), running, failed REASON, exit CODE WHY
    from guardian  stop, lease
"""

import contextlib
import os
import resource
import select
import signal
import socket
import time

from torrentdist.launcher import privileges
from torrentdist.launcher.process_tree import kill_descendants
from torrentdist.launcher.run import run_spec
from torrentdist.launcher.run.run_lease import LeaseStep, LeaseTerm, clock
from torrentdist.launcher.run.run_spec import RunSpec

CONTROL, SPECIFICATION, LEASE_DIR = 3, 4, 5
KILLED = 128 + signal.SIGKILL
CANNOT_START = 127
KILL_PERIOD_SECS = 0.01
MOST_BYTES = 1000
"""Most bytes in a message between guardian and init."""


class Init:
    def __init__(self, control: socket.socket, spec: RunSpec) -> None:
        self._control = control
        self._spec = spec
        self._term = LeaseTerm(spec.lease_file, spec.run, spec.grace)
        self._wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._worker = 0
        self._starting = -1
        """Descriptor that says why the program could not be started, or ends when the program has
        taken over."""
        self._code: int | None = None
        self._why = ""

    def run(self) -> None:
        try:
            self._say("begun")
            if self._term.over:
                self._code, self._why = KILLED, "lease"
            else:
                self._start()
            while self._code is None:
                self._wait()
                self._reap()
                self._keep_time()
        finally:
            self._end_all()
        self._say(f"exit {self._code} {self._why}")

    def _start(self) -> None:
        self._starting, told = os.pipe2(os.O_CLOEXEC)
        init = os.getpid()
        self._worker = os.fork()
        if self._worker == 0:
            try:
                self._say("worker")
                become_worker(self._spec, init)
            except BaseException as exc:
                os.write(told, str(exc).encode(errors="replace")[: MOST_BYTES // 2])
            os._exit(CANNOT_START)
        os.close(told)

    def _wait(self) -> None:
        poll = select.poll()
        for fd in (self._wake_in, self._control.fileno(), self._starting):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(max(0.0, self._term.next_at - clock()) * 1000 + 1):
            if fd == self._wake_in:
                os.read(fd, MOST_BYTES)
            elif fd == self._starting:
                self._hear_of_start()
            else:
                self._obey()

    def _hear_of_start(self) -> None:
        failure = os.read(self._starting, MOST_BYTES).decode(errors="replace")
        os.close(self._starting)
        self._starting = -1
        self._say(f"failed {failure}" if failure else "running")

    def _obey(self) -> None:
        try:
            order = self._control.recv(MOST_BYTES)
        except OSError:  # it died before it had read everything
            order = b""
        if not order:
            self._code, self._why = KILLED, "guardian"
        elif not self._term.stopping:
            if order == b"stop":
                self._term.ask_to_stop(clock())
            else:
                self._term.stop_by_lease()
            self._stop(order.decode())

    def _reap(self) -> bool:
        """Collects children that have ended. Returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._worker:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
                if self._starting >= 0:
                    self._hear_of_start()

    def _keep_time(self) -> None:
        due = LeaseStep.NOTHING if self._code is not None else self._term.due(clock())
        if due is LeaseStep.STOP:
            self._stop("lease")
        elif due is LeaseStep.KILL:
            self._code, self._why = KILLED, self._why or "lease"

    def _stop(self, why: str) -> None:
        self._why = why
        with contextlib.suppress(ProcessLookupError):  # dead already, or not yet in a session of its own
            os.killpg(self._worker, signal.SIGTERM)
            os.killpg(self._worker, signal.SIGCONT)

    def _end_all(self) -> None:
        """Kills all descendants. The first process of a PID namespace has only to end itself."""
        while os.getpid() != 1 and self._reap():
            kill_descendants()
            time.sleep(KILL_PERIOD_SECS)

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # the guardian is gone: the next look at the socket tells
            self._control.send(message.encode(errors="replace"))


def become_worker(spec: RunSpec, init: int) -> None:
    """Turns this process into the worker. It returns only by an exception."""
    os.setsid()
    privileges.become(spec.user)
    privileges.gain_nothing()
    privileges.die_with_parent()
    if os.getppid() != init:
        os._exit(CANNOT_START)
    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _limit(resource.RLIMIT_AS, spec.memory_bytes)
    _limit(resource.RLIMIT_NPROC, spec.processes)
    _limit(resource.RLIMIT_NOFILE, spec.open_files)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(spec.cwd)
    os.execvpe(spec.argv[0], spec.argv, spec.env)


def _limit(kind: int, value: int) -> None:
    """Sets a limit that the worker cannot raise; 0: it keeps the one that this process has."""
    if value:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def main(_: list[str]) -> int:
    if os.getpid() == 1:
        privileges.die_with_parent()
    control = socket.socket(fileno=CONTROL)
    for fd in (CONTROL, SPECIFICATION, LEASE_DIR):
        os.set_inheritable(fd, False)
    with os.fdopen(SPECIFICATION, "rb") as file:
        spec = run_spec.decode(file.read())
    if os.getpid() != 1:
        privileges.adopt_orphans()
    Init(control, spec).run()
    return 0
