"""Lets programs that import onnxruntime have tenonnx instead.

``python -m tenonnx.as_onnxruntime script.py`` or ``-m module`` runs one; ``install()`` does it for
the process that calls it. Python processes that a program so run starts have tenonnx, too, unless
``TENONNX_AS_ONNXRUNTIME`` is 0. Tools of an installed onnxruntime that are Python alone, such as
its quantization, are found beside it and use tenonnx, too. Plug-ins may stand for modules beside
onnxruntime, as tenonnx_generate does for onnxruntime_genai.
"""

from __future__ import annotations

from tenonnx.as_onnxruntime.modules import VERSION, install

__all__ = ["VERSION", "install"]
