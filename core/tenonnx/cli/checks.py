"""The checks of ``tenonnx doctor``. Every check yields findings; none raises."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tenonnx.cli import memory
from tenonnx.cli.output import count, grouped, size
from tenonnx.errors import NotSupported, TenonnxError
from tenonnx.process.cores import available_cores
from tenonnx.provider import why_unusable

if TYPE_CHECKING:
    from tenonnx.plugins.manager import PluginSet

CORETYPE = "OPENBLAS_CORETYPE"
PACKAGES = ("tenonnx", "numpy", "onnx", "onnx-ir", "ml-dtypes", "pluggy", "rich", "typer")
OPTIONAL = ("numba", "cupy", "threadpoolctl", "onnxruntime")


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        status: ``ok``, ``note`` (worth knowing) or ``problem`` (something is broken).
        name: What it is about.
        detail: What was found.
        hint: How to mend it.
    """

    status: Literal["ok", "note", "problem"]
    name: str
    detail: str
    hint: str | None = None


def python() -> Iterator[Finding]:
    """Look at the interpreter and the machine."""
    yield Finding("ok", "python", f"{platform.python_version()} ({sys.executable})")
    cpus = f"{available_cores()} of {os.cpu_count()} CPUs"
    yield Finding("ok", "platform", f"{platform.platform()}, {cpus}")


def packages() -> Iterator[Finding]:
    """Look at the versions of what tenonnx stands on."""
    for name in PACKAGES:
        try:
            yield Finding("ok", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding("problem", name, "not installed", f"pip install {name}")
    for name in OPTIONAL:
        try:
            yield Finding("ok", name, f"{importlib.metadata.version(name)} (optional)")
        except importlib.metadata.PackageNotFoundError:
            continue


def blas() -> Iterator[Finding]:
    """Look at numpy's matrix library."""
    import numpy as np

    built: Any = np.show_config(mode="dicts")
    info = built.get("Build Dependencies", {}).get("blas", {})
    yield Finding("ok", "BLAS", f"{info.get('name', 'unknown')} {info.get('version', '')}".strip())
    if importlib.util.find_spec("threadpoolctl") is not None:
        for pool in importlib.import_module("threadpoolctl").threadpool_info():
            kind = f", for {pool['architecture']}" if pool.get("architecture") else ""
            detail = f"{pool['internal_api']} {pool.get('version') or ''}{kind}"
            yield Finding("ok", "thread pool", f"{detail}, {count(pool['num_threads'], 'thread')}")
    if forced := os.environ.get(CORETYPE):
        yield Finding(
            "note",
            CORETYPE,
            f"is set to {forced!r}: OpenBLAS uses the kernels of that processor whatever this one "
            "is, which may halve numpy's speed",
            f"unset {CORETYPE}",
        )


def cache() -> Iterator[Finding]:
    """Look at the folder in which derived weights are kept."""
    from tenonnx.weights.folder import existing
    from tenonnx.weights.registry import default_registry
    from tenonnx.weights.trusted import POSIX, folder_fault

    try:
        folder = default_registry().side_files.folder
    except TenonnxError as error:
        yield Finding("problem", "weight cache", str(error.args[0]), error.hint)
        return
    if folder is None:
        reason = "switched off by TENONNX_CACHE=0"
        yield Finding("note", "weight cache", reason if POSIX else "not for this system")
        return
    there = existing(folder)
    try:
        if fault := folder_fault(folder):
            path, what, hint = fault
            yield Finding("problem", "weight cache", f"{path} is not used, because it {what}", hint)
            return
        # By writing: permission bits know nothing of read-only mounts, quotas and full disks.
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        yield Finding(
            "problem",
            "weight cache",
            f"{folder} cannot be written ({error.strerror}): derived weights take private memory "
            "in every process",
            "make it writable, or set TENONNX_CACHE_DIR to a folder that is",
        )
        return
    used = sum(p.stat().st_size for p in Path(folder).glob("*") if p.is_file())
    free = shutil.disk_usage(there).free
    yield Finding("ok", "weight cache", f"{folder}, {size(used)} used, {size(free)} free")


def plugins(found: PluginSet) -> Iterator[Finding]:
    """Look at which plug-ins loaded."""
    found.import_all()
    watching = found.observing()
    for record in found.records:
        name = f"plugin {record.name}"
        if record.error is None:
            detail = grouped(record.registered) or f"implements {', '.join(record.hooks)}"
            if record in watching:
                detail += "; its observer is active, and runs take longer"
            elif "create_observer" in record.hooks:
                detail += f"; its observer is off: tenonnx --observe {record.name} ..."
            yield Finding("ok", name, f"{record.distribution}: {detail}")
        elif record.error.startswith("blocked"):
            yield Finding("note", name, f"{record.distribution}: {record.error}")
        else:
            hint = f"update or uninstall it, or leave it out: --no-plugin {record.name}"
            yield Finding("problem", name, f"{record.distribution}: {record.error}", hint)


def providers(found: PluginSet) -> Iterator[Finding]:
    """Look at which providers work: each that says so computes a sum."""
    usable = 0
    for provider in found.providers.values():
        if (problem := why_unusable(provider)) is not None:
            yield Finding("note", provider.name, f"not usable here: {problem}")
            continue
        usable += provider.unasked
        yield _try(found, provider.name)
        for remark, hint in provider.remarks():
            name = f"{provider.name} runs on"
            yield Finding("note" if hint else "ok", name, remark, hint)
    if not usable:
        yield Finding(
            "problem", "providers", "none is usable: no model can run", "see tenonnx plugins"
        )


def _try(found: PluginSet, provider: str) -> Finding:
    """Have a provider compute a sum; it may decline the node, as it may decline any."""
    import numpy as np

    from tenonnx.cli.smoke import tiny_model
    from tenonnx.options import SessionOptions
    from tenonnx.session import InferenceSession

    x = np.arange(1000, dtype=np.float32)
    try:
        session = InferenceSession(tiny_model(), SessionOptions(plugins=found), [provider])
        (y,) = session.run(None, {"x": x})
    except NotSupported as error:
        why = str(error.args[0]).partition(f" {provider}: ")[2] or str(error.args[0])
        return Finding("ok", provider, f"usable; not tried, because it declines to add: {why}")
    except Exception as error:  # whatever is wrong with it is the finding
        wrong = f"cannot run a model of one node: {type(error).__name__}: {error}"
        return Finding("problem", provider, wrong)
    if not np.array_equal(y, x + x):
        return Finding("problem", provider, "computes x + x wrongly")
    return Finding("ok", provider, "usable, and its sums are right")


def limits() -> Iterator[Finding]:
    """Look at how much memory there is, and who limits it."""
    if (total := memory.total()) is not None:
        yield Finding("ok", "memory", f"{size(total[0])}, {size(total[1])} available")
    found = memory.limits()
    for name, amount in found.items():
        detail = size(amount)
        if name == "RLIMIT_AS":
            detail += "; mapped models count against it, resident or not"
        yield Finding("note" if name != "RLIMIT_MEMLOCK" else "ok", f"limit {name}", detail)
    if not found.keys() - {"RLIMIT_MEMLOCK"}:
        yield Finding("ok", "memory limits", "none of the process or its cgroup")
