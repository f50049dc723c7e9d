"""The worker's part of a slot: the outputs of a batch, and the table of them."""

import numpy as np
from numpy import ndarray

from shoal import _answer, _codec
from shoal._codec import ResultError

KEPT = 1  # a flag: the handler still holds inputs, and the slot must not be reused

_HEAD = 64  # bytes of the header
_ALIGN = 64
_MAX_PLACES = 1024
_KEPT = 1 << 20  # the server may free memory beyond this after each batch


class Result:
    """Writes the answers of a batch. A slot has one, which is reused for each batch."""

    __slots__ = ("_channel", "_slot", "_words", "_places", "_cursor", "_answers", "_table", "_last", "_last_at")

    def __init__(self, channel, slot):
        self._channel = channel
        self._slot = slot
        self._cursor = _HEAD  # where the next output goes
        self._answers = 0
        self._table = []
        self._last = None  # the only entry of the last batch's table, if that is all as usual, and where it is
        self._last_at = 0

    def moved(self, words):
        """Called when the memory was mapped again; words are those of its header."""
        self._words = words
        self._places = {}

    def forget(self):
        """Called when what was written may be gone."""
        self._last = None

    def add(self, i, outputs, parameters, wanted, strict):
        """Put the answer of request i into the slot. Nothing of an answer is there
        unless all of it is. Wanted is None for all outputs. One that the model
        does not have is an error if it is strict, and left out otherwise."""
        if len(outputs) == 1 and wanted is None and parameters is None and len(outputs[0]) == 3:
            name, array, datatype = outputs[0]
            if type(array) is ndarray:  # most answers are like an earlier one
                place = self._places.get((i, name, self._cursor, datatype, array.dtype.num, array.shape))
                if place is not None:
                    place[0][...] = array
                    self._cursor = place[1]
                    self._table.append(place[3])
                    self._answers += 1
                    return
        self._add(i, outputs, parameters, wanted, strict)

    def _add(self, i, outputs, parameters, wanted, strict):
        cursor = self._cursor
        names = self._channel.outputs
        entries = [b""]
        try:
            for item in outputs:
                index = names.get(item[0])
                if index is not None:
                    if wanted is None or item[0] in wanted:
                        entries.append(self._put(i, index, *item))
                elif strict:
                    raise ResultError(_codec.unknown_output(item[0], names))
            if parameters:
                entries.append(_codec.pack_params(parameters))
        except BaseException:
            self._cursor = cursor
            self._last = None  # it may have been overwritten
            raise
        many = len(parameters) if parameters else 0
        entries[0] = _answer.ANSWER.pack(i, 0, 0, len(entries) - 1 - (many > 0), many, 0)
        self._table += entries
        self._answers += 1

    def fail(self, i, message, code):
        """Put the error of request i into the slot."""
        self._table.append(_answer.pack_error(i, message, code))
        self._answers += 1

    def _put(self, i, index, name, array, datatype=None):
        if type(array) is not np.ndarray:
            array = np.asarray(array)
        key = (i, name, self._cursor, datatype, array.dtype.num, array.shape)
        place = self._places.get(key)
        if place is None:
            return self._put_first(index, name, array, datatype, key)
        place[0][...] = array
        self._cursor = place[1]
        return place[2]

    def _put_first(self, index, name, array, datatype, key):
        """Put an array that differs from the earlier ones at this place."""
        given = array.dtype.num
        array, code = _codec.prepare(name, array, datatype, self._channel.output_types[index])
        offset = self._cursor
        if code == _codec.BYTES:
            data = _codec.write_bytes(array)
            size = len(data)
            self._reserve(name, offset + size)
            self._slot.outputs[offset : offset + size] = data
        else:
            size = array.nbytes
            self._reserve(name, offset + size)
            view = np.ndarray(array.shape, array.dtype, self._slot.outputs, offset)
            view[...] = array
        entry = _codec.pack_output(index, code, offset, size, array.shape)
        self._cursor = end = (offset + size + _ALIGN - 1) & -_ALIGN
        if code != _codec.BYTES and array.dtype.num == given:
            if len(self._places) >= _MAX_PLACES:
                self._places.clear()
            alone = _answer.ANSWER.pack(key[0], 0, 0, 1, 0, 0) + entry  # the whole answer, when there is no more to it
            self._places[key] = (view, end, entry, alone)
        return entry

    def _reserve(self, name, size):
        limit = self._channel.limit
        if size > limit:
            raise ResultError(
                "output '%s' makes the result of this batch %d bytes, and at most %d are allowed; "
                "raise it with --backend-config=python,max-result-byte-size=N" % (name, size, limit)
            )
        self._slot.grow(size)

    def finish(self, sequence, flags, spent):
        """Write the table and the header, and prepare for the next batch."""
        at, entries = self._cursor, self._table
        only = entries[0] if len(entries) == 1 and not flags else None
        if only is None or only is not self._last or at != self._last_at:  # else it is there
            self._write(at, entries, flags)
            self._last, self._last_at = only if at < _KEPT else None, at
        words = self._words
        words[2] = spent
        words[0] = sequence
        self._cursor = _HEAD
        self._answers = 0
        entries.clear()

    def _write(self, at, entries, flags):
        table = b"".join(entries)
        end = at + len(table)
        if end > self._slot.output_size:
            self._slot.grow(end)
        self._slot.outputs[at:end] = table
        words = self._words
        words[1] = flags | self._answers << 32
        words[3] = at
        words[4] = len(table)
