"""Whether two models have the same tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenonnx_generate.errors import Refused
from tenonnx_generate.files import TOKENIZER_LIMIT, parse_object, read_text

if TYPE_CHECKING:
    from tenonnx_generate.model import Model


def check_vocabulary(model: Model, draft: Model) -> None:
    """Check that tokens of two models are the same.

    Raises:
        Refused: One has more, or a token is another text.
    """
    sizes = [each.description.vocabulary for each in (model, draft)]
    if sizes[0] != sizes[1]:
        raise Refused(
            f"the draft model has {sizes[1]} tokens, and the model {sizes[0]}",
            hint="a draft model has the same tokenizer",
        )
    own, other = (_tokenizer(each) for each in (model, draft))
    if own is None or other is None or own == other:
        return
    mine, its = (parse_object(text, "tokenizer.json").get("model") for text in (own, other))
    if not isinstance(mine, dict) or not isinstance(its, dict):
        return
    if mine.get("vocab") != its.get("vocab"):
        raise Refused(
            "the draft model's tokens are other texts than the model's",
            hint="a draft model has the same tokenizer",
        )


def _tokenizer(model: Model) -> str | None:
    path = os.path.join(model.description.folder, "tokenizer.json")
    return read_text(path, TOKENIZER_LIMIT) if os.path.isfile(path) else None
