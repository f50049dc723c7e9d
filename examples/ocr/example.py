"""Serves the models, sends a rendered picture to both forms, prints what they read and draws the boxes: python example.py DIR.

DIR is what fetch.py has made. The binary is $SHOAL, or the one on the path.
"""

import contextlib
import io
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import shoal
from PIL import Image, ImageDraw, ImageFont

LINES = [
    "Shoal reads this line", "Invoice No. 2026-1147", "Total: 1,284.50 EUR", "detection, then text",
    "Batches of eight crops", "hello@example.com", "The quick brown fox", "0123456789 ABCDEF",
]  # fmt: skip
FORMS = {"ocr": "the ensemble", "ocr_bls": "the BLS model"}


def render(lines: list[str]) -> Image.Image:
    """A picture with one line of text below the other."""
    picture = Image.new("RGB", (720, 24 + 66 * len(lines)), "white")
    draw = ImageDraw.Draw(picture)
    for i, line in enumerate(lines):
        draw.text((40 + i % 3 * 60, 24 + i * 66), line, fill=(20, 20, 60), font=ImageFont.load_default(32))
    return picture


def file_of(picture: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def draw_boxes(picture: Image.Image, got: dict[str, np.ndarray]) -> Image.Image:
    """The picture with what was found, and what was read beside it."""
    shown = Image.new("RGB", (picture.width + 480, picture.height), (245, 245, 245))
    shown.paste(picture)
    draw = ImageDraw.Draw(shown)
    for text, score, (left, top, right, bottom) in zip(got["text"], got["score"], got["boxes"].tolist()):
        draw.rectangle((left, top, right, bottom), outline=(210, 30, 30), width=2)
        draw.text((picture.width + 24, top), f"{text.decode()}  {score:.2f}", fill=(0, 0, 0), font=ImageFont.load_default(24))
    return shown


@contextlib.contextmanager
def served(folder: pathlib.Path):
    """A client of a server with the models."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    binary = os.environ.get("SHOAL") or shutil.which("shoal") or sys.exit("name the server in the environment variable SHOAL")
    flags = ["--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false", f"--stop-with-process={os.getpid()}"]
    server = subprocess.Popen([binary, "serve", f"--model-repository={folder / 'models'}", f"--python={sys.executable}", "--log-info=false", *flags])
    try:
        client = shoal.Client(f"127.0.0.1:{port}")
        while not client.ready():
            if server.poll() is not None:
                sys.exit("the server has ended")
            time.sleep(0.05)
        yield client
    finally:
        server.terminate()
        server.wait()


def main(folder: pathlib.Path) -> int:
    picture = render(LINES)
    wrong = 0
    with served(folder) as client:
        for model, form in FORMS.items():
            begin = time.perf_counter()
            got = client.infer(model, {"picture": [file_of(picture)]})
            print(f"{model} ({form}), {1000 * (time.perf_counter() - begin):.0f} ms:")
            for line, text in zip(LINES, [t.decode() for t in got["text"]] + [""] * len(LINES)):
                wrong += text != line
                print(f"  {text}" + ("" if text == line else f"   <- should be {line!r}"))
            draw_boxes(picture, got).save(folder / f"{model}.png")
            print(f"  boxes: {folder / (model + '.png')}")
            for what, data in {"0 bytes": b"", "a text file": b"not a picture\n" * 9, "50 million pixels": file_of(Image.new("1", (10000, 5000)))}.items():
                try:
                    client.infer(model, {"picture": [data]})
                    wrong += 1
                    print(f"  {what}: was taken, and should have been refused")
                except shoal.InferenceError as error:
                    print(f"  {what}: {error}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
