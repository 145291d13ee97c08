"""Tensors in shared memory: tritonclient's calls, and names that are none."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

from servers import Running, double, save, serving
from tenonnx_serve.errors import BadRequest, Missing
from tenonnx_serve.requests import NO_PARAMETERS
from tenonnx_serve.settings import Settings
from tenonnx_serve.shared_memory import Regions

KEY = f"/tenonnx_test_{os.getpid()}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    double(root / "double" / "1" / "model.onnx")
    save(
        root / "words" / "1" / "model.onnx", "g (string[n] x) => (string[n] y) { y = Identity(x) }"
    )
    with serving(Settings(str(root), port=0, grpc_port=0, shared_memory=True)) as found:
        yield found


@pytest.fixture(params=["http", "grpc"])
def client(running: Running, request: pytest.FixtureRequest) -> Iterator[Any]:
    library = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    address = running.address if request.param == "http" else running.grpc_address
    with library.InferenceServerClient(address) as found:
        found.library = library
        found.unregister_system_shared_memory()
        yield found
        found.unregister_system_shared_memory()


@pytest.fixture
def memory() -> Iterator[Any]:
    handle = shared_memory.create_shared_memory_region("region", KEY, 4096)
    yield handle
    shared_memory.destroy_shared_memory_region(handle)


def test_inputs_and_outputs_in_a_region(client: Any, memory: Any) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    shared_memory.set_shared_memory_region(memory, [x])
    client.register_system_shared_memory("region", KEY, 4096)
    given = client.library.InferInput("x", x.shape, "FP32")
    given.set_shared_memory("region", x.nbytes)
    wanted = client.library.InferRequestedOutput("y")
    wanted.set_shared_memory("region", 1024, offset=512)
    result = client.infer("double", [given], outputs=[wanted])
    said = result.get_output("y")
    assert list(said["shape"] if isinstance(said, dict) else said.shape) == [2, 4]
    assert np.array_equal(
        shared_memory.get_contents_as_numpy(memory, np.float32, [2, 4], offset=512), x + x
    )


def test_strings_in_a_region(client: Any, memory: Any) -> None:
    words = np.array(["a", "bc"], object)
    shared_memory.set_shared_memory_region(memory, [serialize_byte_tensor(words)])
    client.register_system_shared_memory("region", KEY, 4096)
    given = client.library.InferInput("x", [2], "BYTES")
    given.set_shared_memory("region", 11)
    found = client.infer("words", [given]).as_numpy("y")
    assert found.tolist() == [b"a", b"bc"]


@pytest.mark.usefixtures("memory")
def test_status_and_forgetting(client: Any) -> None:
    client.register_system_shared_memory("region", KEY, 100, offset=8)
    plain = client.library is tritonclient.http
    found = client.get_system_shared_memory_status(**({} if plain else {"as_json": True}))
    (told,) = found if plain else found["regions"].values()
    assert told["name"] == "region"
    assert int(told["byte_size"]) == 100
    with pytest.raises(InferenceServerException, match="registered already"):
        client.register_system_shared_memory("region", KEY, 100)
    client.unregister_system_shared_memory("region")
    with pytest.raises(InferenceServerException, match="no shared memory region"):
        client.get_system_shared_memory_status("region")
    assert not (client.get_cuda_shared_memory_status() if plain else ())


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("offset", "size", "words"),
    [(0, 5000, "beyond its end"), (4090, 16, "beyond its end"), (0, 12, "expected 16")],
)
def test_parts_that_do_not_fit(client: Any, offset: int, size: int, words: str) -> None:
    client.register_system_shared_memory("region", KEY, 4096)
    given = client.library.InferInput("x", [1, 4], "FP32")
    given.set_shared_memory("region", size, offset=offset)
    with pytest.raises(InferenceServerException, match=words):
        client.infer("double", [given])


@pytest.mark.parametrize(
    "key", ["", "/", "..", "/..", "/../tmp", "a/b", "//etc/passwd", "sem.x", "x\0y", "/nothing", 7]
)
def test_names_that_are_no_shared_memory(key: Any) -> None:
    with pytest.raises(BadRequest):
        Regions(enabled=True).register("region", key, 0, 1)


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    link = Path(f"/dev/shm{KEY}_link")
    link.symlink_to(secret)
    try:
        with pytest.raises(BadRequest, match="cannot be opened"):
            Regions(enabled=True).register("region", link.name, 0, 6)
    finally:
        link.unlink()


@pytest.mark.usefixtures("memory")
def test_a_truncated_region_is_not_touched() -> None:
    regions = Regions(enabled=True)
    regions.register("region", KEY, 0, 4096)
    part = {"shared_memory_region": "region", "shared_memory_byte_size": 4096}
    assert regions.read(part) is not None
    assert regions.read(NO_PARAMETERS) is None
    os.truncate(f"/dev/shm{KEY}", 100)
    with pytest.raises(BadRequest, match="truncated"):
        regions.read(part)
    regions.close()


def test_inputs_are_copies_and_have_a_limit(memory: Any) -> None:
    regions = Regions(enabled=True, most=64)
    regions.register("region", KEY, 0, 4096)
    part = {"shared_memory_region": "region", "shared_memory_byte_size": 64}
    found = regions.read(part)
    assert found is not None
    shared_memory.set_shared_memory_region(memory, [np.full(64, 7, np.uint8)])
    assert found[0] == 0
    with pytest.raises(BadRequest, match="at most 64"):
        regions.read({**part, "shared_memory_byte_size": 65})
    regions.close()


def test_memory_that_shrinks_while_it_is_read_ends_nothing(memory: Any) -> None:
    del memory
    regions, ended = Regions(enabled=True), threading.Event()
    regions.register("region", KEY, 0, 4096)
    part = {"shared_memory_region": "region", "shared_memory_byte_size": 4096}

    def shrink() -> None:
        while not ended.is_set():
            for size in (0, 4096):
                os.truncate(f"/dev/shm{KEY}", size)

    thread = threading.Thread(target=shrink)
    thread.start()
    try:
        for _ in range(2000):
            with contextlib.suppress(BadRequest):
                regions.read(part)
                regions.write(part, bytes(4096))
    finally:
        ended.set()
        thread.join()
    regions.close()


def test_memory_is_off_unless_the_operator_allows_it(tmp_path: Path) -> None:
    double(tmp_path / "double" / "1" / "model.onnx")
    with serving(Settings(str(tmp_path), port=0, grpc_port=0)) as server:
        path = "/v2/systemsharedmemory/region/r/register"
        status, said, _ = server.call("POST", path, {"key": KEY, "byte_size": 8})
        assert (status, "--shared-memory" in said["error"]) == (403, True)
        with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
            with pytest.raises(InferenceServerException) as raised:
                client.register_system_shared_memory("r", KEY, 8)
            assert raised.value.status() == "StatusCode.PERMISSION_DENIED"


@pytest.mark.usefixtures("memory")
def test_workers_share_what_is_registered(tmp_path: Path) -> None:
    first, second = Regions(str(tmp_path), enabled=True), Regions(str(tmp_path), enabled=True)
    part = {"shared_memory_region": "region", "shared_memory_byte_size": 4}
    first.register("region", KEY, 0, 8)
    assert second.read(part) is not None
    assert [region.key for region in second.status()] == [KEY]
    second.unregister("region")
    with pytest.raises(Missing):
        first.read(part)
    second.register("region", KEY, 0, 4)
    assert first.status("region")[0].byte_size == 4
    first.close()
    second.close()
