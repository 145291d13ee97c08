"""``tenonnx serve`` with two workers: one server, whichever of them answers, and if one dies.

``--serve-all`` proves at length what is looked at briefly otherwise.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import grpc
import tritonclient.grpc
from tritonclient.grpc import service_pb2

from commanded import Served, served
from load import LOST, ROW, asked
from servers import double, save
from supervised import wait_for

SERVES = re.compile(r"serves after ([0-9.]+) s")

DOUBLE = tuple(2 * x for x in ROW)
TRIPLE = tuple(3 * x for x in ROW)


def triple(path: Path) -> Path:
    return save(path, "g (float[n,4] x) => (float[n,4] y) { t = Add(x, x)  y = Add(t, x) }")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """Two workers over a repository."""
    root = tmp_path_factory.mktemp("models") / "repository"
    double(root / "steady" / "1" / "model.onnx")
    with served(root, "--workers", "2", "--control", "--grpc-port", "0", verbose=True) as server:
        yield server, root


def replace(path: Path, make: object) -> None:
    """Replace a model's file by another one, as a deployment does."""
    assert callable(make)
    made: Path = make(path.with_name("next.onnx"))
    made.replace(path)


def everywhere(server: Served, name: str, tries: int = 24) -> set[tuple[float, ...]]:
    """Return the answers of many connections, which go to all workers."""
    return {tuple(server.infer(name, ROW)) for _ in range(tries)}


def states(server: Served, name: str, tries: int = 24) -> set[int]:
    return {server.call("GET", f"/v2/models/{name}/ready")[0] for _ in range(tries)}


def test_a_model_is_loaded_by_all_workers(pair: tuple[Served, Path]) -> None:
    server, root = pair
    file = double(root / "new" / "1" / "model.onnx")
    assert server.call("POST", "/v2/repository/models/new/load")[0] == 200
    assert states(server, "new") == {200}
    assert everywhere(server, "new") == {DOUBLE}
    replace(file, triple)
    assert everywhere(server, "new") == {DOUBLE}
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.load_model("new")
        assert everywhere(server, "new") == {TRIPLE}
        client.unload_model("new")
    assert states(server, "new") == {503}


def test_log_settings_reach_all_workers(pair: tuple[Served, Path]) -> None:
    """Those that are started later, too."""
    server, _ = pair

    def told() -> set[str]:
        return {json.dumps(server.call("GET", "/v2/logging")[1]) for _ in range(24)}

    (before,) = told()
    change = {"log_info": False, "log_verbose_level": 0}
    assert server.call("POST", "/v2/logging", {"log_info": 3})[0] == 400
    assert told() == {before}
    try:
        assert server.call("POST", "/v2/logging", change)[1]["log_info"] is False
        (after,) = told()
        assert after != before
        victim = server.pids()[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in server.pids() and serving(server) == 2, 60)
        assert told() == {after}
    finally:
        server.call("POST", "/v2/logging", json.loads(before))
    assert told() == {before}


def test_what_cannot_be_loaded_is_loaded_by_none(pair: tuple[Served, Path]) -> None:
    server, root = pair
    file = double(root / "torn" / "1" / "model.onnx")
    assert server.call("POST", "/v2/repository/models/torn/load")[0] == 200
    whole = file.read_bytes()
    file.with_name("torn").write_bytes(whole[:20])
    file.with_name("torn").replace(file)
    status, said, _ = server.call("POST", "/v2/repository/models/torn/load")
    assert status == 503
    assert "torn" in said["error"]
    assert states(server, "torn") == {200}
    assert everywhere(server, "torn") == {DOUBLE}
    double(file)  # for workers that start later
    assert server.call("POST", "/v2/repository/models/torn/load")[0] == 200


def test_a_page_of_another_site_loads_nothing(pair: tuple[Served, Path]) -> None:
    server, _ = pair
    path = "/v2/repository/models/steady/load"
    status, said, _ = server.call("POST", path, headers={"Origin": "http://evil.example"})
    assert status == 403
    assert "other sites" in said["error"]


@pytest.mark.parametrize("name", ["..", "%2e%2e", "steady%2f..%2f..", "a%00b", "-x", "", "x" * 300])
def test_names_do_not_become_paths(pair: tuple[Served, Path], name: str) -> None:
    server, root = pair
    double(root.parent / "outside" / "1" / "model.onnx")
    status, _, _ = server.call("POST", f"/v2/repository/models/{name}/load")
    assert status == 404


def test_a_link_out_of_the_repository_is_not_followed(pair: tuple[Served, Path]) -> None:
    server, root = pair
    outside = double(root.parent / "outside" / "1" / "model.onnx")
    (root / "linked").symlink_to(outside.parents[1])
    (root / "inner" / "1").mkdir(parents=True)
    (root / "inner" / "1" / "model.onnx").symlink_to(outside)
    for name in ("linked", "inner"):
        status, said, _ = server.call("POST", f"/v2/repository/models/{name}/load")
        assert status in (404, 503), said
        assert states(server, name) <= {404, 503}


def test_metrics_are_of_all_workers(pair: tuple[Served, Path]) -> None:
    server, _ = pair

    def successes() -> set[float]:
        wanted = 'tenonnx_requests_total{model="steady",outcome="success",version="1"} '
        found = set()
        for _ in range(8):  # whichever worker is asked
            text = server.call("GET", "/metrics")[1].decode()
            lines = [line for line in text.splitlines() if line.startswith(wanted)]
            found.add(float(lines[0].removeprefix(wanted)) if lines else 0.0)
        return found

    before = max(successes())
    assert everywhere(server, "steady", 20) == {DOUBLE}
    assert successes() == {before + 20}
    status, page, headers = server.call("GET", "/")
    assert status == 200
    assert b"steady" in page
    assert "default-src 'none'" in headers["content-security-policy"]


def test_statistics_are_of_all_workers(pair: tuple[Served, Path]) -> None:
    server, _ = pair

    def counts() -> set[int]:
        answers = [server.call("GET", "/v2/models/steady/stats")[1] for _ in range(8)]
        stats = [answer["model_stats"][0] for answer in answers]
        assert {one["inference_stats"]["success"]["count"] for one in stats} == {
            one["inference_count"] for one in stats
        }
        assert {one["batch_stats"][0]["compute_infer"]["count"] for one in stats} == {
            one["execution_count"] for one in stats
        }
        return {one["inference_count"] for one in stats}

    everywhere(server, "steady", 1)
    (before,) = counts()
    everywhere(server, "steady", 20)
    assert counts() == {before + 20}


def test_requests_have_ids(pair: tuple[Served, Path]) -> None:
    server, _ = pair
    found = server.call("GET", "/v2", headers={"x-request-id": "mine-1"})[2]
    assert found["x-request-id"] == "mine-1"
    ids = {server.call("GET", "/v2")[2]["x-request-id"] for _ in range(8)}
    assert len(ids) == 8


def test_reloads_under_load_lose_nothing(
    pair: tuple[Served, Path], pytestconfig: pytest.Config
) -> None:
    """Answer are the old model's or the new one's; memory is what it was."""
    server, root = pair
    file = double(root / "changing" / "1" / "model.onnx")
    assert server.call("POST", "/v2/repository/models/changing/load")[0] == 200
    reloads = 100 if pytestconfig.getoption("--serve-all") else 8
    with asked(server.port, "changing", 4) as told:
        private: dict[int, int] = {}
        for number in range(reloads):
            replace(file, triple if number % 2 == 0 else double)
            assert server.call("POST", "/v2/repository/models/changing/load")[0] == 200
            if number == min(9, reloads // 2):
                private = private_bytes(server)
        growth = {pid: private_bytes(server)[pid] - before for pid, before in private.items()}
    assert told.lost == []
    assert told.refused == []
    assert set(told.answers) <= {DOUBLE, TRIPLE}
    assert told.count > reloads
    assert everywhere(server, "changing") == {DOUBLE if reloads % 2 == 0 else TRIPLE}
    print(f"{reloads} reloads, {told.count} answers, growth {growth} bytes")
    assert max(growth.values()) <= 5 << 20


def test_restarts_of_workers_lose_nothing(
    pair: tuple[Served, Path], pytestconfig: pytest.Config
) -> None:
    """A worker that gets SIGTERM answers what was sent, and another one takes its place."""
    server, _ = pair
    whole = pytestconfig.getoption("--serve-all")

    def replaced(pid: int) -> bool:
        if pid in server.pids():
            return False
        return b"tenonnx_workers 2.0" in server.call("GET", "/metrics")[1]

    with asked(server.port, "steady", 20 if whole else 8) as told:
        for number in range(50 if whole else 1):
            pid = server.pids()[number % 2]
            os.kill(pid, signal.SIGTERM)
            assert wait_for(partial(replaced, pid), 60)
    assert (told.lost, told.refused) == ([], [])
    assert told.count > 100


def private_bytes(server: Served) -> dict[int, int]:
    """Return what each worker's memory has that no file holds too."""
    return {pid: rollup(pid)["Anonymous"] for pid in server.pids()}


def rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def test_a_killed_worker_is_back_and_others_go_on(pair: tuple[Served, Path]) -> None:
    server, _ = pair
    before = set(server.pids())
    with asked(server.port, "steady", 4) as told:
        wait_for(lambda: told.count > 50)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len({*server.pids()} - {victim}) == 2 and serving(server) == 2, 60)
        count = told.count
        wait_for(lambda: told.count > count + 50)
    starts = [float(match[1]) for line in server.lines if (match := SERVES.search(line))]
    print(f"back after {starts[-1]} s, first {starts[:2]}; {len(told.lost)} of {told.count} lost")
    assert told.refused == []
    assert set(told.answers) == {DOUBLE}
    # Of each client the request that the worker had, and one that came to it while it died.
    assert len(told.lost) <= 2 * 4, told.lost
    # A machine that is busy is slow to start any process, and clients keep this one busy.
    assert starts[-1] < max(2, 2 * max(starts[:2]))
    assert any("was killed by SIGKILL" in line for line in server.lines)


def serving(server: Served) -> float:
    try:
        text = server.call("GET", "/metrics")[1].decode()
    except LOST:
        return 0
    return next(float(x.split()[1]) for x in text.splitlines() if x.startswith("tenonnx_workers "))


def test_hostile_requests_do_no_harm(
    pair: tuple[Served, Path], pytestconfig: pytest.Config
) -> None:
    """Bodies and headers that are damaged in places, between requests that are not."""
    server, _ = pair
    before = set(server.pids())
    rng = random.Random(1)
    counts: Counter[object] = Counter()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(10_000 if pytestconfig.getoption("--serve-all") else 300):
            if rng.random() < 0.3:
                counts[code_of(infer, damaged(rng, MESSAGE.SerializeToString()))] += 1
            else:
                body, headers = hostile(rng)
                counts[status_of(server, body, headers)] += 1
            if number % 100 == 0:
                assert tuple(server.infer("steady", ROW)) == DOUBLE
    print(dict(counts))
    refused = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
    # gRPC itself answers what is no message with UNKNOWN, before the server sees it.
    assert set(counts) <= {"lost", 200, 400, 413, 501, "UNKNOWN"} | refused, counts
    assert set(server.pids()) == before
    assert not any('"traceback"' in line for line in server.lines)


def status_of(server: Served, body: bytes, headers: dict[str, str]) -> object:
    try:
        return server.call("POST", "/v2/models/steady/infer", body, headers)[0]
    except LOST:
        return "lost"


def code_of(call: Any, message: bytes) -> object:
    try:
        call(message, timeout=30)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def test_a_stream_of_what_is_no_message_ends(pair: tuple[Served, Path]) -> None:
    server, _ = pair
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        with pytest.raises(grpc.RpcError) as raised:
            list(infer(iter([MESSAGE.SerializeToString(), b"\xff\xff"]), timeout=20))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_thousand_idle_connections_leave_others_served(pair: tuple[Served, Path]) -> None:
    server, _ = pair
    with ExitStack() as held:
        for _ in range(1000):
            address = ("127.0.0.1", server.port)
            held.enter_context(socket.create_connection(address, timeout=30))
        assert everywhere(server, "steady") == {DOUBLE}


SEEDS = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}',
    b'{"id":"a","inputs":[{"name":"x","datatype":"FP32","shape":[1,4],'
    b'"parameters":{"binary_data_size":16}}],"outputs":[{"name":"y"}]}' + bytes(16),
)
PIECES = (
    b"1e999", b"-1", b"[]", b"{}", b"null", b"true", b'"\\ud800"', b"4294967296", b'"FP64"',
    b'"BYTES"', b"[" * 2000, b"\xff", b"1099511627776", b'"binary_data_size"', b"0.5", b'"\\u0000"',
)  # fmt: skip

MESSAGE = service_pb2.ModelInferRequest(
    model_name="steady",
    inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 4]}],
    raw_input_contents=[bytes(16)],
)


def hostile(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return a request's body and headers, damaged in a few places."""
    body = damaged(rng, rng.choice(SEEDS))
    headers = {} if body[-1] == 125 else {"Inference-Header-Content-Length": str(len(body) - 16)}
    if rng.random() < 0.2:
        length = rng.choice([0, 1, 128, len(body) - 16, len(body), 1 << 70, -3])
        headers["Inference-Header-Content-Length"] = str(length)
    if rng.random() < 0.1:
        headers["Content-Encoding"] = rng.choice(["gzip", "deflate", "br", "\x7f"])
    return body, headers


def damaged(rng: random.Random, seed: bytes) -> bytes:
    body = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(body) + 1)
        end = min(len(body), place + rng.randint(0, 6))
        body[place:end] = rng.choice((b"", rng.choice(PIECES), rng.randbytes(rng.randint(1, 8))))
    return bytes(body)
