"""Pinned memory: a worker on a GPU registers what it shares with the server with CUDA, once for each slot, so that a model's
copies from and to the GPU are made by the GPU itself: torch.from_numpy(x).cuda() takes a third of the time."""

import ctypes

_PORTABLE = 1  # for all contexts of the process


class Pins:
    """The registered memory of a worker."""

    def __init__(self, note, load=lambda: ctypes.CDLL("libcuda.so.1")):
        self._note = note  # logs a line for the operator
        self._load = load
        self._driver = None
        self._pinned = {}  # a slot's part: the address that is registered
        self.failed = False

    def in_use(self):
        """Whether the thread has a context: the model uses CUDA, whatever library it does that with."""
        if self._driver is None:
            try:
                self._driver = self._load()
            except OSError as e:
                self._fail(e)
                return False
        context = ctypes.c_void_p()
        return self._driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and bool(context.value)

    def add(self, part, memory, size):
        """Register the memory of a part, in place of what it had before."""
        if self.failed or not self.in_use():
            return False
        self.drop(part)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        code = self._driver.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(size), _PORTABLE)
        if code != 0:
            self._fail("error %d of cuMemHostRegister" % code)
            return False
        self._pinned[part] = address
        return True

    def drop(self, part):
        """Take back what add did, before the memory is unmapped."""
        address = self._pinned.pop(part, None)
        if address is not None:
            self._driver.cuMemHostUnregister(ctypes.c_void_p(address))

    def lost(self):
        """Why CUDA does nothing for this process any more, empty while it works: after a fault of a kernel, or of another
        process by the side of which it runs (MPS), every call gets the same error until the process ends."""
        if self._driver is None or not self.in_use():
            return ""
        code = self._driver.cuCtxSynchronize()
        return "error %d of cuCtxSynchronize" % code if code != 0 else ""

    def _fail(self, why):
        self.failed = True
        self._note("the memory of batches cannot be pinned, so that copies to the GPU take longer: %s" % why)
