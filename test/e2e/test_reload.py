"""`shoal serve --reload`: edits of a model's file under load, good and broken.

SHOAL_EDITS says how many; `make soak-reload` makes 50. No request may fail but those that an edit itself breaks.
"""

from __future__ import annotations

import collections
import json
import os
import threading

import pymodels
import server
from server import LOOPBACK, PORTS, Server, wait_until

EDITS = int(os.environ.get("SHOAL_EDITS", 2))
TIMES = """\
import shoal
from helper import offset


class Times(shoal.Model):
    x = shoal.Input("float32")
    y = shoal.Output("float32")

    def predict(self, x):
        return x * FACTOR + offset
"""
BROKEN = ("class Times(\n", "import not_there\n", "x = 1\n", "raise ValueError('on purpose')\n")
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]})


class Callers:
    """Callers that ask without a pause and count the answers."""

    def __init__(self, address: str, count: int = 4):
        self.answers: collections.Counter = collections.Counter()
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(address,)) for _ in range(count)]
        for t in self._threads:
            t.start()

    def _ask(self, address: str) -> None:
        while not self._stop.is_set():
            got = server.post(address, "/v2/models/times/infer", BODY)
            if got.status == 200:
                self.answers[json.loads(got.body)["outputs"][0]["data"][0]] += 1
            else:
                self.failures.append(got.text)
            self._stop.wait(0.002)  # what reloads needs a core, too

    def end(self) -> None:
        self._stop.set()
        for t in self._threads:
            t.join()


def test_edits_under_load_lose_no_request(tmp_path):
    model = tmp_path / "times.py"
    (tmp_path / "helper.py").write_text("offset = 0\n")

    def write(text: str) -> None:
        made = tmp_path / "times.new"
        made.write_text(text)
        os.replace(made, model)

    write(TIMES.replace("FACTOR", "1"))
    with Server("--model", model, "--reload", pymodels.PYTHON, *PORTS, *LOOPBACK) as running:
        running.wait_ready()
        callers = Callers(running.http)
        try:
            for i in range(1, EDITS + 1):
                if i % 2 == 0:
                    before = running.log.count("the one before it goes on")
                    write(BROKEN[i // 2 % len(BROKEN)] + f"# {i}\n")
                    wait_until(lambda: running.log.count("the one before it goes on") > before, 30, f"word of the broken edit {i}")
                    seen = callers.answers[float(i - 1)]
                    wait_until(lambda: callers.answers[float(i - 1)] > seen, 30, f"answers of the version before edit {i}")
                else:
                    write(TIMES.replace("FACTOR", str(i)))
                    wait_until(lambda: callers.answers[float(i)] > 0, 30, f"answers of edit {i}")
            (tmp_path / "helper.py").write_text("offset = 0.5\n")
            write(TIMES.replace("FACTOR", "1000"))
            wait_until(lambda: callers.answers[1000.5] > 0, 30, "answers with the helper's new value")
        finally:
            callers.end()
        total = sum(callers.answers.values())
        print(f"{EDITS} edits, {total} answers, {len(callers.failures)} failures")
        assert callers.failures == [], callers.failures[:3]
        running.signal()
        assert running.wait() == 0


def test_an_edit_whose_predict_raises_breaks_only_its_own_requests(tmp_path):
    model = tmp_path / "times.py"
    (tmp_path / "helper.py").write_text("offset = 0\n")
    model.write_text(TIMES.replace("FACTOR", "1"))
    with Server("--model", model, "--reload", pymodels.PYTHON, *PORTS, *LOOPBACK) as running:
        running.wait_ready()
        model.write_text(TIMES.replace("FACTOR", "nosuch"))
        wait_until(lambda: server.post(running.http, "/v2/models/times/infer", BODY).status == 500, 30, "the broken edit")
        answer = server.post(running.http, "/v2/models/times/infer", BODY)
        assert "NameError: name 'nosuch' is not defined (line 10 of times.py, in predict)" in answer.text
        model.write_text(TIMES.replace("FACTOR", "2"))
        wait_until(lambda: server.post(running.http, "/v2/models/times/infer", BODY).status == 200, 30, "the mended edit")


def test_a_repository_is_followed(tmp_path):
    folder = tmp_path / "repository" / "times"
    folder.mkdir(parents=True)
    (folder / "helper.py").write_text("offset = 0\n")
    (folder / "model.py").write_text(TIMES.replace("FACTOR", "1"))
    with Server("--model-repository", tmp_path / "repository", "--reload", pymodels.PYTHON, *PORTS, *LOOPBACK) as running:
        running.wait_ready()
        (folder / "helper.py").write_text("offset = 4\n")
        wait_until(lambda: '"data":[5.0]' in server.post(running.http, "/v2/models/times/infer", BODY).text, 30, "the new answer")
