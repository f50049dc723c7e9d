"""Model archives for tests, and a server for them under the names of the originals."""

from __future__ import annotations

import pathlib
import subprocess

from server import BINARY, Server

HANDLERS = {
    "ok": """
def handle(data, context):
    return None if data is None else ["ok"] * len(data)
""",
    "ctx": """
def show(value):
    return bytes(value).decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else value


class Echo:
    def initialize(self, context):
        self.context = context

    def handle(self, data, context):
        return [self.one(i, row, context, len(data)) for i, row in enumerate(data)]

    def one(self, i, row, context, size):
        text = show(row.get("body"))
        if text == "status":
            context.set_response_status(418, "I'm a teapot", i)
            return "teapot"
        if text == "status404":
            context.set_response_status(404, "Nope", i)
            return {"code": 404}
        if text == "status201":
            context.set_response_status(201, idx=i)
            return "created"
        if text == "hdr":
            context.set_response_header(i, "X-Thing", "v%d" % i)
            context.set_response_content_type(i, "text/x-custom; charset=utf-8")
            return "ua=%r" % context.get_request_header(i, "user-agent")
        if text == "metrics":
            context.metrics.add_counter("Seen", 1)
            context.metrics.add_size("Size", 3, i, "MB")
            return "metrics"
        if text == "print":
            print("from the handler")
            return "printed"
        return {
            "keys": sorted(row),
            "types": {k: type(v).__name__ for k, v in row.items()},
            "values": {k: show(v) for k, v in row.items()},
            "headers": {k: str(v) for k, v in context.get_all_request_header(i).items()},
            "request_id": context.get_request_id(i),
            "batch": size,
            "model_name": context.model_name,
            "sysprops": {k: str(v) for k, v in context.system_properties.items()},
            "manifest": context.manifest,
        }
""",
    "exc": """
import os
import signal
import sys

try:
    from ts.utils.util import PredictionException
except ImportError:
    from mms.service import PredictionException


class Faulty:
    def initialize(self, context):
        pass

    def handle(self, data, context):
        texts = [bytes(row["body"]).decode() for row in data]
        if "notlist" in texts:
            return {"a": 1}
        if "tuple" in texts:
            return ("a",)
        return [self.one(text) for text in texts]

    def one(self, text):
        if text == "x":
            raise ValueError("x")
        if text == "pe":
            raise PredictionException("my message", 513)
        if text == "pe0":
            raise PredictionException("default code")
        if text == "mem":
            raise MemoryError
        if text == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "sysexit":
            sys.exit(2)
        if text in ("osexit", "exit"):
            os._exit(3)
        if text == "cuda":
            raise RuntimeError("CUDA out of memory")
        if text == "big":
            return b"x" * 7_000_000
        values = {
            "dict": {"a": 1, "b": [1, 2], "n": None, "u": "h\\u00e9"}, "unserialisable": object(), "nan": float("nan"),
            "none": None, "num": 3.5, "empty": "", "str": "h\\u00e9llo",
        }
        return values.get(text, "ok")
""",
    "func": """
inits = 0


def work(data, context):
    global inits
    if data is None:
        inits += 1
        return None
    return ["func style, init calls=%d, batch=%d" % (inits, len(data))] * len(data)
""",
    "slp": """
import time


def handle(data, context):
    if data is None:
        return None
    for row in data:
        time.sleep(float(bytes(row["body"])))
    return ["slept " + bytes(row["body"]).decode() for row in data]
""",
    "bad_class": "import no_such_module\n",
    "few": """
def handle(data, context):
    return None if data is None else []
""",
    "mix": """
def handle(data, context):
    if data is None:
        return None
    if any(bytes(row["body"]) == b"bad" for row in data):
        raise ValueError
    return ["fine, batch=%d" % len(data)] * len(data)
""",
    "mlp": """
def handle(data, context):
    if data is None:
        return None
    return ["This request was not processed successfully. Refer to mms.log for additional information"] * len(data)
""",
}

ENTRY = {"func": ":work"}
FILES = {"mlp": "mlp_handler"}


def link(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The binary under another name."""
    to = folder / name
    if not to.exists():
        to.symlink_to(BINARY)
    return to


def write(folder: pathlib.Path, dialect: str) -> pathlib.Path:
    """Writes every archive into a store with the dialect's own archiver, and returns the store."""
    store = folder / "store"
    store.mkdir()
    for name, code in HANDLERS.items():
        source = folder / "src" / name
        source.mkdir(parents=True)
        file = FILES.get(name, name)
        (source / f"{file}.py").write_text(code)
        pack(folder, dialect, name, source / f"{file}.py", store, "1.0")
    if dialect == "torchserve":
        for n in ("1", "2"):
            pack(folder, dialect, "ctxv", folder / "src" / "ctx" / "ctx.py", folder, f"{n}.0")
            (folder / "ctxv.mar").rename(store / f"ctxv{n}.mar")
    return store


def pack(folder: pathlib.Path, dialect: str, name: str, code: pathlib.Path, to: pathlib.Path, version: str) -> None:
    """Makes one archive."""
    entry = ENTRY.get(name, "")
    if dialect == "mms":
        command = [link(folder, "model-archiver"), "--model-path", code.parent, "--handler", code.stem + entry]
    else:
        command = [link(folder, "torch-model-archiver"), "--version", version, "--handler", f"{code}{entry}"]
    subprocess.run([*map(str, command), "--model-name", name, "--export-path", str(to)], check=True, capture_output=True)


CONFIG = """inference_address=http://127.0.0.1:0
management_address=http://127.0.0.1:0
metrics_address=http://127.0.0.1:0
grpc_inference_port=0
grpc_management_port=0
default_workers_per_model=0
"""


MMS_CONFIG = "".join(line for line in CONFIG.splitlines(True) if not line.startswith(("metrics", "grpc")))


def server(folder: pathlib.Path, dialect: str, *args: object, config: str = "", env=None) -> Server:
    """A server in the foreground, on ports that the system chooses."""
    file = folder / "test.properties"
    text = CONFIG if dialect == "torchserve" else MMS_CONFIG
    file.write_text(text + config)
    name, option = ("multi-model-server", "--mms-config") if dialect == "mms" else ("torchserve", "--ts-config")
    more = ("--ncs",) if dialect == "torchserve" else ()
    return Server(
        "--start", "--foreground", option, file, *more, *args, binary=link(folder, name), command=(), cwd=folder,
        env={"TMPDIR": str(folder), **(env or {})},
    )  # fmt: skip
