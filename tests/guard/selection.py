"""The trials that there are, by name of selection."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trial import Trial, hostile, of_model, strided, unreal

FOLDER = Path(__file__).parent
MOST = 2
"""Trials of an operator with the same constants of which hostile ones are made."""


def rows() -> list[Trial]:
    """Return the trials of every ``rows_*.py``, listed by family of kernels."""
    return [
        trial
        for path in sorted(FOLDER.glob("rows_*.py"))
        for trial in importlib.import_module(path.stem).ROWS
    ]


def operators() -> list[Trial]:
    """Return the cases of ``tests/operators`` of operators with kernels, also with constants."""
    sys.path.insert(0, str(FOLDER.parent / "operators"))
    from cases import CASES, feeds_of, model_of

    made = []
    for case in CASES:
        if case.is_known and _is_taken(case):
            fed = of_model(f"operators/{case.id}", model_of(case), feeds_of(case))
            if all(hasattr(x, "dtype") for x in fed.feeds.values()):
                made.append(fed)
                if len(fed.feeds) > 1:
                    made.append(fed.with_constants(list(fed.feeds)[1:]))
    return made


def contrib() -> list[Trial]:
    """Return the rows of ``tests/contrib``."""
    sys.path.insert(0, str(FOLDER.parent / "contrib"))
    import rows as recorded_rows

    made = []
    for row in filter(_is_taken, recorded_rows.recorded(FOLDER.parent / "contrib")):
        feeds = recorded_rows.feeds_of(row)
        trial = of_model(f"contrib/{row.id}", recorded_rows.model_of(row), feeds)
        if all(hasattr(x, "dtype") for x in feeds.values()):
            made.append(trial)
            rest = list(feeds)[1:]
            if rest:
                made.append(trial.with_constants(rest))
    return made


def _is_taken(case: Any) -> bool:
    """Return whether any module with kernels is for an operator."""
    from tenonnx_cpu.listing import LISTING

    taken = {name for names in LISTING.values() for name in names.split()}
    return "::".join(filter(None, [case.domain, case.op])) in taken


SELECTIONS = {"rows": rows, "operators": operators, "contrib": contrib}


KINDS = {"hostile": hostile, "strided": strided, "unreal": unreal}


def trials(name: str) -> list[Trial]:
    """Return trials: ``rows``, or what becomes of them: ``rows hostile``, ``rows strided``.

    ``rows_int8`` are those of one file.
    """
    base, _, kind = name.partition(" ")
    one_file = base.startswith("rows_")
    found = importlib.import_module(base).ROWS if one_file else SELECTIONS[base]()
    if not kind:
        return found
    seen: Counter[tuple[str, ...]] = Counter()
    few = []
    for trial in found:
        key = (*(node.op_type for node in trial.proto.graph.node), *trial.constants)
        seen[key] += 1
        if seen[key] <= MOST:
            few.append(trial)
    return list(itertools.chain.from_iterable(map(KINDS[kind], few)))
