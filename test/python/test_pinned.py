"""The memory of a worker on a GPU, with a driver that is not there: what is registered when, and taken back."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

import numpy as np
import pytest

from shoal import _codec, _memory, _pinned, _slot, _wire


class Driver:
    """The driver's calls."""

    def __init__(self, context=1, code=0, broken=0):
        self.context, self.code, self.broken, self.pinned, self.calls = context, code, broken, {}, []

    def cuCtxSynchronize(self):
        self.calls.append("synchronize")
        return self.broken

    def cuCtxGetCurrent(self, out):
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = self.context
        return 0

    def cuMemHostRegister_v2(self, address, size, flags):
        self.calls.append(("register", size.value))
        assert address.value not in self.pinned and flags == 1
        if self.code == 0:
            self.pinned[address.value] = size.value
        return self.code

    def cuMemHostUnregister(self, address):
        self.calls.append(("unregister", self.pinned.pop(address.value)))
        return 0


class Channel:
    inputs = ["x"]

    def __init__(self, pins):
        self.pins = pins
        self.outputs, self.limit = {"y": 0}, 1 << 30


def slot(driver, notes):
    fd = os.memfd_create("test")
    os.ftruncate(fd, 4 * _memory.SPAN)
    pins = _pinned.Pins(notes.append, lambda: driver)
    return _slot.Slot(Channel(pins), fd, 0)


def test_a_slot_is_registered_once_the_model_uses_cuda():
    driver, notes = Driver(context=None), []
    s = slot(driver, notes)
    s.pin()
    assert s.unpinned and not driver.calls  # the model has not touched the GPU yet
    driver.context = 7
    s.pin()
    first = _memory.FIRST_MAP
    assert not s.unpinned and driver.calls == [("register", first), ("register", first)]
    driver.calls.clear()
    s.reach(3 * first)  # a larger batch: mapped anew
    assert s.unpinned and driver.calls == [("unregister", first), ("unregister", first)]
    s.pin()
    assert sorted(driver.pinned.values()) == [first, 4 * first]
    s.unpin()
    assert not driver.pinned and not notes


def test_a_failure_is_told_once_and_the_model_runs_on():
    driver, notes = Driver(code=2), []
    s = slot(driver, notes)
    s.pin()
    assert not s.unpinned and len(notes) == 1 and "error 2" in notes[0]
    s.reach(3 * _memory.FIRST_MAP)
    assert not driver.pinned and len(notes) == 1


def test_without_a_driver_nothing_is_pinned():
    notes = []

    def load():
        raise OSError("libcuda.so.1: cannot open shared object file")

    pins = _pinned.Pins(notes.append, load)
    assert not pins.add((0, 0), mmap.mmap(-1, 4096), 4096) and pins.failed and "libcuda" in notes[0]


def channel_on(driver, ring=0, back=0):
    """A worker's channel, and its memory."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 4 * _memory.SPAN)
    config = {"inputs": ["x"], "outputs": ["y"], "output_types": [11], "batched": True, "limit": 1 << 30, "pinned": True}
    channel = _wire.Channel(fd, ring, back, config)
    channel.pins = _pinned.Pins(lambda text: None, lambda: driver)
    return channel, fd


def send(channel, fd):
    """Batch 7: two requests, of one row each."""
    part = _memory.mapped(fd, _memory.SPAN, 4096)
    table = struct.pack("<Q", 2) + struct.pack("<HBBIQqqq", 0, _codec.NAMES.index("FP32"), 0, 2, 256, 24, 2, 3)
    struct.pack_into("<6Q", part, 0, 7, len(table), 1 | 2 << 32, 0, 0, 1)
    part[_memory.HEAD : _memory.HEAD + len(table)] = table
    part[256 : 256 + 24] = np.arange(6, dtype=np.float32).tobytes()
    control = channel._control
    control[0], control[1], control[_memory.SENT] = 0, 4096, 1


def test_the_inputs_of_the_next_batch_are_there_once_it_was_sent():
    driver = Driver()
    channel, fd = channel_on(driver)
    assert channel.ahead() is None  # nothing was sent
    send(channel, fd)
    number, inputs = channel.ahead()
    assert number == 7 and inputs["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and len(driver.pinned) == 2
    driver.code, channel.pins.failed = 1, True
    assert channel.ahead() is None  # without pinned memory a copy would not be made meanwhile


@pytest.mark.parametrize("broken", [0, 700])
def test_a_worker_whose_gpu_is_lost_ends_after_its_answer(broken):
    (listen, ring), (answered, back) = os.pipe(), os.pipe()
    driver = Driver(broken=broken)
    channel, fd = channel_on(driver, listen, back)
    send(channel, fd)
    failures = []

    def execute(batch):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def failed(batch, error):
        failures.append(str(error))
        batch.fail(str(error))

    os.write(ring, _memory.ONE)
    channel._closing = True  # and return when there is no other batch
    os.write(ring, _memory.ONE)
    if broken:
        with pytest.raises(RuntimeError, match="error 700"):
            channel.serve(execute, failed)
    else:
        channel.serve(execute, failed)
    assert len(failures) == 1 and os.read(answered, 8) == _memory.ONE and "synchronize" in driver.calls
