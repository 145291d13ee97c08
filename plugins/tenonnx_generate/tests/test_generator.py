"""Generators against the graph itself, run on whole sequences without caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from folders import CONTEXT, HEAD, KEY_HEADS, PAD, VOCABULARY, write_folder
from processes import in_a_process_of_its_own
from tenonnx_generate import Generator, GeneratorParams, Model, Tensor
from tenonnx_generate.cache import reserve
from tenonnx_generate.errors import Refused

PROMPT = [84, 104, 101, 32, 119, 105, 116, 104]


def generator(model: Model, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(**options)
    return Generator(model, params)


def finished(made: Generator) -> list[int]:
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()


@pytest.fixture(scope="session")
def bare(folder: Path) -> Any:
    """The logits [tokens, vocabulary] of all positions, run at once by a session of its own."""
    session = tenonnx.InferenceSession(folder / "model.onnx")

    def run(tokens: list[int]) -> Any:
        feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), int)}
        for arg in session.get_inputs()[2:]:
            feeds[arg.name] = np.zeros((1, KEY_HEADS, 0, HEAD), np.float32)
        return session.run(["logits"], feeds)[0][0]

    return run


@pytest.mark.parametrize("options", [
    {}, {"past_present_share_buffer": False}, {"chunk_size": 3}, {"batch_size": 2},
])  # fmt: skip
def test_logits_are_those_of_whole_sequences(
    model: Model, bare: Any, options: dict[str, Any]
) -> None:
    made = generator(model, max_length=24, **options)
    rows = options.get("batch_size", 1)
    made.append_tokens(PROMPT * rows)
    for _ in range(12):
        expected = bare(made.get_sequence(0).tolist())[-1]
        for row in made.get_logits():
            np.testing.assert_allclose(row[0], expected, atol=1e-4)
        made.generate_next_token()
        assert made.get_next_tokens()[0] == made.get_sequence(0)[-1] == expected.argmax()


def test_positions_have_three_axes_where_the_graph_asks(tmp_path: Path, model: Model) -> None:
    folder = write_folder(tmp_path / "folder", positions=True)
    proto = onnx.load(folder / "model.onnx")
    (asked,) = (each for each in proto.graph.input if each.name == "position_ids")
    proto.graph.input.remove(asked)
    shape = [3, "b", "n"]
    kind = onnx.TensorProto.INT64
    proto.graph.input.append(onnx.helper.make_tensor_value_info("places", kind, shape))
    first = onnx.helper.make_node("Gather", ["places", "first"], ["position_ids"], axis=0)
    proto.graph.node.insert(0, first)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "first"))
    onnx.save(proto, folder / "model.onnx")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["inputs"]["position_ids"] = "places"
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokens = list(b"positions")
    one, other = (Generator(each, GeneratorParams(each)) for each in (model, Model(folder)))
    for generator in (one, other):
        generator.append_tokens(tokens)
    np.testing.assert_allclose(other.get_logits(), one.get_logits(), atol=1e-5)


def test_positions_are_given_where_the_graph_asks(tmp_path: Path, model: Model) -> None:
    asking = Model(write_folder(tmp_path / "folder", positions=True))
    made, other = generator(model, max_length=20), generator(asking, max_length=20)
    made.append_tokens(PROMPT)
    other.append_tokens(PROMPT)
    assert finished(made) == finished(other)
    np.testing.assert_array_equal(other.get_input("position_ids"), [[18]])


def test_rows_of_a_batch_are_as_alone(model: Model) -> None:
    prompts = [PROMPT, [*PROMPT[:3]], [7, 8, 9, 10, 11]]
    alone = []
    for prompt in prompts:
        made = generator(model, max_length=40)
        made.append_tokens(prompt)
        alone.append(finished(made))
    padded = np.full((3, 8), PAD)
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = prompt
    made = generator(model, max_length=40, batch_size=3)
    made.append_tokens(Tensor(padded))
    finished(made)
    assert [made.get_sequence(row).tolist() for row in range(3)] == alone


def test_a_row_that_has_ended_leaves_the_others_alone(tmp_path: Path, model: Model) -> None:
    free = generator(model, max_length=30, batch_size=2)
    free.append_tokens([*PROMPT, *reversed(PROMPT)])
    finished(free)
    first, second = (free.get_sequence(row).tolist() for row in range(2))
    end = next(token for token in first[8:] if token not in second)
    ending = Model(write_folder(tmp_path / "folder", model={"eos_token_id": [end]}))
    made = generator(ending, max_length=30, batch_size=2)
    made.append_tokens([*PROMPT, *reversed(PROMPT)])
    finished(made)
    assert made.get_sequence(0).tolist() == first[: first.index(end)]
    assert made.get_sequence(1).tolist() == second
    assert made.get_next_tokens()[0] == PAD
    again = generator(ending, max_length=first.index(end) + 4)
    again.append_tokens(PROMPT)
    assert finished(again) == first[: first.index(end)]
    assert again.get_next_tokens().tolist() == [end]
    assert again.get_logits()[0, 0].argmax() == end
    again.append_tokens([1])
    assert not again.is_done()
    assert again.token_count() == first.index(end) + 1


def test_a_prompt_in_parts_and_going_back(model: Model, bare: Any) -> None:
    made = generator(model, max_length=30)
    made.append_tokens(PROMPT[:5])
    made.append_tokens(PROMPT[5:])
    whole = finished(made)
    for length in (29, 12, 8, 3, 1):
        made.rewind_to(length)
        assert made.token_count() == length
        assert not made.is_done()
        np.testing.assert_allclose(made.get_logits()[0, 0], bare(whole[:length])[-1], atol=1e-4)
    made.append_tokens(whole[1:10])
    assert finished(made) == whole
    made.rewind_to(0)
    with pytest.raises(Refused, match="nothing to continue"):
        made.generate_next_token()
    made.append_tokens(PROMPT)
    assert finished(made) == whole


def test_logits_that_are_set_are_what_is_chosen_by(model: Model) -> None:
    made = generator(model)
    made.append_tokens(PROMPT)
    made.set_logits(np.eye(VOCABULARY, dtype=np.float32)[[42]])
    made.generate_next_token()
    assert made.get_next_tokens().tolist() == [42]
    assert made.get_output("logits").shape == (1, 1, VOCABULARY)
    with pytest.raises(Refused, match="logits are"):
        made.set_logits(np.zeros(3))
    with pytest.raises(Refused, match="no output 'nothing'"):
        made.get_output("nothing")
    with pytest.raises(Refused, match="no input 'nothing'"):
        made.get_input("nothing")


@pytest.mark.parametrize(("tokens", "said"), [
    ([], "expected whole numbers"), ([1.5], "expected whole numbers"), ("a", "whole numbers"),
    ([[[1]]], "expected whole numbers"), ([[1], [2]], "as many for each of 1"),
    ([VOCABULARY], f"no token {VOCABULARY}"), ([3, -1], "no token -1"),
    ([1] * 21, "more than max_length, 20"), ([2**40], "no token"),
])  # fmt: skip
def test_tokens_that_cannot_be_change_nothing(model: Model, tokens: Any, said: str) -> None:
    made = generator(model, max_length=20)
    with pytest.raises(Refused, match=said):
        made.append_tokens(tokens)
    made.append_tokens(PROMPT)
    before = made.get_sequence(0).tolist()
    with pytest.raises(RuntimeError, match=said):
        made.append_tokens(tokens)
    assert made.get_sequence(0).tolist() == before
    expected = generator(model, max_length=20)
    expected.append_tokens(PROMPT)
    assert finished(made) == finished(expected)
    with pytest.raises(Refused, match="ask is_done"):
        made.generate_next_token()
    with pytest.raises(Refused, match="no sequence 1"):
        made.get_sequence(1)
    with pytest.raises(Refused, match="no length to go back to"):
        made.rewind_to(21)


def test_a_run_that_fails_leaves_the_sequence_as_it_was(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generator(model, max_length=20)
    made.append_tokens(PROMPT)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model.session, "run_with_iobinding", fail)
        with pytest.raises(KeyboardInterrupt):
            made.append_tokens([1, 2])
    assert made.get_sequence(0).tolist() == PROMPT
    expected = generator(model, max_length=20)
    expected.append_tokens(PROMPT)
    assert finished(made) == finished(expected)


def test_caches_take_memory_as_they_are_written() -> None:
    code = """
        import numpy as np
        from tenonnx.cli.memory import private_bytes
        from tenonnx_generate.cache import reserve
        before = private_bytes()
        cache = reserve((1, 8, 1 << 20, 64), np.dtype(np.float32))  # 2 GiB
        cache[:, :, 5] = 1
        after = private_bytes()
        assert before is None or after is None or after - before < 1 << 20, after - before
        assert cache[0, 0, 4:7, 0].tolist() == [0, 1, 0]
    """
    in_a_process_of_its_own(code)


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(tenonnx.RuntimeException, match="no room for a cache"):
        reserve((1 << 50, 64), np.dtype(np.float32))


def test_generators_that_are_gone_leave_nothing(folder: Path) -> None:
    code = f"""
        from tenonnx.cli.memory import private_bytes
        from tenonnx_generate import Generator, GeneratorParams, Model
        model = Model({str(folder)!r})
        params = GeneratorParams(model)
        params.set_search_options(max_length={CONTEXT})
        def one():
            made = Generator(model, params)
            made.append_tokens({PROMPT})
            made.generate_next_token()
        for _ in range(5):
            one()
        before = private_bytes()
        for _ in range(200):
            one()
        after = private_bytes()
        assert before is None or after is None or after - before < 5 << 20, after - before
    """
    in_a_process_of_its_own(code)


def test_steps_move_no_cache(model: Model) -> None:
    made = generator(model, max_length=CONTEXT)
    made.append_tokens(PROMPT)
    caches = made._decoder._caches
    held = {name: cache[:, :, :8].copy() for name, cache in caches.items()}
    finished(made)
    run = made._decoder.lengths[0]
    assert run > 16
    for name, cache in caches.items():
        np.testing.assert_array_equal(cache[:, :, :8], held[name])
        assert cache[:, :, 8:run].any(axis=(0, 1, 3)).all()
        assert not cache[:, :, run:].any()
        assert np.shares_memory(made._decoder.output(model.caches[name]), cache)
