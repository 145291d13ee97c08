"""Findings as folders: the model, what it was run on, a line of why, and how to see it again."""

from __future__ import annotations

import hashlib
import pickle
import re
from pathlib import Path

import onnx

from fuzz import VERSION
from fuzz.drawing import Drawn
from fuzz.examining import Finding


def folder_of(finding: Finding, out: Path) -> Path:
    """Return where a finding is kept; findings of one cause have one folder."""
    name = re.sub(r"[^\w.]+", "-", f"{finding.kind} {finding.where}")[:90].strip("-")
    digest = hashlib.sha1(finding.where.encode(), usedforsecurity=False).hexdigest()[:6]
    return out / f"{name}-{digest}"


def write(drawn: Drawn, original: Drawn, finding: Finding, kernels: bool, folder: Path) -> None:
    """Write a finding."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"model{drawn.suffix}").write_bytes(drawn.data)
    (folder / "case.pickle").write_bytes(pickle.dumps((drawn, kernels)))
    (folder / "reason.txt").write_text(
        f"{finding.kind}: {finding.where}\n{finding.reason}\n\n"
        f"python -m fuzz --replay {folder}\n"
        f"number {original.number}, mutations {VERSION}, {'kernels' if kernels else 'numpy'}\n"
        f"seed {original.seed}, level {original.level}, threads {original.threads}, "
        f"as {original.form}\n" + "".join(f"- {note}\n" for note in original.notes),
        errors="replace",
    )
    rounds = "".join(f"{feeds!r:.2000}\n" for feeds in drawn.rounds or ())
    (folder / "model.txt").write_text(f"{printed(drawn)}\n\n{rounds}", errors="replace")


def printed(drawn: Drawn) -> str:
    """Return a model as text, or why it cannot be."""
    try:
        model = onnx.ModelProto.FromString(drawn.data)
        text = onnx.printer.to_text(model)
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{drawn.data[:300]!r}"
    return text[:100_000] + ("" if len(text) < 3000 else "\n") + f"\n{str(model)[:20_000]}"


def read(folder: Path) -> tuple[Drawn, bool]:
    """Return a finding's case, and whether it is of kernels."""
    drawn, kernels = pickle.loads((folder / "case.pickle").read_bytes())
    return drawn, kernels
