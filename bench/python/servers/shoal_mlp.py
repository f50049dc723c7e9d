import nets

import shoal


class Mlp(shoal.Model):
    INPUT0 = shoal.Input("float32", [256])
    OUTPUT0 = shoal.Output("float32", [16])

    def load(self):
        self.net = nets.mlp()

    def predict(self, INPUT0):
        return self.net(INPUT0)
