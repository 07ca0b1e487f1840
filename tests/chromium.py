"""Debian's Chromium without a window, driven over a pipe: opens pages, reads them, and takes
pictures of them.

Always: it runs as an unprivileged user where it can, with a profile directory of its own, and is
gone after the test.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patient

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
WORDS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it opens pages of this test only, and containers often forbid what the sandbox needs
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--ignore-certificate-errors",
    "--force-color-profile=srgb",
)
ANSWER_SECS = 30.0
LOOK_SECS = 0.05
FIRST_FREE = 10
"""Chromium reads from descriptor 3 and writes to 4; ours are above these."""
NOBODY = "nobody"


class Chromium:
    def __init__(self, home: Path) -> None:
        command_read, self._write = _pipe()
        self._read, answer_write = _pipe()
        as_nobody = os.geteuid() == 0

        def place() -> None:
            os.dup2(command_read, 3)
            os.dup2(answer_write, 4)

        if as_nobody:
            user = pwd.getpwnam(NOBODY)
            os.chown(home, user.pw_uid, user.pw_gid)
        self._process = subprocess.Popen(
            [PROGRAM, *WORDS, f"--user-data-dir={home}/profile"],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home)},
            cwd=home,
            pass_fds=(3, 4, command_read, answer_write),
            preexec_fn=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=NOBODY if as_nobody else None,
            extra_groups=[] if as_nobody else None,
        )
        os.close(command_read)
        os.close(answer_write)
        self._left = b""
        self._number = 0

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10.0)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Sends one command of the DevTools protocol, and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECS
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                pytest.fail(f"Chromium did not answer {what} within {ANSWER_SECS:g} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                pytest.fail(f"Chromium ended during {what}")
            self._left += part
        line, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self) -> Tab:
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session)


class Tab:
    """One page, with cookies of its own."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.call("Page.enable")
        self.size(1200, 900)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """Prefers `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def go(self, url: str) -> None:
        """Opens an address, and returns when its page is complete."""
        self.value("window.before = true")
        self.call("Page.navigate", url=url)
        self.until("!window.before && document.readyState === 'complete'", f"{url} is complete")

    def submit(self, script: str) -> None:
        """Runs a script that leads to another page, and returns when that is complete."""
        self.value("window.before = true")
        self.value(script)
        self.until("!window.before && document.readyState === 'complete'", f"a page after {script}")

    def value(self, script: str) -> Any:
        """Returns the value of an expression; of a promise, what it becomes."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, what: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + patient(seconds)
        while True:
            with contextlib.suppress(AssertionError):  # between two pages there is none
                if self.value(script):
                    return
            if time.monotonic() > deadline:
                pytest.fail(f"not within {patient(seconds):g} s: {what}; the page says: {self.text()[:2000]}")
            time.sleep(LOOK_SECS)

    def text(self) -> str:
        return str(self.value("document.body ? document.body.innerText : ''"))

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self) -> bytes:
        """Returns the page as a PNG, as much as the window shows."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"])


def _pipe() -> tuple[int, int]:
    """Returns both ends of a pipe, above the descriptors that Chromium uses."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


@contextlib.contextmanager
def running_chromium() -> Iterator[Chromium]:
    """Not below pytest's directories, which other users cannot enter."""
    home = Path(tempfile.mkdtemp(prefix="chromium-"))
    try:
        browser = Chromium(home)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
