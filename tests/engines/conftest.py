from __future__ import annotations

from weighted import large, path, weight, words

__all__ = ["large", "path", "weight", "words"]
