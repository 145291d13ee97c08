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
from typing import Any

import numpy as np

from tenonnx_cpu.capture.capturable import Capturable, said_of
from tenonnx_cpu.capture.captured_call import CapturedCall, Constant, form_of
from tenonnx_cpu.capture.captured_run import CapturedRun
from tenonnx_cpu.capture.dynamic_run import DynamicRun
from tenonnx_cpu.capture.growth import Form, Growth, Varies, slope_of
from tenonnx_cpu.capture.launch import Launch, is_fixed


class Asked:
    """A span's steps, which say what they would launch, and launch nothing if they say so.

    Args:
        steps: The call of each, and which of its inputs are the same arrays in every run.
        follow: Calls with each step's number and inputs what returns its results, from a span's
            inputs on.
        captured: Returns a captured run of inputs, of what was said, and of a longer run.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Any, Sequence[bool]]],
        follow: Callable[[Callable[[int, tuple[Any, ...]], Any], Sequence[Any]], Any],
        captured: Callable[..., CapturedRun],
    ) -> None:
        self._calls: list[Capturable] = [call for call, _ in steps]
        self._constants = [constants for _, constants in steps]
        self._follow, self._captured = follow, captured

    def run(self, growth: Growth, inputs: Sequence[Any]) -> DynamicRun:
        """Returns the captured run for all lengths about as great as those of some inputs.

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
        said: dict[int, Sequence[CapturedCall]] = {}
        for step, each in given.items():
            said[step] = self._said(each, said.get(0, ()))
            if step == 1:
                self._check(said, most)
        longest = self._captured(given[most], said[most])
        if not longest.fits:
            raise Varies
        try:
            runs = {step: self._captured(given[step], said[step], longest) for step in (0, 1)}
        except ValueError as error:
            raise Varies from error
        runs[most] = longest
        return DynamicRun(growth, {step: run.encoded() for step, run in runs.items()})

    def _said(self, inputs: Sequence[Any], first: Sequence[CapturedCall]) -> Sequence[CapturedCall]:
        """Returns what the steps would launch for inputs that have anything in them."""
        said: list[CapturedCall | None] = []

        def visit(n: int, arguments: tuple[Any, ...]) -> Any:
            made, call = self._ask(n, arguments, first[n] if first else None)
            said.append(call)
            return made

        try:
            self._follow(visit, inputs)
        except Exception as error:  # of numbers that nobody has written
            raise Varies from error
        known = [call for call in said if call is not None]
        if len(known) < len(said):
            raise Varies({n for n, call in enumerate(said) if call is None})
        return known

    def _ask(
        self, n: int, arguments: tuple[Any, ...], first: CapturedCall | None
    ) -> tuple[Any, CapturedCall | None]:
        """Returns a step's results, which nobody need have written to, and what it says."""
        call, constants = self._calls[n], self._constants[n]
        function = call.dynamic or call.function
        made = function(*arguments)
        if type(made) is not Launch:
            return made, None
        if first is not None:
            each = zip(arguments, constants, strict=True)
            if is_alike(first.inputs, [x if same else form_of(x) for x, same in each]):
                return made.result, first
        return made.result, said_of(function, arguments, constants, made)

    def _check(self, samples: Mapping[int, Sequence[CapturedCall]], most: int) -> None:
        """Checks that steps say at all lengths what some of them tell.

        Raises:
            Varies: Some did not promise so, or it is not so.
        """
        bad = set()
        for n, call in enumerate(self._calls):
            first, second = samples[0][n], samples[1][n]
            if first is second:
                continue
            if call.dynamic is None or (
                call.each_length and not _is_on_line(call.dynamic, first, second, most)
            ):
                bad.add(n)
        if bad:
            raise Varies(bad)


def is_alike(first: Sequence[Form], second: Sequence[Form]) -> bool:
    """Says whether inputs are the same, or of the same forms, as far as captures tell."""
    return all(
        one is other
        or (type(one) is tuple and one == other)
        or (is_fixed(one) and is_fixed(other) and np.array_equal(one, other))
        for one, other in zip(first, second, strict=True)
    )


def _is_on_line(
    function: Callable[..., Any], first: CapturedCall, second: CapturedCall, most: int
) -> bool:
    """Asks arithmetic on shapes about every length; says whether its results are on one line."""
    forms = [(form[0], np.array(form[1])) for form in first.inputs]
    longer = [np.array(form[1]) - own[1] for form, own in zip(second.inputs, forms, strict=True)]
    results = [each.array for each in first.facts[3] if isinstance(each, Constant)]
    later = [each.array for each in second.facts[3] if isinstance(each, Constant)]
    if not len(results) == len(later) == len(first.facts[3]):
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
