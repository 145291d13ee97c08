"""Requirements for the metadata of a plug-in's distribution."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tenonnx.plugins.catalogue import DISTRIBUTION
from tenonnx.plugins.manager import ENTRY_POINT_GROUP

PROGRAM = """
import importlib, json, sys
before = set(sys.modules)
import tenonnx
importlib.import_module({module!r})
names = tenonnx.get_all_providers()
print(json.dumps([sorted(m for m in sys.modules if "." not in m), names]))
"""


def check_distribution(name: str, frameworks: Sequence[str]) -> None:
    """Fail unless a plug-in is found by its entry point, described, and cheap to import.

    Args:
        name: The plug-in's, as its entry point has it.
        frameworks: Top-level modules that neither importing it nor listing providers may import.
    """
    found = [e for e in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if e.name == name]
    assert found, (
        f"no entry point {name!r} in the group {ENTRY_POINT_GROUP!r}: is the plug-in installed?"
    )
    entry = found[0]
    assert entry.dist is not None
    metadata = entry.dist.metadata
    for key in ("Name", "Version", "Summary", "Requires-Python"):
        assert key in metadata, f"{entry.dist.name} has no {key} in its metadata"
    if entry.dist.name != DISTRIBUTION:
        requires = [line for line in entry.dist.requires or () if line.startswith(DISTRIBUTION)]
        assert requires, f"{entry.dist.name} does not require {DISTRIBUTION}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=entry.module)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules, _ = json.loads(done.stdout)
    heavy = sorted(set(frameworks) & set(modules))
    assert not heavy, (
        f"importing {entry.module} imports {', '.join(heavy)}: import it where it is first needed, "
        "or leave it out of `frameworks`"
    )
