"""The model types, as they run in the server's worker processes."""

from __future__ import annotations

import inspect
import keyword
import os
import warnings
from typing import Any, Callable, Sequence

import numpy as np

Forward = Callable[..., Sequence[np.ndarray]]

TYPES = ("mock", "torch", "onnx", "tf", "tensorrt", "onnx2trt")


def mock(path: str, number: int) -> Forward:
    """Returns the first two values of each row, so that callers can check their answers."""

    def forward(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        x = arrays[0]
        return (x.reshape(len(x), -1)[:, :2].astype(np.float32),)

    return forward


def torch(path: str, number: int, inputs: Sequence[dict[str, Any]] = ()) -> Forward:
    """A TorchScript file, on a GPU if there is one: there it is prepared for inference and recorded as CUDA graphs."""
    library = _import("torch", "torch")
    device = _device(library, number)
    if device == "cpu" or not inputs:
        return _torch_forward(library, library.jit.load(path, map_location=device).eval(), device)
    import shoal.torch

    _silence_warning()
    largest = [library.empty(i["shape"], dtype=library.from_numpy(np.empty(0, i["dtype"])).dtype, device=device) for i in inputs]
    net = shoal.torch.record(shoal.torch.script(path, largest), *largest)
    run = shoal.torch.on_gpu(lambda _, *given: net(*given))

    def forward(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        outputs = run(None, *arrays)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return forward


def tensorrt(path: str, number: int) -> Forward:
    """The saved state of a torch2trt module."""
    library = _import("torch", "tensorrt")
    module = _import("torch2trt", "tensorrt").TRTModule()
    device = _device(library, number)
    module.load_state_dict(library.load(path))
    return _torch_forward(library, module.to(device).eval(), device)


def _torch_forward(library: Any, model: Any, device: str) -> Forward:
    _silence_warning()

    def forward(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        with library.inference_mode():
            outputs = model(*(library.from_numpy(a).to(device, non_blocking=True) for a in arrays))
        if not isinstance(outputs, (tuple, list)):
            outputs = (outputs,)
        return [o.cpu().numpy() for o in outputs]

    return forward


def _silence_warning() -> None:
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # models do not write their inputs


def tf(path: str, number: int, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> Forward:
    """A frozen graph of TensorFlow 1. In names of tensors - stands for /; images come as NCHW and the graph has NHWC."""
    library = _import("tensorflow", "tf").compat.v1
    definition = library.GraphDef()
    with open(path, "rb") as file:
        definition.ParseFromString(file.read())
    graph = library.Graph()
    with graph.as_default():
        library.import_graph_def(definition, name="")
    session = library.Session(graph=graph)
    fed, got = ([n.replace("-", "/") + ":0" for n in names] for names in (inputs, outputs))

    def forward(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        given = (np.transpose(a, (0, 2, 3, 1)) if a.ndim == 4 else a for a in arrays)
        return session.run(got, dict(zip(fed, given)))

    return forward


def engine(path: str, number: int) -> Forward:
    """A serialised engine of TensorRT. Its buffers are tensors of torch."""
    trt, library = _import("tensorrt", "onnx2trt"), _import("torch", "onnx2trt")
    device = _device(library, number)
    with open(path, "rb") as file:
        made = trt.Runtime(trt.Logger(trt.Logger.WARNING)).deserialize_cuda_engine(file.read())
    if made is None:
        raise RuntimeError(f"{path} is no engine that TensorRT {trt.__version__} can read; build it with this version")
    context = made.create_execution_context()
    names = [made.get_tensor_name(i) for i in range(made.num_io_tensors)]
    fed = [n for n in names if made.get_tensor_mode(n) == trt.TensorIOMode.INPUT]
    got = [n for n in names if n not in fed]

    def forward(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        kept = []
        for name, array in zip(fed, arrays):
            given = library.from_numpy(np.ascontiguousarray(array, trt.nptype(made.get_tensor_dtype(name)))).to(device)
            context.set_input_shape(name, tuple(given.shape))
            context.set_tensor_address(name, given.data_ptr())
            kept.append(given)
        results = []
        for name in got:
            dtype = library.from_numpy(np.empty(0, trt.nptype(made.get_tensor_dtype(name)))).dtype
            results.append(library.empty(tuple(context.get_tensor_shape(name)), dtype=dtype, device=device))
            context.set_tensor_address(name, results[-1].data_ptr())
        stream = library.cuda.current_stream()
        if not context.execute_async_v3(stream.cuda_stream):
            raise RuntimeError(f"TensorRT could not run {path}")
        stream.synchronize()
        return [r.cpu().numpy() for r in results]

    return forward


def _import(name: str, model_type: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeError(f"model_type={model_type!r} needs the package {name}, which this Python cannot import: {error}") from None


def _device(library: Any, number: int) -> str:
    """The GPU of an instance, in turn; the CPU when there is none."""
    count = library.cuda.device_count()
    return f"cuda:{number % count}" if count else "cpu"


def _gpus(folder: str = "/proc/driver/nvidia/gpus") -> int:
    """How many GPUs there are for workers, without a framework."""
    try:
        found = len(os.listdir(folder))
    except OSError:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else min(found, len([d for d in visible.split(",") if d.strip()]))


def model(spec: dict[str, Any]) -> type:
    """The class that the server runs, from what Session was given."""
    import shoal

    kind, names = spec["model_type"], [i["name"] for i in spec["inputs"]]
    batched = spec["dynamic_batch"]

    def load(self: Any) -> None:
        number = int(self.context.instance.rsplit("_", 1)[-1]) if "_" in self.context.instance else 0
        if kind == "tf":
            self.forward = tf(spec["path"], number, names, [o["name"] for o in spec["outputs"]])
        elif kind == "torch":
            self.forward = torch(spec["path"], number, spec["inputs"])
        else:
            self.forward = {"mock": mock, "tensorrt": tensorrt, "onnx2trt": engine}[kind](spec["path"], number)

    types = [np.dtype(o["dtype"]) for o in spec["outputs"]]

    def predict(self: Any, *arrays: np.ndarray, **named: np.ndarray) -> Any:
        outputs = self.forward(*(arrays or [named[n] for n in names]))
        if len(outputs) != len(types):
            raise shoal.Error(f"model '{spec['name']}' has {len(outputs)} outputs, and output_info names {len(types)}")
        if len(types) == 1:
            return np.asarray(outputs[0], types[0])
        return tuple([np.asarray(o, t) for o, t in zip(outputs, types)])

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    if all(n.isidentifier() and not keyword.iskeyword(n) for n in names):  # else it gets them as named: TensorFlow's have a - in them
        predict.__signature__ = inspect.Signature([own, *(inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names)])  # type: ignore[attr-defined]
    members: dict[str, Any] = {"load": load, "predict": predict, "instances": spec["duplicate_num"]}
    # Without batching the rows are a dimension like any other, and the server never adds to them.
    members["max_batch"] = spec["max_batch_size"] if batched else 0
    devices = min(_gpus(), spec["duplicate_num"]) if kind in ("torch", "tensorrt", "onnx2trt") else 0
    if devices:  # then the worker's memory is pinned, and it sees only its GPU
        members["gpus"] = list(range(devices))
        members["instances"] = -(-spec["duplicate_num"] // devices)
    for side, of in (("inputs", shoal.Input), ("outputs", shoal.Output)):
        for i, info in enumerate(spec[side]):
            shape = [-1] * (len(info["shape"]) - batched)
            members[f"{side}{i}"] = of(info["dtype"], shape, name=info["name"])
    return type("Served", (shoal.Model,), members)
