"""Sessions: calls of a model over shared memory, from any process on the server's machine.

internal/protocol/session has the other end; wire.go there has the formats.
"""

from __future__ import annotations

import array as arrays
import ctypes
import json
import math
import mmap
import os
import platform
import select
import socket
import struct
import threading
import time
import weakref
from typing import Any, Iterable, Mapping

import numpy as np

from shoal import _codec, _dtypes
from shoal._client import InferenceError

VARIABLE = "SHOAL_SESSION_SOCKET"
_VERSION = 1

_HELLO, _ROOM, _CANCEL, _WAKE = 1, 2, 3, 4
_WELCOME, _REGION, _REFUSED, _ANSWERS = 65, 66, 67, 68
_MOST = 1 << 17  # bytes of a message

_PAGE = 4096
# Indexes of 32-bit words in the client's page and in the server's.
_TAIL, _RING = 0, 16
_POLLING, _BUSY, _ANSWERED = 0, 1, 16
_SLEEPS, _LOOP = 1, 2

_ALIGN = 64
_IN_HEAD = struct.Struct("<II")  # call, bytes of the table
_TABLE = struct.Struct("<HHHHQQ")  # inputs, wanted outputs, parameters, bytes of the id, priority, timeout in microseconds
_INPUT = struct.Struct("<BBHQQ")  # type, rank, bytes of the name, offset, bytes
_OUT_HEAD = struct.Struct("<IIIHHq")  # call, error, bytes of the table, outputs, parameters, the model's version
_PARAM = struct.Struct("<BBHI")
_MOST_TABLE = 1 << 16
_CODES = {name: i for i, name in enumerate(_codec.NAMES)}
_ERRORS = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
           "CANCELLED", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED")  # fmt: skip

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_FUTEX_WAIT = 0
_WEAK = platform.machine() != "x86_64"  # stores and loads may change places
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
_LOOKS = 4000  # how often a word is read before a thread sleeps: some 100 us
_MAX_SKIP = 256


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


# How long a thread sleeps before it looks whether the server is there: a server that dies wakes nobody.
_NAP = 0.04
_NAP_TIME = ctypes.byref(_Time(0, int(_NAP * 1e9)))


class SessionError(InferenceError):
    """A call over a session failed. The attribute code says how: INVALID_ARG, UNAVAILABLE, ..."""

    def __init__(self, message: str, code: str = "UNAVAILABLE"):
        super().__init__(message)
        self.code = code


class ServerGone(SessionError):
    """The server ended, or closed the session."""


class _Slot:
    """The memory of one call at a time."""

    __slots__ = ("number", "inputs", "outputs", "generation", "call", "key", "views", "told", "made", "lent", "back")

    def __init__(self, number: int, idle: list[_Slot]):
        self.number = number
        self.inputs: mmap.mmap | None = None
        self.outputs: mmap.mmap | None = None
        self.generation = 0
        self.call = 0
        self.key: Any = None  # of the table that is written
        self.views: list[Any] = []  # of the inputs
        self.told = b""  # the last answer's table
        self.made: Any = None  # what was read from it
        self.lent: dict[int, Any] = {}  # references to the arrays of the answer that are in use
        lent = self.lent

        def back(reference: Any) -> None:
            lent.pop(id(reference), None)
            if not lent:
                idle.append(self)

        self.back = back  # takes an array that is no longer used


class _Link:
    """A connection: the socket, the memory, and the slots of both."""

    def __init__(self, path: str, model: str, version: int, timeout: float):
        if _FUTEX is None or not hasattr(socket, "SOCK_SEQPACKET"):
            raise SessionError(f"sessions need Linux on x86-64 or ARM64; use shoal.Client on {platform.machine()}", "UNSUPPORTED")
        self.gone: str = ""  # why the server is no more
        self._syscall = ctypes.CDLL(None).syscall
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._open(path, model, version, timeout)
        except BaseException:
            self.sock.close()
            raise

    def _open(self, path: str, model: str, version: int, timeout: float) -> None:
        self.sock.settimeout(timeout)
        try:
            self.sock.connect(path)
            self.sock.send(struct.pack("<IIq", _HELLO, _VERSION, version) + model.encode())
            kind, body, fds = self._receive()
        except OSError as error:
            raise ServerGone(f"no server at {path}: {error}; start one with `shoal serve --session-socket {path}`") from error
        if kind == _REFUSED:
            _, code = struct.unpack_from("<II", body)
            raise SessionError(body[8:].decode("utf-8", "replace"), _ERRORS[min(code, len(_ERRORS) - 1)])
        if kind != _WELCOME or len(fds) != 2:
            raise ServerGone(f"no session from {path}: {'the server closed the connection' if kind == 0 else 'an unexpected message'}")
        self.sock.settimeout(None)
        _, self.most_slots, self.most_bytes = struct.unpack_from("<IIQ", body)
        self.model = json.loads(body[16:])
        self.types = {t["name"]: t["datatype"] for t in self.model.get("inputs") or ()}
        self._client = mmap.mmap(fds[0], _PAGE)
        self._server = mmap.mmap(fds[1], _PAGE, prot=mmap.PROT_READ)
        for fd in fds:
            os.close(fd)
        self.client = memoryview(self._client).cast("I")
        self.server = memoryview(self._server).cast("I")
        self._address = np.frombuffer(self._server, np.uint8).ctypes.data  # of the server's page
        self._waits = _RING + self.most_slots
        self.lock = threading.Lock()  # protects the ring and the lists of slots
        self.idle: list[_Slot] = []
        self.slots = 0
        self.given_up: list[_Slot] = []  # calls whose answers nobody waits for
        self.tail = 0
        self.live = 0  # calls in flight
        self.reading = threading.Lock()  # one thread at a time reads the socket
        self.regions: dict[tuple[int, int, int], mmap.mmap] = {}  # that have come and were not taken yet
        self.refused: dict[int, SessionError] = {}
        self.futures: dict[int, tuple[Any, Any]] = {}  # by slot: the call and the loop that wait
        self._skip = self._misses = 0
        self._spin = _CORES > 1

    def _receive(self, flags: int = 0) -> tuple[int, bytes, list[int]]:
        """The next message: its kind, its content and its descriptors. The kind is 0 at the end."""
        fds = arrays.array("i")
        data, control, _, _ = self.sock.recvmsg(_MOST, socket.CMSG_LEN(4 * fds.itemsize), flags)
        for level, kind, rights in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(rights[: len(rights) - len(rights) % fds.itemsize])
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(data) < 4:
            return 0, b"", list(fds)
        return struct.unpack_from("<I", data)[0], data[4:], list(fds)

    def read(self) -> bool:
        """Handles a message that is there; False when there is none. The caller has reading."""
        try:
            kind, body, fds = self._receive(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self.end(f"the connection to the server broke: {error}")
            return False
        if kind == 0:
            self.end("the server ended or closed the session")
            return False
        if kind == _REGION and fds:
            slot, side, generation, size = struct.unpack_from("<IIIQ", body)
            access = mmap.PROT_READ | (0 if side else mmap.PROT_WRITE)
            self.regions[slot, side, generation if side else 0] = mmap.mmap(fds[0], size, prot=access)
        elif kind == _REFUSED:
            slot, code = struct.unpack_from("<II", body)
            self.refused[slot] = SessionError(body[8:].decode("utf-8", "replace"), _ERRORS[min(code, len(_ERRORS) - 1)])
        for fd in fds:
            os.close(fd)
        return True

    def end(self, why: str) -> None:
        self.gone = self.gone or why

    def fail(self) -> ServerGone:
        return ServerGone(self.gone)

    def check(self) -> None:
        """Looks whether the server is still there."""
        with self.reading:
            while self.read():
                pass

    def wait_message(self, there: Any, timeout: float) -> bool:
        """Reads messages until there() is true. Threads take turns."""
        deadline = time.monotonic() + timeout
        while not there():
            if self.gone:
                raise self.fail()
            with self.reading:
                if there():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                poll = select.poll()
                poll.register(self.sock, select.POLLIN)
                poll.poll(min(left, 0.05) * 1000)
                while self.read():
                    pass
        return True

    # Slots.

    def take(self) -> _Slot:
        """A slot that no call uses."""
        with self.lock:
            if self.given_up:
                self._reclaim()
            if self.idle:
                return self.idle.pop()
            if self.slots == self.most_slots:
                raise SessionError(f"{self.slots} calls of this session are in flight or have answers in use, which is the most; "
                                   "use copy=True, or another session", "RESOURCE_EXHAUSTED")  # fmt: skip
            self.slots += 1
            return _Slot(self.slots - 1, self.idle)

    def _reclaim(self) -> None:
        still = []
        for slot in self.given_up:
            if self.server[_ANSWERED + 2 * slot.number] == slot.call:
                self.live -= 1
                self.idle.append(slot)
            else:
                still.append(slot)
        self.given_up = still

    def put(self, slot: _Slot) -> None:
        self.idle.append(slot)

    def room(self, slot: _Slot, size: int) -> None:
        """Gives a slot memory for that many bytes of inputs."""
        if slot.inputs is not None and len(slot.inputs) >= size:
            return
        number = slot.number
        self.refused.pop(number, None)
        if size > self.most_bytes:
            raise SessionError(f"the inputs have {size} bytes, and a session may have {self.most_bytes}; raise --session-max-bytes", "RESOURCE_EXHAUSTED")
        self.send(struct.pack("<IIQ", _ROOM, number, size))
        key, out = (number, 0, 0), (number, 1, 1)
        if not self.wait_message(lambda: number in self.refused or (key in self.regions and (slot.outputs or out in self.regions)), 60):
            raise ServerGone("the server gave no memory within 60 s")
        if number in self.refused:
            self.regions.pop(key, None)
            raise self.refused.pop(number)
        slot.inputs, slot.key, slot.views = self.regions.pop(key), None, []
        if slot.outputs is None:
            slot.outputs, slot.generation = self.regions.pop(out), 1

    # Calls.

    def submit(self, slot: _Slot) -> None:
        """Sends the call in a slot."""
        if self.gone:
            raise self.fail()
        number = slot.number
        client = self.client
        slot.call = call = slot.call % 0xFFFFFFFF + 1
        _IN_HEAD.pack_into(slot.inputs, 0, call, slot.key[1])
        client[self._waits + number] = 0
        lock = self.lock
        with lock:
            self.live += 1
            tail = self.tail
            client[_RING + tail % self.most_slots] = number
            if _WEAK:
                lock.release()
                lock.acquire()
            self.tail = tail = (tail + 1) & 0xFFFFFFFF
            client[_TAIL] = tail
        # Unlocking has made the store visible before this load.
        if not self.server[_POLLING]:
            self.wake()

    def wake(self) -> None:
        self.send(b"\x04\0\0\0")

    def send(self, message: bytes) -> None:
        try:
            self.sock.send(message)
        except OSError as error:
            self.end(f"the server ended or closed the session: {error}")
            raise self.fail() from error

    def done(self, slot: _Slot) -> bool:
        return self.server[_ANSWERED + 2 * slot.number] == slot.call

    def wait(self, slot: _Slot, timeout: float | None) -> bool:
        """Waits for the answer to the call in a slot; False after the timeout."""
        server, call, at = self.server, slot.call, _ANSWERED + 2 * slot.number
        if server[at] == call:
            return True
        if self._spin and self.live == 1 and server[_BUSY] == 0:  # else others need the core
            if self._skip > 0:
                self._skip -= 1
            else:
                for _ in range(_LOOKS):
                    if server[at] == call:
                        self._misses = 0
                        return True
                self._misses = min(self._misses + 1, 8)
                self._skip = min(_MAX_SKIP, 1 << self._misses)
        deadline = None if timeout is None else time.monotonic() + timeout
        client, flag = self.client, self._waits + slot.number
        address = self._address + 4 * at
        while True:
            client[flag] = _SLEEPS
            last = server[at]
            if last == call:
                return True
            nap = _NAP_TIME
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if left < _NAP:
                    nap = ctypes.byref(_Time(0, int(left * 1e9)))
            # The system looks at the word again before it lets the thread sleep.
            self._syscall(ctypes.c_long(_FUTEX), ctypes.c_void_p(address), _FUTEX_WAIT, ctypes.c_uint32(last), nap, None, 0)
            if server[at] == call:
                return True
            self.check()
            if self.gone:
                if server[at] == call:  # it was its last answer
                    return True
                raise self.fail()
            if not server[_POLLING]:
                self.wake()  # in case that the server did not see the call

    def finish(self) -> None:
        """Counts a call that has its answer."""
        with self.lock:
            self.live -= 1

    def close(self) -> None:
        self.end("the session is closed")
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


def _prepare(name: str, value: Any, datatype: str) -> tuple[np.ndarray, int, int, bytes | None]:
    """An input as it can be copied: the array, its type's number, its bytes, and for strings their encoding."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=_wanted(datatype, value))
    if datatype == "BF16" and array.dtype != np.uint16:
        array = _dtypes.to_bf16(array) if array.dtype.name != "bfloat16" else array.view(np.uint16)
    kind = array.dtype.kind
    if kind in "OSU":
        data = _codec.write_bytes(array)
        return array, _codec.BYTES, len(data), data
    declared = _CODES.get(datatype)
    if declared is not None and declared != _codec.BYTES:
        dtype = _codec.DTYPES[declared]
        assert dtype is not None
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(f"input '{name}' is an array of {array.dtype}, and the model expects {datatype}")
        return array, declared, array.size * dtype.itemsize, None
    found = _dtypes.of_numpy(array.dtype)
    if found is None:
        raise TypeError(f"input '{name}' is an array of {array.dtype}, which requests cannot carry")
    return array, _CODES[found], array.nbytes, None


def _wanted(datatype: str, value: Any) -> Any:
    """The type for a value that is no array."""
    if datatype in ("", "BYTES", "BF16"):
        return None if datatype != "BF16" else np.float32
    return _dtypes.NUMPY.get(datatype)


class Call:
    """A call in flight: result() waits for its answer in a thread, await in an event loop."""

    def __init__(self, session: Session, link: _Link, slot: _Slot, copy: bool):
        self._session, self._link, self._slot, self._copy = session, link, slot, copy
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
        self._link.finish()
        try:
            self._answer = _read(self._link, self._slot, self._copy, self.parameters)
        except Exception as error:
            self._error = error

    def cancel(self) -> None:
        """Gives the call up. It is taken out of the queue, unless it runs already."""
        if self._state != 0:
            return
        self._state = 2
        self._error = SessionError("the call was cancelled", "CANCELLED")
        link, slot = self._link, self._slot
        with link.lock:
            link.given_up.append(slot)
        if not link.gone:
            link.send(struct.pack("<III", _CANCEL, slot.number, slot.call))

    def __await__(self) -> Any:
        return self._await().__await__()

    async def _await(self) -> Any:
        import asyncio

        if self._state == 0 and not self._link.done(self._slot):
            loop = asyncio.get_running_loop()
            try:
                await _Loop.of(self._link, loop).wait(self._slot)
            except asyncio.CancelledError:
                self.cancel()
                raise
            if self._link.gone and not self._link.done(self._slot):
                self._state, self._error = 2, self._link.fail()
        return self.result()

    def __del__(self) -> None:
        try:
            self.cancel()
        except Exception:  # noqa: BLE001  the server is gone, or Python ends
            pass


class _Loop:
    """The calls of a link that one event loop waits for."""

    def __init__(self, link: _Link, loop: Any):
        self._link, self._loop = link, loop
        self._waiting: dict[int, tuple[_Slot, Any]] = {}

    @staticmethod
    def of(link: _Link, loop: Any) -> _Loop:
        loops = link.__dict__.setdefault("loops", weakref.WeakKeyDictionary())
        found = loops.get(loop)
        if found is None:
            found = loops[loop] = _Loop(link, loop)
        return found

    async def wait(self, slot: _Slot) -> None:
        future = self._loop.create_future()
        if not self._waiting:
            self._loop.add_reader(self._link.sock.fileno(), self._readable)
        self._waiting[slot.number] = slot, future
        link = self._link
        link.client[link._waits + slot.number] = _LOOP
        with link.lock:  # the store is visible to the server before the load below
            pass
        if not link.done(slot) and not link.gone:
            try:
                await future
            finally:
                self._drop(slot)
        else:
            self._drop(slot)

    def _drop(self, slot: _Slot) -> None:
        self._waiting.pop(slot.number, None)
        if not self._waiting:
            self._loop.remove_reader(self._link.sock.fileno())

    def _readable(self) -> None:
        self._link.check()
        for other in list(self._link.__dict__["loops"].values()):
            if other is self:
                self._answered()
            else:
                try:
                    other._loop.call_soon_threadsafe(other._answered)
                except RuntimeError:
                    pass  # it is closed

    def _answered(self) -> None:
        gone = self._link.gone
        for slot, future in list(self._waiting.values()):
            if (gone or self._link.done(slot)) and not future.done():
                future.set_result(None)


def _read(link: _Link, slot: _Slot, copy: bool, parameters: dict[str, Any]) -> Any:
    """Reads the answer in a slot, and gives the slot back, with copy at once, else when the arrays are no longer used."""
    generation = link.server[_ANSWERED + 2 * slot.number + 1]
    if generation != slot.generation:
        key = (slot.number, 1, generation)
        if not link.wait_message(lambda: key in link.regions, 60):
            raise ServerGone("the server gave no memory within 60 s")
        slot.outputs, slot.generation, slot.told = link.regions.pop(key), generation, b""
    memory = slot.outputs
    assert memory is not None
    _, code, size, outputs, params, _ = _OUT_HEAD.unpack_from(memory)
    start = _OUT_HEAD.size
    if code:
        text = memory[start : start + size].decode("utf-8", "replace")
        link.put(slot)
        raise SessionError(text, _ERRORS[min(code - 1, len(_ERRORS) - 1)])
    table = memory[start : start + size]
    if table != slot.told:
        slot.made, slot.told = _outputs(table, outputs), table
    entries, at = slot.made
    if params:
        parameters.update(_params(table, at, params))
    found = {}
    lent = slot.lent
    for name, kind, shape, offset in entries:
        if kind == _codec.BYTES:
            found[name] = _codec.read_bytes(memory, offset, shape)
            continue
        array = np.ndarray(shape, _codec.DTYPES[kind], memory, offset)
        if kind == _codec.BF16:
            array = _dtypes.from_bf16(array)
        elif copy:
            array = array.copy()
        else:
            reference = weakref.ref(array, slot.back)
            lent[id(reference)] = reference
        found[name] = array
    if not lent:
        link.put(slot)
    return next(iter(found.values())) if len(found) == 1 else found


def _outputs(table: bytes, count: int) -> tuple[list[tuple[str, int, tuple[int, ...], int]], int]:
    entries = []
    at = 0
    for _ in range(count):
        kind, rank, name, offset, _ = _INPUT.unpack_from(table, at)
        at += _INPUT.size
        shape = struct.unpack_from(f"<{rank}q", table, at)
        at += 8 * rank
        entries.append((table[at : at + name].decode("utf-8", "replace"), kind, shape, offset))
        at += name
    return entries, at


def _params(table: bytes, at: int, count: int) -> dict[str, Any]:
    found = {}
    for _ in range(count):
        kind, _, name, size = _PARAM.unpack_from(table, at)
        at += _PARAM.size
        found[table[at : at + name].decode("utf-8", "replace")] = _codec._value(kind, table[at + name : at + name + size])
        at += name + size
    return found


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
        self._link: _Link | None = None
        self._used = False  # a connection was open
        self._open()
        _sessions.add(self)

    def _open(self) -> _Link:
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
                    self._link = _Link(self.path, self.model, self._version, self._timeout)
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
            Call(self, link, slot, copy).cancel()
            raise
        if not there:
            Call(self, link, slot, copy).cancel()
            raise TimeoutError(f"model {self.model} gave no answer within {timeout:g} s")
        link.finish()
        return _read(link, slot, copy, {})

    def submit(self, inputs: Mapping[str, Any] | None = None, /, *, copy: bool = False, timeout: float | None = None, priority: int = 0,
               id: str = "", parameters: Mapping[str, Any] | None = None, outputs: Iterable[str] = (), **named: Any) -> Call:  # fmt: skip
        """Sends a call and returns it in flight: call.result(), or `await call` in a coroutine. Timeout is how long the call
        may wait in the model's queue."""
        link, slot = self._send(inputs, priority, timeout, id, parameters, outputs, named)
        return Call(self, link, slot, copy)

    def _send(self, inputs: Mapping[str, Any] | None, priority: int, timeout: float | None, id: str, parameters: Mapping[str, Any] | None,
              outputs: Iterable[str], named: dict[str, Any]) -> tuple[_Link, _Slot]:  # fmt: skip
        """Sends a call; to the next server, if it turns out that this one has ended before."""
        if inputs:
            named = {**inputs, **named}
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
                    self._write(link, slot, named, priority, timeout, id, parameters, tuple(outputs))
                    link.submit(slot)
                except BaseException:
                    link.put(slot)
                    raise
                return link, slot
            except ServerGone:
                if not again:
                    raise
                again = False

    def _write(self, link: _Link, slot: _Slot, named: dict[str, Any], priority: int, timeout: float | None, id: str,
               parameters: Mapping[str, Any] | None, outputs: tuple[str, ...]) -> None:  # fmt: skip
        """Writes a call into its slot. A table that is there already stays."""
        key = [priority, timeout, id, outputs]
        prepared = []
        for name, value in named.items():
            array, code, size, data = _prepare(name, value, link.types.get(name, ""))
            prepared.append((name, array, code, size, data))
            key.append(name)
            key.append(code)
            key.append(array.shape)
            key.append(size)
        if parameters or slot.key is None or slot.key[0] != key:
            self._table(link, slot, key, prepared, parameters)
        views = slot.views
        for i, (_, array, _, size, data) in enumerate(prepared):
            if data is None:
                np.copyto(views[i], array, casting="same_kind")
            else:
                at = views[i]
                assert slot.inputs is not None
                slot.inputs[at : at + size] = data

    def _table(self, link: _Link, slot: _Slot, key: list[Any], prepared: list[Any], parameters: Mapping[str, Any] | None) -> None:
        priority, timeout, id, outputs = key[:4]
        told = id.encode()
        packed = _codec.pack_params(parameters) if parameters else b""
        entries, tail = [], []
        length = _TABLE.size + len(told) + len(packed)
        for name, array, _, _, _ in prepared:
            length += _INPUT.size + 8 * array.ndim + len(name.encode())
        for name in outputs:
            tail.append(struct.pack("<H", len(name.encode())) + name.encode())
            length += len(tail[-1])
        if length > _MOST_TABLE:
            raise SessionError(f"what the call says besides its tensors has {length} bytes, and at most {_MOST_TABLE} are allowed", "INVALID_ARG")
        at = _aligned(_IN_HEAD.size + length)
        places = []
        for name, array, code, size, _ in prepared:
            encoded = name.encode()
            entries.append(_INPUT.pack(code, array.ndim, len(encoded), at, size) + struct.pack(f"<{array.ndim}q", *array.shape) + encoded)
            places.append(at)
            at = _aligned(at + size)
        link.room(slot, at)
        memory = slot.inputs
        assert memory is not None
        micros = 0 if timeout is None else max(1, math.ceil(timeout * 1e6))
        head = _TABLE.pack(len(prepared), len(tail), len(parameters or ()), len(told), priority, micros)
        table = b"".join([head, told, *entries, *tail, packed])
        memory[_IN_HEAD.size : _IN_HEAD.size + len(table)] = table
        slot.views = [
            place if data is not None else np.ndarray(array.shape, _codec.DTYPES[code], memory, place)
            for place, (_, array, code, _, data) in zip(places, prepared)
        ]
        slot.key = (key if not parameters else None, len(table))

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


def _aligned(n: int) -> int:
    return (n + _ALIGN - 1) & -_ALIGN
