"""``GeneratorParams``: how tokens are chosen, and how many."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx.errors import did_you_mean
from tenonnx_generate.errors import Refused, Unsupported

if TYPE_CHECKING:
    from tenonnx_generate.description import Description
    from tenonnx_generate.guidance import Guidance
    from tenonnx_generate.model import Model
    from tenonnx_generate.suppression import Suppressed


@dataclass(frozen=True)
class Option:
    """The default and the range of a search option.

    Attributes:
        default: What it is unless it is set.
        low: The least number.
        high: The greatest.
    """

    default: bool | int | float
    low: float = -math.inf
    high: float = math.inf


MOST_ROWS = 1024
MOST_DRAFTED = 16
LEAST_PATTERN = 2

# Search options by name, as onnxruntime-genai has them; ``frequency_penalty``, ``min_p`` and
# ``presence_penalty`` are vLLM's.
OPTIONS = {
    "batch_size": Option(1, 1, MOST_ROWS),
    "chunk_size": Option(0, 0, 1 << 27),
    "diversity_penalty": Option(0.0),
    "do_sample": Option(False),
    "early_stopping": Option(True),
    "frequency_penalty": Option(0.0, -1e3, 1e3),
    "length_penalty": Option(1.0, -32.0, 32.0),
    "max_length": Option(0, 0, 1 << 27),
    "min_length": Option(0, 0, 1 << 27),
    "min_p": Option(0.0, 0.0, 1.0),
    "no_repeat_ngram_size": Option(0, 0, 1 << 27),
    "num_beams": Option(1, 1, MOST_ROWS),
    "num_return_sequences": Option(1, 1, MOST_ROWS),
    "past_present_share_buffer": Option(False),
    "presence_penalty": Option(0.0, -1e3, 1e3),
    "random_seed": Option(-1, -1, (1 << 63) - 1),
    "repetition_penalty": Option(1.0, 1e-6, 1e6),
    "temperature": Option(1.0, 0.0, 1e6),
    "top_k": Option(50, 0, 1 << 27),
    "top_p": Option(1.0, 0.0, 1.0),
}


# Options of drafting by name, as onnxruntime-genai has them.
SPECULATIVE = {
    "cooldown": Option(False),
    "max_draft_tokens": Option(4, 1, MOST_DRAFTED),
    "min_adaptive_k": Option(0, 0, MOST_DRAFTED),
    "ngram_chained_lookup": Option(False),
    "ngram_size": Option(0, 0, 16),
}


def checked_option(
    name: str, value: Any, options: Mapping[str, Option] = OPTIONS, kind: str = "search option"
) -> bool | int | float:
    """Return an option's value in the type that it has.

    Raises:
        Refused: There is no such option, or it cannot have the value.
    """
    if name not in options:
        raise Refused(f"there is no {kind} {name!r}{did_you_mean(name, options)}")
    option = options[name]
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise Refused(f"{kind} {name} is {value!r:.60}; expected True or False")
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Refused(f"{kind} {name} is {value!r:.60}; expected a number")
    if isinstance(option.default, int) and value != int(value):
        raise Refused(f"{kind} {name} is {value}; expected a whole number")
    if not option.low <= value <= option.high:
        raise Refused(f"{kind} {name} is {value}; expected one from {option.low} to {option.high}")
    return type(option.default)(value)


class GeneratorParams:
    """A generator's choice of tokens, at first as the folder's ``search`` says.

    Args:
        model: The model whose options they are.

    Raises:
        Refused: The folder has an option that there is not, or that cannot be.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._about: Description = model.description
        self.guidance: Guidance | None = None
        self.logit_bias: dict[int, float] = {}
        self.stop_tokens: frozenset[int] = frozenset()
        self._values = {name: option.default for name, option in OPTIONS.items()}
        self.set_search_options(**self._about.search)
        self._speculative = {name: option.default for name, option in SPECULATIVE.items()}
        self.set_speculative_options(**model.speculative)
        self._draft: Model | None = None
        self._drafts_as_configured = True

    def set_search_options(self, **options: bool | int | float) -> None:
        """Set options by name; all of them, or none if one of them cannot be.

        Raises:
            Refused: There is no such option, or it cannot have the value.
        """
        changed = {name: checked_option(name, value) for name, value in options.items()}
        if changed.get("max_length", 0) > self._about.context:
            raise Refused(
                f"max_length is {changed['max_length']}; the model's context has "
                f"{self._about.context} tokens"
            )
        self._values.update(changed)

    def get_search_options(self) -> dict[str, Any]:
        """Return all options; ``max_length`` is the model's context unless it was set."""
        return {**self._values, "max_length": self.max_length}

    def set_speculative_options(self, **options: bool | int | float) -> None:
        """Set how tokens are drafted, by name; all options, or none if one of them cannot be.

        ``max_draft_tokens`` in a round; with ``min_adaptive_k``, as many and more while they are
        accepted. ``cooldown`` leaves rounds out where none is. Without a draft model, with
        ``ngram_size`` N, what followed the last N - 1 tokens before is drafted, and with
        ``ngram_chained_lookup`` what followed that.

        Raises:
            Refused: There is no such option, or it cannot have the value.
        """
        changed = dict(self._speculative)
        for name, value in options.items():
            changed[name] = checked_option(name, value, SPECULATIVE, "speculative option")
        if 0 < changed["ngram_size"] < LEAST_PATTERN:
            raise Refused(f"ngram_size is 1; expected 0, or at least {LEAST_PATTERN}")
        if changed["ngram_chained_lookup"] and not changed["ngram_size"]:
            raise Refused("ngram_chained_lookup wants ngram_size, which is 0")
        self._speculative = changed

    def get_speculative_options(self) -> dict[str, Any]:
        """Return all options of drafting."""
        return dict(self._speculative)

    def set_draft_model(self, model: Model | None) -> None:
        """Set the model that drafts tokens, instead of the one that the folder may name.

        Args:
            model: A smaller model with the same tokens; ``None`` for no drafts.

        Raises:
            Refused: It has other tokens.
        """
        if model is not None:
            from tenonnx_generate.vocabularies import check_vocabulary

            check_vocabulary(self._model, model)
        self._draft, self._drafts_as_configured = model, False

    @property
    def draft_model(self) -> Model | None:
        """The model that drafts tokens, if one does."""
        if self._drafts_as_configured and self._model.draft is not None:
            self.set_draft_model(self._model.draft)
        return self._draft

    @property
    def drafts(self) -> bool:
        """Whether tokens are drafted, by a model or by patterns."""
        return self.draft_model is not None or self._speculative["ngram_size"] > 0

    def set_logit_bias(self, bias: Mapping[int, float]) -> None:
        """Add numbers to the logits of tokens, before any token is chosen.

        Raises:
            Refused: The model has no such token, or a number is not finite.
        """
        self._check_tokens(bias)
        for token, number in bias.items():
            if not math.isfinite(number):
                raise Refused(f"logit_bias of token {token} is {number}; expected a finite number")
        self.logit_bias = dict(bias)

    def set_stop_tokens(self, tokens: Collection[int]) -> None:
        """Set tokens that end a text, besides those of the model.

        Raises:
            Refused: The model has no such token.
        """
        self._check_tokens(tokens)
        self.stop_tokens = frozenset(tokens)

    def _check_tokens(self, tokens: Iterable[int]) -> None:
        most = self._about.vocabulary - 1
        for token in tokens:
            if not 0 <= token <= most:
                raise Refused(f"there is no token {token}: they are 0 to {most}")

    @property
    def ends(self) -> frozenset[int]:
        """All tokens that end a text."""
        return self.stop_tokens.union(self._about.eos)

    @property
    def suppressed(self) -> Suppressed:
        """The tokens that texts of the model do not have."""
        return self._about.suppressed

    def set_guidance(self, kind: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Hold what is generated after a prompt to a schema or grammar, until another prompt.

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
        """The most tokens of a sequence, its prompt included."""
        return int(self._values["max_length"]) or self._about.context
