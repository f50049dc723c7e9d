"""Parts of a batch, one after another."""


class MicroBatching:
    """A handler's entry point that splits a batch into smaller ones."""

    def __init__(self, parent_handler, micro_batch_size=1):
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self.parallelism = {}

    def __call__(self, data, context):
        return self.handle(data, context)

    def handle(self, data, context):
        """Run the parts, and return their results in order."""
        if data is None:
            return self.handler.handle(data, context)
        out = []
        for at in range(0, len(data), self.micro_batch_size):
            part = data[at : at + self.micro_batch_size]
            out += self.handler.postprocess(self.handler.inference(self.handler.preprocess(part)))
        return out
