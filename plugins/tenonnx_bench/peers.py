"""Other runtimes: how each opens and runs a model."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tenonnx import Fail, InvalidArgument, NotSupported, TenonnxError

ONNXRUNTIME: Final = "onnxruntime"
OPENVINO: Final = "openvino"

# Takes inputs by name, returns outputs.
Run: TypeAlias = Callable[[Mapping[str, Any]], list[Any]]

# Takes a model's path or bytes.
Open: TypeAlias = Callable[[str | bytes], Run]


def is_installed(name: str) -> bool:
    """Return whether a peer is installed."""
    return importlib.util.find_spec(name) is not None


def peer_opener(name: str, threads: int = 0, provider: str = "CPUExecutionProvider") -> Open:
    """Return the function that opens models for another runtime.

    Args:
        name: ``ONNXRUNTIME`` or ``OPENVINO``.
        threads: Threads inside its kernels; 0 lets it choose.
        provider: onnxruntime's provider.

    Raises:
        InvalidArgument: It is not installed.
    """
    if not is_installed(name):
        raise InvalidArgument(f"{name} is not installed", hint=f"pip install {name}")
    module: Any = importlib.import_module(name)
    if name == OPENVINO:
        return functools.partial(_open_openvino, module, threads)
    return functools.partial(_open_onnxruntime, module, threads, provider)


def version(name: str) -> str:
    """Return a peer's version."""
    return importlib.metadata.version(name)


def _open_onnxruntime(ort: Any, threads: int, provider: str, model: str | bytes) -> Run:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # its exceptions have the same messages
    with _translated(NotSupported):
        session = ort.InferenceSession(model, options, providers=[provider])

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with _translated(Fail):
            return list(session.run(None, dict(feeds)))

    return run


def _open_openvino(openvino: Any, threads: int, model: str | bytes) -> Run:
    # In the model's types, as the others: by default it may round to bfloat16.
    options = {"PERFORMANCE_HINT": "LATENCY", "EXECUTION_MODE_HINT": "ACCURACY"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = str(threads)
    with _translated(NotSupported):
        core = openvino.Core()
        read = core.read_model(model) if isinstance(model, bytes) else core.read_model(Path(model))
        compiled = core.compile_model(read, "CPU", options)

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with _translated(Fail):
            found = compiled(dict(feeds))
            return [found[port] for port in compiled.outputs]

    return run


@contextlib.contextmanager
def _translated(kind: type[TenonnxError]) -> Iterator[None]:
    """Turn a peer's exceptions, which share no base class, into one of tenonnx's."""
    try:
        yield
    except Exception as error:
        raise kind(str(error).strip()) from error
