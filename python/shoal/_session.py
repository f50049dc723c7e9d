"""Sessions: calls of a model over shared memory, from any process on the server's machine.

internal/protocol/session is the other end.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Iterable, Mapping

from shoal._session_link import Link, Slot
from shoal._session_wire import ServerGone, SessionError

__all__ = ["Call", "ServerGone", "Session", "SessionError"]

VARIABLE = "SHOAL_SESSION_SOCKET"


class Call:
    """A call in flight: result() waits for its answer in a thread, await in an event loop."""

    def __init__(self, link: Link, slot: Slot, copy: bool):
        self._link, self._slot, self._copy = link, slot, copy
        self._state = 0  # 0 in flight, 1 answered, 2 given up
        self._answer: Any = None
        self._error: Exception | None = None
        self.parameters: dict[str, Any] = {}
        """What the model sent besides its outputs."""

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._state != 0 or self._link.done(self._slot) or bool(self._link.gone)

    def result(self, timeout: float | None = None) -> Any:
        """The output's array, or a dict of arrays where the model has several outputs. Raises TimeoutError after timeout
        seconds; the call then goes on, until cancel."""
        if self._state == 0:
            if not self._link.wait(self._slot, timeout):
                raise TimeoutError(f"no answer within {timeout:g} s")
            self._settle()
        if self._error is not None:
            raise self._error
        return self._answer

    def _settle(self) -> None:
        self._state = 1
        try:
            self._answer = self._link.answer(self._slot, self._copy, self.parameters)
        except Exception as error:
            self._error = error

    def cancel(self) -> None:
        """Gives the call up. It is taken out of the queue, unless it runs already."""
        if self._state != 0:
            return
        self._state = 2
        self._error = SessionError("the call was cancelled", "CANCELLED")
        self._link.give_up(self._slot)

    def __await__(self) -> Any:
        return self._await().__await__()

    async def _await(self) -> Any:
        import asyncio

        link, slot = self._link, self._slot
        if self._state == 0 and not link.done(slot):
            try:
                await link.await_answer(slot)
            except asyncio.CancelledError:
                self.cancel()
                raise
            if link.gone and not link.done(slot):
                self._state, self._error = 2, link.fail()
        return self.result()

    def __del__(self) -> None:
        try:
            self.cancel()
        except Exception:  # noqa: BLE001  the server is gone, or Python ends
            pass


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forked() -> None:
    """A child must not use its parent's connections, nor keep them open."""
    for session in list(_sessions):
        link, session._link = session._link, None
        session._lock = threading.Lock()
        if link is not None:
            link.gone = "the session was opened by the parent process"
            link.sock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Session:
    """Calls of one model over shared memory. Many threads may use it; a child process opens a connection of its own."""

    def __init__(self, model: str, server: Any = None, *, version: int = -1, reconnect: bool = False, timeout: float = 10):
        """Server is the path of the server's --session-socket, or a shoal.Server; without one, the environment variable
        SHOAL_SESSION_SOCKET has it. With reconnect, calls after the end of the server wait for the next one at that path,
        up to timeout seconds."""
        path = getattr(server, "session_socket", server) or os.environ.get(VARIABLE)
        if not path:
            raise ValueError(f"shoal.Session({model!r}) needs a server: the path of its --session-socket, here or in ${VARIABLE}")
        self.model = model
        self.path = os.fspath(path)
        self._version, self._reconnect, self._timeout = version, reconnect, timeout
        self._lock = threading.Lock()
        self._closed = False
        self._link: Link | None = None
        self._open()
        _sessions.add(self)

    def _open(self) -> Link:
        with self._lock:
            link = self._link
            if link is not None and not link.gone:
                return link
            if self._closed:
                raise ServerGone(f"the session of {self.model} is closed")
            if link is not None and not self._reconnect:
                raise link.fail()
            deadline = time.monotonic() + self._timeout
            while True:
                try:
                    self._link = Link(self.path, self.model, self._version, self._timeout)
                    return self._link
                except SessionError as error:
                    again = isinstance(error, ServerGone) or error.code in ("UNAVAILABLE", "NOT_FOUND")
                    if link is None or not again or time.monotonic() > deadline:
                        raise
                time.sleep(0.02)

    @property
    def metadata(self) -> dict[str, Any]:
        """The model's name, version, max_batch_size, inputs and outputs, as they were when the session was opened."""
        return self._open().model

    def run(self, inputs: Mapping[str, Any] | None = None, /, *, copy: bool = False, timeout: float | None = None, priority: int = 0,
            id: str = "", parameters: Mapping[str, Any] | None = None, outputs: Iterable[str] = (), **named: Any) -> Any:  # fmt: skip
        """Sends arrays by input name and waits for the answer: the output's array, or a dict of arrays where the model has
        several outputs. Arrays have the shape that the model's metadata shows: for a model that is batched, rows along the
        first axis. Text may be str or bytes; text outputs are arrays of bytes.

        An answer's arrays are shared memory, cannot be written, and stay as they are while they are used; each answer in use keeps
        its part of the session's memory. With copy=True they are ordinary arrays. After timeout seconds the call is
        cancelled and TimeoutError is raised."""
        link, slot = self._send(inputs, priority, timeout, id, parameters, outputs, named)
        try:
            there = link.wait(slot, timeout)
        except ServerGone:
            raise
        except BaseException:  # such as Ctrl-C
            link.give_up(slot)
            raise
        if not there:
            link.give_up(slot)
            raise TimeoutError(f"model {self.model} gave no answer within {timeout:g} s")
        return link.answer(slot, copy, {})

    def submit(self, inputs: Mapping[str, Any] | None = None, /, *, copy: bool = False, timeout: float | None = None, priority: int = 0,
               id: str = "", parameters: Mapping[str, Any] | None = None, outputs: Iterable[str] = (), **named: Any) -> Call:  # fmt: skip
        """Sends a call and returns it in flight: call.result(), or `await call` in a coroutine. Timeout is how long the call
        may wait in the model's queue."""
        link, slot = self._send(inputs, priority, timeout, id, parameters, outputs, named)
        return Call(link, slot, copy)

    def _send(self, inputs: Mapping[str, Any] | None, priority: int, timeout: float | None, id: str, parameters: Mapping[str, Any] | None,
              outputs: Iterable[str], named: dict[str, Any]) -> tuple[Link, Slot]:  # fmt: skip
        """Sends a call; to the next server, if it turns out that this one has ended before."""
        given = {**inputs, **named} if inputs and named else inputs or named
        options = (priority, timeout, id, tuple(outputs))
        again = self._reconnect
        while True:
            link = self._link
            if link is None or link.gone:
                link = self._open()
            try:
                if again:
                    link.check()
                slot = link.take()
                try:
                    link.write(slot, given, options, parameters)
                    link.submit(slot)
                except BaseException:
                    link.put(slot)
                    raise
                return link, slot
            except ServerGone:
                if not again:
                    raise
                again = False

    def close(self) -> None:
        """Ends the session. Answers in use stay as they are."""
        with self._lock:
            self._closed = True
            link = self._link
        if link is not None and not link.gone:
            link.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # noqa: BLE001  Python ends
            pass
