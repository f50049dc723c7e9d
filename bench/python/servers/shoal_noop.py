import nets

import shoal


class Noop(shoal.Model):
    INPUT0 = shoal.Input("float32", [16])
    OUTPUT0 = shoal.Output("float32", [16])

    def load(self):
        self.net = nets.noop()

    def predict(self, INPUT0):
        return self.net(INPUT0)
