"""Batches of an archive's model in the memory that is shared with the server.

It is what _wire is for other models, for one input and one output of strings: it
needs no numpy, and no objects but the rows.
"""

from __future__ import annotations

import mmap
import os
import struct
from time import perf_counter_ns
from typing import Any, Callable

from shoal import _answer
from shoal._archive_rows import Failed, framed
from shoal._memory import FIRST_MAP, HALF, HEAD, MAX_U32, ONE, REQUESTS, RING, SENT, SEQUENCE, SPAN, TAKEN, mapped, rounded

_STRINGS = 13  # the data type's number
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
# An answer with one output of rank 2: request, kind, code, outputs, parameters,
# reserved; index, type, rank, reserved, offset, bytes, shape.
_OUTPUT = struct.Struct("<IBBHIIHBBIQQqq")


class Channel:
    """The worker's end of the memory."""

    decoupled = False

    def __init__(self, memory: int, ring: int, back: int, config: dict[str, Any]):
        self._memory, self._ring, self._back = memory, ring, back
        self._control = memoryview(mmap.mmap(memory, 4096)).cast("Q")
        self._slots: dict[int, _Slot] = {}
        self._closing = False
        self._sequence = 0  # of the current or last batch
        self.limit = config["limit"]

    def close(self) -> None:
        """Make serve return when it has run what was sent."""
        self._closing = True
        os.write(self._ring, ONE)

    def cancel(self, sequence: int, i: int) -> None:
        """The client of a request is gone. Handlers cannot ask for it."""

    def serve(self, execute: Callable[[list[memoryview]], Any], failed: Callable[[Any, BaseException], None]) -> None:
        """Call execute for the rows of every batch until close. It returns the rows of
        the answers, each after its length, or a list of answers. This loop is hot."""
        read, write, clock = os.read, os.write, perf_counter_ns
        ring, back, control, slots = self._ring, self._back, self._control, self._slots
        taken = control[TAKEN]
        while True:
            read(ring, 8)
            if control[SENT] == taken:
                if self._closing:
                    return
                continue
            at = taken % RING * 2
            taken += 1
            control[TAKEN] = taken
            number, size = control[at], control[at + 1]
            slot = slots.get(number)
            if slot is None:
                slot = slots[number] = _Slot(self._memory, number, self.limit)
            if size > slot.input_size:
                slot.reach(size)
            words = slot.words
            self._sequence = words[SEQUENCE]
            begin = clock()
            try:
                slot.answer(execute(slot.rows()))
            except BaseException as e:  # includes sys.exit in a model
                failed(slot, e)
            done = slot.done
            done[2] = clock() - begin
            done[0] = self._sequence
            write(back, ONE)


class _Slot:
    """A slot's two parts as this process has them mapped."""

    def __init__(self, memory: int, number: int, limit: int):
        self._file, self._at, self._limit = memory, (number + 1) * SPAN, limit
        self.input_size = self._output_size = 0
        self.reach(FIRST_MAP)
        self._grow(FIRST_MAP)

    def reach(self, size: int) -> None:
        """Map at least that many bytes of the server's part."""
        self.input_size = rounded(size)
        self._inputs = memoryview(mapped(self._file, self._at, self.input_size))
        self.words = self._inputs[:HEAD].cast("Q")

    def _grow(self, size: int) -> None:
        if size > self._output_size:
            self._output_size = rounded(size)
            self._outputs = mapped(self._file, self._at + HALF, self._output_size)
            self.done = memoryview(self._outputs)[:HEAD].cast("Q")

    def rows(self) -> list[memoryview]:
        """The rows of all requests, in order. They end with the batch."""
        inputs, requests = self._inputs, self.words[REQUESTS]
        # The table: the rows of each request, then of the only column 8 bytes and its offset.
        at = _U64.unpack_from(inputs, HEAD + ((4 * (requests & MAX_U32) + 7) & ~7) + 8)[0]
        found = []
        for _ in range(requests >> 32):
            end = at + 4 + _U32.unpack_from(inputs, at)[0]
            found.append(inputs[at + 4 : end])
            at = end
        return found

    def answer(self, answers: Any) -> None:
        """Answer all requests."""
        if type(answers) is bytes:  # most batches
            requests = self.words[REQUESTS]
            self._write(1, answers, _OUTPUT.pack(_answer.ALL, 0, 0, 1, 0, 0, 0, _STRINGS, 2, 0, HEAD, len(answers), requests >> 32, 1))
            return
        count = self.words[REQUESTS] & MAX_U32
        data, table, at, first = [], [], HEAD, 0
        for i, rows in enumerate(struct.unpack_from("<%dI" % count, self._inputs, HEAD)):
            own = answers[first : first + rows]
            first += rows
            fault = next((a for a in own if isinstance(a, Failed)), None)
            if fault is not None:
                table.append(_answer.pack_error(i, fault.text, fault.code))
                continue
            packed = framed(own)
            table.append(_OUTPUT.pack(i, 0, 0, 1, 0, 0, 0, _STRINGS, 2, 0, at, len(packed), rows, 1))
            data.append(packed)
            at += len(packed)
        self._write(count, b"".join(data), b"".join(table))

    def fail(self, message: str) -> None:
        """Fail all requests."""
        self._write(1, b"", _answer.pack_error(_answer.ALL, message, "INTERNAL"))

    def _write(self, answers: int, data: bytes, table: bytes) -> None:
        at = HEAD + len(data)
        if at > self._limit:
            raise ValueError(
                "the answers of a batch have %d bytes, and at most %d are allowed; "
                "raise it with --backend-config=python,max-result-byte-size=N" % (at, self._limit)
            )
        end = at + len(table)
        self._grow(end)
        self._outputs[HEAD:at] = data
        self._outputs[at:end] = table
        done = self.done
        done[1] = answers << 32
        done[3] = at
        done[4] = len(table)
