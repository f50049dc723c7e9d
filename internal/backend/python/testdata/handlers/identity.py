"""A handler that gives INPUTn back as OUTPUTn, each request by itself."""


class Handler:
    def __init__(self, init):
        self.init = init

    def describe(self):
        return None

    def start(self):
        pass

    def execute(self, batch):
        for r in batch.requests:
            r.respond([("OUTPUT" + n[5:], r.input(n), r.datatype(n)) for n in r.input_names])

    def close(self):
        pass


load = Handler
