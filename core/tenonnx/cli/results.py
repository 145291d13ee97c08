"""Outputs of a run: a line on each, and writing them to files."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.cli.output import shape_text
from tenonnx.errors import Fail, InvalidArgument

# Values that a summary shows of an output that it cannot reduce to a range.
MAX_SHOWN_VALUES = 6

NDArray = np.ndarray[Any, np.dtype[Any]]


def describe_output(name: str, value: Any) -> dict[str, Any]:
    """Return name, type, shape and a summary of an output, fit for JSON.

    Numbers come with ``min``, ``mean`` and ``max`` over the finite ones, and with ``nan`` and
    ``inf`` counts where there are any; everything with its ``first`` values.
    """
    if not isinstance(value, np.ndarray):
        kind = {list: "sequence", dict: "map", type(None): "absent"}.get(type(value))
        length = [len(value)] if isinstance(value, list | dict) else []
        return {"name": name, "dtype": kind or type(value).__name__, "shape": length}
    dtype = "string" if value.dtype == object else str(value.dtype)
    summary: dict[str, Any] = {"name": name, "dtype": dtype, "shape": list(value.shape)}
    flat = value.reshape(-1)
    summary["first"] = [_plain(element) for element in flat[:MAX_SHOWN_VALUES]]
    if value.dtype == bool:
        summary["true"] = int(np.count_nonzero(flat))
    elif value.dtype.kind not in "OUSc" and value.size:
        summary |= _range(flat)
    return summary


def _range(flat: NDArray) -> dict[str, Any]:
    if flat.dtype.kind in "iu":
        return {"min": int(flat.min()), "mean": float(flat.mean()), "max": int(flat.max())}
    numbers = flat.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    nan, infinite = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    found: dict[str, Any] = {}
    if finite.size:
        with np.errstate(over="ignore"):
            found |= {k: float(getattr(finite, k)()) for k in ("min", "mean", "max")}
    return found | ({"nan": nan} if nan else {}) | ({"inf": infinite} if infinite else {})


def _plain(element: Any) -> Any:
    if isinstance(element, np.bool_ | np.integer | str):
        return element.item() if isinstance(element, np.generic) else element
    return str(element) if isinstance(element, np.complexfloating) else float(element)


def summary_line(described: Mapping[str, Any]) -> str:
    """Return the summary of an output for people."""
    shown = [str(v) if isinstance(v, str | int) else f"{v:.6g}" for v in described.get("first", ())]
    if "true" in described:
        return f"{described['true']} true"
    parts = [f"{key} {described[key]:.6g}" for key in ("min", "mean", "max") if key in described]
    parts += [f"{described[key]} {key}" for key in ("nan", "inf") if key in described]
    count = int(np.prod(described["shape"], dtype=np.int64))
    if shown and (not parts or count <= MAX_SHOWN_VALUES):
        return ", ".join(shown) + (", ..." if count > MAX_SHOWN_VALUES else "")
    return "  ".join(parts)


def save(outputs: Mapping[str, Any], target: Path) -> list[Path]:
    """Write outputs to an .npz file, a single one to an .npy file, or each to one in a folder.

    The elements of a sequence are called ``NAME.0``, ``NAME.1``, ...; absent outputs are left out.

    Returns:
        The files written.

    Raises:
        InvalidArgument: An output has no place in such a file.
        Fail: A file cannot be written.
    """
    arrays = dict(item for name, value in outputs.items() for item in _flatten(name, value))
    try:
        if target.suffix == ".npz":
            target.parent.mkdir(parents=True, exist_ok=True)
            _save_npz(target, arrays)
            return [target]
        if target.suffix == ".npy":
            if len(arrays) != 1:
                raise InvalidArgument(
                    f"--output {target}: an .npy file holds one array and the model has "
                    f"{len(arrays)} outputs",
                    hint=f"write them to {target.with_suffix('.npz')} or to a folder",
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            files = {target: next(iter(arrays.values()))}
        else:
            target.mkdir(parents=True, exist_ok=True)
            files = dict(_name_files(target, arrays))
        for path, array in files.items():
            np.save(path, array, allow_pickle=False)
        return list(files)
    except OSError as error:
        raise Fail(f"{error.filename or target} cannot be written: {error.strerror}") from error


def _flatten(name: str, value: Any) -> Iterator[tuple[str, NDArray]]:
    if isinstance(value, np.ndarray):
        yield name, value.astype(str) if value.dtype == object else value
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _flatten(f"{name}.{index}", element)
    elif value is not None:
        raise InvalidArgument(
            f"output {name!r} is a {type(value).__name__}, which .npy and .npz files cannot hold"
        )


def _save_npz(path: Path, arrays: Mapping[str, NDArray]) -> None:
    # numpy.savez takes names as keywords, of which it has some of its own.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def _name_files(folder: Path, arrays: Mapping[str, NDArray]) -> Iterator[tuple[Path, NDArray]]:
    """Name files after outputs, whose names may hold slashes and anything else."""
    taken: set[str] = set()
    for name, array in arrays.items():
        stem = base = re.sub(r"[^\w.-]+", "_", name).strip("._") or "output"
        number = 1
        while stem.lower() in taken:
            number += 1
            stem = f"{base}_{number}"
        taken.add(stem.lower())
        yield folder / f"{stem}.npy", array


def describe_all(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe outputs, the elements of sequences beneath them."""
    described = []
    for name, value in outputs.items():
        described.append(describe_output(name, value))
        if isinstance(value, list):
            elements = {
                f"{name}[{i}]": element for i, element in enumerate(value[:MAX_SHOWN_VALUES])
            }
            described += describe_all(elements)
        elif isinstance(value, dict):
            items = list(value.items())[:MAX_SHOWN_VALUES]
            described[-1]["first"] = [f"{k}: {v}" for k, v in items]
    return described


def output_row(described: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the cells of an output's row: name, type, shape, summary."""
    shape = shape_text(described["shape"])
    return described["name"], described["dtype"], shape, summary_line(described)
