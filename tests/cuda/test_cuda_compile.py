"""The CUDA kernels compile for devices, with what there is to compile them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_cuda_contract import EVERY

from tenonnx_cuda.elementwise.formulas import function_of
from tenonnx_cuda.sources import SOURCE_TYPES, SOURCES, source

NVCC = shutil.which("nvcc")


def nvrtc() -> Any:
    """cupy's NVRTC, which needs no device; ``None`` where it is not installed."""
    try:
        from cupy.cuda import nvrtc as module

        module.getVersion()
    except Exception:  # no cupy, or no library for it: it raises what it likes
        return None
    return module


WIDTHS = (("f32", 4), ("f16", 8), ("bf16", 1))

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "norm/norm": [{"T": t, "WIDTH": w, "HELD": 4, "THREADS": 256} for t, w in WIDTHS],
    "norm/softmax": [{"T": t, "WIDTH": w, "HELD": 8, "THREADS": 256} for t, w in WIDTHS],
    "kv_cache": [{"WIDTH": 1 << n} for n in range(5)],
    "attention/rotary": [{"T": t} for t in SOURCE_TYPES.values()],
    "conv/conv": [
        {"T": t, "KH": 3, "KW": 3, "TENSOR": tensor}
        for t in SOURCE_TYPES.values()
        for tensor in (1, 0)
    ],
    "conv/channel_norms": [{"T": t, "LAST": last} for t, last in (("f16", 0), ("f32", 1))],
    "conv/depthwise": [
        {"T": t, "KH": 3, "KW": 5, "TIMES": n, "LAST": last, "VECTOR": v}
        | {"ACTIVATED": function_of("LeakyRelu")}
        for t, n, last, v in (
            ("f32", 2, 0, 1),
            ("f32", 1, 1, 4),
            ("f16", 1, 1, 4),
            ("bf16", 1, 1, 1),
        )
    ],
    "conv/ending": [
        {"T": t, "S": s, "ACTIVATED": function_of(n)}
        for t, s, n in (("bf16", "float", "HardSwish"), ("f16", "f16", "Clip"))
    ],
    "conv/pool": [
        {"T": t, "LAST": last, "MAXIMUM": most}
        for t in SOURCE_TYPES.values()
        for last, most in ((0, 1), (1, 0))
    ],
    "conv/resize": [{"T": t, "LAST": last} for t, last in (("f16", 0), ("f32", 1))],
    "data_movement/scatter": [
        {"T": "f32", "E": e, "WIDTH": w, "OPERATION": o}
        for e, w, o in (("short", 2, 1), ("float", 4, 2), ("long long", 8, 0))
    ],
    "data_movement/steps": [
        {"E": e, "WIDTH": w, "CIRCULAR": c}
        for e, w, c in (("unsigned char", 1, 0), ("unsigned short", 2, 1), ("unsigned", 4, 0))
    ],
    "attention/attention": [
        {"T": t, "SIZE": s, "VALUE": s, "ROWS": r, "COLUMNS": c, "THREADS": 128, "MASK": m}
        for t, s, r, c, m in (
            ("f16", 128, 16, 32, 1),
            ("bf16", 256, 8, 16, 2),
            ("f32", 64, 1, 32, 0),
        )
    ],
    "attention/attention_mma": [
        {"T": t, "SIZE": s, "VALUE": s, "EACH": e, "MASK": m, "STAGED": n}
        for t, s, e, m, n in (
            ("f16", 128, 8, 0, 1),
            ("f16", 128, 8, 1, 0),
            ("bf16", 96, 4, 2, 1),
            ("f16", 64, 8, 0, 0),
        )
    ],
    "attention/cache": [{"T": t} for t in SOURCE_TYPES.values()],
    "quantized/dequantize": [
        {"T": t, "S": t, "BITS": b, "SIGNED": s, "MIDDLE": 8, "ZERO": z}
        | {"BY_ROWS": by_rows, "K_BLOCK": 32, "N_BLOCK": 1}
        for t, b, s, z, by_rows in (("f16", 4, 0, 1, 1), ("bf16", 8, 1, 0, 0), ("f32", 2, 0, 2, 1))
    ],
    "quantized/nbits_mma": [
        {"T": t, "S": t, "BITS": b, "SIGNED": s, "MIDDLE": 8, "ZERO": z, "TILES": n}
        | {"K_BLOCK": 32, "WHOLE": whole, "K_STEP": step, "PADDED": int(step == 1), "EARLY": whole}
        for t, b, s, z, n, whole, step in (
            ("f32", 4, 0, 1, 8, 1, 1),
            ("bf16", 8, 1, 0, 4, 0, "k_step"),
            ("f16", 2, 0, 0, 8, 1, 0),
        )
    ],
    "attention/unseen": [
        {"T": t, "VALUE": v, "MASK": m}
        for t, v, m in (("f16", 64, 0), ("bf16", 128, 1), ("f16", 72, 2))
    ],
    "quantized/nbits_mma_columns": [
        {"T": t, "S": t, "Y": y, "BITS": b, "SIGNED": s, "MIDDLE": 0, "ZERO": z}
        | {"K_BLOCK": 32, "N_BLOCK": 1, "N_STEP": n_step, "STEP": step, "TILES": n, "EARLY": z}
        for t, y, b, s, z, n_step, step, n in (
            ("f16", "f16", 4, 1, 0, 1, 32, 4),
            ("f32", "f32", 8, 0, 1, "n_step", 16, 8),
            ("bf16", "f32", 2, 0, 1, 1, 32, 2),
        )
    ],
    "quantized/parts": [{}],
    "quantized/slices": [{"T": t} for t in SOURCE_TYPES.values()],
    "quantized/nbits": [
        {"T": t, "S": t, "BITS": b, "SIGNED": s, "MIDDLE": 8, "ZERO": z, "ROWS": 4}
        for t, b, s, z in (("f16", 4, 0, 1), ("bf16", 8, 1, 0), ("f32", 2, 0, 2))
    ],
}


def test_every_source_is_compiled_here() -> None:
    assert VARIANTS.keys() == {
        path.relative_to(SOURCES).with_suffix("").as_posix() for path in SOURCES.rglob("*.cu")
    }


def check_compiles(text: str, macros: dict[str, Any], capability: int, folder: Path) -> None:
    """Compile for a device with what there is: NVRTC, or nvcc; skip the test without either."""
    library = nvrtc()
    options = [f"-D{key}={value}" for key, value in macros.items()]
    options += ["-std=c++17", f"-arch=sm_{capability}"]
    if library is not None:
        program = library.createProgram(text, "kernel.cu", (), ())
        try:
            library.compileProgram(program, options)
        except library.NVRTCError:
            pytest.fail(library.getProgramLog(program))
    elif NVCC is not None:
        code = folder / "kernel.cu"
        code.write_text(text)
        command = [NVCC, *options, "-cubin", "-Xptxas", "-v", code, "-o", folder / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert set(re.findall(r"(\d+) bytes spill", done.stderr)) == {"0"}, done.stderr
    else:
        pytest.skip("neither NVRTC (pip install 'tenonnx[cuda]') nor nvcc is installed")


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("name", VARIANTS)
def test_kernels_compile(name: str, capability: int, tmp_path: Path) -> None:
    """With NVRTC in all variants; nvcc takes seconds for each, so with it in the first."""
    if nvrtc() is None and capability > 80 and not EVERY:
        pytest.skip("nvcc compiles for one device, unless TENONNX_CUDA_EVERY_CASE is set")
    follows = {"FOLLOWS": 1} if capability >= 90 else {}
    for macros in VARIANTS[name][: None if nvrtc() else 1]:
        check_compiles(source(name), {**macros, **follows}, capability, tmp_path)


def test_every_kernel_waits_for_those_before() -> None:
    """Devices that start a kernel while another one ends."""
    for path in (*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.cuh")):
        kernels = path.read_text().split("__global__")[1:]
        assert all("follow();" in kernel for kernel in kernels), path


def test_shared_memory_fits_everywhere() -> None:
    """48 KiB is what a block has without being asked for more."""
    text = (SOURCES / "attention/attention.cu").read_text()
    assert "extern __shared__" not in text
    for size, tile_rows, columns in ((128, 16, 32), (256, 8, 16)):
        floats = (tile_rows + columns) * (size + 1) + columns * size + tile_rows * (columns + 1)
        assert 4 * floats <= 48 << 10
