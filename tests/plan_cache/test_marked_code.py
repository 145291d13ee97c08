"""Code that the files of plans may name keeps what its mark promises."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tenonnx.by_name import is_cacheable

PACKAGES = "tenonnx", "tenonnx_array", "tenonnx_cpu", "tenonnx_contrib", "tenonnx_quant"
FORBIDDEN = frozenset(
    {"open", "exec", "eval", "compile", "__import__", "import_module", "unlink", "remove", "rmtree"}
    | {"replace_file", "rename", "mkdir", "write_bytes", "write_text", "tofile", "fromfile", "load"}
    | {"memmap", "save", "system", "popen", "Popen", "urlopen", "socket", "loads", "CDLL"}
)
"""Names of functions that read and write files, or run text as code."""

ALLOWED = {
    ("tenonnx_array.images", "image_decoder", "open"): "of bytes",
    ("tenonnx_array.ml.maps", "ZipMap", "eval"): "of the display of integers and strings",
    ("tenonnx_array.tracing", "Traced", "loads"): "of JSON, which makes numbers",
    ("tenonnx_cpu.attention.token_counts", "_counted", "open"): "sizes that are not known",
    ("tenonnx_cpu.capture.kv_cache_replay", "KvCacheSpan", "open"): "what the plan has put off",
}


def marked() -> Iterator[tuple[str, Any]]:
    """Yield what is marked, with its module."""
    for package in PACKAGES:
        found = importlib.import_module(package)
        for each in pkgutil.walk_packages(found.__path__, f"{package}."):
            if "stand_ins" in each.name or each.name.endswith("__main__"):
                continue
            try:
                module = importlib.import_module(each.name)
            except ImportError:  # of what is not installed
                continue
            for thing in vars(module).values():
                if is_cacheable(thing) and thing.__module__ == each.name:
                    yield each.name, thing


def names(code: CodeType) -> Iterator[str]:
    """Yield the names that code refers to, and code inside it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from names(each)


def codes(thing: Any) -> Iterator[CodeType]:
    """Yield the code of a function, or of a class's functions."""
    for each in vars(thing).values() if isinstance(thing, type) else [thing]:
        inner = getattr(each, "__func__", None) or getattr(each, "fget", None)
        inner = inner or getattr(each, "func", None) or each
        if isinstance(inner, FunctionType):
            yield inner.__code__


def test_marked_code_opens_no_files_and_runs_no_text() -> None:
    found = {
        (module, thing.__qualname__, name)
        for module, thing in marked()
        for code in codes(thing)
        for name in FORBIDDEN.intersection(names(code))
    }
    assert found == ALLOWED.keys()
    assert len({thing for _, thing in marked()}) > 300
