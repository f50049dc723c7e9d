"""What reading a picture needs besides the two models: numpy and Pillow. The ensemble's steps and the BLS model share it."""

import io
import pathlib

import numpy as np
from PIL import Image, UnidentifiedImageError

MAX_PIXELS = 20_000_000
MAX_LINES = 64  # max_batch_size of text_recognition
HEIGHT, WIDTH = 48, 320  # of a line, as text_recognition wants it
Image.MAX_IMAGE_PIXELS = None  # open_picture has its own limit, with its own words


class BadPicture(ValueError):
    """The client sent something that cannot be read; the text is for the client."""


def open_picture(data: bytes) -> np.ndarray:
    """The pixels of a picture file: uint8 [height, width, RGB]."""
    if not data:
        raise BadPicture("the picture is empty (0 bytes); send the bytes of a picture file such as PNG or JPEG")
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size  # known before the pixels are decoded
            if width * height > MAX_PIXELS:
                raise BadPicture(
                    f"the picture has {width} x {height} pixels ({width * height / 1e6:.1f} million); "
                    f"at most {MAX_PIXELS / 1e6:.0f} million are read: make it smaller"
                )
            return np.asarray(picture.convert("RGB"))
    except UnidentifiedImageError:
        raise BadPicture(f"the {len(data)} bytes are no picture; send the bytes of a picture file such as PNG or JPEG") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, BadPicture):
            raise
        raise BadPicture(f"the picture is damaged: {error}") from None


def for_detection(picture: np.ndarray) -> np.ndarray:
    """The input of text_detection: BGR from -1 to 1, [1, 3, height, width], both multiples of 32."""
    height, width = picture.shape[:2]
    scale = max(1.0, 736 / min(height, width))
    scale = min(scale, 1600 / max(height, width))
    size = [max(32, round(n * scale / 32) * 32) for n in (width, height)]
    return _planes(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))[None]


def _planes(picture: Image.Image) -> np.ndarray:
    pixels = np.asarray(picture, np.float32)[:, :, ::-1] / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def find_lines(picture: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """The boxes of the text lines, in reading order: int32 [lines, (left, top, right, bottom)], in the picture's pixels.

    probability is what text_detection says of each pixel, [1, 1, height, width].
    """
    probability = probability[0, 0]
    height, width = picture.shape[:2]
    scale = np.array([width / probability.shape[1], height / probability.shape[0]] * 2)
    boxes = []
    for left, top, right, bottom in _regions(probability > 0.3):
        w, h = right - left, bottom - top
        if min(w, h) < 3 or probability[top:bottom, left:right].mean() < 0.5:
            continue
        grow = 1.6 * w * h / (2 * (w + h))  # the model marks the middle of a line
        box = np.array([left - grow, top - grow, right + grow, bottom + grow]) * scale
        boxes.append(np.clip(np.rint(box), 0, [width, height, width, height]).astype(np.int32))
    if len(boxes) > MAX_LINES:
        raise BadPicture(f"the picture has {len(boxes)} lines of text; at most {MAX_LINES} are read: send it in parts")
    return np.array(_reading_order(boxes), np.int32).reshape(-1, 4)


def _regions(mask: np.ndarray) -> list[list[int]]:
    """The bounds of the connected parts of a mask. A part is joined from the runs of each row that touch."""
    parent: list[int] = []
    bounds: list[list[int]] = []

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    above: list[tuple[int, int, int]] = []
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    for y in range(len(mask)):
        runs = []
        for begin, end in zip(np.flatnonzero(edges[y] == 1).tolist(), np.flatnonzero(edges[y] == -1).tolist()):
            mine = len(parent)
            parent.append(mine)
            bounds.append([begin, y, end, y + 1])
            for other_begin, other_end, other in above:
                if begin <= other_end and other_begin <= end:
                    parent[root(mine)] = root(other)
            runs.append((begin, end, mine))
        above = runs
    joined: dict[int, list[int]] = {}
    for i, (left, top, right, bottom) in enumerate(bounds):
        b = joined.setdefault(root(i), [left, top, right, bottom])
        b[:] = min(b[0], left), min(b[1], top), max(b[2], right), max(b[3], bottom)
    return list(joined.values())


def _reading_order(boxes: list[np.ndarray]) -> list[np.ndarray]:
    """Rows from top to bottom, each from left to right."""
    rows: list[list[np.ndarray]] = []
    for box in sorted(boxes, key=lambda b: b[1] + b[3]):
        if rows and box[1] + box[3] < 2 * rows[-1][0][3]:  # its middle is above the row's bottom
            rows[-1].append(box)
        else:
            rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda b: b[0])]


def cut_lines(picture: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The input of text_recognition: one row for each box, BGR from -1 to 1, [lines, 3, 48, 320].

    A request has at least one row, so a picture without text gives an empty one, which has no box.
    """
    rows = np.zeros((max(1, len(boxes)), 3, HEIGHT, WIDTH), np.float32)
    for row, (left, top, right, bottom) in zip(rows, boxes):
        width = min(WIDTH, max(1, round(HEIGHT * (right - left) / (bottom - top))))
        line = Image.fromarray(picture[top:bottom, left:right]).resize((width, HEIGHT), Image.Resampling.BILINEAR)
        row[:, :, :width] = _planes(line)
    return rows


def read_characters(path: pathlib.Path) -> np.ndarray:
    """What the classes of text_recognition mean: nothing, the characters of the file, a space."""
    return np.array(["", *path.read_text("utf-8").split("\n"), " "], np.object_)


def texts(probability: np.ndarray, characters: np.ndarray, lines: int) -> tuple[np.ndarray, np.ndarray]:
    """The texts of the lines and how sure the model is of each. probability is [rows, steps, classes]."""
    best = probability[:lines].argmax(axis=2)
    new = np.diff(best, axis=1, prepend=0) != 0  # a class that stays is one character
    shown = new & (best != 0)
    sure = np.take_along_axis(probability[:lines], best[:, :, None], axis=2)[:, :, 0]
    found = np.array(["".join(characters[b[s]]) for b, s in zip(best, shown)], np.object_)
    scores = np.array([p[s].mean() if s.any() else 0 for p, s in zip(sure, shown)], np.float32)
    return found.reshape(lines), scores.reshape(lines)
