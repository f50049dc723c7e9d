"""Part of the names that handlers of TorchServe import."""
