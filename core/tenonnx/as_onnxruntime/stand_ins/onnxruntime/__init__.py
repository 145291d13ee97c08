"""tenonnx in the place of onnxruntime."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("tenonnx") is None or (
    os.environ.get("TENONNX_AS_ONNXRUNTIME") == "0"
    and "tenonnx.as_onnxruntime" not in sys.modules  # who calls it wants it, whatever is set
):
    # A child of another environment, or one that is to be left alone: what is installed there.
    here = Path(__file__).parents[1]
    sys.path[:] = [path for path in sys.path if Path(path) != here]
    del sys.modules[__name__]
    importlib.import_module(__name__)
else:
    from tenonnx.as_onnxruntime import VERSION, attributes_of
    from tenonnx.errors import page

    # Packages of an installed onnxruntime that are Python alone are found behind this one's.
    __path__ = pkgutil.extend_path(__path__, __name__)
    __version__ = version = VERSION
    package_name = "onnxruntime"
    cuda_version = ""
    import_capi_exception = None

    def get_version_string() -> str:
        """Return the version whose API this is."""
        return VERSION

    capi = importlib.import_module(f"{__name__}.capi")
    onnxruntime_validation = capi.onnxruntime_validation
    __getattr__, __dir__ = attributes_of("tenonnx", __name__, globals(), page("onnxruntime"))
