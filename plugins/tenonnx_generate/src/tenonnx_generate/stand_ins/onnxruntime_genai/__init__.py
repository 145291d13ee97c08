"""tenonnx_generate in the place of onnxruntime_genai."""

from __future__ import annotations

import pkgutil

from tenonnx.as_onnxruntime import attributes_of

# Packages of an installed onnxruntime_genai that are Python alone are found behind this one's.
__path__ = pkgutil.extend_path(__path__, __name__)

__getattr__, __dir__ = attributes_of("tenonnx_generate", __name__)
