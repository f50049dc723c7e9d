"""One request of a batch, as handlers see it."""


class Request:
    """One request of a batch. It is a handle: the batch has its data."""

    __slots__ = ("_batch", "_index", "__weakref__")

    def __init__(self, batch, index):
        self._batch = batch
        self._index = index

    def _extra(self):
        return self._batch.extra(self._index)

    @property
    def id(self):
        return self._extra().id

    @property
    def correlation_id(self):
        return self._extra().correlation_id

    @property
    def flags(self):
        """1 for the start of a sequence, 2 for its end, or both."""
        return self._extra().flags

    @property
    def priority(self):
        return self._extra().priority

    @property
    def timeout(self):
        """In microseconds; 0 is none."""
        return self._extra().timeout

    @property
    def parameters(self):
        return dict(self._extra().parameters)

    @property
    def trace(self):
        """Of a traced request: its W3C traceparent, which may be empty, and the server's name for it. Else None."""
        context = self._extra().trace
        return None if context is None else (context, self._name())

    def _name(self):
        return self._batch._sequence, self._index

    @property
    def rows(self):
        return self._batch._layout.rows[self._index]

    @property
    def wanted(self):
        """The names of the outputs that the client asked for."""
        return self._batch.wanted(self._index)

    @property
    def input_names(self):
        layout, i = self._batch._layout, self._index
        if layout.uniform is not None:
            return layout.names
        return tuple(n for n in layout.names if _has(layout, n, i))

    def input(self, name):
        """The input of that name as an array without a copy, or None. Strings are
        an array of bytes objects; BF16 is the bits, as uint16."""
        return self._batch._part(name, self._index)

    def inputs(self):
        """Every input by its name."""
        return {name: self.input(name) for name in self.input_names}

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return self._batch.datatype(name)

    def respond(self, outputs, parameters=None, final=True):
        """Answer with a list of (name, array) or (name, array, data type), where
        the type is its name on the wire. The arrays are copied at once."""
        self._batch.answer(self._index, outputs, parameters)

    def fail(self, message, code="INTERNAL"):
        """Answer with an error."""
        self._batch.fail_one(self._index, message, code)

    def finish(self):
        """For decoupled models: end the request."""

    def cancelled(self):
        """Whether the client has gone."""
        batch = self._batch
        return batch._channel.is_cancelled(batch._sequence, self._index)


def _has(layout, name, i):
    parts = layout.separate.get(name) or layout.texts.get(name)
    return not isinstance(parts, list) or parts[i] is not None
