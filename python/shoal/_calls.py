"""A model's requests to other models of its server.

The inputs go into a slot of the shared memory and the outputs come back in its
other half. What else a call says is a message: in the slot, when the thread that
runs the batch calls, because the server's thread that waits for the batch runs such
calls; otherwise over the socket. A slot is asked for once and then used for one call
after another. internal/backend/python/calls.go and callwire.go have the other end.
"""

import ctypes
import itertools
import json
import mmap
import os
import platform
import queue
import struct
import threading
import weakref

import numpy as np

from shoal import _answer, _codec
from shoal._memory import CALL_AT, CALL_SIZE, CALL_SLOT, FIRST_MAP, HALF, ONE, SPAN, rounded

_get_ident = threading.get_ident
_ALIGN = 64
_CODES = {name: i for i, name in enumerate(_codec.NAMES)}
ERRORS = {number: name for name, number in _answer.CODES.items()}

# A call: its number; the slot; the batch that waits, or 0; bytes of the inputs; time-out; sequence; bytes of the table and
# of the rarer properties, which follow; flags of the sequence; how it is answered.
_CALL = struct.Struct("<IIQQqQIIBB6x")
_DECOUPLED, _DIRECT, _UNCACHED = 1, 2, 4
_TARGET = struct.Struct("<qHHH")  # of the table: version; outputs that are wanted; inputs; bytes of the model's name
_TENSOR = struct.Struct("<HBB")  # bytes of the name; type; rank. The name, the shape, the offset and the size follow
_TEXT = struct.Struct("<H")
# An answer: the call; flags; code of the error; outputs; bytes of the error, of the parameters; bytes of the slot's half.
_ANSWER = struct.Struct("<IBBHIIQ")
_FINAL, _EMPTY, _ERROR = 1, 2, 4
_MAX_TABLES = 256

# From how many bytes on outputs are lent, rather than copied, and how many slots may be lent at a time.
_LEND = 64 << 10
_MAX_LENT = 16

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
        self.lent = False  # arrays of the model refer to the server's half
        self.write(FIRST_MAP)
        self.read(FIRST_MAP)

    def arm(self):
        """Prepare for an answer that wait waits for."""
        if self._word is None:
            self._word = ctypes.c_uint32.from_buffer(self.theirs)
        self._word.value = 0

    def wait(self, over):
        """Wait for the answer to the call in the slot. Returns False when over() is true."""
        word = self._word
        while word.value == 0:
            _syscall(_FUTEX, ctypes.byref(word), _WAIT, 0, ctypes.byref(_SECOND), None, 0)
            if word.value == 0 and over():
                return False
        return True

    def answer(self):
        """The answer in the slot."""
        _, size, at = _HEAD.unpack_from(self.theirs)
        return Answer.of(self.read(at + size)[at : at + size])

    def write(self, size):
        if self.ours is None or len(self.ours) < size:
            self.ours = mmap.mmap(self._file, rounded(size), offset=self._at + HALF)
        return self.ours

    def read(self, size):
        if self.theirs is None or len(self.theirs) < size:
            self.theirs = mmap.mmap(self._file, rounded(size), offset=self._at)
            self._word = None
        return self.theirs


class Answer:
    """A response to a call, or its end."""

    __slots__ = ("call", "code", "error", "final", "layout", "params", "size")
    _layouts = {}  # of the tables that were seen
    _known = {}  # answers without an error or parameters, by their messages without the call's number

    @staticmethod
    def of(message):
        """The answer in a message. Its call is not known."""
        rest = message[4:]
        answer = Answer._known.get(rest)
        if answer is None:
            answer = Answer(message)
            if answer.error is None and answer.params is None:
                if len(Answer._known) >= _MAX_TABLES:
                    Answer._known.clear()
                Answer._known[rest] = answer
        return answer

    def __init__(self, message):
        self.call, flags, self.code, count, error, params, self.size = _ANSWER.unpack_from(message)
        self.final = flags & _FINAL != 0
        end = len(message) - error - params
        table = message[_ANSWER.size : end]
        self.layout = Answer._layouts.get(table)
        if self.layout is None:
            if len(Answer._layouts) >= _MAX_TABLES:
                Answer._layouts.clear()
            self.layout = Answer._layouts[table] = _read_table(table, count)
        self.error = message[end : end + error].decode("utf-8", "replace") if flags & _ERROR else None
        self.params = json.loads(message[end + error :]) if params else None


def _failed(call, text):
    """The answer to a call that the server cannot give any more."""
    text = text.encode()
    return Answer(_ANSWER.pack(call, _FINAL | _ERROR, _answer.CODES["UNAVAILABLE"], 0, len(text), 0, 0) + text)


def _read_table(table, count):
    """The outputs of an answer: name, type of numpy (None for strings), shape, offset, data type."""
    found, at = [], 0
    for _ in range(count):
        size, code, rank = _TENSOR.unpack_from(table, at)
        at += _TENSOR.size
        name = table[at : at + size].decode("utf-8", "replace")
        *shape, offset, _ = struct.unpack_from("<%dqQQ" % rank, table, at + size)
        at += size + 8 * rank + 16
        found.append((name, _codec.DTYPES[code] if code != _codec.BYTES else None, tuple(shape), offset, _codec.NAMES[code]))
    return found


class Calls:
    """The calls of one worker. Any thread may call."""

    def __init__(self, memory, ask_slot, send_call, send_next, channel):
        self._memory = memory
        self._ask_slot, self._send_call, self._send_next = ask_slot, send_call, send_next
        self._channel = channel
        self._idle = []  # slots; also appended to without the lock, when garbage is collected
        self._lent = 0
        self._leases = {}  # a lent slot's number: the reference that tells when it is free
        self._tables = {}  # what is called, and the inputs' types and shapes: the table
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # protects the fields below
        self._live = {}  # a call's number: what takes its answers
        self._over = False
        self.thread = 0  # the thread that runs batches
        self.loop_holds = False  # coroutines hold the batch, too

    def start(self, tensors, target, told, take, held, kind=0):
        """Send a call. Tensors are (name, array, data type); target is (model, version,
        names of outputs); told has what is rarer. Take is called with each answer, in the
        thread that reads the socket. Returns the call's number and the slot."""
        number, slot, size, table, more = self._prepare(tensors, target, take)
        if kind & _DIRECT:
            slot.arm()
        batch = self._channel._sequence if held else 0
        message = _CALL.pack(number, slot.number, batch, size, told.timeout, told.sequence, len(table), len(told.extras), told.flags, kind | more)
        self._send_call(message, table, told.extras)
        return number, slot

    def _prepare(self, tensors, target, take):
        if self._over:
            raise RuntimeError("the server is gone")
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = _Slot(self._memory, int(self._ask_slot()))
        try:
            size, table, kind = self._put(slot, tensors, target)
        except BaseException:
            self.free(slot)
            raise
        number = next(self._numbers) % 0xFFFFFFFF + 1
        if take is not None:
            with self._lock:
                self._live[number] = take
        return number, slot, size, table, kind

    def _put(self, slot, tensors, target):
        """Write the inputs of a call. Returns their size, the table of them and a flag."""
        key = (target, *[(name, datatype, array.shape) for name, array, datatype in tensors])
        known = self._tables.get(key)
        if known is None:
            known = self._describe(tensors, target, key)
        size, table, places, kind = known
        memory = slot.write(size)
        for (_, array, _), (offset, end, data) in zip(tensors, places):
            memory[offset:end] = array if data is None else data
        return size, table, kind

    def _describe(self, tensors, target, key):
        """Make the table of a call, and keep it unless it has strings, whose sizes differ."""
        model, version, wanted = target
        name = model.encode()
        parts = [_TARGET.pack(version, len(wanted), len(tensors), len(name)), name]
        for output in wanted:
            text = output.encode()
            parts += [_TEXT.pack(len(text)), text]
        at, places, kind = 0, [], 0
        for name, array, datatype in tensors:
            code, data, size = _CODES[datatype], None, array.nbytes
            if code == _codec.BYTES:
                data, kind = _codec.write_bytes(array), _UNCACHED
                size = len(data)
            text = name.encode()
            parts += [_TENSOR.pack(len(text), code, array.ndim), text, struct.pack("<%dqQQ" % array.ndim, *array.shape, at, size)]
            places.append((at, at + size, data))
            at = (at + size + _ALIGN - 1) & -_ALIGN
        known = at, b"".join(parts), places, kind
        if not kind:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            self._tables[key] = known
        return known

    def ask(self, tensors, target, told, read):
        """Send a call, wait for its answer and return read(calls, slot, answer)."""
        if _get_ident() == self.thread:
            number, slot, size, table, kind = self._prepare(tensors, target, None)
            extras = told.extras
            batch = self._channel._sequence
            head = _CALL.pack(number, slot.number, batch, size, told.timeout, told.sequence, len(table), len(extras), told.flags, kind)
            message = head + table + extras
            end = size + len(message)
            slot.write(end)[size:end] = message
            answered = self._in_batch(slot.number, size, len(message))
        elif _FUTEX is None:
            return Waiter(self, tensors, target, told, False).next(read)
        else:
            number, slot = self.start(tensors, target, told, None, False, _DIRECT)
            answered = slot.wait(lambda: self._over)
        try:
            return read(self, slot, slot.answer() if answered else _failed(number, "the server is gone"))
        finally:
            self.free(slot)

    def _in_batch(self, slot, at, size):
        """Let the server run the call whose message is in a slot, before it waits for the batch
        again. Only the thread that runs the batch may do that. Returns False when the server is gone."""
        channel = self._channel
        control = channel._control
        control[CALL_AT], control[CALL_SIZE] = at, size
        control[CALL_SLOT] = slot + 1
        os.write(channel._back, ONE)
        others = 0  # what was rung for the channel
        while True:
            os.read(channel._ring, 8)
            answered = control[CALL_SLOT] == 0
            if answered or self._over:
                break
            others += 1
        for _ in range(others):
            os.write(channel._ring, ONE)
        return answered

    def free(self, slot):
        """Use a slot for other calls, once nothing refers to what is lent of it."""
        if not slot.lent:
            self._idle.append(slot)

    def outputs(self, slot, answer):
        """The tensors of an answer: (name, array, data type). They are copies, or lent when they are large."""
        memory = slot.read(answer.size)
        lease = None
        if answer.final and answer.size >= _LEND and self._lent < _MAX_LENT:
            lease = self._lend(slot, memory)
        found = []
        for name, dtype, shape, offset, datatype in answer.layout:
            if dtype is None:
                array = _codec.read_bytes(memory, offset, shape)
            elif lease is None:
                array = np.ndarray(shape, dtype, memory, offset).copy()
            else:
                array = np.ndarray(shape, dtype, lease, offset)
            found.append((name, array, datatype))
        return found

    def _lend(self, slot, memory):
        """What arrays over the slot's memory refer to. The slot is used again when the last of them is gone."""
        lease = (ctypes.c_char * len(memory)).from_buffer(memory)
        slot.lent = True
        self._lent += 1

        def back(_):  # in any thread, at any moment: it must not wait for a lock
            self._leases.pop(slot.number, None)
            self._lent -= 1
            slot.lent = False
            self._idle.append(slot)

        self._leases[slot.number] = weakref.ref(lease, back)
        return lease

    def next(self, number, stop=False):
        """Tell the server that an answer was read, or that no more are wanted."""
        self._send_next({"call": number, "stop": stop})

    def answered(self, payload):
        """Pass an answer on. The thread that reads the socket calls it."""
        answer = Answer(payload)
        with self._lock:
            take = self._live.pop(answer.call, None) if answer.final else self._live.get(answer.call)
        if take is not None:
            take(answer)

    def ended(self):
        """Fail all calls: the server is gone."""
        with self._lock:
            self._over = True
            live, self._live = self._live, {}
        os.write(self._channel._ring, ONE)  # for a thread that waits for an answer
        for number, take in live.items():
            take(_failed(number, "the server is gone"))

    def holds(self, in_loop=False):
        """Whether the batch that runs waits for a call of this thread."""
        return threading.get_ident() == self.thread or (in_loop and self.loop_holds)


class Told:
    """What a call says besides its model and its tensors."""

    __slots__ = ("extras", "flags", "sequence", "timeout")

    def __init__(self, id="", correlation=0, flags=0, timeout=0, parameters=None, trace=None):
        self.flags, self.timeout = flags & 3, timeout
        self.sequence, extras = 0, {}
        if id:
            extras["id"] = id
        if isinstance(correlation, str):
            extras["sequence_id"] = correlation
        else:
            self.sequence = correlation
        if parameters:
            extras["params"] = parameters
        if trace:
            extras["trace"] = trace
        self.extras = json.dumps(extras).encode() if extras else b""


NOTHING = Told()


class Waiter:
    """Takes the answers of a call for a thread that waits for them."""

    def __init__(self, calls, tensors, target, told, held, decoupled=False):
        self._calls = calls
        self._answers = queue.SimpleQueue()
        self.finished = False
        self._stopped = False
        self._slot = None
        self.number, self._slot = calls.start(tensors, target, told, self._answers.put, held, _DECOUPLED if decoupled else 0)

    def next(self, read):
        """The next answer, as read(calls, slot, answer) has it."""
        answer = self._answers.get()
        self.finished = answer.final
        try:
            return read(self._calls, self._slot, answer)
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
            if answer.final:
                calls.free(slot)

        with calls._lock:
            if self.number in calls._live:
                calls._live[self.number] = drop
                drop = None
        if drop is None:
            calls.next(self.number, stop=True)
        else:
            calls.free(slot)  # the final answer is there, unread
