"""HTTP by hand: what a well-behaved client library would never send."""

from __future__ import annotations

import dataclasses
import socket
import time


@dataclasses.dataclass
class Reply:
    """What came back on a connection: status is 0 when it was closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


CLOSED = 0


def connect(address: str, timeout: float = 10) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout)


def request(path: str, body: bytes = b"", method: str = "POST", headers: dict[str, object] | None = None) -> bytes:
    """A request with exactly the given headers, and Content-Length unless they tell the length themselves."""
    lines = {"Host": "test", **(headers or {})}
    if not {"Content-Length", "Transfer-Encoding"} & lines.keys():
        lines["Content-Length"] = len(body)
    head = "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def chunked(body: bytes, size: int) -> bytes:
    """A body in chunks of so many bytes."""
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def exchange(address: str, *parts: bytes, half_close: bool = False, pause: float = 0, timeout: float = 10) -> Reply:
    """Sends the parts, pausing after each, and reads one answer or the end of the connection."""
    begin = time.monotonic()
    with connect(address, timeout) as sock:
        try:
            for part in parts:
                sock.sendall(part)
                if pause and _answered(sock, pause):
                    break
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has had enough; it may still have answered
        return read_reply(sock, begin)


def _answered(sock: socket.socket, seconds: float) -> bool:
    """Waits so long, or until the server answers or closes."""
    sock.settimeout(seconds)
    try:
        sock.recv(1, socket.MSG_PEEK)
        return True
    except (TimeoutError, ConnectionError) as err:
        return isinstance(err, ConnectionError)
    finally:
        sock.settimeout(10)


def read_reply(sock: socket.socket, begin: float, data: bytes = b"") -> Reply:
    """Reads one answer; a close or a reset without one has the status CLOSED. Data was read before."""
    try:
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                return Reply(CLOSED, {}, data, time.monotonic() - begin)
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        status, headers = _parse(head)
        if status == 100:
            return read_reply(sock, begin, body)
        length = int(headers.get("content-length", 0))
        while len(body) < length:
            more = sock.recv(65536)
            if not more:
                break
            body += more
    except ConnectionError:
        return Reply(CLOSED, {}, data, time.monotonic() - begin)
    return Reply(status, headers, body, time.monotonic() - begin)


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
    return int(lines[0].split()[1]), {k.strip().lower(): v.strip() for k, v in pairs}
