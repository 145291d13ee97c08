"""Findings about a case, made in the process that runs it."""

from __future__ import annotations

import contextlib
import re
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

import tenonnx
from fusing import Plain
from fuzz.corpus import Feeds
from fuzz.drawing import Drawn
from fuzz.feeds import rounds
from tenonnx.process.interruption import Stopped

TIME_LIMIT = 0.5
"""Seconds that a run may take by its own session's option; loops may be endless."""

INTERNAL = re.compile(
    r"(?<!got )NoneType|object has no attribute|object is not (subscriptable|iterable|callable)"
    r"|missing \d+ required|takes (\d+|from \d+ to \d+) positional|unexpected keyword"
    r"|(list|tuple|string|bytearray) (assignment )?index out of range|pop from (an )?empty"
    r"|\b(Index|Key|Attribute|ZeroDivision|UnboundLocal|Assertion|Name|Recursion)Error\b"
    r"|not enough values to unpack|too many values to unpack|cannot unpack|unhashable"
    r"|unsupported operand type|not supported between instances|maximum recursion"
    r"|division by zero|integer modulo by zero|negative shift count|math domain error"
    r"|invalid literal|is not in (list|tuple)|empty (sequence|iterable)|must not be zero"
    r"|changed size during iteration|local variable|cannot access|bad operand type"
    r"|an integer is required|object cannot be interpreted as an integer|must be str, not"
    r"|multiple values for (keyword )?argument|struct\.error|<[\w.]+ object at 0x"
)
"""Exceptions of the program's own, which are no finding about the model."""

NO_ROUNDING = {"session.qdq_matmulnbits_accuracy_level": "0"}
"""Entries with which products of quantized weights are as exact as a session without transforms."""

RANDOM = re.compile(r"Random|Bernoulli|Multinomial|Dropout|Sampling|Gradient|Loop", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """A finding.

    Attributes:
        kind: ``exception``, ``text``, ``memory``, ``answer``; from outside, ``crash``, ``hang``.
        where: Operator, type of the exception, and the innermost frame: alike for what is one.
        reason: A line.
        rounds: What the session was run on until then.
    """

    kind: str
    where: str
    reason: str
    rounds: tuple[Feeds, ...] = ()


def examine(drawn: Drawn, kernels: bool) -> tuple[Finding | None, str]:
    """Load and runs a case; return what is wrong, if anything, and how far it came."""
    given: list[Feeds] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session = _session(drawn, Path(folder))
        except BaseException as error:
            return judged(error, "load", ()), "refused"
        todo = drawn.rounds
        if todo is None:
            counts = {"good": 4, "hostile": 4} if kernels else {"good": 1, "hostile": 3}
            todo = tuple(rounds(session.get_inputs(), drawn.feeds, drawn.number, **counts))
        first: Any = None
        state = "run"
        is_known = False
        for feeds in todo:
            given.append(feeds)
            failure: BaseException | None = None
            try:
                made = session.run(None, feeds)
            except BaseException as error:
                if (found := judged(error, "run", tuple(given))) is not None:
                    return found, state
                made, state, failure = None, "failed", error
            if isinstance(failure, Stopped | MemoryError):  # the machine's answer, and no other
                continue
            if feeds is todo[0] and not RANDOM.search(_operators(session)):
                if is_known and not alike(first, made):
                    other = repr(failure if made is None else made)
                    reason = f"run {len(given)} of the same inputs: {first!r:.80} {other:.300}"
                    where = f"{_operators(session):.60}"
                    return Finding("answer", where, reason, tuple(given)), state
                with contextlib.suppress(MemoryError):
                    first, is_known = _copied(made), True
    return None, state


def compare(drawn: Drawn) -> Finding | None:
    """Run a case on what its seed was run on, and node after node on numpy; return what differs.

    Only answers are compared: what only one of them refuses is no wrong answer.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session = _session(drawn, Path(folder), NO_ROUNDING)
            plain = _session(replace(drawn, level=0), Path(folder), plain=True)
            (feeds,) = rounds(session.get_inputs(), drawn.feeds, drawn.number, good=1, hostile=0)
            expected = plain.run(None, feeds)
            for _ in range(4):  # a step is recorded in its third run
                made = session.run(None, feeds)
        except tenonnx.TenonnxError:
            return None
        operators = _operators(plain)
    if RANDOM.search(operators) or alike(expected, made):
        return None
    reason = f"on numpy {expected!r:.600}\nhere {made!r:.600}"
    return Finding("difference", f"{operators:.60}", reason, (feeds,))


def _session(
    drawn: Drawn, folder: Path, entries: Mapping[str, str] = {}, *, plain: bool = False
) -> tenonnx.InferenceSession:
    options = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel(drawn.level)
    )
    for key, entry in entries.items():
        options.add_session_config_entry(key, entry)
    options.intra_op_num_threads = drawn.threads
    if endless(drawn):
        options.time_limit = TIME_LIMIT
    source: Any = drawn.data
    if drawn.form == "path":
        for name, content in drawn.files.items():
            (folder / name).write_bytes(content)
        source = folder / f"model{drawn.suffix}"
        source.write_bytes(drawn.data)
    elif drawn.form == "proto":
        with contextlib.suppress(DecodeError):  # of what nests too deeply, which stays bytes
            source = onnx.ModelProto.FromString(drawn.data)
    if plain:
        options.plugins = tenonnx.PluginSet()
        options.plugins.register(Plain())
    return tenonnx.InferenceSession(source, options, providers=["plain" if plain else "cpu"])


def endless(drawn: Drawn) -> bool:
    """Return whether a case gets a time limit: where there may be loops, and for some others."""
    return drawn.number % 4 == 0 or any(word in drawn.data for word in (b"Loop", b"Scan"))


def judged(error: BaseException, phase: str, given: tuple[Feeds, ...]) -> Finding | None:
    """Return what is wrong with an exception; ``None`` if it is as documented."""
    text = str(error)
    first = text.splitlines()[0] if text else ""
    operator = re.match(r"[\w.:]+", first)
    frames = traceback.extract_tb(_innermost(error).__traceback__)
    inner = next((f for f in reversed(frames) if "/tenonnx" in f.filename), None)
    frame = f"{Path(inner.filename).name}:{inner.name}" if inner else "?"
    where = f"{phase} {operator[0] if operator else ''} {type(_innermost(error)).__name__} {frame}"
    reason = f"{type(error).__name__}: {text:.500}"
    if not isinstance(error, tenonnx.TenonnxError):
        return Finding("exception", where, reason, given)
    if phase == "load" and isinstance(_innermost(error), MemoryError):
        return Finding("memory", where, reason, given)
    if INTERNAL.search(text):
        return Finding("text", where, reason, given)
    return None


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return error


def _operators(session: tenonnx.InferenceSession) -> str:
    return " ".join(sorted({node.op_type for node in session.model.graph}))


def _copied(made: Any) -> Any:
    return [np.array(each) if isinstance(each, np.ndarray) else each for each in made or ()] or made


def alike(first: Any, second: Any) -> bool:
    """Return whether two runs on the same inputs gave the same, but for rounding."""
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.dtype != second.dtype or first.shape != second.shape:
            return False
        if first.dtype.kind in "OSUb" or np.array_equal(first, second):
            return bool((first == second).all())
        return _close(first, second)
    return (first is None) == (second is None)


def _close(first: Any, second: Any) -> bool:
    kind = np.complex128 if first.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        first, second = first.astype(kind), second.astype(kind)
        scale = np.abs(first[np.isfinite(first)]).max(initial=1e-6)
        return bool(np.allclose(first, second, rtol=1e-3, atol=1e-4 * scale, equal_nan=True))
