"""Steps that are repeated on a device; skipped where there is none."""

from __future__ import annotations

import threading

import pytest
from test_cuda_repeating import check_network, network

import tenonnx
from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


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
