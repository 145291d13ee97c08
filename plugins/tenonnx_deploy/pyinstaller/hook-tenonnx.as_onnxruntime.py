"""Collects the packages that stand for onnxruntime, for PyInstaller."""

from PyInstaller.utils.hooks import collect_submodules

# They are imported by other names, from a folder of sys.path.
hiddenimports = collect_submodules("tenonnx.as_onnxruntime")
