"""Writing compiled files: a model with its weights and a plan of it, to be opened elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from tenonnx.errors import Fail, NotSupported, TenonnxError
from tenonnx.formats import load_model
from tenonnx.formats.compiled_file import ALIGNMENT_BYTES, LOCATION, PAGE, Header, header_of
from tenonnx.formats.convert import Layout, save_onnx
from tenonnx.graph.protos import graphs
from tenonnx.options import SessionOptions, checked, effective
from tenonnx.plan_cache import NotCacheable, files, shipped
from tenonnx.plan_cache.pickling import pickled, plain
from tenonnx.plan_cache.storing import refuse
from tenonnx.plan_cache.weights import Gathered
from tenonnx.plugins.choosing import plugins_of
from tenonnx.session import InferenceSession
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.sidefile import SideFiles

if TYPE_CHECKING:
    from tenonnx.plugins.choosing import ProviderRequest

# Bytes of a tensor from which on it lies beside the model.
MIN_EXTERNAL_BYTES = 128

ENDING = ".tenonnx"


def compile_model(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    options: SessionOptions | None = None,
    providers: Sequence[ProviderRequest] | None = None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, str]:
    """Compile a model into one file, which sessions on machines alike open without compiling.

    Args:
        source: The model's file.
        target: The file to write, whole or not at all.
        options: Those that the file is to be opened with, but for ``allowed_roots``.
        providers: As for ``InferenceSession``.
        provider_options: As for ``InferenceSession``.
        overwrite: Replace a file that is there.

    Returns:
        Everything it depends on, by name: a machine where all of it is equal may open it.

    Raises:
        Fail: The file is there already, or cannot be written.
        NotSupported: A plan of such a session cannot be written.
        TenonnxError: The model cannot be opened.
    """
    target = Path(target)
    options = checked(SessionOptions, options, "options").copy()
    if not overwrite and os.path.lexists(target):
        raise _there(target)
    roots, options.allowed_roots = tuple(options.allowed_roots), ()
    how = options, providers, provider_options
    try:
        told = shipped.facts(effective(options), ())
        with (
            tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as here,
            tempfile.TemporaryDirectory(prefix="tenonnx") as derived,
        ):
            draft = Path(here) / target.name
            _write_model(source, draft, options, roots)
            session = _compiled(draft, Path(derived), *how)
            told = _add_plan(draft, session, told, how[1:])
            del session
            _put(draft, target, overwrite=overwrite)
    except TenonnxError:
        raise
    except NotCacheable as why:
        raise NotSupported(f"{source} cannot be compiled into a file: {why}") from why
    except OSError as error:
        raise Fail(f"cannot write {target}: {error.strerror or error}") from error
    return told


def _write_model(source: Any, draft: Path, options: SessionOptions, roots: Sequence[str]) -> None:
    """Write a compiled file without a plan."""
    model = draft.with_name("model")
    weights = draft.with_name(LOCATION)
    formats = tuple(plugins_of(options).formats.values())
    loaded = load_model(source, WeightRegistry(SideFiles(None)), formats, roots)
    layout = Layout(threshold=MIN_EXTERNAL_BYTES, data_name=LOCATION, alignment=ALIGNMENT_BYTES)
    save_onnx(loaded, model, layout, lambda *_: None)
    del loaded
    proto = onnx.load_model(model, load_external_data=False)
    for graph in graphs(proto):
        for tensor in graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "offset":
                    entry.value = str(int(entry.value) + PAGE)
    content = proto.SerializeToString()
    with draft.open("wb") as file:
        file.seek(PAGE)
        if weights.exists():
            with weights.open("rb") as data:
                shutil.copyfileobj(data, file, 1 << 20)
            weights.unlink()
        start = file.tell()
        file.write(content)
        end = start + len(content)
        file.seek(0)
        file.write(Header(end, (start, end), end).packed())


def _compiled(
    draft: Path,
    derived: Path,
    options: SessionOptions,
    providers: Sequence[ProviderRequest] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> InferenceSession:
    """Return a session of the draft."""
    own = options.copy()
    own.weights = WeightRegistry(SideFiles(derived))
    session = uncached(draft, own, providers, provider_options)
    if session._embedded:
        raise NotCacheable("the model may say with which options to run it")
    refuse(session)
    return session


def uncached(*arguments: Any, **named: Any) -> InferenceSession:
    """Return a session that reads its model, whatever was cached, and caches nothing."""
    session = InferenceSession.__new__(InferenceSession)
    session._refused = "the session is to compile its model"
    session.__init__(*arguments, **named)  # type: ignore[misc]  # the attribute comes first
    return session


def _add_plan(
    draft: Path, session: InferenceSession, told: dict[str, str], requests: tuple[Any, Any]
) -> dict[str, str]:
    """Add a session's plan to the file that it was opened from; return what it depends on."""
    own = session.registry.map(draft)
    model = header_of(own.buffer, str(draft)).model
    stores = Gathered(own)
    parts, apart = pickled(session._parts, stores, session._options, session._providers)
    names = [provider.name for provider in session._providers]
    wanted = shipped.asked(requests[0] or names, requests[1])
    asked = [[name, given] for name, (_, given) in zip(names, wanted, strict=True)]
    classes = [(c.__module__, c.__qualname__) for c in map(type, session._providers)]
    for each in classes:
        told = told | shipped.provider_facts(*each)
    checks = plain({"facts": told, "asked": asked, "providers": classes})
    plan = stores.end + -stores.end % ALIGNMENT_BYTES
    with draft.open("r+b") as file:
        for place, weights in stores.more:
            file.seek(place)
            file.write(weights)
        file.seek(plan)
        file.writelines(files.pieces(checks, parts, apart))
        size = file.tell()
        file.seek(0)
        file.write(Header(size, model, plan).packed())
    return told


def _put(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Give a file its name, at once."""
    if not overwrite:
        try:
            os.link(draft, target)
        except FileExistsError:
            raise _there(target) from None
        except OSError:  # a file system without links
            if os.path.lexists(target):
                raise _there(target) from None
        else:
            return
    draft.replace(target)


def _there(target: Path) -> Fail:
    return Fail(f"{target} is there already", hint="Choose another name, or say --force.")
