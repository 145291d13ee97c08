"""A captured run for all lengths of what gets longer from run to run, such as a cache.

The launches of a step depend on its inputs' dtypes, shapes and strides. Asked about inputs of a few
lengths, which nobody has to fill, a span's steps say what they would launch: the same kernels, with
numbers of which some are greater. Each of those has a slope. The capture of any other length has as
many slopes added to it, and no step is asked again.

The least length, the one after it and the greatest tell of all between only if steps promise so
(``Capturable.dynamic``): if each of their numbers is a polynomial of the length, of the second
degree at most, or never falls, or never rises. Arithmetic on shapes promises nothing; it is asked
about each length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.dynamic_run import DynamicRun
from tenonnx_cpu.capture.extents import form_of
from tenonnx_cpu.capture.growth import Form, Growth, Varies, slope_of
from tenonnx_cpu.capture.launch import Launch, is_fixed


class Said(NamedTuple):
    """The answer of a step.

    Attributes:
        forms: Of its inputs.
        fixed: The results that never change.
    """

    forms: Sequence[Form]
    fixed: Sequence[Any]


class Asked:
    """A span's steps, which say what they would launch, and launch nothing if they say so.

    Args:
        calls: The call of each.
        follow: Calls with each step's number and inputs what returns its results, from a span's
            inputs on.
        slots: Those of each step's inputs and results.
        results: Those of the span's.
    """

    def __init__(
        self,
        calls: Sequence[Capturable],
        follow: Callable[[Callable[[int, tuple[Any, ...]], Any], Sequence[Any]], Any],
        slots: Sequence[tuple[Sequence[int | None], Sequence[int]]],
        results: Sequence[int],
    ) -> None:
        self._calls, self._follow = calls, follow
        self._slots, self._results = slots, results

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
        given = {step: growth.at(step, inputs) for step in (0, 1, most)}
        said: dict[int, Sequence[Said]] = {}
        runs: dict[int, CapturedRun] = {}
        for step, each in given.items():
            runs[step], said[step] = self._said(each)
            if step == 1:
                self._check(said, most)
        longest, several = runs[most], len(self._results) > 1
        longest.finish(self._results, several=several)
        if not longest.fits:
            raise Varies
        try:
            for step in (0, 1):
                runs[step].finish(self._results, several=several, longest=longest)
        except ValueError as error:
            raise Varies from error
        return DynamicRun(growth, {step: run.encoded() for step, run in runs.items()})

    def _said(self, inputs: Sequence[Any]) -> tuple[CapturedRun, Sequence[Said]]:
        """Return what the steps would launch for inputs that have anything in them."""
        run, said, missing = CapturedRun(inputs), list[Said](), set[int]()

        def visit(n: int, arguments: tuple[Any, ...]) -> Any:
            """Return a step's results, which nobody need have written to."""
            call = self._calls[n]
            function = call.dynamic or call.function
            made = function(*arguments)
            if not run.add(made, function, arguments, *self._slots[n]):
                missing.add(n)
            result = made.result if type(made) is Launch else made
            fixed = [x for x in (result if isinstance(result, tuple) else [result]) if is_fixed(x)]
            said.append(Said(list(map(form_of, arguments)), fixed))
            return result

        try:
            self._follow(visit, inputs)
        except Exception as error:  # of numbers that nobody has written
            raise Varies from error
        if missing or not run.clear:
            raise Varies(missing)
        return run, said

    def _check(self, samples: Mapping[int, Sequence[Said]], most: int) -> None:
        """Check that steps say at all lengths what some of them tell.

        Raises:
            Varies: Some did not promise so, or it is not so.
        """
        bad = set()
        for n, call in enumerate(self._calls):
            first, second = samples[0][n], samples[1][n]
            if is_alike(first.forms, second.forms):
                continue
            if call.dynamic is None or (
                call.each_length and not _is_on_line(call.dynamic, first, second, most)
            ):
                bad.add(n)
        if bad:
            raise Varies(bad)


def is_alike(first: Sequence[Form], second: Sequence[Form]) -> bool:
    """Return whether inputs are the same, or of the same forms, as far as captures tell."""
    return all(
        one is other
        or (type(one) is tuple and one == other)
        or (is_fixed(one) and is_fixed(other) and np.array_equal(one, other))
        for one, other in zip(first, second, strict=True)
    )


def _is_on_line(function: Callable[..., Any], first: Said, second: Said, most: int) -> bool:
    """Ask arithmetic on shapes about every length; return whether its results are on one line."""
    forms = [(form[0], np.array(form[1])) for form in first.forms]
    longer = [np.array(form[1]) - own[1] for form, own in zip(second.forms, forms, strict=True)]
    results, later = first.fixed, second.fixed
    if not results or len(results) != len(later):
        return False
    try:
        slopes = [slope_of(one, other, 1) for one, other in zip(results, later, strict=True)]
    except Varies:
        return False
    for step in range(2, most + 1):
        shapes = zip(forms, longer, strict=True)
        made = function(*(np.empty(shape + more * step, dtype) for (dtype, shape), more in shapes))
        found = made.result if isinstance(made.result, tuple) else (made.result,)
        wanted = (one + slope * step for one, slope in zip(results, slopes, strict=True))
        if not all(map(np.array_equal, found, wanted)):
            return False
    return True
