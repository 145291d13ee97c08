"""Warm-up runs with inputs from a model's configuration."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("uvicorn")

import tenonnx
from servers import save, serving
from tenonnx_serve.settings import Settings

ROWS = """g (float[n,2] x, int64[n,2] k, string[n,1] s) => (float[n,2] y, string[n,1] t) {
    d = Cast<to=1>(k)  y = Add(x, d)  t = Identity(s) }"""
WHOLE = "g (float[m] x) => (float[m] y) { y = Add(x, x) }"

ALL = """max_batch_size: 8
model_warmup { name: "all" batch_size: 3 count: 5
    inputs { key: "x" value { data_type: TYPE_FP32 dims: [2] input_data_file: "row" } }
    inputs { key: "k" value { data_type: TYPE_INT64 dims: [2] random_data: true } }
    inputs { key: "s" value { data_type: TYPE_STRING dims: [1] zero_data: true } } }"""


def sample(rest: str, batch: int = 1) -> str:
    value = f'inputs {{ key: "x" value {{ {rest} }} }}'
    return f'model_warmup {{ name: "one" batch_size: {batch} {value} }}'


def warmed(folder: Path, text: str, config: str) -> None:
    save(folder / "m" / "1" / "model.onnx", text)
    (folder / "m" / "config.pbtxt").write_text(config)
    (folder / "m" / "warmup").mkdir()
    (folder / "m" / "warmup" / "row").write_bytes(np.array([1.5, -2], np.float32).tobytes())
    (folder / "row").write_bytes(bytes(8))
    (folder / "m" / "warmup" / "link").symlink_to("/dev/null")
    with serving(Settings(str(folder), port=0, grpc_port=None)):
        pass


def test_what_is_declared_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = []
    run = tenonnx.InferenceSession.run

    def noted(session: tenonnx.InferenceSession, names: object, feeds: dict[str, object]) -> object:
        fed.append(feeds)
        return run(session, names, feeds)  # type: ignore[arg-type]

    monkeypatch.setattr(tenonnx.InferenceSession, "run", noted)
    warmed(tmp_path, ROWS, ALL)
    assert len(fed) == 5
    x, k, s = (fed[-1][name] for name in "xks")
    np.testing.assert_array_equal(x, np.tile(np.float32([1.5, -2]), (3, 1)))
    assert (k.dtype, k.shape) == (np.int64, (3, 2))
    assert set(k.ravel()) <= {0, 1}
    assert s.tolist() == [[""]] * 3


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (sample("dims: [4]").replace('"x"', '"z"'), "has no input 'x'"),
        (sample("dims: [4] data_type: TYPE_INT32"), "expected FP32"),
        (sample("dims: [-1]"), "no open size"),
        (sample("dims: [4, 1]"), r"shape \[4, 1\]; expected \[-1\]"),
        (sample("dims: [4]", 2), "no max_batch_size"),
        (sample('dims: [4] input_data_file: "row"'), "8 bytes; expected 16"),
        (sample('dims: [2] input_data_file: "none"'), "no file warmup/none"),
        (sample('dims: [2] input_data_file: "../../row"'), "no file warmup/../../row"),
        (sample('dims: [0] input_data_file: "link"'), "no file warmup/link"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, config: str, words: str) -> None:
    with pytest.raises(tenonnx.TenonnxError, match=words):
        warmed(tmp_path, WHOLE, config)


def test_a_model_that_fails_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "g (float[2,2] x, int64[n] k) => (float[n,2] y) { y = Gather(x, k) }"
    bad = np.array([7], np.int64).tobytes()
    config = """model_warmup { name: "bad"
        inputs { key: "x" value { dims: [2, 2] } }
        inputs { key: "k" value { dims: [1] input_data_file: "index" } } }"""
    (tmp_path / "m" / "warmup").mkdir(parents=True)
    (tmp_path / "m" / "warmup" / "index").write_bytes(bad)
    save(tmp_path / "m" / "1" / "model.onnx", text)
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    with (
        caplog.at_level(logging.WARNING, "tenonnx.serve"),
        serving(Settings(str(tmp_path), port=0, grpc_port=None)) as server,
    ):
        assert server.call("GET", "/v2/models/m/ready")[0] == 200
    assert "cannot be warmed up" in caplog.text
