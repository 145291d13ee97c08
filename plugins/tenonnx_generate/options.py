"""``GeneratorParams``: how tokens are chosen, and how many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tenonnx.errors import did_you_mean
from tenonnx.records import record
from tenonnx_generate.errors import Refused, Unsupported

if TYPE_CHECKING:
    from tenonnx_generate.description import Description
    from tenonnx_generate.guidance import Guidance
    from tenonnx_generate.model import Model


@record
class Option:
    """What a search option may be.

    Attributes:
        default: What it is unless it is set.
        low: The least number.
        high: The greatest.
    """

    default: bool | int | float
    low: float = -math.inf
    high: float = math.inf


MOST_ROWS = 1024

OPTIONS = {
    "batch_size": Option(1, 1, MOST_ROWS),
    "chunk_size": Option(0, 0, 1 << 27),
    "diversity_penalty": Option(0.0),
    "do_sample": Option(False),
    "early_stopping": Option(True),
    "length_penalty": Option(1.0),
    "max_length": Option(0, 0, 1 << 27),
    "min_length": Option(0, 0, 1 << 27),
    "no_repeat_ngram_size": Option(0, 0, 1 << 27),
    "num_beams": Option(1, 1, MOST_ROWS),
    "num_return_sequences": Option(1, 1, MOST_ROWS),
    "past_present_share_buffer": Option(False),
    "random_seed": Option(-1, -1, (1 << 63) - 1),
    "repetition_penalty": Option(1.0, 1e-6, 1e6),
    "temperature": Option(1.0, 0.0, 1e6),
    "top_k": Option(50, 0, 1 << 27),
    "top_p": Option(1.0, 0.0, 1.0),
}
"""Search options by name, as onnxruntime-genai has them."""


def checked_option(name: str, value: Any) -> bool | int | float:
    """Returns a search option's value in the type that it has.

    Raises:
        Refused: There is no such option, or it cannot have the value.
    """
    if name not in OPTIONS:
        raise Refused(f"there is no search option {name!r}{did_you_mean(name, OPTIONS)}")
    option = OPTIONS[name]
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise Refused(f"search option {name} is {value!r:.60}; expected True or False")
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Refused(f"search option {name} is {value!r:.60}; expected a number")
    if isinstance(option.default, int) and value != int(value):
        raise Refused(f"search option {name} is {value}; expected a whole number")
    if not option.low <= value <= option.high:
        raise Refused(
            f"search option {name} is {value}; expected one from {option.low} to {option.high}"
        )
    return type(option.default)(value)


class GeneratorParams:
    """How a generator chooses tokens, at first as the folder's ``search`` says.

    Args:
        model: The model whose options they are.

    Raises:
        Refused: The folder has an option that there is not, or that cannot be.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._about: Description = model.description
        self.guidance: Guidance | None = None
        self._values = {name: option.default for name, option in OPTIONS.items()}
        self.set_search_options(**self._about.search)

    def set_search_options(self, **options: bool | int | float) -> None:
        """Sets options by name; all of them, or none if one of them cannot be.

        Raises:
            Refused: There is no such option, or it cannot have the value.
            Unsupported: ``num_beams`` or ``num_return_sequences`` is more than 1.
        """
        changed = {name: checked_option(name, value) for name, value in options.items()}
        if changed.get("max_length", 0) > self._about.context:
            raise Refused(
                f"max_length is {changed['max_length']}; the model's context has "
                f"{self._about.context} tokens"
            )
        for name in ("num_beams", "num_return_sequences"):
            if changed.get(name, 1) > 1:
                raise Unsupported(
                    f"{name} is {changed[name]}: there is no search by beams",
                    hint="draw several with do_sample, batch_size and random_seed",
                )
        self._values.update(changed)

    def get_search_options(self) -> dict[str, Any]:
        """Returns all options; ``max_length`` is the model's context unless it was set."""
        return {**self._values, "max_length": self.max_length}

    def set_guidance(self, kind: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Holds what is generated after a prompt to a schema or grammar, until another prompt.

        Args:
            kind: ``json_schema``, ``regex`` or ``lark_grammar``.
            data: The schema, expression or grammar.
            enable_ff_tokens: Not to be had: every token is chosen.

        Raises:
            Refused: It is none.
            NotInstalled: llguidance is not there.
            Unsupported: ``enable_ff_tokens`` is set.
        """
        if enable_ff_tokens:
            raise Unsupported("there is no enable_ff_tokens: tokens come one at a time")
        from tenonnx_generate.guidance import Guidance

        self.guidance = Guidance(self._model, kind, data)

    @property
    def max_length(self) -> int:
        """How many tokens a sequence may have, its prompt included."""
        return int(self._values["max_length"]) or self._about.context
