"""A handler that reads one element of each request and gives it back."""


class Handler:
    def __init__(self, init):
        pass

    def describe(self):
        return None

    def start(self):
        pass

    def execute(self, batch):
        batch.respond([("OUTPUT0", batch.input("INPUT0")[:, :1])])

    def close(self):
        pass


load = Handler
