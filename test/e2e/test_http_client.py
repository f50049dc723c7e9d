"""tritonclient.http and http.aio: tensors in every mix, ids, parameters, compression, load."""

import asyncio
import json

import numpy as np
import pytest
import tritonclient.http as library
import tritonclient.http.aio

import clients

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("out1", [None, False, True], ids=["no OUTPUT1", "OUTPUT1 json", "OUTPUT1 binary"])
@pytest.mark.parametrize("out0", [None, False, True], ids=["no OUTPUT0", "OUTPUT0 json", "OUTPUT0 binary"])
@pytest.mark.parametrize("in1", [False, True], ids=["INPUT1 json", "INPUT1 binary"])
@pytest.mark.parametrize("in0", [False, True], ids=["INPUT0 json", "INPUT0 binary"])
def test_binary_and_json_in_every_mix(http_client, in0, in1, out0, out1):
    inputs = [
        clients.tensor(library, "INPUT0", "INT32", clients.RAMP, binary_data=in0),
        clients.tensor(library, "INPUT1", "INT32", clients.ONES, binary_data=in1),
    ]
    wanted = {"OUTPUT0": out0, "OUTPUT1": out1}
    outputs = [library.InferRequestedOutput(n, binary_data=b) for n, b in wanted.items() if b is not None]
    got = http_client.infer("simple", inputs, outputs=outputs or None)
    listed = [o["name"] for o in got.get_response()["outputs"]]
    assert listed == ([o.name() for o in outputs] or ["OUTPUT0", "OUTPUT1"])
    for name, want in (("OUTPUT0", clients.RAMP + clients.ONES), ("OUTPUT1", clients.RAMP - clients.ONES)):
        if name in listed:
            np.testing.assert_array_equal(got.as_numpy(name), want)
    for output in got.get_response()["outputs"]:
        binary = wanted[output["name"]] if outputs else True
        assert ("data" not in output) == binary


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_rows_up_to_the_maximum(http_client, rows):
    a = np.arange(rows * 16, dtype=np.int32).reshape(rows, 16)
    got = http_client.infer("simple", clients.pair(library, "INT32", a, a))
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), a + a)


@pytest.mark.parametrize("response", [None, "gzip", "deflate"])
@pytest.mark.parametrize("request_", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_compression_both_ways(http_client, binary, request_, response):
    got = http_client.infer(
        "simple",
        clients.simple_inputs(library, binary_data=binary),
        outputs=[library.InferRequestedOutput(n, binary_data=binary) for n in ("OUTPUT0", "OUTPUT1")],
        request_compression_algorithm=request_,
        response_compression_algorithm=response,
    )
    clients.assert_simple(got)


@pytest.mark.parametrize("accept, want", [
    ("gzip", "gzip"),
    ("deflate", "deflate"),
    ("gzip, deflate, br", "gzip"),
    ("deflate;q=0.5, gzip;q=0.1", "deflate"),
    ("identity", None),
    ("br", None),
    ("gzip;q=0", None),
])  # fmt: skip
def test_the_answer_uses_the_encoding_that_weighs_most(target, accept, want):
    headers = {"Accept-Encoding": accept}
    answer = clients.infer_json(target.http, clients.simple_json(), headers=headers)
    assert (answer.status, answer.headers.get("Content-Encoding")) == (200, want)


def test_errors_are_not_compressed(target):
    answer = clients.infer_json(target.http, {"inputs": []}, headers={"Accept-Encoding": "gzip"})
    assert answer.status == 400 and answer.headers.get("Content-Encoding") is None
    assert "expected 2 inputs" in clients.error_of(answer)


@pytest.mark.parametrize("id_", ["", "1", "a/b c", "h\u00e4\u00df\u20ac", 'quote " \\', "x" * 5000])
def test_the_request_id_comes_back(http_client, id_):
    got = http_client.infer("simple", clients.simple_inputs(library), request_id=id_)
    assert got.get_response().get("id", "") == id_


@pytest.mark.parametrize("parameters", [
    {"int": 7, "negative": -3, "text": "x", "yes": True, "float": 0.5},
    {},
])  # fmt: skip
def test_parameters_of_every_type_are_taken(http_client, parameters):
    clients.assert_simple(
        http_client.infer(
            "simple", clients.simple_inputs(library), parameters=parameters, priority=1, timeout=5_000_000
        )
    )


def test_sequence_parameters_are_taken(http_client):
    got = http_client.infer(
        "simple", clients.simple_inputs(library), sequence_id=7, sequence_start=True, sequence_end=True
    )
    clients.assert_simple(got)


def test_headers_and_query_parameters_do_no_harm(http_client):
    got = http_client.infer(
        "simple", clients.simple_inputs(library), headers={"X-Trace": "1"}, query_params={"a": "b", "c": 1}
    )
    clients.assert_simple(got)


@pytest.mark.parametrize("nested", [[RAMP] if (RAMP := clients.RAMP.ravel().tolist()) else [], [[[n] for n in RAMP]]])
def test_nested_data_is_flattened(target, nested):
    request = clients.simple_json()
    request["inputs"][0]["data"] = nested
    answer = clients.infer_json(target.http, request)
    assert json.loads(answer.body)["outputs"][0]["data"] == (clients.RAMP + clients.ONES).ravel().tolist()


def test_unlisted_outputs_follow_binary_data_output(target):
    request = clients.simple_json(parameters={"binary_data_output": True})
    answer = clients.infer_json(target.http, request)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.body[length:] == (clients.RAMP + clients.ONES).tobytes() + (clients.RAMP - clients.ONES).tobytes()


def test_a_listed_output_stays_json_despite_binary_data_output(target):
    request = clients.simple_json(parameters={"binary_data_output": True}, outputs=[{"name": "OUTPUT1"}])
    answer = clients.infer_json(target.http, request)
    assert answer.headers["Content-Type"] == "application/json"
    assert [o["name"] for o in json.loads(answer.body)["outputs"]] == ["OUTPUT1"]


@pytest.mark.parametrize("model, body, data, shape", [
    ("raw_fp32", np.arange(6, dtype=np.float32).tobytes(), np.arange(6, dtype=np.float32).tobytes(), [1, 6]),
    ("raw_bytes", b"any text", b"\x08\x00\x00\x00any text", [1]),
])  # fmt: skip
def test_a_raw_request_is_the_data_of_the_only_input(target, model, body, data, shape):
    headers = {"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"}
    answer = clients.infer_json(target.http, body, model=model, headers=headers)
    assert answer.status == 200, answer.text
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.body[:length])["outputs"][0]["shape"] == shape
    assert answer.body[length:] == data


def test_four_megabytes_go_in_and_out(http_client):
    array = np.random.default_rng(1).random((1024, 1024), np.float32)
    got = http_client.infer("identity_fp32", [clients.tensor(library, "INPUT0", "FP32", array)])
    np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), array)


def test_a_hundred_requests_over_a_pool(target):
    with library.InferenceServerClient(target.http, concurrency=25) as client:
        pending = []
        for i in range(100):
            a = np.full((1, 16), i, np.int32)
            inputs = clients.pair(library, "INT32", a, clients.ONES)
            pending.append(client.async_infer("simple", inputs, request_id=str(i)))
        for i, one in enumerate(pending):
            got = one.get_result(timeout=20)
            assert got.get_response()["id"] == str(i)
            np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), np.full((1, 16), i + 1))


def test_the_aio_client_runs_a_hundred_at_once(target):
    async def run():
        async with tritonclient.http.aio.InferenceServerClient(target.http, conn_limit=100) as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert (await client.get_model_metadata("simple"))["name"] == "simple"

            async def one(i):
                a = np.full((1, 16), i, np.int32)
                got = await client.infer(
                    "simple", clients.pair(library, "INT32", a, clients.ONES), request_id=str(i),
                    request_compression_algorithm="gzip" if i % 2 else None,
                    response_compression_algorithm="deflate" if i % 3 else None,
                )  # fmt: skip
                np.testing.assert_array_equal(got.as_numpy("OUTPUT0"), np.full((1, 16), i + 1))
                return got.get_response()["id"]

            return await asyncio.gather(*(one(i) for i in range(100)))

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [str(i) for i in range(100)]
