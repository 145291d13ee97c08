"""The session: from a model file to answers."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.interface.run_options import (
    Deadline,
    LoadLimit,
    RunOptions,
    Terminator,
    wants_embedded_options,
)
from tenonnx.interface.session_info import Session, SessionParts
from tenonnx.interface.session_pickling import kept, rebuilt, recipe, refuse_unkept
from tenonnx.options import SessionOptions, checked, effective
from tenonnx.plan_cache.place import MAY_SAY_OPTIONS, CachePlace
from tenonnx.process import interruption, memory
from tenonnx.process.cores import bound
from tenonnx.process.interruption import Limit
from tenonnx.process.later import Later
from tenonnx.provider import HOST, Device
from tenonnx.weights.mapping import noted
from tenonnx.weights.registry import default_registry

if TYPE_CHECKING:  # imported when first used: the others save the time
    from tenonnx.interface.io_binding import IOBinding
    from tenonnx.interface.ort_value import OrtValue, OrtValueVector
    from tenonnx.interface.profiling import Profiler
    from tenonnx.interface.run_async import RunFuture
    from tenonnx.planning.plan import Observer, Plan
    from tenonnx.plugins.choosing import ProviderRequest


class InferenceSession(Session):
    """A model that is ready to run. Safe to use from any number of threads.

    Args:
        path_or_bytes: A path, a buffer, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. Weights
            are used where they are: in the file, mapped read-only, or in the buffer.
        sess_options: Options; defaults if ``None``.
        providers: Provider names, ``(name, options)`` pairs or instances, in order of
            preference; every registered provider that is usable here if ``None``.
        provider_options: Options per provider, beside a list of plain names.
        disabled_optimizers: Names of transforms not to run; unknown ones are passed over.
        enable_fallback: Accepted for onnxruntime's sake: what may be fallen back to is what
            ``providers`` lists.
        read_config_from_model: Let the model's metadata set session options, as onnxruntime's
            ``ORT_LOAD_CONFIG_FROM_MODEL=1`` does.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        InvalidArgument: An unknown provider or option.
        NotSupported: The model has an operator that no provider runs.
        EPFail: A provider cannot be used here and no other can take its place.
        Fail: Loading takes longer than the options' ``time_limit``.
        ModelLoadCanceled: The options say so.
    """

    _refused = ""
    """Why no plan is looked for in the cache, and none stored there."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderRequest] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        disabled_optimizers: Iterable[str] | None = None,
        enable_fallback: bool = True,
        read_config_from_model: bool = False,
    ) -> None:
        self._given = checked(SessionOptions, sess_options, "sess_options")
        self._recipe = (path_or_bytes, self._given, providers, provider_options)
        if isinstance(disabled_optimizers, str):  # which would be a list of letters
            raise TypeError(f"disabled_optimizers is {disabled_optimizers!r}; expected a list")
        self._disabled = tuple(disabled_optimizers or ())
        self._fallback = enable_fallback
        self._embedded = wants_embedded_options(read_config_from_model)
        self._load(providers, provider_options)
        self._recipe = (kept(path_or_bytes), *self._recipe[1:])

    def _load(
        self,
        providers: Sequence[ProviderRequest] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        limit = LoadLimit(self._given)
        with memory.for_loading(), interruption.limited(limit):
            self._options = effective(self._given)
            self._narrowed: dict[tuple[int, ...], Plan] = {}
            self._profiler: Profiler | None = None
            self._observers: list[Observer] = []
            why = self._refused or MAY_SAY_OPTIONS * self._embedded
            place = CachePlace(self._recipe, self._options, self._disabled, why)
            began = time.perf_counter_ns()
            if (parts := place.load()) is not None:
                self._registry = default_registry()
                self._take(parts)
                self._model = place.model_later(self)
                self._moments = (began, time.perf_counter_ns())
                place.finish(self)
            else:
                # Who opens a cached plan compiles nothing.
                from tenonnx.process import collector, sympy_later

                with collector.paused(), noted() as mapped:
                    sympy_later.import_onnx_ir()
                    self._compile(providers, provider_options)
                place.store(self, mapped)
                place.release_model(self)
            self._uncached = place.uncached

    def _compile(
        self,
        providers: Sequence[ProviderRequest] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        from tenonnx import session_builder
        from tenonnx.plugins.choosing import choose_providers

        began, options = time.perf_counter_ns(), self._options
        plugins, self._registry = session_builder.surroundings(options)
        model = session_builder.read_model(self._recipe[0], self._registry, options, plugins)
        if self._embedded:
            session_builder.take_embedded_options(model, options)
        loaded = time.perf_counter_ns()
        requests = providers or options._providers or None
        chosen = choose_providers(plugins, requests, provider_options, options)
        made = session_builder.prepare(model, chosen, plugins, options, self._disabled)
        session_builder.refuse_cpu(made.placed.counts(), options)
        placed = time.perf_counter_ns()
        interruption.enter("the plan was compiled")
        compiled = session_builder.program_of(made.placed, plugins, options)
        # Providers have the bytes of their segments once these are compiled.
        session_builder.save_contexts(made, options, self._model_path)
        self._take(session_builder.parts_of(made, chosen, *compiled))
        self._model = Later(model)
        self._observers += plugins.create_observers(self._plan, options.observers)
        if options.enable_profiling:
            from tenonnx.interface.profiling import Profiler

            kind, built = "uri" if self._model_path else "array", time.perf_counter_ns()
            self.watch(Profiler(self._plan, plugins, began, loaded, built, kind))
        self._moments = (began, loaded, made.transformed, placed, time.perf_counter_ns())

    def _take(self, parts: SessionParts) -> None:
        from tenonnx.planning.plan import Plan

        self._parts = parts
        threads = bound(self._options.intra_op_num_threads)
        self._plan = Plan(parts.program, parts.placement, threads)
        self._registry.attach(self, self._options.logid or parts.name or "session")

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: The outputs in order; all if ``None`` or empty.
            input_feed: Inputs by name: numpy arrays, ``OrtValue``s, or what ``numpy.asarray``
                takes. Dtype, rank and fixed sizes must be those of ``get_inputs()``.
            run_options: May stop the run, narrow it to what the outputs need, or add adapters.

        Returns:
            One entry per output: an array, a list for a sequence, a dict for a map, ``None`` for
            an absent optional. Outputs that are weights are read-only views of them.

        Raises:
            InvalidArgument: An input or output name, dtype or shape is wrong.
            RuntimeException: A node failed; the message names it.
            Fail: ``run_options.terminate`` was set, or the ``time_limit`` has passed.
        """
        positions = self._signature.positions(output_names) if output_names else None
        if run_options is not None:
            return self._run_with_options(positions, input_feed, run_options)
        arguments = self._signature.arguments(input_feed)
        if self._observers or self._options.time_limit is not None:  # as _watched() says
            outputs = self._observed(self._plan, arguments, self._limits())
        else:
            outputs = self._plan.run(arguments)
        return outputs if positions is None else [outputs[i] for i in positions]

    def _run_with_options(
        self, positions: list[int] | None, feeds: Mapping[str, Any], options: RunOptions
    ) -> list[Any]:
        options = checked(RunOptions, options, "run_options")
        for adapter in options.adapters:
            feeds = {**feeds, **adapter.parameters}
        arguments = self._signature.arguments(feeds)
        terminator = Terminator(options)
        terminator.check()
        limits = [*self._limits(), terminator]
        if not (positions and options.only_execute_path_to_fetches):
            outputs = self._observed(self._plan, arguments, limits)
            return outputs if positions is None else [outputs[i] for i in positions]
        wanted = tuple(positions)
        plan = self._narrowed.get(wanted)
        if plan is None:
            plan = self._narrowed.setdefault(wanted, self._plan.narrowed(wanted))
        return self._observed(plan, arguments, limits)

    def _watched(self) -> bool:
        """Return whether anybody sees every step of a run."""
        return bool(self._observers) or self._options.time_limit is not None

    def _limits(self) -> list[Limit]:
        """Return the limits of a run that starts now."""
        seconds = self._options.time_limit
        return [] if seconds is None else [Deadline(seconds)]

    def _observed(self, plan: Plan, arguments: Sequence[Any], limits: Sequence[Limit]) -> list[Any]:
        with interruption.limited(*limits):
            if not self._observers:
                return plan.run_checked(arguments)
            from tenonnx.planning.plan import CHECKING

            observers = [*self._observers, CHECKING] if limits else self._observers
            if self._profiler is None:
                return plan.run_observed(arguments, observers)
            with self._profiler.run(arguments):
                return plan.run_observed(arguments, observers)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], Any] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> RunFuture:
        """Compute outputs in another thread.

        Args:
            output_names: As in ``run``.
            input_feed: As in ``run``.
            callback: Called in that thread with the outputs, ``user_data`` and ``""``; or with
                no outputs, ``user_data`` and what went wrong.
            user_data: Handed to the callback.
            run_options: As in ``run``.

        Returns:
            A future of the outputs, which coroutines can await. Cancelling one that runs stops
            the run.
        """
        from tenonnx.interface.run_async import start

        return start(self.run, output_names, input_feed, callback, user_data, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """Compute outputs as ``OrtValue``s of inputs that are, wherever they are.

        Inputs on a device stay there, and so do the outputs that are made there; they may be
        underway, and are waited for when they are read. Names, options and errors are as in
        ``run``.
        """
        from tenonnx.interface.ort_value import OrtValue, OrtValueVector, device_inputs, homes_of

        there = device_inputs(input_dict_ort_values)
        targets = homes_of(self._plan.program, self._signature.outputs, there)
        named = self._signature.positions(output_names) if output_names else None
        positions: Sequence[int] = range(len(targets)) if named is None else named
        if there and run_options is None and not self._watched():
            found = self._run_on_devices(input_dict_ort_values, there, targets)
            made = [OrtValue(found[i], targets[i]) for i in positions]
        else:
            found = self.run(output_names, input_dict_ort_values, run_options)
            pairs = zip(positions, found, strict=True)
            made = [OrtValue(targets[i].upload(each), targets[i]) for i, each in pairs]
        return OrtValueVector(made)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any] = (),
    ) -> None:
        """Compute outputs and append them, as ``OrtValue``s, to ``fetches``."""
        del fetch_devices
        given = dict(zip(feed_names, feeds, strict=True))
        fetches.extend(self.run_with_ort_values(fetch_names, given, run_options))

    def io_binding(self) -> IOBinding:
        """Return a new binding of inputs and outputs to memory of the caller's."""
        from tenonnx.interface.io_binding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on a binding's inputs, and leave the outputs in its buffers.

        Args:
            iobinding: The result of ``io_binding()``, with all inputs and the needed outputs bound.
            run_options: As in ``run``.

        Raises:
            InvalidArgument: As ``run`` does, or a buffer does not fit its output.
        """
        from tenonnx.interface.ort_value import device_inputs

        watched = run_options is not None or self._watched()
        if not watched and iobinding.run_again(self._plan):
            return
        arguments, buffers, targets = iobinding.prepared(self._plan.program)
        there = device_inputs(arguments)
        if watched:
            outputs = self._run_with_options(None, arguments, run_options or RunOptions())
        elif there or any(device is not HOST for device in targets):
            outputs = self._run_on_devices(arguments, there, targets, buffers)
        else:
            outputs = iobinding.run_first(self._plan, self._signature, arguments, buffers)
        iobinding.take(self._plan.deliver(outputs, buffers))

    def _run_on_devices(
        self,
        feeds: Mapping[str, Any],
        there: Mapping[str, OrtValue],
        targets: Sequence[Device],
        buffers: Sequence[Any] = (),
    ) -> list[Any]:
        arrays = {name: given.value for name, given in there.items()}
        arguments = self._signature.arguments(feeds, arrays)
        names = [check.arg.name for check in self._signature.checks]
        sources = [there[name].device if name in there else HOST for name in names]
        return self._plan.run_on_devices(arguments, sources, targets, buffers)

    def set_providers(
        self,
        providers: Sequence[ProviderRequest] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Build the session anew on other providers, given as to its constructor; weights stay.

        Raises:
            InvalidArgument: The session was built from an ``onnx.ModelProto``, or as for
                constructing one.
        """
        refuse_unkept(self._recipe[0])
        self._recipe = (*self._recipe[:2], providers, provider_options)
        self._load(providers, provider_options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle how to build the session: no weight travels, but of models from ``bytes``.

        Raises:
            TypeError: It has something that belongs to this process.
        """
        source, options, providers, provider_options = recipe(*self._recipe)
        build = functools.partial(
            type(self),
            sess_options=options,
            providers=providers,
            provider_options=provider_options,
            disabled_optimizers=self._disabled,
            enable_fallback=self._fallback,
            read_config_from_model=self._embedded,
        )
        return rebuilt, (build, source)

    def watch(self, profiler: Profiler) -> None:
        """Profile every run from now on, until ``end_profiling``."""
        self._profiler = profiler
        self._observers.append(profiler)
        if self._options.enable_profiling:
            # A session that nobody ends profiling of leaves its trace when it goes.
            prefix = self._options.profile_file_prefix
            self._unfinished = weakref.finalize(self, interruption.finish, profiler.write, prefix)

    def end_profiling(self) -> str:
        """Write the trace of the runs so far; return its path, or ``""`` without profiling.

        Runs after that are not watched any more.
        """
        if self._profiler is None:
            return ""
        profiler, self._profiler = self._profiler, None
        self._observers.remove(profiler)
        if self._options.enable_profiling:
            self._unfinished.detach()
        return profiler.write(self._options.profile_file_prefix)
