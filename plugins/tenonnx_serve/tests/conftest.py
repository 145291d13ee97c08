from __future__ import annotations

from collections.abc import Iterator

import pytest

from weighted import large, path, weight, words

__all__ = ["large", "path", "short_runs", "weight", "words"]


@pytest.fixture(scope="module")
def short_runs() -> Iterator[None]:
    """Have every run of a small model count as short: how long one takes says what the machine is.

    A run of a thread that slept takes 80 to 300 us of CPU time.
    """
    from tenonnx_serve import inline_runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline_runs, "MAX_SHORT_RUN_NS", 50_000_000)
        yield
