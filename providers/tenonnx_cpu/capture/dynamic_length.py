"""A captured run for all lengths of what gets longer from run to run, such as a cache.

The launches of a step depend on its inputs' dtypes, shapes and strides. A span's steps are
evaluated for inputs of a few lengths, which nobody has to fill: they launch the same kernels, with
numbers of which some are greater. Each of those has a slope. The capture of any other length has as
many slopes added to it, and no step is evaluated again. Where something else changes later, such as
the text that a decoder reads, only those steps are evaluated again that depend on it.

The least length, the one after it and the greatest determine all between only if steps promise so
(``Capturable.dynamic``): if each of their numbers is a polynomial of the length, of the second
degree at most, or never falls, or never rises. Arithmetic on shapes promises nothing; it is
evaluated for each length.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx_cpu.buffers import apart
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.dynamic_run import DynamicRun
from tenonnx_cpu.capture.encoding import View
from tenonnx_cpu.capture.extents import form_of, unwritten
from tenonnx_cpu.capture.growth import Form, Growth, Varies, slope_of
from tenonnx_cpu.capture.launch import Launch, is_fixed

if TYPE_CHECKING:
    from tenonnx_cpu.capture.span import Slots


class Evaluation(NamedTuple):
    """The answers of a span's steps for inputs of some lengths.

    Attributes:
        given: The span's inputs.
        run: Of all of them.
        inputs: Of each step.
        made: What each returned: a ``Launch``, or a result.
        marks: Those of the run before each step, and behind the last one.
    """

    given: Sequence[Any]
    run: CapturedRun
    inputs: list[tuple[Any, ...]]
    made: list[Any]
    marks: list[tuple[int, ...]]

    def forms(self, n: int) -> Sequence[Form]:
        """Return those of a step's inputs."""
        return list(map(form_of, self.inputs[n]))

    def fixed(self, n: int) -> Sequence[Any]:
        """Return a step's results that never change."""
        return [x for x in _results_of(self.made[n]) if is_fixed(x)]

    def has_inputs_as(self, other: Evaluation, n: int) -> bool:
        """Return whether a step's inputs are the same arrays, and its run is as far, as another."""
        same = all(map(operator.is_, self.inputs[n], other.inputs[n]))
        return same and self.marks[n] == other.marks[n]

    def kept(self) -> Evaluation:
        """Return what another evaluation can repeat of it, once this run is finished."""
        made = [
            x._replace(run=None, arguments=(), refusal=None, otherwise=None, copies=())
            if type(x) is Launch
            else x
            for x in self.made
        ]
        return self._replace(run=self.run.kept(), made=made)

    def has_results_as(self, other: Evaluation, n: int, given: Sequence[int]) -> bool:
        """Return whether a step's results are as others, which readers then have in their place."""
        places, before = self.run.places(given), other.run.places(given)
        if any(type(place) not in (int, View) for place in (*places, *before)) or places != before:
            return False
        results = zip(given, _results_of(self.made[n]), _results_of(other.made[n]), strict=False)
        return all(form_of(one) == form_of(two) for _, one, two in results)


def _result_of(made: Any) -> Any:
    return made.result if type(made) is Launch else made


def _results_of(made: Any) -> tuple[Any, ...]:
    result = _result_of(made)
    return result if isinstance(result, tuple) else (result,)


class Evaluator:
    """Evaluates the launches of a span's steps, without making them.

    Args:
        calls: The call of each.
        follow: Calls with each step's number and inputs what returns its results, from a span's
            inputs on.
        slots: The span's.
        latest: The latest evaluation of these steps, if there was one.

    Attributes:
        latest: That of the latest run.
    """

    def __init__(
        self,
        calls: Sequence[Capturable],
        follow: Callable[[Callable[[int, tuple[Any, ...]], Any], Sequence[Any]], Any],
        slots: Slots,
        latest: Evaluation | None = None,
    ) -> None:
        self._calls, self._follow, self._slots = calls, follow, slots
        self.latest = latest

    def run(self, growth: Growth, inputs: Sequence[Any]) -> DynamicRun:
        """Return the captured run for all lengths about as great as those of some inputs.

        Args:
            growth: How the inputs differ from those before.
            inputs: They.

        Raises:
            Varies: They cannot be captured so.
        """
        try:
            return self._run(*growth.lengths(), inputs)
        except Varies as varies:
            if varies.steps:
                raise
            return self._run(*growth.lengths(shift=1), inputs)

    def _run(self, growth: Growth, most: int, inputs: Sequence[Any]) -> DynamicRun:
        if most < 2:
            raise Varies
        with apart():  # nobody writes to the results
            first = self._evaluate(self._unwritten(growth.at(0, inputs)), self.latest)
            second = self._evaluate(growth.at(1, first.given), first)
            self._check(first, second, most)
            longest = self._evaluate(growth.at(most, first.given), first).run
        self.latest = first.kept()
        results, several = self._slots.results, len(self._slots.results) > 1
        longest.finish(results, several=several)
        if not longest.fits:
            raise Varies
        runs = {0: first.run, 1: second.run}
        try:
            for run in runs.values():
                run.finish(results, several=several, longest=longest)
        except ValueError as error:
            raise Varies from error
        runs[most] = longest
        return DynamicRun(growth, {step: run.encoded() for step, run in runs.items()})

    def _unwritten(self, inputs: Sequence[Any]) -> list[Any]:
        """Return inputs of the same forms, those of the latest evaluation where they have them."""
        before = () if self.latest is None else self.latest.given
        known = itertools.chain(before, itertools.repeat(None))
        return [
            x if x is None or is_fixed(x) else old if form_of(x) == form_of(old) else unwritten(x)
            for x, old in zip(inputs, known, strict=False)
        ]

    def _evaluate(self, inputs: Sequence[Any], before: Evaluation | None = None) -> Evaluation:
        """Return what the steps would launch for inputs that have anything in them.

        Args:
            inputs: The span's.
            before: Their evaluation for other inputs, some of which may be the same arrays.
        """
        run, missing = CapturedRun(inputs, make=False), set[int]()
        found = Evaluation(inputs, run, [], [], [run.mark()])
        repeated = 0  # the first step whose launches are not yet added: those before it are

        def visit(n: int, arguments: tuple[Any, ...]) -> Any:
            """Return a step's results, which nobody need have written to."""
            nonlocal repeated
            found.inputs.append(arguments)
            if before is not None and found.has_inputs_as(before, n):
                found.made.append(before.made[n])
                found.marks.append(before.marks[n + 1])
                return _result_of(before.made[n])
            if before is not None:
                self._repeat(found, before, repeated, n)
                repeated = n + 1
            taken, given = self._slots.taken[n], self._slots.given[n]
            function = self._calls[n].dynamic or self._calls[n].function
            made = run.before.call(function, arguments)
            if not run.add(made, arguments, taken, given):
                missing.add(n)
            found.made.append(made)
            found.marks.append(run.mark())
            known = before is not None and found.has_results_as(before, n, given)
            if before is not None and known and type(made) is Launch:
                run.adopt(before.run, given)
                found.made[n] = made._replace(result=_result_of(before.made[n]))
            return _result_of(found.made[n])

        try:
            self._follow(visit, inputs)
            if before is not None:
                self._repeat(found, before, repeated, len(self._calls))
        except Exception as error:  # of numbers that nobody has written
            raise Varies from error
        if missing or not run.clear:
            raise Varies(missing)
        return found

    def _repeat(self, found: Evaluation, before: Evaluation, first: int, stop: int) -> None:
        """Add the launches of consecutive steps whose inputs are the same in another evaluation."""
        if first < stop:
            slots = range(self._slots.given[first].start, self._slots.given[stop - 1].stop)
            found.run.repeat(before.run, before.marks[first], before.marks[stop], slots)

    def _check(self, first: Evaluation, second: Evaluation, most: int) -> None:
        """Check that the launches of all lengths follow from those of some.

        Raises:
            Varies: Some did not promise so, or it is not so.
        """
        bad = set()
        for n, call in enumerate(self._calls):
            if first.made[n] is second.made[n] or is_alike(first.forms(n), second.forms(n)):
                continue
            if call.dynamic is None or (
                call.each_length and not _is_on_line(call.dynamic, n, first, second, most)
            ):
                bad.add(n)
        if bad:
            raise Varies(bad)


def is_alike(first: Sequence[Form], second: Sequence[Form]) -> bool:
    """Return whether inputs have the same forms, or are the same fixed arrays."""
    return all(
        one is other
        or (type(one) is tuple and one == other)
        or (is_fixed(one) and is_fixed(other) and np.array_equal(one, other))
        for one, other in zip(first, second, strict=True)
    )


def _is_on_line(
    function: Callable[..., Any], n: int, first: Evaluation, second: Evaluation, most: int
) -> bool:
    """Ask arithmetic on shapes about every length; return whether its results are on one line."""
    forms = [(form[0], np.array(form[1])) for form in first.forms(n)]
    longer = [np.array(x.shape) - own[1] for x, own in zip(second.inputs[n], forms, strict=True)]
    results, later = first.fixed(n), second.fixed(n)
    if not results or len(results) != len(later):
        return False
    try:
        slopes = [slope_of(one, other, 1) for one, other in zip(results, later, strict=True)]
    except Varies:
        return False
    for step in range(2, most + 1):
        shapes = zip(forms, longer, strict=True)
        made = function(*(np.empty(shape + more * step, dtype) for (dtype, shape), more in shapes))
        wanted = (one + slope * step for one, slope in zip(results, slopes, strict=True))
        if not all(map(np.array_equal, _results_of(made), wanted)):
            return False
    return True
