"""A stand-in for onnxruntime, for programs that import that.

``python -m tenonnx.as_onnxruntime script.py`` or ``-m module`` runs one; ``install()`` does it for
the process that calls it. The folder ``stand_ins`` holds a package ``onnxruntime`` whose attributes
are tenonnx's, and its metadata; it is put in front of ``sys.path``, and of ``PYTHONPATH`` for the
Python processes that such a program starts, unless ``TENONNX_AS_ONNXRUNTIME`` is 0. Tools of an
installed onnxruntime that are Python alone, such as its quantization, are found beside it and use
tenonnx, too. Plug-ins may have such folders for packages beside onnxruntime, as tenonnx_generate
has one for onnxruntime_genai.
"""

from __future__ import annotations

from typing import Final

from tenonnx.as_onnxruntime.folders import install
from tenonnx.as_onnxruntime.standing import attributes_of

__all__ = ["VERSION", "attributes_of", "install"]

# onnxruntime's version whose API this is; programs choose what they do by it.
VERSION: Final = "1.32.0"
