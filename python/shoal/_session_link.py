"""A session's connection: its socket, its memory, and how its threads and event loops wait."""

from __future__ import annotations

import array as arrays
import ctypes
import json
import mmap
import os
import platform
import select
import socket
import struct
import threading
import time
import weakref
from typing import Any, Mapping

import numpy as np

from shoal import _codec, _dtypes
from shoal import _session_wire as wire
from shoal._session_wire import ServerGone, SessionError

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_FUTEX_WAIT = 0
_WEAK = platform.machine() != "x86_64"  # stores and loads may change places
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
_LOOKS = 4000  # how often a word is read before a thread sleeps: some 100 us
_MAX_SKIP = 256


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


# How long a thread sleeps before it looks whether the server is there: a server that dies wakes nobody.
_NAP = 0.08
_nap = _Time(0, int(_NAP * 1e9))
_NAP_AT = ctypes.addressof(_nap)


class Slot:
    """The memory of one call at a time."""

    __slots__ = ("number", "inputs", "head", "outputs", "generation", "call", "options", "plan", "told", "end", "made", "only",
                 "parameters", "lent", "back", "answered", "waits", "word")  # fmt: skip

    def __init__(self, link: Link, number: int):
        self.number = number
        self.inputs: mmap.mmap | None = None
        self.head: Any = None  # the words before the table
        self.outputs: mmap.mmap | None = None
        self.generation = 0
        self.call = 0
        # What the table that is written says: the call's options, and of each input the name, the type, the shape and the
        # memory. No plan means that the next call needs a table of its own.
        self.options: tuple[Any, ...] = ()
        self.plan: list[tuple[str, Any, tuple[int, ...], np.ndarray]] | None = None
        # The last answer's header and table, without the call's number; what was read from it; its array, if it has only one;
        # its parameters.
        self.told, self.end = b"", 0
        self.made: list[tuple[str, int, np.ndarray | None, int, tuple[int, ...]]] = []
        self.only: np.ndarray | None = None
        self.parameters: dict[str, Any] = {}
        self.lent: dict[int, Any] = {}  # references to the arrays of the answer that are in use
        lent, idle = self.lent, link.idle

        def back(reference: Any) -> None:
            lent.pop(id(reference), None)
            if not lent:
                idle.append(self)

        self.back = back  # takes an array that is no longer used
        self.answered = wire.ANSWERED + 2 * number  # the index of the last answered call
        self.waits = wire.RING + link.most_slots + number  # and of how this one is waited for
        self.word = link.address + 4 * self.answered


class Link:
    """A connection: the socket, the memory, and the slots of both."""

    def __init__(self, path: str, model: str, version: int, timeout: float):
        if _FUTEX is None or not hasattr(socket, "SOCK_SEQPACKET"):
            raise SessionError(f"sessions need Linux on x86-64 or ARM64; use shoal.Client on {platform.machine()}", "UNSUPPORTED")
        self.gone: str = ""  # why the server is no more
        self._syscall = ctypes.CDLL(None).syscall
        self._syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
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
            self.sock.send(struct.pack("<IIq", wire.HELLO, wire.VERSION, version) + model.encode())
            kind, body, fds = self._receive()
        except OSError as error:
            raise ServerGone(f"no server at {path}: {error}; start one with `shoal serve --session-socket {path}`") from error
        if kind == wire.REFUSED:
            raise wire.error(struct.unpack_from("<II", body)[1], body[8:])
        if kind != wire.WELCOME or len(fds) != 2:
            raise ServerGone(f"no session from {path}: {'the server closed the connection' if kind == 0 else 'an unexpected message'}")
        self.sock.settimeout(None)
        _, self.most_slots, self.most_bytes = struct.unpack_from("<IIQ", body)
        self.model = json.loads(body[16:])
        self.types = {t["name"]: t["datatype"] for t in self.model.get("inputs") or ()}
        self._client = mmap.mmap(fds[0], wire.PAGE)
        self._server = mmap.mmap(fds[1], wire.PAGE, prot=mmap.PROT_READ)
        for fd in fds:
            os.close(fd)
        self.client = memoryview(self._client).cast("I")
        self.server = memoryview(self._server).cast("I")
        self.address = np.frombuffer(self._server, np.uint8).ctypes.data  # of the server's page
        self.lock = threading.Lock()  # protects the ring and the lists of slots
        self.idle: list[Slot] = []
        self.slots = 0
        self.given_up: list[Slot] = []  # calls whose answers nobody waits for
        self.tail = 0
        self.live = 0  # calls in flight
        self.reading = threading.Lock()  # one thread at a time reads the socket
        self.regions: dict[tuple[int, int, int], mmap.mmap] = {}  # that have come and were not taken yet
        self.refused: dict[int, SessionError] = {}
        self.loops: weakref.WeakKeyDictionary[Any, _Loop] = weakref.WeakKeyDictionary()
        self._skip = self._misses = 0
        self._spin = _CORES > 1

    def _receive(self, flags: int = 0) -> tuple[int, bytes, list[int]]:
        """The next message: its kind, its content and its descriptors. The kind is 0 at the end."""
        fds = arrays.array("i")
        data, control, _, _ = self.sock.recvmsg(wire.MOST, socket.CMSG_LEN(4 * fds.itemsize), flags)
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
        if kind == wire.REGION and fds:
            slot, side, generation, size = struct.unpack_from("<IIIQ", body)
            access = mmap.PROT_READ | (0 if side else mmap.PROT_WRITE)
            self.regions[slot, side, generation if side else 0] = mmap.mmap(fds[0], size, prot=access)
        elif kind == wire.REFUSED:
            slot, code = struct.unpack_from("<II", body)
            self.refused[slot] = wire.error(code, body[8:])
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
            try:
                self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)  # most often there is nothing: a whole message needs much memory
            except BlockingIOError:
                return
            except OSError:
                pass  # read says why
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

    def take(self) -> Slot:
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
            return Slot(self, self.slots - 1)

    def _reclaim(self) -> None:
        still = []
        for slot in self.given_up:
            if self.done(slot):
                self.live -= 1
                self.idle.append(slot)
            else:
                still.append(slot)
        self.given_up = still

    def put(self, slot: Slot) -> None:
        self.idle.append(slot)

    def room(self, slot: Slot, size: int) -> mmap.mmap:
        """Gives a slot memory for that many bytes of inputs, and returns it."""
        if slot.inputs is not None and len(slot.inputs) >= size:
            return slot.inputs
        number = slot.number
        self.refused.pop(number, None)
        if size > self.most_bytes:
            raise SessionError(f"the inputs have {size} bytes, and a session may have {self.most_bytes}; raise --session-max-bytes", "RESOURCE_EXHAUSTED")
        self.send(struct.pack("<IIQ", wire.ROOM, number, size))
        key, out = (number, 0, 0), (number, 1, 1)
        if not self.wait_message(lambda: number in self.refused or (key in self.regions and (slot.outputs or out in self.regions)), 60):
            raise ServerGone("the server gave no memory within 60 s")
        if number in self.refused:
            self.regions.pop(key, None)
            raise self.refused.pop(number)
        slot.inputs = self.regions.pop(key)
        slot.head, slot.plan = memoryview(slot.inputs)[: wire.IN_HEAD].cast("I"), None
        if slot.outputs is None:
            slot.outputs, slot.generation = self.regions.pop(out), 1
        return slot.inputs

    # Calls.

    def write(self, slot: Slot, named: Mapping[str, Any], options: tuple[Any, ...], parameters: Mapping[str, Any] | None) -> None:
        """Writes a call into its slot. A table that is there already stays."""
        plan = slot.plan
        if plan is not None and len(plan) == len(named) and slot.options == options and not parameters:
            for (name, value), (planned, dtype, shape, view) in zip(named.items(), plan):
                if name != planned or type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
                    break
                view[...] = value
            else:
                return
        inputs = [wire.Prepared(name, value, self.types.get(name, "")) for name, value in named.items()]
        table, places, size = wire.table(inputs, options, parameters)
        slot.plan = None
        memory = self.room(slot, size)
        memory[wire.IN_HEAD : wire.IN_HEAD + len(table)] = table
        slot.head[1] = len(table)
        plan = []
        for i, place in zip(inputs, places):
            if i.data is not None:
                memory[place : place + i.size] = i.data
                continue
            view = np.ndarray(i.array.shape, _codec.DTYPES[i.code], memory, place)
            np.copyto(view, i.array, casting="same_kind")
            if i.given:
                plan.append((i.name, i.array.dtype, i.array.shape, view))
        if len(plan) == len(inputs) and not parameters:
            slot.options, slot.plan = options, plan

    def submit(self, slot: Slot) -> None:
        """Sends the call in a slot."""
        if self.gone:
            raise self.fail()
        client = self.client
        slot.call = slot.head[0] = slot.call % 0xFFFFFFFF + 1
        client[slot.waits] = 0
        lock = self.lock
        with lock:
            self.live += 1
            tail = self.tail
            client[wire.RING + tail % self.most_slots] = slot.number
            if _WEAK:
                lock.release()
                lock.acquire()
            self.tail = client[wire.TAIL] = (tail + 1) & 0xFFFFFFFF
        # Unlocking has made the store visible before this load.
        if not self.server[wire.POLLING]:
            self.send(wire.WAKE)

    def send(self, message: bytes) -> None:
        try:
            self.sock.send(message)
        except OSError as error:
            self.end(f"the server ended or closed the session: {error}")
            raise self.fail() from error

    def done(self, slot: Slot) -> bool:
        return self.server[slot.answered] == slot.call

    def wait(self, slot: Slot, timeout: float | None) -> bool:
        """Waits for the answer to the call in a slot; False after the timeout."""
        server, call, at = self.server, slot.call, slot.answered
        if server[at] == call:
            return True
        if self._spin and self.live == 1 and server[wire.BUSY] == 0:  # else others need the core
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
        client, flag = self.client, slot.waits
        again = True
        while True:
            client[flag] = wire.SLEEPS
            last = server[at]
            if last == call:
                return True
            nap = _NAP_AT
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if left < _NAP:
                    rest = _Time(0, int(left * 1e9))
                    nap = ctypes.addressof(rest)
            # The system looks at the word again before it lets the thread sleep.
            self._syscall(_FUTEX, slot.word, _FUTEX_WAIT, last, nap, None, 0)
            if server[at] == call:
                return True
            self.check()
            if self.gone:
                if server[at] == call:  # it was its last answer
                    return True
                raise self.fail()
            if again and not server[wire.POLLING]:
                again = False
                self.send(wire.WAKE)  # in case that the server did not see the call

    async def await_answer(self, slot: Slot) -> None:
        """Waits in an event loop; returns also when the server is gone."""
        import asyncio

        loop = asyncio.get_running_loop()
        found = self.loops.get(loop)
        if found is None:
            found = self.loops[loop] = _Loop(self, loop)
        await found.wait(slot)

    def answer(self, slot: Slot, copy: bool, parameters: dict[str, Any]) -> Any:
        """Reads the answer in a slot, and gives the slot back, with copy at once, else when the arrays are no longer used."""
        with self.lock:
            self.live -= 1
        generation = self.server[slot.answered + 1]
        if generation != slot.generation:
            key = (slot.number, 1, generation)
            if not self.wait_message(lambda: key in self.regions, 60):
                raise ServerGone("the server gave no memory within 60 s")
            slot.outputs, slot.generation, slot.told = self.regions.pop(key), generation, b""
        memory = slot.outputs
        assert memory is not None
        if not slot.told or memory[4 : slot.end] != slot.told:
            self._read(slot, memory)
        if slot.parameters:
            parameters.update(slot.parameters)
        only = slot.only
        if copy and only is not None:
            only = only.copy()
            self.idle.append(slot)
            return only
        found: dict[str, Any] = {}
        lent = slot.lent
        for name, kind, view, offset, shape in slot.made:
            if view is None:
                found[name] = _codec.read_bytes(memory, offset, shape)
            elif kind == _codec.BF16:
                found[name] = _dtypes.from_bf16(view)
            elif copy:
                found[name] = view.copy()
            else:
                array = np.ndarray(shape, view.dtype, memory, offset)
                reference = weakref.ref(array, slot.back)
                lent[id(reference)] = reference
                found[name] = array
        if not lent:
            self.idle.append(slot)
        return next(iter(found.values())) if len(found) == 1 else found

    def _read(self, slot: Slot, memory: mmap.mmap) -> None:
        """Reads the table of an answer that is not as the last one was."""
        _, code, size, outputs, params, _ = wire.OUT_HEAD.unpack_from(memory)
        start = wire.OUT_HEAD.size
        slot.told = b""
        table = memory[start : start + size]
        if code:
            self.put(slot)
            raise wire.error(code - 1, table)
        entries, at = wire.outputs(table, outputs)
        slot.made = [
            (name, kind, None if kind == _codec.BYTES else np.ndarray(shape, _codec.DTYPES[kind], memory, offset), offset, shape)
            for name, kind, shape, offset in entries
        ]
        slot.only = slot.made[0][2] if len(slot.made) == 1 and slot.made[0][1] != _codec.BF16 else None
        slot.parameters = wire.params(table, at, params)
        slot.end = start + size
        slot.told = memory[4 : slot.end]

    def give_up(self, slot: Slot) -> None:
        """Takes a call out of the server's queue, unless it runs already."""
        with self.lock:
            self.given_up.append(slot)
        if not self.gone:
            self.send(struct.pack("<III", wire.CANCEL, slot.number, slot.call))

    def close(self) -> None:
        self.end("the session is closed")
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class _Loop:
    """The calls of a link that one event loop waits for."""

    def __init__(self, link: Link, loop: Any):
        self._link, self._loop = link, loop
        self._waiting: dict[int, tuple[Slot, Any]] = {}

    async def wait(self, slot: Slot) -> None:
        future = self._loop.create_future()
        if not self._waiting:
            self._loop.add_reader(self._link.sock.fileno(), self._readable)
        self._waiting[slot.number] = slot, future
        link = self._link
        link.client[slot.waits] = wire.LOOP
        with link.lock:  # the store is visible to the server before the load below
            pass
        try:
            if not link.done(slot) and not link.gone:
                await future
        finally:
            self._waiting.pop(slot.number, None)
            if not self._waiting:
                self._loop.remove_reader(link.sock.fileno())

    def _readable(self) -> None:
        self._link.check()
        for other in list(self._link.loops.values()):
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
