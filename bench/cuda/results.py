"""A device's figures, in files of its name, which are whole after every figure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.cuda.page import page


class Results:
    """Figures of a device, and what failed, by the name of what was measured.

    What earlier runs found stays, until the same is measured again.

    Args:
        folder: Where the files are.
        seen: The device and the libraries.
    """

    def __init__(self, folder: Path, seen: Mapping[str, Any]) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", str(seen["device"]).lower()).strip("-")
        self.path = folder / f"cuda-{name}.json"
        before = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.content: dict[str, Any] = {"found": {}, "failed": {}, **before, **seen}

    def is_done(self, name: str) -> bool:
        """Return whether something was measured, and nothing of it failed."""
        return bool(self.content["found"].get(name)) and not self.content["failed"].get(name)

    def begin(self, name: str) -> None:
        """Forget what is measured anew."""
        self.content["found"].pop(name, None)
        self.content["failed"].pop(name, None)

    def add(self, name: str, found: Mapping[str, Any], failed: Mapping[str, str]) -> None:
        """Trace figures, and why there are none of others."""
        for kind, said in (("found", found), ("failed", failed)):
            if said:
                self.content[kind].setdefault(name, {}).update(said)
        replace(self.path, json.dumps(self.content, indent=2) + "\n")
        replace(self.path.with_suffix(".md"), page(self.content))


def replace(path: Path, text: str) -> None:
    """Write a file, of which there is a whole one whenever this process is ended."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)
