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
import threading
import weakref
from sys import getrefcount
from time import perf_counter_ns

from shoal._batch import Batch
from shoal._memory import MAPS, ONE, RING, SENT, SEQUENCE, STAMP, TAKEN
from shoal._slot import Slot

try:
    from shoal._mapped import Files
except ImportError:  # a Python without ctypes
    Files = None


class Channel:
    """The worker's end of the memory: takes batches, runs them, answers."""

    def __init__(self, memory, ring, back, config):
        self._memory = memory
        self._ring = ring
        self._back = back
        self._control = memoryview(mmap.mmap(memory, 4096)).cast("Q")
        self._slots = {}
        self._closing = False
        self._sequence = 0  # of the current or last batch
        self._gone = {}  # (sequence, request): whether its client is gone, as far as we know
        # Held while an answer is put into a slot. The same thread may take it again when an
        # unanswered request is garbage-collected meanwhile.
        self.lock = threading.RLock()
        self.inputs = config["inputs"]  # names, in the order of the signature
        self.outputs = {name: i for i, name in enumerate(config["outputs"])}
        self.output_names = config["outputs"]
        self.output_types = config["output_types"]
        self.batched = config["batched"]
        self.decoupled = config.get("decoupled", False)
        self.limit = config["limit"]
        self.room = config.get("room", 0)  # bytes that a decoupled model may send to a client before it asks
        self.copies = self.decoupled  # give handlers copies of inputs rather than views
        self.erred = False  # a request got an error
        self.note = lambda text: None  # logs a line for the operator
        self.files = None  # those that clients wrote their rows to, where rows may be mapped
        if Files is not None and not self.decoupled and not config.get("pinned"):
            self.files = Files()
        self.pins = None  # the registered memory of a worker on a GPU
        if config.get("pinned"):
            from shoal._pinned import Pins  # only such workers need it

            self.pins = Pins(lambda text: self.note(text))
        self._batch = Batch
        if self.decoupled:
            from shoal import _stream  # only such models need it

            self._batch = _stream.StreamBatch
        self.send = None  # sends an answer of a decoupled model
        self.wait = None  # waits until a client has read most of what was sent to it
        self.watch = None  # asks the server whether a client is gone; the server calls cancel when it goes later
        self.live = weakref.WeakValueDictionary()  # (sequence, request): unfinished requests of decoupled models

    def close(self):
        """Make serve return when it has run what was sent."""
        self._closing = True
        os.write(self._ring, ONE)

    def serve(self, execute, failed):
        """Call execute(batch) for every batch until close, and failed(batch, error)
        when it raises. This loop is hot."""
        read, write, clock = os.read, os.write, perf_counter_ns
        ring, back, control, slots, make = self._ring, self._back, self._control, self._slots, self._batch
        again = not self.decoupled  # requests of those outlive their batches
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
            slot = slots.get(control[at])
            if slot is None or control[at + 1] > slot.input_size:
                slot = self._map(control[at], control[at + 1])
            if slot.unpinned:
                slot.pin()
            words = slot.words
            layout = slot.layout if words[STAMP] == slot.stamp else slot.look()
            self._sequence = words[SEQUENCE]
            batch = slot.batch
            if batch is not None and batch._layout is layout:
                batch._begin(self._sequence)
            else:
                batch = make(self, slot, layout, self._sequence)
                if again:
                    slot.batch = batch
            begin = clock()
            try:
                if words[MAPS]:
                    self.files.overlay(slot)
                execute(batch)
            except BaseException as e:  # includes sys.exit in a model
                failed(batch, e)
            spent = clock() - begin
            if batch._due:
                batch.fail("the model's execute returned without an answer to this request")
            if not again or getrefcount(slot.batch) > 3:  # the slot's, ours and the call's
                slot.batch = None
                batch._outlive()
            batch._finish(spent)
            batch = layout = None  # so that only the handler can still refer to them
            if self._gone:
                self._forget(self._sequence)
            write(back, ONE)
            if self.erred:
                self._check_gpu()

    def _check_gpu(self):
        """End the worker if its GPU was what failed: another one takes its place."""
        self.erred = False
        why = self.pins.lost() if self.pins is not None else ""
        if why:
            raise RuntimeError("the GPU does nothing for this process any more, so that another has to take its place: " + why)

    def ahead(self):
        """The number of the batch that runs next and its inputs by name, each one array in pinned memory; None while
        the server has not sent it. It is for the thread that runs the present batch."""
        control = self._control
        taken = control[TAKEN]
        if control[SENT] == taken or self.copies or self.pins is None:
            return None
        at = taken % RING * 2
        slot = self._slots.get(control[at])
        if slot is None or control[at + 1] > slot.input_size:
            slot = self._map(control[at], control[at + 1])
        if slot.unpinned:
            slot.pin()
        if slot.unpinned or self.pins.failed:
            return None
        layout = slot.layout if slot.words[STAMP] == slot.stamp else slot.look()
        return slot.words[SEQUENCE], layout.stacked

    def running(self):
        """The number of the present batch."""
        return self._sequence

    def _map(self, number, size):
        """Return the slot of that number, with at least size bytes mapped."""
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(self, self._memory, number)
        slot.reach(size)
        return slot

    def retire(self, slot):
        """The handler still refers to the inputs. It keeps the slot for
        good, and from now on handlers get copies."""
        self._slots.pop(slot.number, None)
        slot.unpin()
        if not self.copies:
            self.copies = True
            self.note(
                "the handler keeps inputs beyond execute; from now on it is given copies, which costs time "
                "for large ones (copy what you keep to avoid it)"
            )

    def cancel(self, sequence, i):
        """Record that the client of a request is gone."""
        if sequence >= self._sequence or (sequence, i) in self.live:
            self._gone[sequence, i] = True

    def is_cancelled(self, sequence, i):
        """Whether the client of a request is gone."""
        key = (sequence, i)
        gone = self._gone.get(key)
        if gone is None and not self.decoupled:  # for decoupled models the server tells us unasked
            gone = self._gone.setdefault(key, False)  # before we ask: the answer may come at once
            if self.watch(sequence, i):
                gone = self._gone[key] = True
        return bool(gone)

    def _forget(self, sequence):
        """Forget the clients of batches that have ended."""
        for key in list(self._gone):
            if key[0] <= sequence and key not in self.live:
                self._gone.pop(key, None)
