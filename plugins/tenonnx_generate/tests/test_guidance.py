"""Texts that keep to schemas, expressions and grammars."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folders import write_folder

pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

import tenonnx
from tenonnx_generate import Generator, GeneratorParams, Model, Tokenizer
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.guidance import Allowed, Guidance

SCHEMAS = int(os.environ.get("TENONNX_TEST_SCHEMAS", "25"))
PROMPT = [84, 104, 101]


def begun(model: Model, kind: str, data: str, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(**options)
    params.set_guidance(kind, data)
    made = Generator(model, params)
    made.append_tokens(PROMPT * int(options.get("batch_size", 1)))
    return made


def text(model: Model, made: Generator, row: int = 0, prompt: int = 3) -> str:
    while not made.is_done():
        made.generate_next_token()
    assert made.token_count() < made._limit
    return Tokenizer(model).decode(made.get_sequence(row)[prompt:])


def schema(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a schema whose shortest and longest texts have few characters."""
    kinds = ["integer", "boolean", "string", "enum", "null"] + ["object", "array"] * (depth < 2)
    kind = chance.choice(kinds)
    match kind:
        case "integer":
            low = chance.randint(-99, 99)
            return {"type": kind, "minimum": low, "maximum": low + chance.randint(0, 50)}
        case "string":
            return {"type": kind, "pattern": f"^[a-z]{{1,{chance.randint(1, 4)}}}$"}
        case "enum":
            return {"enum": chance.sample(["a", "bc", 3, None, True], chance.randint(1, 3))}
        case "object":
            names = chance.sample("abcdef", chance.randint(1, 3))
            inner = {name: schema(chance, depth + 1) for name in names}
            return {
                "type": kind, "properties": inner, "required": names, "additionalProperties": False,
            }  # fmt: skip
        case "array":
            return {"type": kind, "items": schema(chance, depth + 1), "maxItems": 2}
    return {"type": kind}


def keeps(value: Any, to: dict[str, Any]) -> bool:
    """Return whether a value keeps to such a schema."""
    if "enum" in to:
        return value in to["enum"]
    match to["type"]:
        case "integer":
            return type(value) is int and to["minimum"] <= value <= to["maximum"]
        case "string":
            return isinstance(value, str) and re.search(to["pattern"], value) is not None
        case "object":
            fits = isinstance(value, dict) and value.keys() == to["properties"].keys()
            return fits and all(keeps(value[name], to["properties"][name]) for name in value)
        case "array":
            fits = isinstance(value, list) and len(value) <= to["maxItems"]
            return fits and all(keeps(each, to["items"]) for each in value)
        case "boolean":
            return isinstance(value, bool)
    return value is None


def test_json_keeps_to_random_schemas(tmp_path: Path) -> None:
    model = Model(write_folder(tmp_path / "folder", model={"context_length": 2048}))
    for seed in range(SCHEMAS):
        wanted = {**schema(random.Random(seed)), "x-guidance": {"whitespace_flexible": False}}
        how = {"do_sample": True, "random_seed": seed, "max_length": 1024, "temperature": 2.0}
        made = begun(model, "json_schema", json.dumps(wanted), top_k=0, **how)
        assert keeps(json.loads(text(model, made)), wanted), seed


@pytest.mark.parametrize(("kind", "data", "fits"), [
    ("regex", "(yes|no)+!", r"(yes|no)+!"),
    ("lark_grammar", 'start: "a" /[0-9]{2,3}/', r"a\d{2,3}"),
])  # fmt: skip
def test_expressions_and_grammars(model: Model, kind: str, data: str, fits: str) -> None:
    made = begun(model, kind, data, batch_size=2, do_sample=True, random_seed=2, max_length=100)
    for row in range(2):
        assert re.fullmatch(fits, text(model, made, row))


def test_each_prompt_begins_anew_and_going_back_is_known(model: Model) -> None:
    how = {"do_sample": True, "random_seed": 1}
    made = begun(model, "regex", "[ab]c[de]{5}f", **how)
    first = text(model, made)
    made.rewind_to(5)
    again = text(model, made)
    assert first[:2] == again[:2]
    assert re.fullmatch("[ab]c[de]{5}f", again)
    made.append_tokens(PROMPT)
    start = made.token_count()
    assert re.fullmatch("[ab]c[de]{5}f", text(model, made, prompt=start))
    made.rewind_to(2)
    assert re.fullmatch("[ab]c[de]{5}f", text(model, made, prompt=2))
    with pytest.raises(Refused):
        made.append_tokens([-1])


def test_without_it_nothing_changes_and_logits_are_the_models(model: Model) -> None:
    plain = Generator(model, GeneratorParams(model))
    plain.append_tokens(PROMPT)
    made = begun(model, "regex", "q")
    np.testing.assert_array_equal(made.get_logits(), plain.get_logits())
    made.generate_next_token()
    chosen, best = made.get_next_logprobs(1)[0]
    assert chosen[0] == ord("q") != best[0] == plain.get_logits().argmax()
    assert chosen[1] < best[1] < 0


@pytest.mark.parametrize(("kind", "data", "error", "said"), [
    ("json", "{}", Refused, "no guidance 'json' .there are: json_schema"),
    ("json_schema", "{", Refused, "json_schema is wrong"),
    ("json_schema", '{"type": "nothing"}', Refused, "json_schema is wrong"),
    ("regex", "(", Refused, "regex is wrong"),
    ("lark_grammar", "start: nothing", Refused, "lark_grammar is wrong"),
    ("regex", 3, Refused, "no text of at most"),
])  # fmt: skip
def test_guidance_that_is_wrong(
    model: Model, kind: str, data: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        GeneratorParams(model).set_guidance(kind, data)


def test_what_guidance_cannot_do(model: Model, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="enable_ff_tokens"):
        GeneratorParams(model).set_guidance("regex", "a", enable_ff_tokens=True)
    endless = Model(write_folder(tmp_path / "folder", model={"eos_token_id": None}))
    with pytest.raises(Refused, match="the model has none"):
        GeneratorParams(endless).set_guidance("regex", "a")
    made = begun(model, "regex", "a", min_length=50)
    made.generate_next_token()
    with pytest.raises(tenonnx.RuntimeException, match="no token may come"):
        made.generate_next_token()


@pytest.mark.parametrize("few", [1, 10_000])
@pytest.mark.parametrize("pattern", ["[0-9]+", "[a-z ]+"])
def test_scores_are_held_to_the_tokens_that_are_allowed(
    tmp_path: Path, pattern: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenonnx_generate.guidance.MAX_FORCED_CHOICES", few)
    model = Model(write_folder(tmp_path / "folder"))
    guide, size = Guidance(model, "regex", pattern).guide(), model.description.vocabulary
    words = guide._matcher.compute_bitmask()
    bits = [bool(words[token // 8] >> token % 8 & 1) for token in range(size)]
    assert 0 < sum(bits) < size
    allowed = guide.allowed()
    np.testing.assert_array_equal([token in allowed for token in range(len(bits))], bits)
    scores = np.random.default_rng(0).standard_normal(size, np.float32)
    held = np.where(bits, scores, -np.inf)
    np.testing.assert_array_equal(allowed.masked(scores), held)
    assert allowed.best(scores) == (held.argmax(), held.max())
    assert guide.allowed() is allowed, "a set of tokens is made once"


@pytest.mark.parametrize("few", [1, 10_000])
def test_of_no_tokens_none_is_the_best(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenonnx_generate.guidance.MAX_FORCED_CHOICES", few)
    assert Allowed(bytes(4), 20).best(np.ones(20, np.float32))[1] == -np.inf
    assert Allowed(b"\xff" * 4, 20).best(np.full(20, -np.inf, np.float32))[1] == -np.inf


def test_a_grammar_is_read_once_until_a_text_fails(model: Model) -> None:
    first, again = (Guidance(model, "regex", "[0-9]{3}") for _ in range(2))
    assert first._first is again._first
    one, other = first.guide(), again.guide()
    one.take(ord("1"))
    assert other.allowed() is first.guide().allowed(), "texts go on by themselves"
    with pytest.raises(tenonnx.RuntimeException, match="cannot go on"):
        one.take(ord("a"))
    anew = Guidance(model, "regex", "[0-9]{3}")
    assert anew._first is not first._first
    for guide in (other, anew.guide()):
        for character in "123":
            guide.take(ord(character))


def test_after_a_failure_no_token_is_taken(model: Model) -> None:
    guide = Guidance(model, "regex", "[0-9]{3}").guide()
    for _ in range(2):
        with pytest.raises(tenonnx.RuntimeException, match="cannot go on"):
            guide.take(ord("a"))
    scores = np.zeros(model.description.vocabulary, np.float32)
    token, _ = guide.allowed().best(scores)
    with pytest.raises(tenonnx.RuntimeException, match="cannot go on"):
        guide.take(token)
