"""The words that a shell completes: models and providers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ENDINGS = (".onnx", ".ort", ".tenonnx")


def models(incomplete: str) -> list[str]:
    """Return the models, and the folders, whose paths begin so."""
    return sorted(_paths(incomplete))


def _paths(incomplete: str) -> Iterator[str]:
    folder, slash, start = incomplete.rpartition("/")
    place = Path(folder or ("/" if slash else ".")).expanduser()
    try:
        found = list(place.iterdir())
    except OSError:
        return
    for path in found:
        if not path.name.startswith(start) or path.name.startswith(".") > start.startswith("."):
            continue
        if path.is_dir():
            yield f"{folder}{slash}{path.name}/"
        elif path.suffix in ENDINGS:
            yield f"{folder}{slash}{path.name}"


def providers(incomplete: str) -> list[str]:
    """Return the providers, by all their names, that begin so."""
    from tenonnx.plugins.manager import default_plugins

    found = default_plugins().providers.values()
    names = [name for provider in found for name in (*provider.aliases, provider.name)]
    return [name for name in names if name.lower().startswith(incomplete.lower())]


def contenders(incomplete: str) -> list[str]:
    """Return what ``providers`` does, and onnxruntime."""
    peer = "onnxruntime"
    return [*providers(incomplete), *([peer] if peer.startswith(incomplete) else [])]
