"""Requests of decoupled models: any number of answers each, at any time.

Such a request outlives its batch. It is given copies of its inputs, and its
answers go over the socket, each in one message with its tensors behind it.
"""

import struct
import threading

import numpy as np

from shoal import _answer, _batch, _codec, _request

# sequence, request, flags, bytes of the table
_RESPONSE = struct.Struct("<QIII")
_FINAL = 1
_EMPTY = 2  # only the end
_OVERHEAD = 512  # what the server counts for a response in addition to its tensors


class StreamBatch(_batch.Batch):
    """A batch of a decoupled model."""

    __slots__ = ()

    def __init__(self, channel, slot, layout, sequence):
        super().__init__(channel, slot, layout, sequence)
        self._due = 0  # no request needs an answer when execute returns

    @property
    def requests(self):
        """The requests, in order."""
        if self._requests is None:
            self._requests = [StreamRequest(self, i) for i in range(len(self))]
        return self._requests

    def respond(self, outputs, parameters=None):
        """Not for decoupled models, whose requests are answered one by one."""
        raise RuntimeError("a decoupled model answers each request by itself")

    def fail(self, message, code="INTERNAL"):
        """Fail and finish every request that is not finished."""
        for r in self.requests:
            if not r._finished:
                r.fail(message, code, final=True)


class StreamRequest(_request.Request):
    """One request of a decoupled model."""

    __slots__ = ("_channel", "_sequence", "_more", "_rows", "_inputs", "_types", "_finished", "_unread", "_lock")

    def __init__(self, batch, index):
        super().__init__(None, index)
        self._finished = False
        self._unread = 0  # bytes sent since the client had last read most of its responses
        self._lock = threading.Lock()
        self._channel = batch._channel
        self._sequence = batch._sequence
        self._more = batch.extra(index)
        self._rows = batch._layout.rows[index]
        self._inputs, self._types = {}, {}
        batch.parts(index, self._hold)
        self._channel.live[(self._sequence, index)] = self

    def __del__(self):
        # Nobody can answer it any more, and its client must not wait for ever.
        try:
            self.finish()
        except Exception:  # the server is gone, or this interpreter is ending
            pass

    def _extra(self):
        return self._more

    def _name(self):
        return self._sequence, self._index

    @property
    def wanted(self):
        """The names of the outputs that the client asked for."""
        return self._channel.output_names if self._more.wanted is None else self._more.wanted

    def _hold(self, name, array, datatype):
        self._inputs[name] = array
        self._types[name] = datatype

    def parts(self, make):
        """The inputs: make(name, array, data type) of each."""
        return [make(n, a, self._types[n]) for n, a in self._inputs.items()]

    rows = property(lambda self: self._rows)
    input_names = property(lambda self: tuple(self._inputs))

    def input(self, name):
        """The input of that name, or None."""
        return self._inputs.get(name)

    def datatype(self, name):
        """The name of an input's data type on the wire, such as "FP32"."""
        return self._types[name]

    def cancelled(self):
        """Whether the client has gone."""
        return self._channel.is_cancelled(self._sequence, self._index)

    def respond(self, outputs, parameters=None, final=False):
        """Send an answer; with final it is the last."""
        channel, wanted = self._channel, self._more.wanted
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
            content = _codec.write_bytes(array) if code == _codec.BYTES else array.tobytes()
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
        table[0] = _answer.ANSWER.pack(0, 0, 0, count, len(parameters or ()), 0)
        self._await_room(_OVERHEAD + offset)
        self._send(b"".join(table), data, _FINAL if final else 0)

    def _await_room(self, size):
        """Make the model wait while its client has much to read."""
        room = self._channel.room
        if room and self._unread + size > room and not self._finished:
            self._unread = 0
            self._channel.wait(self._sequence, self._index)
        self._unread += size

    def fail(self, message, code="INTERNAL", final=False):
        """Send an error as an answer; with final it is the last."""
        self._send(_answer.pack_error(0, message, code), (), _FINAL if final else 0)

    def finish(self):
        """End the request. It may be called again, without effect."""
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
                self._channel.live.pop((self._sequence, self._index), None)
