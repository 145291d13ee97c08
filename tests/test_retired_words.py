"""Words: retired names do not come back, and those that are left become fewer."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("bench", "core", "docs", "examples", "plugins", "providers", "tests", "tools")
SUFFIXES = {".cu", ".cuh", ".md", ".py", ".toml", ".ini"}

MODULES = {
    "arrivals": ("uploads", 0),
    "assembly": ("session_builder", 0),
    "between": ("requantize", 0),
    "brought": ("lazy_import", 0),
    "chosen": ("kernel_selection", 0),
    "codes": ("quantized_values", 0),
    "crew": ("thread_pool", 0),
    "deferred": ("lazy_modules", 0),
    "few": ("gemv_*", 0),
    "growing": ("dynamic_length", 0),
    "images": ("code_object, conv", 0),
    "islands": ("widen_fp16", 0),
    "joining": ("fusion, concat", 0),
    "lines": ("gemv_*", 0),
    "noting": ("tracer", 0),
    "placing": ("memory_plan, layout_assignment", 0),
    "recording": ("capture", 0),
    "regions": ("subgraph", 0),
    "repeating": ("replay", 0),
    "residence": ("device_weights", 0),
    "rooms": ("kv_cache", 0),
    "slabs": ("allocations", 0),
    "specialise": ("kernel_selection", 0),
    "stream": ("gemv_*", 0),
    "takes": ("captured_call", 0),
    "team": ("threading_config", 0),
    "together": ("step_fusion", 0),
    "turning": ("transpose, rotary_fusion", 0),
}
"""Retired names of modules and packages, the field's words, and how many are left at most."""

OTHERWISE = {
    ("plugins", "tenonnx_contrib", "images"),
    ("providers", "tenonnx_array", "images"),
}
"""Modules that are about what they are called: operators on images."""

PHRASES = {
    r"li(e|es|ying) alike": ("have the same dtype, shape and strides", 0),
    r"search for garbage": ("the garbage collector", 0),
    r"kinds? of processor": ("target CPU", 0),
    r"wr(ites|itten|ote) down": ("capture, keep", 0),
    r"\bcrews?\b|_crew|crew_": ("thread pool", 0),
    r"\bislands?\b": ("subgraph", 0),
    r": likewise\.\n": ("what it is, or what it is as of", 0),
    r"initialis": ("initializ, as ONNX", 0),
    r"serialis": ("serializ", 0),
    r"(normali|optimi|quanti|recogni|speciali|standardi)s(e|a|i)": ("...iz..., as ONNX", 0),
}
"""Retired words of texts and names, the field's words, and how often they are left at most."""


@functools.cache
def paths() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += ROOT.iterdir()
    left_out = {"__pycache__", "results", Path(__file__).name}
    return [p for p in found if p.suffix in SUFFIXES and not left_out & set(p.parts)]


@functools.cache
def text() -> str:
    return "\n".join(path.read_text("utf-8").lower() for path in paths())


@functools.cache
def modules() -> set[tuple[str, ...]]:
    """Returns all modules and packages, as parts of their paths."""
    code = [path.relative_to(ROOT) for path in paths() if path.suffix in {".py", ".cu"}]
    parts = [path.with_suffix("").parts for path in code]
    return {path[:end] for path in parts for end in range(1, len(path) + 1)}


@pytest.mark.parametrize("name", MODULES)
def test_retired_modules_become_fewer(name: str) -> None:
    better, left = MODULES[name]
    found = {path for path in modules() if path[-1] == name} - OTHERWISE
    assert len(found) <= left, f"call it {better}"


@pytest.mark.parametrize("phrase", PHRASES)
def test_retired_words_become_fewer(phrase: str) -> None:
    better, left = PHRASES[phrase]
    found = len(re.findall(phrase, text()))
    assert found <= left, f"say: {better}"
