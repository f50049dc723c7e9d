"""Requests of decoupled models: any number of answers each, at any time.

Such a request outlives its batch. It is given copies of its inputs, and its
answers go over the socket, each in one message with its tensors behind it.
"""

import struct
import threading

import numpy as np

from shoal import _codec, _wire

# sequence, request, flags, bytes of the table
_RESPONSE = struct.Struct("<QIII")
_FINAL = 1
_EMPTY = 2  # nothing but the end


class StreamBatch(_wire.Batch):
    """A batch of a decoupled model."""

    __slots__ = ()

    @property
    def requests(self):
        """The requests, in order."""
        if self._requests is None:
            self._requests = [StreamRequest(self, i) for i in range(len(self))]
        return self._requests

    def respond(self, outputs, parameters=None):
        """Not for decoupled models, whose requests are answered one by one."""
        raise RuntimeError("a decoupled model answers each request by itself")

    def unanswered(self):
        """The requests whose execute has not been finished are not due yet."""
        return []

    def fail(self, message, code="INTERNAL"):
        """Fail and finish every request that is not finished."""
        for r in self.requests:
            if not r._finished:
                r.fail(message, code, final=True)


class StreamRequest(_wire.Request):
    """One request of a decoupled model."""

    __slots__ = ("_channel", "_sequence", "_extra", "_rows", "_inputs", "_types", "_finished", "_lock")

    def __init__(self, batch, index):
        super().__init__(None, index)
        self._finished = False
        self._lock = threading.Lock()
        self._channel = batch._channel
        self._sequence = batch._header[0]
        self._extra = batch._extra(index)
        self._rows = batch._layout.rows[index]
        names = batch._layout.names
        parts = ((n, batch._part(n, index)) for n in names)
        self._inputs = {n: a for n, a in parts if a is not None}
        self._types = {n: batch.datatype(n) for n in self._inputs}
        self._channel._live[(self._sequence, index)] = self

    def __del__(self):
        # Nobody can answer it any more: its client must not wait for ever.
        try:
            self.finish()
        except Exception:  # the server is gone, or this interpreter is ending
            pass

    id = property(lambda self: self._extra.id)
    correlation_id = property(lambda self: self._extra.correlation_id)
    flags = property(lambda self: self._extra.flags)
    priority = property(lambda self: self._extra.priority)
    timeout = property(lambda self: self._extra.timeout)
    parameters = property(lambda self: self._extra.parameters)
    rows = property(lambda self: self._rows)
    input_names = property(lambda self: tuple(self._inputs))

    @property
    def wanted(self):
        """The names of the outputs that the client asked for."""
        return self._channel.output_names if self._extra.wanted is None else self._extra.wanted

    def input(self, name):
        """The input of that name, or None."""
        return self._inputs.get(name)

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return self._types[name]

    def cancelled(self):
        """Whether the client has gone."""
        return (self._sequence, self._index) in self._channel._cancelled

    def respond(self, outputs, parameters=None, final=False):
        """Send an answer; with final it is the last."""
        channel, wanted = self._channel, self._extra.wanted
        table, data, offset, count = [b""], [], 0, 0
        for item in outputs:
            name, array = item[0], item[1]
            index = channel.outputs.get(name)
            if index is None:
                raise _codec.ResultError(_codec.unknown_output(name, channel.outputs))
            if wanted is not None and name not in wanted:
                continue
            given = item[2] if len(item) > 2 else None
            array, code = _codec.prepare(name, np.asarray(array), given, channel.output_types[index])
            content = _codec.write_bytes(name, array) if code == _codec.BYTES else array.tobytes()
            table.append(_codec.pack_output(index, code, offset, len(content), array.shape))
            data.append(content)
            offset += len(content)
            count += 1
            if offset > channel.limit:
                raise _codec.ResultError(
                    "output '%s' makes the response %d bytes, and at most %d are allowed; "
                    "raise it with --backend-config=python,max-result-byte-size=N" % (name, offset, channel.limit)
                )
        if parameters:
            table.append(_codec.pack_params(parameters))
        table[0] = _codec.ANSWER.pack(0, 0, 0, count, len(parameters or ()), 0)
        self._send(b"".join(table), data, _FINAL if final else 0)

    def fail(self, message, code="INTERNAL", final=False):
        """Send an error as an answer; with final it is the last."""
        self._send(_codec.pack_error(0, message, code), (), _FINAL if final else 0)

    def finish(self):
        """Nothing more comes. It may be called again, to no effect."""
        if not self._finished:
            self._send(b"", (), _FINAL | _EMPTY)

    def _send(self, table, data, flags):
        with self._lock:
            if self._finished:
                if flags & _EMPTY:
                    return
                raise RuntimeError("the request is finished; no response can follow the final one")
            self._finished = bool(flags & _FINAL)
            head = _RESPONSE.pack(self._sequence, self._index, flags, len(table))
            self._channel.send(head, table, *data)
            if self._finished:
                self._channel._live.pop((self._sequence, self._index), None)
