"""Name and versions of the package, as onnxruntime finds them when it is imported."""

from __future__ import annotations

from tenonnx.as_onnxruntime import VERSION


def check_distro_info() -> None:
    """Do nothing: nothing depends on the distribution."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """Return the package's name, its version and that of CUDA."""
    return "onnxruntime", VERSION, ""
