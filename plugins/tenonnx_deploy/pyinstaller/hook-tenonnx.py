"""PyInstaller's hook for what sessions import by name."""

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs, copy_metadata

from tenonnx_deploy import pyinstaller

PACKAGES = {*pyinstaller.RUNTIME, *pyinstaller.plugins()}

hiddenimports = pyinstaller.modules()

datas = [entry for package in sorted(PACKAGES) for entry in collect_data_files(package)]

# Libraries of kernels: no module imports them; their names are those of target CPUs.
binaries = [
    entry
    for package in sorted(PACKAGES)
    for entry in collect_dynamic_libs(package, search_patterns=["*.so"])
]

# Plug-ins are found by entry points; plans are kept for the versions of all dependencies.
for distribution in sorted({"tenonnx", *pyinstaller.plugins().values()}):
    datas += copy_metadata(distribution, recursive=True)

# Plans belong to their sources, which are read.
module_collection_mode = dict.fromkeys(PACKAGES, "pyz+py")
