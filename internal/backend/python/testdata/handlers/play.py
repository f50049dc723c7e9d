"""A handler that does what the first request's parameter "do" says."""

import ctypes
import os
import socket
import sys
import time

import numpy as np


class Handler:
    def __init__(self, init):
        self.kept = []

    def describe(self):
        return None

    def start(self):
        pass

    def execute(self, batch):
        do = batch.requests[0].parameters.get("do", "echo")
        getattr(self, do)(batch)

    def echo(self, batch):
        for r in batch.requests:
            r.respond([("OUT", r.input("IN"))])

    def whole(self, batch):
        batch.respond([("OUT", batch.input("IN"))], {"rows": batch.rows})

    def tell(self, batch):
        """What the requests have besides tensors comes back as parameters."""
        for r in batch.requests:
            told = {"id": r.id, "correlation": r.correlation_id, "flags": r.flags, "priority": r.priority,
                    "timeout": r.timeout, "rows": r.rows, "wanted": ",".join(r.wanted), "inputs": ",".join(r.input_names)}
            told.update({"p_" + k: v for k, v in r.parameters.items()})
            r.respond([("OUT", r.input("IN"))], told)

    def keep(self, batch):
        """Keep a part of each input beyond execute."""
        x = batch.requests[0].input("IN")
        self.kept.append(x[:, ::2])
        self.echo(batch)

    def kept_sum(self, batch):
        """Say what the inputs are that were kept."""
        r = batch.requests[0]
        r.respond([("OUT", r.input("IN"))], {"kept": ",".join(str(float(k.sum())) for k in self.kept)})

    def integers(self, batch):
        batch.respond([("OUT", np.zeros((batch.rows, 3), np.int64))])

    def shape(self, batch):
        batch.respond([("OUT", np.zeros((batch.rows, 2, 2), np.float32))])

    def few_rows(self, batch):
        batch.respond([("OUT", np.zeros((batch.rows + 1, 3), np.float32))])

    def name(self, batch):
        batch.respond([("NOWHERE", np.zeros((batch.rows, 3), np.float32))])

    def twice_given(self, batch):
        x = batch.input("IN")
        batch.respond([("OUT", x), ("OUT", x)])

    def dtype(self, batch):
        batch.respond([("OUT", np.zeros((batch.rows, 3), np.complex64))])

    def large(self, batch):
        batch.respond([("OUT", np.zeros((batch.rows, 1 << 22), np.float32))])

    def silent(self, batch):
        """Answer none but the first."""
        if len(batch) > 1:
            batch.requests[0].respond([("OUT", batch.requests[0].input("IN"))])

    def twice(self, batch):
        self.echo(batch)
        self.echo(batch)

    def error(self, batch):
        for i, r in enumerate(batch.requests):
            if i % 2:
                r.fail("number %d is odd" % i, "INVALID_ARG")
            else:
                r.respond([("OUT", r.input("IN"))])

    def exception(self, batch):
        batch.requests[0].respond([("OUT", batch.requests[0].input("IN"))])
        raise ValueError("it is\nnot my day")

    def leave(self, batch):
        sys.exit(4)

    def die(self, batch):
        print("these are my last words", file=sys.stderr, flush=True)
        os._exit(3)

    def segfault(self, batch):
        ctypes.string_at(0)

    def sleep(self, batch):
        time.sleep(600)

    def hang_up(self, batch):
        """Close the descriptors that the server gave us."""
        os.closerange(3, 100)
        self.echo(batch)

    def hang_up_and_stay(self, batch):
        """End the connection to the server and do nothing."""
        socket.socket(fileno=os.dup(6)).shutdown(socket.SHUT_RDWR)
        time.sleep(600)

    def garbage(self, batch):
        """Write nonsense over the result once it is there."""
        self.echo(batch)
        batch._slot.result._table = [os.urandom(64)]

    def until_cancelled(self, batch):
        """Answer when the last request's client has gone, and say of each whether it has."""
        while not batch.requests[-1].cancelled():
            time.sleep(0.001)
        for r in batch.requests:
            r.respond([("OUT", r.input("IN"))], {"cancelled": r.cancelled()})

    def early(self, batch):
        """Ring before there is an answer."""
        os.write(5, (1).to_bytes(8, "little"))
        time.sleep(600)

    def close(self):
        pass


load = Handler
