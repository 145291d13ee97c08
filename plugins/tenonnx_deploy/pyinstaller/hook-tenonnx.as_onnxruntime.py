"""PyInstaller's hook for the packages that stand for onnxruntime."""

from PyInstaller.utils.hooks import collect_submodules

# They are imported by other names, from a folder of sys.path.
hiddenimports = collect_submodules("tenonnx.as_onnxruntime")
