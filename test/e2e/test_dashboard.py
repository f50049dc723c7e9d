"""examples/compose: its files fit together, and a real Prometheus that reads us answers every query of the dashboard."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import pytest

import clients
import models
import server

COMPOSE = server.ROOT / "examples" / "compose"
DASHBOARD = json.loads((COMPOSE / "grafana" / "shoal.json").read_text())
# Panels that have nothing to show while nothing goes wrong.
MAY_BE_EMPTY = {"Failures and refusals", "Rejected requests", "Connections closed by a limit"}


def queries() -> list[tuple[str, str]]:
    """The title and expression of every query, with Grafana's variables filled in."""
    filled = []
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "10s").replace("$model", ".*")
            assert "$" not in expression, expression
            filled.append((panel["title"], expression))
    return filled


def test_the_dashboard_has_what_grafana_needs():
    assert DASHBOARD["uid"] and DASHBOARD["title"] and DASHBOARD["schemaVersion"] >= 36
    variables = {v["name"] for v in DASHBOARD["templating"]["list"]}
    ids, cells = set(), set()
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in ("timeseries", "stat") and panel["title"] and panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        assert 0 <= place["x"] and place["x"] + place["w"] <= 24 and place["h"] > 0, place
        covered = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not covered & cells, f"{panel['title']} lies on another panel"
        cells |= covered
        refs = [t["refId"] for t in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
        for target in [panel, *panel["targets"]]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panel))) - {"__rate_interval"}
        assert used <= variables, f"{panel['title']} uses {used - variables}"


def test_the_files_name_each_other():
    text = (COMPOSE / "compose.yaml").read_text()
    for path in re.findall(r"\./([\w./-]+\.(?:yml|json)):", text):
        assert (COMPOSE / path).is_file(), path
    folder = re.search(r"path: (\S+)", (COMPOSE / "grafana" / "dashboards.yml").read_text()).group(1)
    assert f"{folder}/shoal.json" in text
    assert DASHBOARD["templating"]["list"][0]["current"]["value"] in (COMPOSE / "grafana" / "datasource.yml").read_text()
    (job,) = re.findall(r"targets: \[(\w+):8002\]", (COMPOSE / "prometheus.yml").read_text())
    assert f"\n  {job}:\n" in text


def test_every_query_uses_metrics_that_there_are(target):
    clients.infer_json(target.http, clients.simple_json())
    page = server.get(target.metrics, "/metrics").text
    for title, expression in queries():
        for name in re.findall(r"\b(?:nv|shoal|process)_\w+", expression):
            assert re.search(rf"^{name}[{{ ]", page, re.M), f"{title}: there is no metric {name}"


@pytest.fixture
def prometheus(target, tmp_path: pathlib.Path):
    """The address of a Prometheus that reads the server."""
    binary = shutil.which("prometheus")
    if not binary:
        pytest.skip("no prometheus on the PATH: apt-get install prometheus, or the binary of prometheus.io")
    text = (COMPOSE / "prometheus.yml").read_text().replace("shoal:8002", target.metrics).replace("5s", "200ms")
    (tmp_path / "prometheus.yml").write_text(text)
    address = f"127.0.0.1:{server.free_port()}"  # Prometheus does not say which port it got
    command = [binary, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}"]
    log = tmp_path / "prometheus.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield address, log
    finally:
        process.kill()
        process.wait()


def ask(address: str, expression: str) -> list:
    try:
        answer = json.loads(server.get(address, "/api/v1/query?" + urllib.parse.urlencode({"query": expression})).body)
    except (OSError, ValueError):
        return []
    assert answer["status"] == "success", f"{expression}: {answer}"
    return answer["data"]["result"]


def test_a_real_prometheus_answers_every_query(target, prometheus):
    address, log = prometheus

    def scraped() -> bool:
        clients.infer_json(target.http, clients.simple_json())
        clients.infer_json(target.http, clients.simple_json(), model="nosuch")
        good = ask(address, 'rate(nv_inference_request_success{model="simple"}[10s]) > 0')
        return bool(good and ask(address, dict(queries())["Rejected requests"]))

    server.wait_until(scraped, 60, f"Prometheus to have seen good and rejected requests; its log: {log}")
    for title, expression in queries():
        found = ask(address, expression)
        assert found or title in MAY_BE_EMPTY, f"{title}: nothing for {expression}"
