"""The first token of a process that opens the folder of a model whose plan is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import tenonnx
import tenonnx_array
import tenonnx_cpu
import tenonnx_generate
from folders import write_folder
from tenonnx_cpu.jit import library

TOKEN = """
import json, sys
import tenonnx_generate as og
model = og.Model(sys.argv[1])
made = og.Generator(model, og.GeneratorParams(model))
made.append_tokens([5, 6, 7])
made.generate_next_token()
new = [name for name, each in sys.modules.items() if type(each).__name__ != "LazyModule"]
print(json.dumps(sorted(new)))
"""

# Modules that compile a model, or compute its nodes without kernels; run() is generated again.
COMPILING = {
    *("tenonnx.graph.functions", "tenonnx.graph.validation", "tenonnx.planning.fusion"),
    *("tenonnx.planning.lower", "tenonnx.planning.placement", "tenonnx_array.elementwise"),
    *("tenonnx_array.reduce", "tenonnx_cpu.capture.captured_run", "tenonnx_cpu.capture.span"),
}

OTHERS = {
    *("jinja2", "llguidance", "ml_dtypes", "numpy.random", "onnx", "onnx_ir", "pydantic"),
    *("sympy", "tokenizers"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs names the cache folder")
@pytest.mark.skipif(library.find() is None, reason="there are no kernels")
def test_a_first_token_needs_no_more_than_it_uses(kernels: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder")
    graph = onnx.load(folder / "model.onnx")
    (sums,) = (node for node in graph.graph.node if node.op_type == "ReduceSum")
    sums.attribute.append(onnx.helper.make_attribute("keepdims", 0))  # as exporters write it
    onnx.save(graph, folder / "model.onnx")
    packages = (tenonnx, tenonnx_array, tenonnx_cpu, tenonnx_generate)
    own = [str(Path(each.__file__ or "").parents[1]) for each in packages]
    environment = {
        **os.environ,
        "TENONNX_JIT": "1",
        "TENONNX_PLUGINS": "",
        "TENONNX_KERNELS_DIR": kernels,
        "TENONNX_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(filter(None, (*own, *sys.path))),
    }
    for _ in range(2):
        # -S: what finds an editable install imports pathlib.
        command = [sys.executable, "-S", "-c", TOKEN, str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = set(json.loads(done.stdout))
    assert "tenonnx_generate.decoder" in found
    assert sorted(found & (COMPILING | OTHERS)) == []
