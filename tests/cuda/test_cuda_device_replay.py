"""Steps that are repeated on a device; skipped where there is none."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from test_cuda_kv_cache import LAYERS, Generation
from test_cuda_replay import check_network, network

import tenonnx
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


def on_device(model: Any, provider_options: Any) -> tenonnx.InferenceSession:
    options = {**provider_options, "use_tf32": False}
    return tenonnx.InferenceSession(model, providers=[("cuda", options), "cpu"])


def opened(graphs: bool) -> tenonnx.InferenceSession:
    options = {"enable_cuda_graph": graphs, "use_tf32": False}
    return tenonnx.InferenceSession(network(), providers=[("cuda", options), "cpu"])


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "recorded"])
def test_a_network_goes_on_as_it_began(graphs: bool) -> None:
    check_network(opened(graphs))


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "recorded"])
def test_threads_repeat_the_steps_of_one_session(graphs: bool) -> None:
    session = opened(graphs)
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                check_network(session)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "recorded"])
@pytest.mark.parametrize("kind", LAYERS)
def test_caches_grow_in_place(kind: str, graphs: bool) -> None:
    generation = Generation(kind, 2, {"enable_cuda_graph": graphs}, on_device)
    for number, steps in enumerate((3, 1, 1, 1, 1, 1, 2)):
        generation.step(number, steps)
