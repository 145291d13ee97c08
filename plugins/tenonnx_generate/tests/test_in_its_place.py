"""``onnxruntime_genai`` in programs that run with tenonnx in onnxruntime's place."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tenonnx.as_onnxruntime.folders import STAND_IN_GROUP

PROGRAM = """
import sys
import onnxruntime_genai as og
model = og.Model(sys.argv[1])
params = og.GeneratorParams(model)
params.set_search_options(max_length=12, do_sample=False)
generator = og.Generator(model, params)
generator.append_tokens([84, 104, 101])
while not generator.is_done():
    generator.generate_next_token()
try:
    og.Nothing
except AttributeError as error:
    print(error)
print(len(generator.get_sequence(0)))
"""


@pytest.mark.skipif(
    not importlib.metadata.entry_points(group=STAND_IN_GROUP),
    reason="this installation is older than the entry point: repeat pip install -e",
)
def test_programs_that_import_it_get_this(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tenonnx.as_onnxruntime", "program.py", str(folder)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "onnxruntime_genai is tenonnx_generate here, which has no 'Nothing'" in done.stdout
    assert done.stdout.endswith("12\n")
