"""The memory of a worker on a GPU, with a driver that is not there: what is registered when, and taken back."""

from __future__ import annotations

import ctypes
import mmap
import os

from shoal import _memory, _pinned, _slot


class Driver:
    """The driver's three calls."""

    def __init__(self, context=1, code=0):
        self.context, self.code, self.pinned, self.calls = context, code, {}, []

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
