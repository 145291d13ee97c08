"""Adapters: one for each row of a batch against the graph itself with its matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from folders import HEAD, HEADS, KEY_HEADS, WIDTH, write_adapter, write_folder
from tenonnx_generate import (
    Adapters,
    Engine,
    Generator,
    GeneratorParams,
    Model,
    RequestOptions,
    TurnOptions,
)
from tenonnx_generate.adapter_inputs import RowAdapters
from tenonnx_generate.errors import Missing, Refused

PROMPT = [84, 104, 101, 32, 119]
KINDS = ["asked", "empty", "zeros", "other"]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Model, Adapters]]:
    """For each kind of inputs, a model and four adapters."""
    found = {}
    for kind in KINDS:
        folder = write_folder(tmp_path_factory.mktemp("adapters") / kind, lora=kind)
        model = Model(folder)
        adapters = Adapters(model)
        for number in range(4):
            rank = 2 if kind == "zeros" else 2 + number
            path = write_adapter(folder / f"{number}.onnx_adapter", number, rank)
            adapters.load(path, str(number))
        found[kind] = model, adapters
    return found


def alone(model: Model, adapters: Adapters, name: str | None, prompt: list[int]) -> list[int]:
    """Return a generator's tokens with an adapter."""
    params = GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + 12)
    made = Generator(model, params)
    if name is not None:
        made.set_active_adapter(adapters, name)
    made.append_tokens(prompt)
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()[len(prompt) :]


def bare(model: Model, adapter: Path | None, tokens: list[int]) -> Any:
    """The logits that follow tokens, by a session of its own."""
    session = tenonnx.InferenceSession(model.description.path)
    feeds: dict[str, Any] = {
        "input_ids": np.array([tokens]),
        "attention_mask": np.ones((1, len(tokens)), np.int64),
    }
    for arg in session.get_inputs()[2:]:
        if "lora" not in arg.name:
            feeds[arg.name] = np.zeros((1, KEY_HEADS, 0, HEAD), np.float32)
    options, lora = tenonnx.RunOptions(), tenonnx.LoraAdapter()
    if adapter is not None:
        lora.Load(adapter)
        options.add_active_adapter(lora)
    return session.run(["logits"], feeds, options)[0][0, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_is_the_graph_with_its_matrices(
    adapted: dict[str, tuple[Model, Adapters]], kind: str
) -> None:
    model, adapters = adapted[kind]
    said = set()
    for name in ("1", "2", *([] if kind == "asked" else [None])):
        made = Generator(model, GeneratorParams(model))
        if name is not None:
            made.set_active_adapter(adapters, name)
        made.append_tokens(PROMPT)
        made.generate_next_token()
        path = None if name is None else Path(model.description.folder) / f"{name}.onnx_adapter"
        expected = bare(model, path, made.get_sequence(0).tolist())
        np.testing.assert_allclose(made.get_logits()[0, 0], expected, rtol=1e-3, atol=1e-3)
        said.add(tuple(alone(model, adapters, name, PROMPT)))
    assert len(said) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_different_adapters_answer_as_alone(
    adapted: dict[str, tuple[Model, Adapters]], kind: str
) -> None:
    model, adapters = adapted[kind]
    engine = Engine(model, max_batch_size=8)
    names = ["0", "1", "2", "3", None, "1", "0"]
    requests = []
    for name in names:
        options = RequestOptions()
        if name is not None:
            options.set_active_adapter(adapters, name)
        request = engine.create_request(options=options)
        held = TurnOptions(request)
        held.set_max_generated_tokens(12)
        request.begin_turn(PROMPT, held)
        requests.append(request)
    buffer = engine.create_event_buffer(16)
    cached = {}
    while engine.has_pending_requests():
        for event in engine.run(buffer):
            assert event.error is None
            cached[event.request] = event.usage.cached_prompt_tokens
    for name, request in zip(names, requests, strict=True):
        expected = alone(model, adapters, name, PROMPT)
        assert request.tokens.tolist()[len(PROMPT) :] == expected
    # Only the caches that were made with the same adapter are of use.
    assert [cached[request] for request in requests] == [0, 0, 0, 0, 0, 4, 4]


def test_inputs_are_made_anew_only_when_adapters_change(
    adapted: dict[str, tuple[Model, Adapters]],
) -> None:
    model, adapters = adapted["empty"]
    some = [adapters.used_by(model, model, name) for name in "012"]
    rows = RowAdapters(model.adapter_inputs, 3)

    def values(given: dict[str, Any]) -> list[Any]:
        return [array.copy() for _, array in sorted(given.items())]

    first, one = {0: some[0], 1: some[1]}, {2: some[2]}
    before = rows.given(0, 2, first)
    expected, alone = values(before), values(rows.given(2, 1, one))
    assert rows.given(0, 2, dict(first)) is before
    assert rows.given(2, 1, dict(one)) is rows.given(0, 1, {0: some[2]})
    for others in ({0: some[2], 1: some[1]}, {0: some[1], 1: some[0]}, {1: some[1], 2: some[2]}):
        rows.given(min(others), 2, others)
        again = rows.given(0, 2, first)
        for array, wanted in zip(values(again), expected, strict=True):
            # Room for the highest rank stays when it was needed once.
            np.testing.assert_array_equal(array[:, : wanted.shape[1], : wanted.shape[2]], wanted)
        for array, wanted in zip(values(rows.given(2, 1, one)), alone, strict=True):
            np.testing.assert_array_equal(array, wanted)
    for adapter in some:
        adapter.users.clear()


def test_rows_without_the_operands_of_products_are_run_apart(
    adapted: dict[str, tuple[Model, Adapters]],
) -> None:
    for kind in KINDS:
        model, adapters = adapted[kind]
        some = [adapters.used_by(model, model, name) for name in "01"]
        assert model.adapter_inputs.share_a_run(some) is (kind != "other")
        assert model.adapter_inputs.share_a_run(some[:1])
        for adapter in some:
            adapter.users.clear()


def test_changing_adapters_runs_the_last_token_again(
    adapted: dict[str, tuple[Model, Adapters]],
) -> None:
    model, adapters = adapted["empty"]
    made = Generator(model, GeneratorParams(model))
    made.append_tokens(PROMPT)
    before = made.get_logits()
    made.set_active_adapter(adapters, "3")
    assert not np.allclose(made.get_logits(), before)
    made.rewind_to(0)
    made.append_tokens(PROMPT)
    made.generate_next_token()
    assert made.get_sequence(0)[-1] == alone(model, adapters, "3", PROMPT)[0]


def test_a_file_is_mapped_once_and_counted(adapted: dict[str, tuple[Model, Adapters]]) -> None:
    model, adapters = adapted["empty"]
    path = Path(model.description.folder) / "0.onnx_adapter"
    other = Adapters(model)
    other.load(path, "same")
    arrays = [each.used_by(model, model, name).parameters["lora_A0"]
              for each, name in ((adapters, "0"), (other, "same"))]  # fmt: skip
    assert np.shares_memory(*arrays)
    assert not arrays[0].flags.writeable
    holders = {row.name for row in tenonnx.default_registry().report().holders}
    assert f"adapter {path}" in holders
    adapters.used_by(model, model, "0").users.clear()


def test_adapters_in_use_stay(adapted: dict[str, tuple[Model, Adapters]], tmp_path: Path) -> None:
    model, _ = adapted["empty"]
    adapters = Adapters(model)
    for name in "ab":
        adapters.load(write_adapter(tmp_path / name, 3), name)
    made = Generator(model, GeneratorParams(model))
    made.set_active_adapter(adapters, "a")
    with pytest.raises(Refused, match="'a' is in use by 1"):
        adapters.unload("a")
    made.set_active_adapter(adapters, "b")
    adapters.unload("a")
    with pytest.raises(Refused, match="no adapter 'a'"):
        made.set_active_adapter(adapters, "a")
    options = RequestOptions()
    options.set_active_adapter(adapters, "b")
    request = Engine(model).create_request(options=options)
    with pytest.raises(Refused, match="in use by 2"):
        adapters.unload("b")
    request.close()
    with pytest.raises(Refused, match="in use by 1"):
        adapters.unload("b")
    with pytest.raises(Refused, match="already"):
        adapters.load(tmp_path / "b", "b")


@pytest.mark.parametrize(("kind", "changes", "said"), [
    ("empty", {"lora_A9": np.zeros((2, 2), np.float32)}, r"'lora_A9', which is no input"),
    ("empty", {"lora_A0": np.zeros((HEADS * HEAD, 2))}, r"tensor\(double\)\[64, 2\]; the model"),
    ("empty", {"lora_A0": np.zeros((9, 2), np.float32)}, r"\[9, 2\]; the model takes .*\[64, 2\]"),
    ("empty", {"lora_A0": np.zeros(64, np.float32)}, r"\[64\]; the model takes"),
    ("empty", {"lora_B1": np.zeros((3, WIDTH), np.float32)}, r"\[3, 64\]; .*\[2, 64\]"),
    ("asked", {"lora_B1": None}, "no 'lora_B1', which the model asks for"),
])  # fmt: skip
def test_files_that_do_not_fit_are_refused(
    adapted: dict[str, tuple[Model, Adapters]],
    tmp_path: Path,
    kind: str,
    changes: dict[str, Any],
    said: str,
) -> None:
    model, _ = adapted[kind]
    path = write_adapter(tmp_path / "x.onnx_adapter", 1, **changes)
    with pytest.raises(Refused, match=said):
        Adapters(model).load(path, "x")


def test_what_is_no_adapter_is_refused(
    adapted: dict[str, tuple[Model, Adapters]], model: Model, tmp_path: Path
) -> None:
    path = write_adapter(tmp_path / "x.onnx_adapter", 1)
    with pytest.raises(Refused, match="the model has no inputs for adapters"):
        Adapters(model).load(path, "x")
    other, adapters = adapted["empty"]
    with pytest.raises(Missing, match="does not exist"):
        adapters.load(tmp_path / "y", "x")
    (tmp_path / "y").write_bytes(b"something else")
    with pytest.raises(tenonnx.InvalidProtobuf, match="is no adapter"):
        adapters.load(tmp_path / "y", "x")
    made = Generator(model, GeneratorParams(model))
    with pytest.raises(Refused, match="of another model"):
        made.set_active_adapter(adapters, "0")
    assert other is not model
