"""Rows of a batch that are read where their clients wrote them.

A client of a session has large tensors in a file in memory. The server passes the file in place of a copy,
and the rows are mapped from it into their places in the slot while the batch runs.
"""

import ctypes
import mmap
import os
import struct
import threading

from shoal._memory import MAPS, MAPS_AT

_ROW = struct.Struct("<QQQQ")  # offset in the slot, bytes, number of the file, offset there

_FIXED = 0x10  # MAP_FIXED
_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value
_PATIENCE = 30  # seconds for a file that was passed to arrive

_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)


class Files:
    """The files that the server has passed, by their numbers."""

    def __init__(self):
        self._changed = threading.Condition()  # protects the fields below
        self._files = {}  # None: its client is gone; -1: it could not be received
        self._gone = []  # numbers of those

    def add(self, number, fd):
        """A file has come."""
        with self._changed:
            self._files[number] = fd
            self._changed.notify_all()

    def drop(self, number):
        """Its client is gone. A batch with it may still be on its way."""
        with self._changed:
            _close(self._files.get(number))
            self._files[number] = None
            self._gone.append(number)
            if len(self._gone) > 1024:
                del self._files[self._gone.pop(0)]

    def overlay(self, slot):
        """Map the rows that the server has passed as files into their places in the slot. The row of a client that is
        gone stays as it is: nobody gets its answer."""
        words = slot.words
        table = slot.inputs[words[MAPS_AT] : words[MAPS_AT] + words[MAPS] * _ROW.size]
        rows = list(_ROW.iter_unpack(table))
        slot.overlaid = rows[0][0], rows[-1][0] + rows[-1][1]
        address = _address(slot)
        with self._changed:  # a file must not be closed meanwhile
            for at, size, number, offset in rows:
                if number not in self._files and not self._changed.wait_for(lambda: number in self._files, _PATIENCE):
                    raise RuntimeError("a file that the server passed did not arrive")
                fd = self._files[number]
                if fd == -1:
                    raise RuntimeError("the worker has no file descriptor left for a client's memory; raise its limit of open files")
                if fd is not None:
                    _map(address + at, size, mmap.MAP_PRIVATE, fd, offset)

    def restore(self, slot, keep):
        """Map the slot's own memory again. Keep means that the handler still refers to the rows: they are copied there."""
        begin, end = slot.overlaid
        slot.overlaid = None
        rows = slot.inputs[begin:end] if keep else None
        _map(_address(slot) + begin, end - begin, mmap.MAP_SHARED, slot.file, slot.at + begin)
        if keep:
            slot.inputs[begin:end] = rows

    def close(self):
        with self._changed:
            for fd in self._files.values():
                _close(fd)
            self._files.clear()


def _close(fd):
    if fd is not None and fd >= 0:
        os.close(fd)


def _address(slot):
    if slot.start is None:
        slot.start = ctypes.c_char.from_buffer(slot.inputs)
    return ctypes.addressof(slot.start)


def _map(address, size, flags, fd, offset):
    """Map a part of a file in place of what is mapped there."""
    if _mmap(address, size, _ACCESS, flags | _FIXED, fd, offset) == _FAILED:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
