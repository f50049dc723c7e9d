"""Lets a process that the server did not start be its worker.

shoal.serve(function) runs the function in the calling process, where its
closures, open files and loaded models are. The server starts a worker as ever;
that one finds SHOAL_ATTACH in its environment and, rather than loading a model,
hands the descriptors that the server gave it over this socket to the process
that called serve, and then waits for that one to be done. So the server watches
a child of its own as ever: when the calling process goes, the relay goes too.
"""

from __future__ import annotations

import array
import os
import shutil
import socket
import tempfile
import threading
from typing import Any, Callable

from shoal import __version__

VARIABLE = "SHOAL_ATTACH"
_MOST_FDS = 16


def relay(fds: list[int]) -> int:
    """Passes the descriptors to their new owner and waits until it is done. Runs in the server's child."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(os.environ[VARIABLE])
        rights = array.array("i", fds)
        peer.sendmsg([__version__.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        for fd in fds:
            os.close(fd)  # the server must see it when the new owner closes them
        while peer.recv(64):
            pass
    return 0


class Attachments:
    """The other end: takes descriptors and runs a worker on them, each in a thread."""

    def __init__(self, load: Callable[[dict[str, Any]], Any]):
        self.fault: Exception | None = None
        self._load = load
        self._folder = tempfile.mkdtemp(prefix="shoal-")
        self.path = os.path.join(self._folder, "attach")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen(64)
        self._accepting = threading.Thread(target=self._accept, name="shoal-attach", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._work, args=(peer,), name="shoal-worker", daemon=True).start()

    def _work(self, peer: socket.socket) -> None:
        from shoal import _worker

        with peer:
            version, fds = _receive(peer)
            if version == __version__:
                _worker.run(fds, self._load)
                return
            self.fault = RuntimeError(
                f"the server is of version {version or '?'} and this package of {__version__}; install both of one version"
            )
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Accepts no more descriptors. Workers end by themselves, with the server."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _receive(peer: socket.socket) -> tuple[str, list[int]]:
    """The sender's version and its descriptors."""
    fds = array.array("i")
    version, control, _, _ = peer.recvmsg(64, socket.CMSG_LEN(_MOST_FDS * fds.itemsize))
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return version.decode("utf-8", "replace"), list(fds)
