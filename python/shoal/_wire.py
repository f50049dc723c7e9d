"""Batches in the memory that a worker shares with the server.

One file in memory (a memfd) carries everything. Its first page is a ring of
batches that the server has sent; each slot behind it has a part that only the
server writes (a descriptor, then the inputs) and a part that only the worker
writes (the outputs, then a table of them). The file is as long as it will ever
be and has holes where nothing was written yet, so a part grows by being mapped
further, without a word to the other side. Two eventfds wake the other side.

internal/backend/python has the other end; both must be of one build, which is
why the server always runs the worker that is embedded in it.
"""

import mmap
import os
import struct
import threading
import weakref
from sys import getrefcount
from time import perf_counter_ns

import numpy as np

from shoal import _codec
from shoal._codec import ResultError

SPAN = 1 << 36  # of one slot; the outputs begin in its middle
HALF = SPAN // 2
RING = 128  # entries of the ring of sent batches
HEAD = 64  # bytes of a part's header

_ENTRY = struct.Struct("<IIQ")  # slot, reserved, bytes of the server's part
_SENT = struct.Struct("<Q")  # how many entries the server has made
_SENT_AT = 4088
_TAKEN_AT = 4080  # how many of them we have taken
_BATCH = struct.Struct("<QIIIIIIQ")  # sequence, table bytes, extra bytes, requests, rows, flags, reserved, extra offset
_RESULT = struct.Struct("<QIIQQQ")  # sequence, flags, answers, handler ns, table offset, table bytes
_ONE = (1).to_bytes(8, "little")

UNCACHED = 1  # the descriptor is not likely to come again
KEPT = 1  # the handler still holds inputs: the slot must not be used again
ALL = 0xFFFFFFFF  # an answer for all requests of the batch

_NOBODY = frozenset()
_MAX_LAYOUTS = 64
_MAX_ENTRIES = 256
_ALIGN = 64
_FIRST_MAP = 1 << 20


class Channel:
    """The worker's end of the memory: takes batches, runs them, answers."""

    def __init__(self, memory, ring, back, config):
        self._memory = memory
        self._ring = ring
        self._back = back
        self._control = mmap.mmap(memory, 4096)
        self._slots = {}
        self._taken = 0
        self._closing = False
        self._sequence = 0  # of the batch that runs, or ran last
        self._cancelled = set()  # (sequence, request) of clients that have gone
        self.inputs = config["inputs"]  # names, in the order of the signature
        self.outputs = {name: i for i, name in enumerate(config["outputs"])}
        self.output_names = config["outputs"]
        self.output_types = config["output_types"]
        self.batched = config["batched"]
        self.decoupled = config.get("decoupled", False)
        self.limit = config["limit"]
        self.copies = self.decoupled  # hand out copies of inputs rather than views
        self.note = lambda text: None  # told what an operator may want to know
        self._batch = Batch
        if self.decoupled:
            from shoal import _stream  # not at the top: it builds on this module

            self._batch = _stream.StreamBatch
        self.send = None  # sends an answer of a decoupled model
        self._live = weakref.WeakValueDictionary()  # (sequence, request): those of decoupled models that are not finished

    def close(self):
        """Make serve return when it has run what was sent."""
        self._closing = True
        os.write(self._ring, _ONE)

    def serve(self, run):
        """Call run(batch) for every batch until close."""
        read, ring, back = os.read, self._ring, self._back
        while True:
            read(ring, 8)
            if _SENT.unpack_from(self._control, _SENT_AT)[0] == self._taken:
                if self._closing:
                    return
                continue
            number, _, size = _ENTRY.unpack_from(self._control, (self._taken % RING) * 16)
            self._taken += 1
            _SENT.pack_into(self._control, _TAKEN_AT, self._taken)
            batch = self._open(number, size)
            begin = perf_counter_ns()
            run(batch)
            batch._finish(perf_counter_ns() - begin)
            batch = None
            os.write(back, _ONE)

    def cancel(self, sequence, i):
        """Note that the client of a request has gone."""
        if sequence >= self._sequence or (sequence, i) in self._live:
            self._cancelled.add((sequence, i))

    def _forget(self, sequence):
        """Drop what is known of clients that have gone, for a batch that has ended."""
        for key in list(self._cancelled):
            if key[0] <= sequence and key not in self._live:
                self._cancelled.discard(key)

    def _open(self, number, size):
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot(self._memory, number)
        if size > slot.input_size:
            slot.reach(size)
        batch = self._batch(self, slot)
        self._sequence = batch._header[0]
        return batch


class _Slot:
    """A slot's two parts as this process has them mapped."""

    def __init__(self, memory, number):
        self._file = memory
        self._at = (number + 1) * SPAN
        self.number = number
        self.inputs = self.outputs = None
        self.input_size = self.output_size = 0
        self.layouts = {}
        self.places = {}
        self.reach(_FIRST_MAP)
        self.grow(_FIRST_MAP)

    def reach(self, size):
        """Map the server's part at least that far."""
        if size <= self.input_size:
            return
        self.input_size = _rounded(size)
        self.inputs = mmap.mmap(self._file, self.input_size, offset=self._at)
        _leave_out_of_dumps(self.inputs)
        self.layouts = {}

    def grow(self, size):
        """Map our part at least that far. What was written stays."""
        if size <= self.output_size:
            return
        self.output_size = _rounded(size)
        self.outputs = mmap.mmap(self._file, self.output_size, offset=self._at + HALF)
        _leave_out_of_dumps(self.outputs)
        self.places = {}


def _rounded(size):
    n = _FIRST_MAP
    while n < size:
        n *= 2
    return min(n, HALF)


def _leave_out_of_dumps(m):
    advice = getattr(mmap, "MADV_DONTDUMP", None)
    if advice is not None:
        m.madvise(advice)


class _Layout:
    """Where the inputs of a batch lie. Batches of the same shapes share one."""

    def __init__(self, channel, slot, table, requests):
        self.rows = struct.unpack_from("<%dI" % requests, table)
        self.starts = [0]
        for n in self.rows:
            self.starts.append(self.starts[-1] + n)
        self.types = {}
        self.stacked = {}  # name: one array with the rows of all requests
        self.separate = {}  # name: an array or None for each request
        self.texts = {}  # name: (offset, shape); offsets and shapes for separate ones
        self.views = []
        at = (4 * requests + 7) & ~7
        while at < len(table):
            at = self._column(channel, slot, table, at, requests)
        self.names = tuple(self.types)
        self.references = self.count()

    def _column(self, channel, slot, table, at, requests):
        index, code, kind, rank = struct.unpack_from("<HBBI", table, at)
        name = channel.inputs[index]
        self.types[name] = code
        entry = struct.Struct("<Qq%dq" % rank)
        at += 8
        parts = []
        for _ in range(requests if kind else 1):
            offset, size, *shape = entry.unpack_from(table, at)
            at += entry.size
            if size < 0:
                parts.append(None)
            elif code == _codec.BYTES:
                parts.append((offset, tuple(shape)))
            else:
                view = np.ndarray(shape, _codec.DTYPES[code], slot.inputs, offset)
                self.views.append(view)
                parts.append(view)
        if kind:
            (self.texts if code == _codec.BYTES else self.separate)[name] = parts
        else:
            (self.texts if code == _codec.BYTES else self.stacked)[name] = parts[0]
        return at

    def count(self):
        """References to the views: more than at first, and somebody keeps one."""
        return sum(map(getrefcount, self.views))


class Batch:
    """Requests that run together."""

    __slots__ = (
        "_channel", "_slot", "_layout", "_header", "_requests", "_extras", "_arrays", "_texts",
        "_lock", "_cursor", "_answers", "_table", "_left", "_open", "__weakref__",
    )

    def __init__(self, channel, slot):
        self._channel = channel
        self._slot = slot
        memory = slot.inputs
        self._header = header = _BATCH.unpack_from(memory, 0)
        table = memory[HEAD : HEAD + header[1]]
        layout = slot.layouts.get(table)
        if layout is None:
            layout = _Layout(channel, slot, table, header[3])
            if not header[5] & UNCACHED:
                if len(slot.layouts) >= _MAX_LAYOUTS:
                    slot.layouts.clear()
                slot.layouts[table] = layout
        self._layout = layout
        self._requests = None
        self._extras = None
        self._arrays = None
        self._texts = None
        self._lock = threading.Lock()
        self._cursor = HEAD
        self._answers = 0
        self._table = []
        self._left = None
        self._open = True

    # What a handler reads.

    def __len__(self):
        return self._header[3]

    @property
    def rows(self):
        """The rows of all requests together."""
        return self._header[4]

    @property
    def requests(self):
        """The requests, in order."""
        if self._requests is None:
            self._requests = [Request(self, i) for i in range(self._header[3])]
        return self._requests

    @property
    def input_names(self):
        """The names of the inputs that the requests have."""
        return self._layout.names

    def inputs(self):
        """Every input by its name: one array with the rows of all requests one
        after another, or a list with an array (or None) for each request where
        their shapes differ."""
        return {name: self.input(name) for name in self._layout.names}

    def input(self, name):
        """One of inputs()."""
        self._check_open()
        layout = self._layout
        view = layout.stacked.get(name)
        if view is not None:
            return self._array(name, view)
        if name in layout.texts:
            return self._text(name)
        if name in layout.separate:
            return [None if v is None else self._copied(v) for v in layout.separate[name]]
        raise KeyError(name)

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return _codec.NAMES[self._layout.types[name]]

    def _check_open(self):
        if not self._open:
            raise RuntimeError("the batch has ended; copy what is needed later while execute runs")

    def _copied(self, view):
        return view.copy() if self._channel.copies else view[...]

    def _array(self, name, view):
        if not self._channel.copies:
            return view[...]
        if self._arrays is None:
            self._arrays = {}
        a = self._arrays.get(name)
        if a is None:
            a = self._arrays[name] = view.copy()
        return a

    def _text(self, name):
        if self._texts is None:
            self._texts = {}
        a = self._texts.get(name)
        if a is None:
            where = self._layout.texts[name]
            memory = self._slot.inputs
            if isinstance(where, list):
                a = [None if p is None else _codec.read_bytes(memory, *p) for p in where]
            else:
                a = _codec.read_bytes(memory, *where)
            self._texts[name] = a
        return a

    def _part(self, name, i):
        """The input of request i; None when it has none of that name."""
        self._check_open()
        layout = self._layout
        whole = layout.stacked.get(name)
        if whole is not None:
            if self._channel.copies:
                whole = self._array(name, whole)
            if self._header[3] == 1:
                return whole[...]
            return whole[layout.starts[i] : layout.starts[i + 1]]
        if name in layout.texts:
            a = self._text(name)
            if isinstance(a, list) or self._header[3] == 1:
                return a[i] if isinstance(a, list) else a
            return a[layout.starts[i] : layout.starts[i + 1]]
        parts = layout.separate.get(name)
        if parts is None or parts[i] is None:
            return None
        return self._copied(parts[i])

    def _extra(self, i):
        if self._extras is None:
            at = self._header[7]
            extra = self._slot.inputs[at : at + self._header[2]]
            self._extras = _codec.read_extras(extra, self._header[3], self._channel.output_names)
        return self._extras[i]

    # What a handler answers.

    def respond(self, outputs, parameters=None):
        """Answer all requests at once: each array has the rows of all of them, in
        order, and the server gives each request its own. Outputs are as those of
        Request.respond."""
        with self._lock:
            self._check_open()
            if self._left is not None:
                raise RuntimeError("a request of the batch has been answered already")
            self._add(ALL, outputs, parameters, None)
            self._left = _NOBODY

    def fail(self, message, code="INTERNAL"):
        """Fail every request that has no answer yet."""
        for r in self.unanswered():
            r.fail(message, code)

    def unanswered(self):
        """The requests that have no answer yet."""
        if self._left is None:
            return list(self.requests)
        if not self._left:
            return []
        return [self.requests[i] for i in sorted(self._left)]

    def _answer(self, i, outputs, parameters):
        with self._lock:
            self._claim(i)
            wanted = self._extra(i).wanted if self._header[2] else None
            self._add(i, outputs, parameters, wanted)
            self._left.discard(i)

    def _fail(self, i, message, code):
        with self._lock:
            self._claim(i)
            self._table.append(_codec.pack_error(i, message, code))
            self._answers += 1
            self._left.discard(i)

    def _claim(self, i):
        self._check_open()
        if self._left is None:
            self._left = set(range(self._header[3]))
        if i not in self._left:
            raise RuntimeError("the request has been answered already")

    def _add(self, i, outputs, parameters, wanted):
        """Put the outputs into the slot. Nothing of an answer is there unless all
        of it is."""
        cursor = self._cursor
        names = self._channel.outputs
        entries = [b""]
        try:
            for item in outputs:
                name = item[0]
                index = names.get(name)
                if index is None:
                    raise ResultError(_codec.unknown_output(name, names))
                if wanted is None or name in wanted:
                    entries.append(self._put(index, item[1], item[2] if len(item) > 2 else None))
            if parameters:
                entries.append(_codec.pack_params(parameters))
        except BaseException:
            self._cursor = cursor
            raise
        many = len(parameters) if parameters else 0
        entries[0] = _codec.ANSWER.pack(i, 0, 0, len(entries) - 1 - (many > 0), many, 0)
        self._table.extend(entries)
        self._answers += 1

    def _put(self, index, array, datatype):
        if type(array) is not np.ndarray:
            array = np.asarray(array)
        key = (index, self._cursor, datatype, array.dtype.num, array.shape)
        place = self._slot.places.get(key)
        if place is None:
            return self._put_first(index, array, datatype, key)
        place[0][...] = array
        self._cursor = place[2]
        return place[1]

    def _put_first(self, index, array, datatype, key):
        """Put an array whose like has not been at this place before."""
        channel, slot = self._channel, self._slot
        name = channel.output_names[index]
        given = array.dtype.num
        array, code = _codec.prepare(name, array, datatype, channel.output_types[index])
        offset = self._cursor
        if code == _codec.BYTES:
            data = _codec.write_bytes(name, array)
            size = len(data)
            self._reserve(name, offset + size)
            slot.outputs[offset : offset + size] = data
        else:
            size = array.nbytes
            self._reserve(name, offset + size)
            view = np.ndarray(array.shape, array.dtype, slot.outputs, offset)
            view[...] = array
        entry = _codec.pack_output(index, code, offset, size, array.shape)
        self._cursor = end = (offset + size + _ALIGN - 1) & -_ALIGN
        if code != _codec.BYTES and array.dtype.num == given:
            if len(slot.places) >= _MAX_ENTRIES:
                slot.places.clear()
            slot.places[key] = (view, entry, end)
        return entry

    def _reserve(self, name, size):
        if size > self._channel.limit:
            raise ResultError(
                "output '%s' makes the result of this batch %d bytes, and at most %d are allowed; "
                "raise it with --backend-config=python,max-result-byte-size=N" % (name, size, self._channel.limit)
            )
        self._slot.grow(size)

    # The end of a batch.

    def _finish(self, spent):
        slot, layout = self._slot, self._layout
        self._open = False
        self._requests = self._arrays = self._texts = None
        table = b"".join(self._table)
        self._table = None
        at = self._cursor
        end = at + len(table)
        if end > slot.output_size:
            slot.grow(end)
        slot.outputs[at:end] = table
        flags = 0
        if layout.count() != layout.references:
            flags = self._kept()
        if self._channel._cancelled:
            self._channel._forget(self._header[0])
        _RESULT.pack_into(slot.outputs, 0, self._header[0], flags, self._answers, spent, at, len(table))

    def _kept(self):
        """Something outside still refers to the inputs. The slot is left to it for
        good, and from now on handlers are given copies."""
        channel = self._channel
        channel._slots.pop(self._slot.number, None)
        if not channel.copies:
            channel.copies = True
            channel.note(
                "the handler keeps inputs beyond execute; from now on it is given copies, which costs time "
                "for large ones (copy what you keep to avoid it)"
            )
        return KEPT


class Request:
    """One request of a batch."""

    __slots__ = ("_batch", "_index", "__weakref__")

    def __init__(self, batch, index):
        self._batch = batch
        self._index = index

    @property
    def id(self):
        return self._batch._extra(self._index).id

    @property
    def correlation_id(self):
        return self._batch._extra(self._index).correlation_id

    @property
    def flags(self):
        """1 for the start of a sequence, 2 for its end, or both."""
        return self._batch._extra(self._index).flags

    @property
    def priority(self):
        return self._batch._extra(self._index).priority

    @property
    def timeout(self):
        """In microseconds; 0 is none."""
        return self._batch._extra(self._index).timeout

    @property
    def parameters(self):
        return self._batch._extra(self._index).parameters

    @property
    def rows(self):
        return self._batch._layout.rows[self._index]

    @property
    def wanted(self):
        """The names of the outputs that the client asked for."""
        batch = self._batch
        wanted = batch._extra(self._index).wanted if batch._header[2] else None
        return batch._channel.output_names if wanted is None else wanted

    @property
    def input_names(self):
        layout, i = self._batch._layout, self._index
        if not layout.separate and not layout.texts:
            return layout.names
        return tuple(n for n in layout.names if self._has(layout, n, i))

    @staticmethod
    def _has(layout, name, i):
        parts = layout.separate.get(name) or layout.texts.get(name)
        return not isinstance(parts, list) or parts[i] is not None

    def input(self, name):
        """The input of that name as an array without a copy, or None. Strings are
        an array of bytes objects; BF16 is the bits, as uint16."""
        return self._batch._part(name, self._index)

    def inputs(self):
        """Every input by its name."""
        return {name: self.input(name) for name in self.input_names}

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return self._batch.datatype(name)

    def respond(self, outputs, parameters=None, final=True):
        """Answer with a list of (name, array) or (name, array, data type), where
        the type is its name on the wire. The arrays are copied at once."""
        self._batch._answer(self._index, outputs, parameters)

    def fail(self, message, code="INTERNAL"):
        """Answer with an error."""
        self._batch._fail(self._index, message, code)

    def finish(self):
        """For decoupled models: nothing more comes."""

    def cancelled(self):
        """Whether the client has gone."""
        return (self._batch._header[0], self._index) in self._batch._channel._cancelled
