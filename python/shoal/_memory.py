"""The layout of the memory that a worker shares with the server; wire.go has the other end. It needs no numpy."""

import mmap

SPAN = 1 << 36  # of one slot; the outputs begin in its middle
HALF = SPAN // 2
HEAD = 64  # bytes of a part's header

RING = 128  # entries of the ring of sent batches: a slot's number and the bytes of the server's part
TAKEN, SENT = 510, 511  # words of the first page: how many entries we have taken, and the server has made
# More of its words: the slot of a call that waits, plus 1; where its message is, and the message's bytes.
CALL_SLOT, CALL_AT, CALL_SIZE = 507, 508, 509
ONE = (1).to_bytes(8, "little")

# Words of the server's header: the batch's number; bytes of the table, and, in the
# upper half, of the requests' other properties; requests and, in the upper half,
# rows; flags; the offset of those properties; the table's stamp, which changes when
# the table does; the offset of the list of rows that are mapped, and how many.
SEQUENCE, SIZES, REQUESTS, FLAGS, EXTRAS_AT, STAMP, MAPS_AT, MAPS = range(8)

MAX_U32 = 0xFFFFFFFF
FIRST_MAP = 1 << 20


def mapped(file, offset, size):
    """A part of the memory."""
    m = mmap.mmap(file, size, offset=offset)
    advice = getattr(mmap, "MADV_DONTDUMP", None)
    if advice is not None:
        m.madvise(advice)
    return m


def rounded(size):
    """How much to map for that many bytes."""
    n = FIRST_MAP
    while n < size:
        n *= 2
    return min(n, HALF)
