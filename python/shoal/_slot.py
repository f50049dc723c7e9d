"""A slot of the shared memory, and the layout of a batch's inputs in it."""

import struct
from sys import getrefcount

import numpy as np

from shoal import _codec
from shoal._memory import EXTRAS_AT, FIRST_MAP, FLAGS, HALF, HEAD, MAX_U32, REQUESTS, SIZES, SPAN, STAMP, mapped, rounded
from shoal._result import Result

_UNCACHED = 1  # a flag: the table is not likely to occur again

_MAX_LAYOUTS = 64


class Slot:
    """A slot's two parts as this process has them mapped."""

    def __init__(self, channel, memory, number):
        self.number = number
        self._channel = channel
        self.file = memory
        self.at = (number + 1) * SPAN  # in the file
        self.inputs = self.outputs = None
        self.input_size = self.output_size = 0
        self.result = Result(channel, self)
        self.batch = None  # the last one, reused for similar batches
        self.unpinned = channel.pins is not None  # its memory is to be pinned
        self.overlaid = None  # where clients' files are mapped over the server's part: begin, end
        self.reach(FIRST_MAP)
        self.grow(FIRST_MAP)

    def reach(self, size):
        """Map at least that many bytes of the server's part."""
        if size <= self.input_size:
            return
        self.unpin()
        self.input_size = rounded(size)
        self.inputs = mapped(self.file, self.at, self.input_size)
        self.start = None  # the memory's first byte, once something is mapped over it
        self.words = memoryview(self.inputs)[:HEAD].cast("Q")
        self.stamp = self.layout = self.batch = None
        self._layouts = {}

    def grow(self, size):
        """Map at least that many bytes of our part. What was written stays."""
        if size <= self.output_size:
            return
        self.unpin()
        self.output_size = rounded(size)
        self.outputs = mapped(self.file, self.at + HALF, self.output_size)
        self.result.moved(memoryview(self.outputs)[:HEAD].cast("Q"))

    def pin(self):
        """Register both parts with CUDA, as soon as the model uses it."""
        pins = self._channel.pins
        if pins.add((self.number, 0), self.inputs, self.input_size) and pins.add((self.number, 1), self.outputs, self.output_size):
            self.unpinned = False
        elif pins.failed:
            self.unpinned = False

    def unpin(self):
        """A part is about to be mapped anew, or the slot is not used any more."""
        pins = self._channel.pins
        if pins is not None and not self.unpinned:
            pins.drop((self.number, 0))
            pins.drop((self.number, 1))
            self.unpinned = True

    def look(self):
        """Return the layout of the batch in the slot, which differs from the one before.
        The server may have freed the slot's memory in between, and with it what we wrote."""
        self.result.forget()
        words = self.words
        table = self.inputs[HEAD : HEAD + (words[SIZES] & MAX_U32)]
        layout = self._layouts.get(table)
        if layout is None:
            layout = Layout(self._channel.inputs, self.inputs, table, words[REQUESTS] & MAX_U32)
            if not words[FLAGS] & _UNCACHED:
                if len(self._layouts) >= _MAX_LAYOUTS:
                    self._layouts.clear()
                self._layouts[table] = layout
        self.layout, self.stamp = layout, words[STAMP]
        return layout

    def extras(self, outputs):
        """Read the requests' properties besides their tensors."""
        size, at = self.words[SIZES] >> 32, self.words[EXTRAS_AT]
        return _codec.read_extras(self.inputs[at : at + size], self.words[REQUESTS] & MAX_U32, outputs)


class Layout:
    """The positions of a batch's inputs. Batches of the same shapes share one."""

    def __init__(self, inputs, memory, table, requests):
        self.requests = requests
        self.rows = struct.unpack_from("<%dI" % requests, table)
        self.starts = [0]
        for n in self.rows:
            self.starts.append(self.starts[-1] + n)
        self.total = self.starts[-1]
        self.types = {}
        self.stacked = {}  # name: one array with the rows of all requests
        self.separate = {}  # name: an array or None for each request
        self.texts = {}  # name: (offset, shape); offsets and shapes for separate ones
        self._views = []
        self.chosen = {}  # names: their stacked arrays, None unless all of them are stacked
        at = (4 * requests + 7) & ~7
        while at < len(table):
            at = self._column(inputs, memory, table, at, requests)
        self.names = tuple(self.types)
        self.uniform = None  # (name, array, type's name) of each input, when each is one array
        if len(self.stacked) == len(self.types):
            self.uniform = [(n, v, _codec.NAMES[self.types[n]]) for n, v in self.stacked.items()]
        self._only = self._views[0] if len(self._views) == 1 else None
        self._references = self._count() if self._only is None else getrefcount(self._only)

    def _column(self, inputs, memory, table, at, requests):
        index, code, kind, rank = struct.unpack_from("<HBBI", table, at)
        name = inputs[index]
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
                view = np.ndarray(shape, _codec.DTYPES[code], memory, offset)
                self._views.append(view)
                parts.append(view)
        if kind:
            (self.texts if code == _codec.BYTES else self.separate)[name] = parts
        else:
            (self.texts if code == _codec.BYTES else self.stacked)[name] = parts[0]
        return at

    def choose(self, names):
        """Fill in chosen for these names, and return it."""
        views = None
        if all(n in self.stacked for n in names):
            views = [self.stacked[n] for n in names]
            self._references += len(views)
        self.chosen[names] = views
        return views

    def _count(self):
        return sum(map(getrefcount, self._views))

    def kept(self):
        """Whether anybody else refers to the views."""
        if self._only is not None:
            return getrefcount(self._only) != self._references
        return self._count() != self._references
