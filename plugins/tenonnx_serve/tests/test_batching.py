"""Joined requests: answers are as alone, and what goes wrong with one is its own affair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from servers import save
from tenonnx_serve import config, threads
from tenonnx_serve.batching import Queue
from tenonnx_serve.errors import BadRequest, Busy, TimedOut
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Request
from tenonnx_serve.settings import Batching

SQUARE = "g (float[n,m] x) => (float[n,m] y) { y = Mul(x, x) }"
SPIN = """g (int64 n, float[k] x) => (float[k] y) {
    t = Constant<value = bool {1}>()
    y = Loop(n, t, x) <body = b (int64 i, bool c, float[k] v) => (bool d, float[k] w)
        { d = Identity(c)  w = Tanh(v) }>
}"""
BAD = "g (float[n,m] x, int64[n] k) => (float[n,m] y) { y = Gather(x, k) }"


@asynccontextmanager
async def queue(
    tmp_path: Path, batching: Batching, text: str = SQUARE, most: int = 100
) -> AsyncIterator[Queue]:
    path = save(tmp_path / "model.onnx", text)
    session = tenonnx.InferenceSession(str(path), providers=["cpu"])
    model = Model("m", "1", session, config.empty(), batching)
    pool = threads.Threads(2, "test")
    try:
        yield Queue(model, pool, most)
    finally:
        pool.stop()


def rows(*numbers: float, width: int = 3) -> Request:
    return Request({"x": np.repeat(np.array(numbers, np.float32)[:, None], width, axis=1)})


def run(main: Callable[[], Any]) -> Any:
    return asyncio.run(main())


def test_answers_are_as_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(8, 0.05)) as found:
            asked = [rows(i, i + 1, width=2 + i % 2) for i in range(12)]
            answers = await asyncio.gather(*(found.run(one, 10) for one in asked))
            for one, (outputs, spent) in zip(asked, answers, strict=True):
                assert np.array_equal(outputs[0], one.inputs["x"] ** 2)
                assert spent.rows == 2
            assert found.model.statistics.executions == 4  # two widths, 12 rows of each
            assert set(found.model.statistics.batches) == {8, 4}
            assert found.waiting == 0

    run(main)


def test_one_of_its_own_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(8, 0.1)) as found:
            _, spent = await found.run(rows(1), 10)
            assert 0.09e9 < spent.queue < 1e9
        async with queue(tmp_path, Batching(8)) as found:
            _, spent = await found.run(rows(*range(20)), 10)  # more than one run takes
            assert spent.execution.rows == 20

    run(main)


def test_one_that_fails_takes_no_other_along(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(8, 0.05), BAD) as found:
            good, bad = rows(1), rows(2)
            good.inputs["k"], bad.inputs["k"] = np.array([0]), np.array([99])
            answers = await asyncio.gather(
                found.run(good, 10), found.run(bad, 10), return_exceptions=True
            )
            assert np.array_equal(answers[0][0][0], good.inputs["x"])
            assert isinstance(answers[1], tenonnx.TenonnxError)

    run(main)


def test_one_that_goes_away_or_waits_too_long_takes_no_other_along(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(8, 0.1)) as found:
            gone = asyncio.create_task(found.run(rows(1), 10))
            late = asyncio.create_task(found.run(rows(2), 0.02))
            left = asyncio.create_task(found.run(rows(3), 10))
            await asyncio.sleep(0)
            gone.cancel()
            answers = await asyncio.gather(gone, late, left, return_exceptions=True)
            assert isinstance(answers[0], asyncio.CancelledError)
            assert isinstance(answers[1], TimedOut)
            assert answers[2][0][0][0, 0] == 9
            assert answers[2][1].execution.requests == 1

    run(main)


def test_requests_without_rows_and_too_many(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(8, 0.05), most=1) as found:
            with pytest.raises(BadRequest, match="joined by rows"):
                await found.run(Request({"x": np.ones((), np.float32)}), 10)
            first = asyncio.create_task(found.run(rows(1), 10))
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await found.run(rows(1), 10)
            await first

    run(main)


def test_models_without_rows_are_not_joined(tmp_path: Path) -> None:
    async def main() -> None:
        text = "g (float[3] x) => (float[3] y) { y = Mul(x, x) }"
        async with queue(tmp_path, Batching(8, 0.05), text) as found:
            assert found.batching.largest == 1

    run(main)


def test_short_runs_come_to_be_done_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching()) as found:
            for _ in range(200):
                if (outcome := found.run_inline(rows(2))) is not None:
                    assert outcome[0][0][0, 0] == 4
                    return
                assert (await found.run(rows(2), 10))[0][0][0, 0] == 4
            pytest.fail("none of 200 runs was done by the event loop")

    run(main)


def test_a_run_that_is_long_after_all_is_done_in_a_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with queue(tmp_path, Batching(), SPIN) as found:
            short, long = (
                Request({"n": np.array(n), "x": np.ones(1, np.float32)}) for n in (1, 20_000)
            )
            while found.run_inline(short) is None:
                await found.run(short, 10)
            assert found.run_inline(long) is None
            outputs, _ = await found.run(long, 60)
            assert outputs[0].shape == (1,)
            assert found.run_inline(short) is None  # of the same sizes as the long one

    run(main)
