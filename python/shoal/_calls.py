"""A model's requests to other models of its server.

The inputs go into a slot of the shared memory and the outputs come back in its
other half; the rest goes over the socket. A slot is asked for once and then used
for one call after another. internal/backend/python/calls.go has the other end.
"""

import ctypes
import json
import mmap
import platform
import queue
import struct
import threading

import numpy as np

from shoal import _answer, _codec
from shoal._memory import HALF, SPAN

_ALIGN = 64
_FIRST_MAP = 1 << 20
_CODES = {name: i for i, name in enumerate(_codec.NAMES)}
ERRORS = {number: name for name, number in _answer.CODES.items()}


# The number of the system call futex, where it is known: then a thread waits in the slot for its answer, and the one
# that reads the socket need not wake it.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_WAIT = 0
_HEAD = struct.Struct("<IIQ")  # of the server's half: the call that is answered; the message's bytes, and where it is
try:
    _syscall = ctypes.CDLL(None).syscall
except (OSError, AttributeError):
    _FUTEX = None


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


_SECOND = _Time(1, 0)


class _Slot:
    """A slot for calls: we write the second half, and the server the first."""

    def __init__(self, memory, number):
        self.number = number
        self._file = memory
        self._at = (number + 1) * SPAN
        self.ours = self.theirs = None
        self._word = None  # the first of theirs

    def arm(self):
        """Prepare for an answer that wait waits for."""
        self.read(_FIRST_MAP)
        if self._word is None:
            self._word = ctypes.c_uint32.from_buffer(self.theirs)
        self._word.value = 0

    def wait(self, over):
        """Return the answer to the call in the slot; None when over() is true."""
        word = self._word
        while word.value == 0:
            _syscall(_FUTEX, ctypes.byref(word), _WAIT, 0, ctypes.byref(_SECOND), None, 0)
            if word.value == 0 and over():
                return None
        _, size, at = _HEAD.unpack_from(self.theirs)
        return json.loads(self.read(at + size)[at : at + size])

    def write(self, size):
        if self.ours is None or len(self.ours) < size:
            self.ours = mmap.mmap(self._file, _rounded(size), offset=self._at + HALF)
        return self.ours

    def read(self, size):
        if self.theirs is None or len(self.theirs) < size:
            self.theirs = mmap.mmap(self._file, _rounded(size), offset=self._at)
            self._word = None
        return self.theirs


def _rounded(size):
    n = _FIRST_MAP
    while n < size:
        n *= 2
    return n


class Calls:
    """The calls of one worker. Any thread may call."""

    def __init__(self, memory, ask_slot, send_call, send_next):
        self._memory = memory
        self._ask_slot, self._send_call, self._send_next = ask_slot, send_call, send_next
        self._lock = threading.Lock()  # protects the fields below
        self._idle = []
        self._last = 0
        self._live = {}  # a call's number: what takes its answers
        self._over = False
        self.thread = 0  # the thread that runs batches
        self.loop_holds = False  # coroutines hold the batch, too
        self.batch = lambda: 0  # the number of the batch that runs

    def start(self, tensors, take, held, **message):
        """Send a call. Tensors are (name, array, data type); take is called with each
        answer, in the thread that reads the socket. Without it the answer is waited
        for in the slot. Returns the call's number and the slot."""
        with self._lock:
            if self._over:
                raise RuntimeError("the server is gone")
            slot = self._idle.pop() if self._idle else None
        if slot is None:
            slot = _Slot(self._memory, int(self._ask_slot()))
        try:
            message["inputs"], message["size"] = _put(slot, tensors)
        except BaseException:
            self.free(slot)
            raise
        with self._lock:
            self._last = number = self._last % 0xFFFFFFFF + 1
            if take is not None:
                self._live[number] = take
        if take is None:
            slot.arm()
            message["direct"] = True
        message["call"], message["slot"], message["batch"] = number, slot.number, self.batch() if held else 0
        self._send_call(message)
        return number, slot

    def ask(self, tensors, told, held, read):
        """Send a call, wait for its answer and return read(slot, answer)."""
        if _FUTEX is None:
            return Waiter(self, tensors, told, held).next(read)
        number, slot = self.start(tensors, None, held, **told)
        answer = slot.wait(lambda: self._over)
        if answer is None:
            answer = {"call": number, "error": "the server is gone", "code": 4}
        try:
            return read(slot, answer)
        finally:
            self.free(slot)

    def free(self, slot):
        with self._lock:
            self._idle.append(slot)

    def next(self, number, stop=False):
        """Tell the server that an answer was read, or that no more are wanted."""
        self._send_next({"call": number, "stop": stop})

    def answered(self, payload):
        """Pass an answer on. The thread that reads the socket calls it."""
        answer = json.loads(payload)
        with self._lock:
            number = answer["call"]
            take = self._live.pop(number, None) if answer["final"] else self._live.get(number)
        if take is not None:
            take(answer)

    def ended(self):
        """Fail all calls: the server is gone."""
        with self._lock:
            self._over = True
            live, self._live = self._live, {}
        for number, take in live.items():
            take({"call": number, "final": True, "error": "the server is gone", "code": 4})

    def holds(self, in_loop=False):
        """Whether the batch that runs waits for a call of this thread."""
        return threading.get_ident() == self.thread or (in_loop and self.loop_holds)


def _put(slot, tensors):
    """Write the inputs of a call. Returns the table of them, and its size."""
    prepared, at = [], 0
    for name, array, datatype in tensors:
        code = _CODES[datatype]
        data = _codec.write_bytes(array) if code == _codec.BYTES else array
        size = len(data) if code == _codec.BYTES else array.nbytes
        prepared.append((name, code, array.shape, at, size, data))
        at = (at + size + _ALIGN - 1) & -_ALIGN
    memory = slot.write(at)
    table = []
    for name, code, shape, offset, size, data in prepared:
        if code == _codec.BYTES:
            memory[offset : offset + size] = data
        else:
            np.ndarray(shape, data.dtype, memory, offset)[...] = data
        table.append({"name": name, "type": code, "shape": shape, "offset": offset, "size": size})
    return table, at


def outputs(slot, answer):
    """The tensors of an answer, copied: (name, array, data type)."""
    memory = slot.read(answer.get("size", 0))
    found = []
    for t in answer.get("outputs") or ():
        shape = t["shape"] or ()
        if t["type"] == _codec.BYTES:
            array = _codec.read_bytes(memory, t["offset"], shape)
        else:
            array = np.ndarray(shape, _codec.DTYPES[t["type"]], memory, t["offset"]).copy()
        found.append((t["name"], array, _codec.NAMES[t["type"]]))
    return found


def message(model, version=-1, id="", correlation=0, flags=0, timeout=0, parameters=None, wanted=(), decoupled=False):
    """What a call says besides its tensors."""
    told = {"model": model, "version": version, "flags": flags, "timeout": timeout, "decoupled": decoupled}
    if id:
        told["id"] = id
    if isinstance(correlation, str):
        told["sequence_id"] = correlation
    elif correlation:
        told["sequence"] = correlation
    if parameters:
        told["params"] = parameters
    if wanted:
        told["wanted"] = list(wanted)
    return told


class Waiter:
    """Takes the answers of a call for a thread that waits for them."""

    def __init__(self, calls, tensors, told, held):
        self._calls = calls
        self._answers = queue.SimpleQueue()
        self.finished = False
        self._stopped = False
        self._slot = None
        self.number, self._slot = calls.start(tensors, self._answers.put, held, **told)

    def next(self, read):
        """The next answer, as read(slot, answer) has it."""
        answer = self._answers.get()
        self.finished = answer["final"]
        try:
            return read(self._slot, answer)
        finally:
            if self.finished:
                self._calls.free(self._slot)
            else:
                self._calls.next(self.number)

    def stop(self):
        """Want no more answers."""
        if self.finished or self._stopped:
            return
        self._stopped = True
        calls, slot = self._calls, self._slot

        def drop(answer):
            if answer["final"]:
                calls.free(slot)

        with calls._lock:
            if self.number in calls._live:
                calls._live[self.number] = drop
                drop = None
        if drop is None:
            calls.next(self.number, stop=True)
        else:
            calls.free(slot)  # the final answer is there, unread
