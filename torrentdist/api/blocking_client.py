"""Client: the calls of the Python API for programs without an event loop, and for notebooks.

Always: a call works in every thread, also where an event loop runs, and after a fork. Ctrl-C ends
it and closes its connections.
Never: keep a thread, a connection or an event loop between two calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from torrentdist.api.async_client import AsyncClient
from torrentdist.model.configuration.config import Config

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Returns the method of Client that waits for this call of AsyncClient."""

    @functools.wraps(call)
    def blocking(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run(call(client._calls, *args, **kwargs))

    return blocking


def _with_arguments_of(
    _: Callable[P, AsyncClient],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    """Gives the constructor of Client the arguments of AsyncClient's."""
    return functools.wraps(AsyncClient.__init__)


class Client:
    """A cluster, as programs use it. AsyncClient describes the arguments and the calls."""

    @_with_arguments_of(AsyncClient)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._calls = AsyncClient(*args, **kwargs)

    upload = _blocking(AsyncClient.upload)
    preview = _blocking(AsyncClient.preview)
    download = _blocking(AsyncClient.download)
    path = _blocking(AsyncClient.path)
    distribute = _blocking(AsyncClient.distribute)
    wait = _blocking(AsyncClient.wait)
    bundles = _blocking(AsyncClient.bundles)
    bundle = _blocking(AsyncClient.bundle)
    metafile = _blocking(AsyncClient.metafile)
    remove = _blocking(AsyncClient.remove)

    def configuration(self) -> Config:
        """Returns the configuration that the calls use."""
        return self._calls.configuration()


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a call, which runs in an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    return _run_beside(call)


def _run_beside(call: Coroutine[Any, Any, T]) -> T:
    """Runs a call in another thread, since an event loop already runs in this one, as in a
    notebook."""
    result: Future[T] = Future()
    loop = asyncio.new_event_loop()
    task = loop.create_task(call)

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result.set_result(runner.run(_outcome(task)))
        except BaseException as exc:
            result.set_exception(exc)

    thread = threading.Thread(target=work, name="torrentdist call", daemon=True)
    thread.start()
    try:
        return result.result()
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the loop may have ended just now
            loop.call_soon_threadsafe(task.cancel)  # Ctrl-C, while this thread waited
        raise
    finally:
        thread.join()


async def _outcome(task: asyncio.Task[T]) -> T:
    return await task


_default = Client()
upload, download, path = _default.upload, _default.download, _default.path
distribute, wait = _default.distribute, _default.wait
