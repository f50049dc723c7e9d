"""A decoupled handler: INPUT0 says how many answers a request gets, and a
negative number what goes wrong."""

import os
import threading

import numpy as np


class Handler:
    def __init__(self, init):
        pass

    def describe(self):
        return None

    def start(self):
        pass

    def execute(self, batch):
        for r in batch.requests:
            n = int(r.input("INPUT0")[0, 0])
            if n == -1:
                raise ValueError("no such number")
            if n == -2:
                os._exit(7)
            if n == -3:
                while not r.cancelled():
                    pass
                r.fail("nobody listens", "CANCELLED")
                r.finish()
                continue
            threading.Thread(target=self.answer, args=(r, n)).start()

    def answer(self, r, n):
        for i in range(n):
            r.respond([("OUTPUT0", np.full((r.rows, 1), i, np.int32))], {"i": i})
        r.finish()
        r.finish()

    def close(self):
        pass


load = Handler
