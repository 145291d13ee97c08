"""Tokens' probabilities, as answers have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.openai.steps import Step

# A token, then the likeliest ones, with the logarithms of their probabilities.
Chances = Sequence[tuple[int, float | None]]

# The number for the logarithm of zero, which JSON cannot express.
LEAST = -9999.0


def of_chat(model: LanguageModel, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the probabilities of some tokens of a chat's answer."""
    content = []
    for step in steps:
        (token, chance), *best = step.chances
        tops = [_entry(model, *each) for each in best]
        content.append({**_entry(model, token, chance), "top_logprobs": tops})
    return {"content": content, "refusal": None}


def of_completion(model: LanguageModel, chances: Sequence[Chances], start: int) -> dict[str, Any]:
    """Return the probabilities of some tokens of a continued text.

    Args:
        model: The model.
        chances: Of each token; the first token of a prompt has none.
        start: Where in the text the first of them begins.
    """
    told: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
    told["text_offset"] = []
    for (token, chance), *best in chances:
        text = model.written(token).decode("utf-8", "replace")
        told["tokens"].append(text)
        told["token_logprobs"].append(None if chance is None else max(chance, LEAST))
        tops = {model.written(t).decode("utf-8", "replace"): max(c or 0.0, LEAST) for t, c in best}
        told["top_logprobs"].append(None if chance is None else tops)
        told["text_offset"].append(start)
        start += len(text)
    return told


def _entry(model: LanguageModel, token: int, chance: float) -> dict[str, Any]:
    written = model.written(token)
    return {
        "token": written.decode("utf-8", "replace"),
        "logprob": max(chance, LEAST),
        "bytes": list(written),
    }
