"""The contracts of plugins as tests: subclass one, say what it is about, and run pytest.

``ProviderTests``, ``TransformTests`` and ``FormatTests`` are the ones that the built-in plugins
pass. They need the extra ``testing``, which brings pytest and hypothesis.
"""

from __future__ import annotations

from tenonnx.testing import models
from tenonnx.testing.compare import assert_similar
from tenonnx.testing.formats import FormatTests
from tenonnx.testing.providers import ProviderTests
from tenonnx.testing.transforms import TransformTests

__all__ = ["FormatTests", "ProviderTests", "TransformTests", "assert_similar", "models"]
