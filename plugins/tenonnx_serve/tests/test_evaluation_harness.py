"""lm-evaluation-harness runs tasks against a server, as its users do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("lm_eval", reason="lm-eval[api] is not installed")

from language import folder_with
from servers import Running, serving
from tenonnx_generate import Generator, GeneratorParams, Model, Tokenizer
from tenonnx_serve.settings import Limits, Settings

lm_eval = pytest.importorskip("lm_eval")
datasets = pytest.importorskip("datasets")

QUESTIONS = ["The with", "In for", "While"]
CHOICES = ["statement", "loop", "e"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = folder_with(tmp_path_factory.mktemp("models") / "tiny")
    settings = Settings(str(folder), port=0, grpc_port=None, limits=Limits(seconds=60))
    with serving(settings) as found:
        yield found


def generator(model: Model, **options: Any) -> Generator:
    params = GeneratorParams(model)
    params.set_search_options(do_sample=False, **options)
    return Generator(model, params)


def chances(model: Model, context: str, text: str) -> float:
    """Return the logarithm of the probability that a text follows."""
    made, total, tokenizer = generator(model), 0.0, Tokenizer(model)
    made.append_tokens(tokenizer.encode(context))
    for token in tokenizer.encode(text):
        logits = made.get_logits()[0, 0].astype(np.float64)
        total += logits[token] - np.logaddexp.reduce(logits)
        made.append_tokens([token])
    return total


def continued(model: Model, context: str, count: int) -> str:
    tokenizer = Tokenizer(model)
    tokens = tokenizer.encode(context)
    made = generator(model, max_length=len(tokens) + count)
    made.append_tokens(tokens)
    while not made.is_done():
        made.generate_next_token()
    return tokenizer.decode(made.get_sequence(0)[len(tokens) :])


def test_a_harness_gets_the_model_s_own_figures(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    model = Model(running.settings.source)
    # The model's own choice is right for all questions but the first.
    best = [max(CHOICES, key=lambda text, q=q: chances(model, q, f" {text}")) for q in QUESTIONS]
    right = [CHOICES.index(each) for each in best]
    right[0] = (right[0] + 1) % len(CHOICES)
    rows = [
        {"question": question, "right": number, "text": continued(model, question, 6)}
        for question, number in zip(QUESTIONS, right, strict=True)
    ]
    shared = {
        "dataset_path": "made",
        "test_split": "test",
        "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(rows)},
        "doc_to_text": "{{question}}",
    }
    chosen = {
        "task": "chosen",
        "output_type": "multiple_choice",
        "doc_to_choice": CHOICES,
        "doc_to_target": "right",
        "metric_list": [{"metric": "acc"}],
    }
    written = {
        "task": "written",
        "output_type": "generate_until",
        "doc_to_target": "text",
        "generation_kwargs": {"max_gen_toks": 6, "until": ["\\0"]},
        "metric_list": [{"metric": "exact_match"}],
    }
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={
            "model": "tiny",
            "base_url": f"http://{running.address}/v1/completions",
            "max_length": 500,
        },
        tasks=[shared | chosen, shared | written],
        bootstrap_iters=0,
    )["results"]
    assert found["chosen"]["acc,none"] == pytest.approx(2 / 3)
    assert found["written"]["exact_match,none"] == 1
