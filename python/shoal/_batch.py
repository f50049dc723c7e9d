"""Requests that run together: how a handler reads and answers them."""

from shoal import _codec
from shoal._answer import ALL
from shoal._memory import MAX_U32, SIZES
from shoal._request import Request
from shoal._result import KEPT

_NOTHING = _codec.Extra()
_UNREAD = object()


class Batch:
    """Requests that run together."""

    __slots__ = (
        "rows", "size", "_channel", "_slot", "_layout", "_sequence", "_requests", "_extras", "_arrays", "_texts",
        "_due", "_answered", "_open", "__weakref__",
    )

    def __init__(self, channel, slot, layout, sequence):
        self.rows = layout.total  # of all requests together
        self.size = layout.requests
        self._channel = channel
        self._slot = slot
        self._layout = layout
        self._requests = self._arrays = self._texts = None
        self._begin(sequence)

    def _begin(self, sequence):
        """Reuse this object for the batch of that number, which has the same layout."""
        self._sequence = sequence
        self._extras = _UNREAD if self._slot.words[SIZES] > MAX_U32 else None  # None: no request has any
        self._due = self.size  # requests without an answer
        self._answered = None  # by request, once the first is answered
        self._open = True

    # What a handler reads.

    def __len__(self):
        return self.size

    @property
    def requests(self):
        """The requests, in order."""
        if self._requests is None:
            self._requests = [Request(self, i) for i in range(self.size)]
        return self._requests

    def request(self, i):
        """Request i, also after the batch's end."""
        return Request(self, i)

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
        if not self._open:
            raise _ended()
        layout = self._layout
        view = layout.stacked.get(name)
        if view is not None:
            return self._array(name, view)
        if name in layout.texts:
            return self._text(name)
        if name in layout.separate:
            return [None if v is None else self._copied(v) for v in layout.separate[name]]
        raise KeyError(name)

    def stacked(self, names):
        """The inputs of these names (a tuple), where each is one array with the rows
        of all requests; None where one of them is not, or is of strings."""
        if not self._open:
            raise _ended()
        views = self._layout.chosen.get(names, ())
        if views == ():
            views = self._layout.choose(names)
        if views is None:
            return None
        if self._channel.copies:
            return [self._array(n, v) for n, v in zip(names, views)]
        if len(views) == 1:
            return (views[0][...],)
        return [v[...] for v in views]

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return _codec.NAMES[self._layout.types[name]]

    def parts(self, i, make):
        """The inputs of request i: make(name, array, data type) of each that it has."""
        layout = self._layout
        if layout.uniform is None or self._channel.copies:
            found = ((n, self._part(n, i), self.datatype(n)) for n in layout.names)
            return [make(*p) for p in found if p[1] is not None]
        if not self._open:
            raise _ended()
        made = []
        if self.size == 1:
            for name, view, datatype in layout.uniform:
                made.append(make(name, view[...], datatype))
            return made
        begin, end = layout.starts[i], layout.starts[i + 1]
        for name, view, datatype in layout.uniform:
            made.append(make(name, view[begin:end], datatype))
        return made

    def extra(self, i):
        """The properties of request i besides its tensors."""
        if self._extras is None:
            return _NOTHING
        if self._extras is _UNREAD:
            if not self._open:
                raise _ended()
            self._extras = self._slot.extras(self._channel.output_names)
        return self._extras[i]

    def wanted(self, i):
        """The names of the outputs that the client of request i asked for."""
        wanted = self.extra(i).wanted
        return self._channel.output_names if wanted is None else wanted

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
        if not self._open:
            raise _ended()
        layout = self._layout
        whole = layout.stacked.get(name)
        if whole is not None:
            if self._channel.copies:
                whole = self._array(name, whole)
            if self.size == 1:
                return whole[...]
            return whole[layout.starts[i] : layout.starts[i + 1]]
        if name in layout.texts:
            a = self._text(name)
            if isinstance(a, list) or self.size == 1:
                return a[i] if isinstance(a, list) else a
            return a[layout.starts[i] : layout.starts[i + 1]]
        parts = layout.separate.get(name)
        if parts is None or parts[i] is None:
            return None
        return self._copied(parts[i])

    # What a handler answers.

    def respond(self, outputs, parameters=None):
        """Answer all requests at once: each array has the rows of all of them, in
        order, and the server gives each request its own. Outputs are as those of
        Request.respond. It is for the thread that runs execute, and no request of
        the batch may be answered by another."""
        if not self._open:
            raise _ended()
        if self._answered is not None or not self._due:
            raise RuntimeError("a request of the batch has been answered already")
        self._slot.result.add(ALL, outputs, parameters, None, True)
        self._due = 0

    def fail(self, message, code="INTERNAL"):
        """Fail every request that has no answer yet."""
        for r in self.unanswered():
            r.fail(message, code)

    def unanswered(self):
        """The requests that have no answer yet."""
        if not self._due:
            return []
        return [r for i, r in enumerate(self.requests) if self._answered is None or not self._answered[i]]

    def answer(self, i, outputs, parameters=None, strict=True):
        """Answer request i; outputs are as those of Request.respond. Any thread may
        do it. Outputs that the model does not have are an error, or left out."""
        with self._channel.lock:
            self._claim(i)
            wanted = None if self._extras is None else self.extra(i).wanted
            self._slot.result.add(i, outputs, parameters, wanted, strict)
            self._answered[i] = 1
            self._due -= 1

    def fail_one(self, i, message, code="INTERNAL"):
        """Answer request i with an error."""
        with self._channel.lock:
            self._claim(i)
            self._slot.result.fail(i, message, code)
            self._answered[i] = 1
            self._due -= 1
            self._channel.erred = True

    def _claim(self, i):
        """Check that request i may be answered."""
        if not self._open:
            raise _ended()
        if self._answered is None:
            self._answered = bytearray(self.size)
        if self._answered[i] or not self._due:
            raise RuntimeError("the request has been answered already")

    # The end of a batch.

    def _outlive(self):
        """The handler keeps the batch, or a request of it, after its end: read now what
        such a request can still be asked for."""
        self.extra(0)

    def _finish(self, spent):
        self._open = False
        self._requests = self._arrays = self._texts = None
        slot = self._slot
        kept = self._layout.kept()
        if slot.overlaid:
            self._channel.files.restore(slot, kept)
        if kept:
            self._channel.retire(slot)
            slot.result.finish(self._sequence, KEPT, spent)
        else:
            slot.result.finish(self._sequence, 0, spent)


def _ended():
    return RuntimeError("the batch has ended; copy what is needed later while execute runs")
