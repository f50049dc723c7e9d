"""The process behind one instance of a Python model.

The server starts it with four file descriptors: the shared memory, an eventfd
in each direction, and a socket. Batches go through the memory (see _wire);
everything that is rare goes over the socket in frames: the start, the end, the
log, metrics, and the answers of decoupled models.
"""

import array
import errno
import gc
import importlib
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import traceback

from shoal import _faults

FDS_ENV = "SHOAL_WORKER_FDS"

_FRAME = struct.Struct("<IB")  # bytes of the payload, kind

# Kinds of frames from the server.
INIT, CLOSE, CANCEL, REPLY, ANSWER, FILE, DROP = 1, 2, 3, 4, 5, 6, 7
# Kinds of frames to the server.
READY, DESCRIBED, FAILED, LOG, METRIC, RESPONSE, WATCH, ROOM, IMPORTED = 1, 2, 3, 4, 5, 6, 7, 8, 9
SLOT, CALL, NEXT, CONTROL = 10, 11, 12, 13

_CANCEL = struct.Struct("<QI")  # sequence, request
_RIGHTS = socket.CMSG_SPACE(16 * array.array("i").itemsize) if hasattr(socket, "CMSG_SPACE") else 0

_links = threading.local()
_last_link = None


class Link:
    """The socket to the server. Any thread may send."""

    def __init__(self, fd):
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        self._sending = threading.RLock()  # reentrant: garbage collection within may send too
        self._asking = threading.Lock()  # protects the fields below
        self._asked = 0
        self._waiting = {}  # a question's number: where its answer goes
        self._over = False
        self.calls = None  # those to other models, once there are some
        self.make_calls = None  # makes them, once batches are run
        self.channel = None  # the batches
        self._files = []  # descriptors that have come

    def send(self, kind, *payload):
        frame = b"".join((_FRAME.pack(sum(len(p) for p in payload), kind),) + payload)
        with self._sending:
            self._socket.sendall(frame)

    def send_json(self, kind, message):
        self.send(kind, json.dumps(message).encode("utf-8"))

    def receive(self):
        """Return the next frame as (kind, payload); (0, b"") at the end."""
        head = self._exactly(_FRAME.size)
        if head is None:
            return 0, b""
        size, kind = _FRAME.unpack(head)
        payload = self._exactly(size)
        return (0, b"") if payload is None else (kind, payload)

    def _exactly(self, size):
        parts = []
        while size > 0:
            try:
                part, rights, _, _ = self._socket.recvmsg(min(size, 1 << 20), _RIGHTS)
            except OSError:
                return None
            for _, _, data in rights:
                self._files.extend(array.array("i", data))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def file(self):
        """The descriptor that came with the last frame; -1 when this process had no room for it."""
        return self._files.pop(0) if self._files else -1

    def ask(self, kind, message):
        """Send a question and return the server's answer."""
        answer = queue.SimpleQueue()
        with self._asking:
            if self._over:
                raise RuntimeError("the server is gone")
            self._asked = number = self._asked + 1
            self._waiting[number] = answer
        self.send_json(kind, {"ask": number, **message})
        reply = answer.get()
        if reply.get("error"):
            raise RuntimeError(reply["error"])
        return reply["value"]

    def replied(self, payload):
        """Pass an answer to the thread that asked."""
        reply = json.loads(payload)
        with self._asking:
            answer = self._waiting.pop(reply["ask"], None)
        if answer is not None:
            answer.put(reply)

    def ended(self):
        """Wake the threads that wait for answers: nothing more will come."""
        with self._asking:
            self._over = True
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.put({"error": "the server is gone"})
        if self.calls is not None:
            self.calls.ended()

    def shut(self):
        """End the connection. A receive that waits returns, if this returns true;
        otherwise somebody has closed our descriptor, and it may wait for ever."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as e:
            return e.errno == errno.ENOTCONN
        return True

    def close(self):
        self._socket.close()


def log(level, text):
    """Write a text to the server's log: "error", "warn", "info" or "verbose". An empty one is nothing."""
    if not text:
        return
    link = getattr(_links, "link", _last_link)
    if link is None:
        print(text, file=sys.stderr)
        return
    link.send_json(LOG, {"level": level, "text": str(text)})


def metric(op, family, kind, help, labels, buckets, value):
    """Change one of the model's own metrics, which the server shows under /metrics. It
    waits for the server, returns the value and raises if the server refuses."""
    link = getattr(_links, "link", _last_link)
    if link is None:
        raise RuntimeError("there is no server that could count")
    message = {"op": op, "family": family, "kind": kind, "help": help, "labels": labels, "buckets": buckets, "value": value}
    return link.ask(METRIC, {"metric": message})


def metric_gone(op, family, kind, labels):
    """Tell the server that nothing refers to a metric ("forget") or a family ("leave")
    any more. It does not wait: garbage is collected at any moment, in any thread."""
    link = getattr(_links, "link", _last_link)
    if link is not None:
        link.send_json(METRIC, {"metric": {"op": op, "family": family, "kind": kind, "labels": labels}})


def calls():
    """The worker's calls of other models; None unless it runs batches."""
    link = getattr(_links, "link", _last_link)
    if link is None or link.make_calls is None:
        return None
    if link.calls is None:
        with link._asking:
            if link.calls is None:
                link.calls = link.make_calls()
    return link.calls


def channel():
    """The worker's batches; None unless it runs some."""
    link = getattr(_links, "link", _last_link)
    return None if link is None else link.channel


def control(act, model, **more):
    """Ask the server to "load" or "unload" a model, or whether it is "ready"."""
    link = getattr(_links, "link", _last_link)
    if link is None:
        raise RuntimeError("there is no server")
    return link.ask(CONTROL, {"act": act, "model": model, **more})


def run(fds, load=None, loaded=None):
    """Run a worker on these descriptors until the server ends it: memory,
    ring, back, socket. It runs in the calling thread, takes the descriptors over
    and changes nothing else of the process. Loaded is called when the model is."""
    global _last_link
    link = Link(fds[3])
    _links.link = _last_link = link
    listener = _Listener(link)
    try:
        kind, payload = link.receive()
        if kind != INIT:
            return False
        init = json.loads(payload)
        listener.start()
        return _live(link, listener, fds, init, load, loaded)
    finally:
        if link.shut():
            listener.join()  # it may be about to use the descriptors
        for fd in fds[:3]:
            os.close(fd)
        if getattr(link.channel, "files", None) is not None:
            link.channel.files.close()
        link.close()


def _live(link, listener, fds, init, load, loaded):
    try:
        if load is None:
            load = importlib.import_module(init.get("handler") or "shoal._load").load
        handler = load(init)
        link.send_json(IMPORTED, {})
        if init["mode"] == "describe":
            link.send_json(DESCRIBED, {"config": handler.describe()})
            return True
        channel = _channel_of(handler, fds[0], fds[1], fds[2], init["wire"])
        link.channel = channel
        channel.note = lambda text: log("warn", text)
        channel.send = lambda *parts: link.send(RESPONSE, *parts)
        channel.wait = lambda sequence, i: link.ask(ROOM, {"sequence": sequence, "request": i})
        channel.watch = lambda sequence, i: link.ask(WATCH, {"sequence": sequence, "request": i})
        handler.start()
    except BaseException as e:  # includes sys.exit in a model
        link.send_json(FAILED, _told(e))
        return False
    if loaded is not None:
        loaded()
    listener.serve(channel)
    serving = threading.get_ident()
    link.make_calls = lambda: _calls_of(link, fds[0], channel, serving)
    link.send_json(READY, {"maps": getattr(channel, "files", None) is not None})
    channel.serve(handler.execute, _failed)
    handler.close()
    for text in _faults.rest():
        log("error", text)
    return True


def _channel_of(handler, *given):
    """The worker's end of the shared memory; a handler may have one of its own."""
    own = getattr(handler, "channel", None)
    if own is not None:
        return own(*given)
    from shoal import _wire

    return _wire.Channel(*given)


def _calls_of(link, memory, channel, serving):
    from shoal import _calls  # only models that call others need it

    made = _calls.Calls(
        memory,
        lambda: link.ask(SLOT, {}),
        lambda *parts: link.send(CALL, *parts),
        lambda message: link.send_json(NEXT, message),
        channel,
    )
    made.thread = serving
    made.loop_holds = not channel.decoupled
    return made


class _Listener:
    """Reads the server's messages other than batches, from the start on:
    a model may ask something while it loads."""

    def __init__(self, link):
        self._link = link
        self._thread = None
        self._turn = threading.Lock()  # protects the fields below
        self._channel = None
        self._closing = False

    def start(self):
        self._thread = threading.Thread(target=self._listen, name="shoal-link", daemon=True)
        self._thread.start()

    def join(self):
        if self._thread is not None:
            self._thread.join()

    def serve(self, channel):
        """Pass messages to the channel from now on, and those that came before."""
        with self._turn:
            self._channel = channel
            if self._closing:
                channel.close()

    def _listen(self):
        while True:
            kind, payload = self._link.receive()
            if kind == CANCEL and self._channel is not None:
                self._channel.cancel(*_CANCEL.unpack(payload))
            elif kind == ANSWER:
                self._link.calls.answered(payload)
            elif kind == REPLY:
                self._link.replied(payload)
            elif kind == FILE:
                self._channel.files.add(int.from_bytes(payload, "little"), self._link.file())
            elif kind == DROP:
                self._channel.files.drop(int.from_bytes(payload, "little"))
            elif kind in (CLOSE, 0):
                self._close()
            if kind == 0:
                self._link.ended()
                return

    def _close(self):
        with self._turn:
            if not self._closing and self._channel is not None:
                self._channel.close()
            self._closing = True


def _failed(batch, e):
    """Fail the requests that a handler has not answered."""
    log("error", _faults.told(e))
    batch.fail(_faults.last_line(e))
    traceback.clear_frames(e.__traceback__)  # they may hold inputs


def _told(e):
    """The text for the operator of a model that does not load."""
    if isinstance(e, ModuleNotFoundError) and e.name == "numpy":  # the traceback would only distract
        return {
            "error": "numpy is not installed for %s; install it (%s -m pip install numpy) "
            "or choose another Python with --python" % (sys.executable, sys.executable)
        }
    return {"error": _faults.describe(e), "traceback": _faults.trace(e)}


def main():
    """Run as a separate process."""
    fds = [int(n) for n in os.environ.pop(FDS_ENV).split(",")]
    for fd in fds:
        os.set_inheritable(fd, False)
    if "SHOAL_ATTACH" in os.environ:
        from shoal import _attach

        return _attach.relay(fds)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C in a terminal
    os.register_at_fork(after_in_child=lambda: _let_go(fds[1:]))
    # Models and their libraries parse it, for example unittest.main, absl and argparse.
    sys.argv = [""]
    # A model's output must appear line by line, even if the process crashes.
    sys.stdout.reconfigure(line_buffering=True)
    try:
        well = run(fds, loaded=_freeze)
    except BaseException:
        # Threads that the model started may wait for ever, and the server waits for us.
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    sys.exit(0 if well else 1)


def _let_go(fds):
    """Keep a child that the model forked from ringing, answering or listening in our
    place: a child that returns from execute finds that the server is gone, and ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in fds:
        os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


def _freeze():
    gc.collect()
    gc.freeze()  # what the model loaded stays: the collector need not scan it again
