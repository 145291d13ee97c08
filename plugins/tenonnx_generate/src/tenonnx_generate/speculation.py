"""The drafting of tokens, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx_generate.options import MOST_DRAFTED

# Rounds in a row without an accepted token before ``cooldown`` leaves one out.
COLD_ROUNDS = 3

# The share of accepted tokens below which the next round drafts one less.
SHRINK_BELOW = 0.5


class Width:
    """The number of tokens that a round drafts.

    With ``min_adaptive_k`` that many at first and at least: one more after a round whose tokens
    were all accepted, one less after one of which less than half were. With ``cooldown``, at the
    least number, three rounds in a row without an accepted token leave the next round out.

    Args:
        options: Speculative options, all of them.

    Attributes:
        value: How many the next round drafts.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._least = options["min_adaptive_k"]
        self._cools, self._cold = options["cooldown"], 0
        self.value = self._least or options["max_draft_tokens"]

    def record(self, drafted: int, accepted: int) -> None:
        """Take what came of a round."""
        if self._least and accepted == drafted:
            self.value = min(self.value + 1, MOST_DRAFTED)
        elif self._least and accepted < SHRINK_BELOW * drafted:
            self.value = max(self.value - 1, self._least)
        at_least = not self._least or self.value == self._least
        self._cold = self._cold + 1 if at_least and not accepted else 0

    def rests(self) -> bool:
        """Return whether a round is left out, and the next ones are not."""
        if not self._cools or self._cold < COLD_ROUNDS:
            return False
        self._cold = 0
        return True


class Statistics:
    """Counts of a generator's rounds, by onnxruntime-genai's names.

    Attributes:
        rounds: Runs of the model that checked drafted tokens.
        draft_tokens_proposed: Tokens that were drafted.
        draft_tokens_evaluated: Those that were compared, as those before them were accepted.
        draft_tokens_accepted: Those that became part of the text.
        correction_tokens: Tokens that came instead of one that was drafted.
        bonus_tokens: Tokens after a round whose tokens were all accepted.
        draft_forward_passes: Runs of the draft model.
        target_forward_passes: Runs of the model, for prompts as well.
        standard_fallback_steps: Tokens that came without a round.
        total_draft_ms: Milliseconds of drafting.
        total_target_ms: Milliseconds of the runs that checked.
        effective_k: How many tokens the next round drafts.
    """

    def __init__(self) -> None:
        self.rounds = self.draft_tokens_proposed = 0
        self.draft_tokens_evaluated = self.draft_tokens_accepted = 0
        self.correction_tokens = self.bonus_tokens = 0
        self.draft_forward_passes = self.target_forward_passes = 0
        self.standard_fallback_steps = self.effective_k = 0
        self.total_draft_ms = self.total_target_ms = 0.0

    def report(self) -> dict[str, Any]:
        """Return all of them, and shares of them."""
        emitted = self.draft_tokens_accepted + self.correction_tokens + self.bonus_tokens
        return {
            **vars(self),
            "acceptance_rate": _share(self.draft_tokens_accepted, self.draft_tokens_evaluated),
            "avg_draft_tokens_per_round": _share(self.draft_tokens_proposed, self.rounds),
            "mean_emitted_tokens_per_round": _share(emitted, self.rounds),
        }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
