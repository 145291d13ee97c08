"""The provider that ``tenonnx new compiler`` writes: a distribution, or a module."""

from __future__ import annotations

from pathlib import Path

from tenonnx_scaffold.command import write

NAME = "vec"


def installed(folder: Path) -> Path:
    """Write a provider for a device, with the metadata of a distribution; return its place."""
    site = write("compiler", NAME, folder) / "src"
    info = site / "tenonnx_vec-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenonnx-vec\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[tenonnx]\nvec = tenonnx_vec\n")
    return site
