"""Providers over the array API standard: numpy's meaning on a library that has no more than it."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenonnx
from hooks import options_with
from tenonnx.provider import HOST
from tenonnx.testing import ProviderTests, models
from tenonnx_array.standard import StandardDevice, StandardProvider
from tenonnx_array.standard.namespace import StandardNamespace
from walked import not_data, onnx_models

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint32", "float32", "float64")


class StrictExecutionProvider(StandardProvider):
    """The standard's reference, which refuses what the standard does not say."""

    name = "StrictExecutionProvider"
    aliases = ("strict",)
    namespace = "array_api_strict"
    without = {"Bernoulli": "it draws other random numbers"}  # noqa: RUF012 - the base's attribute


class TestStrict(ProviderTests):
    provider = StrictExecutionProvider
    cases = "test_[dgmrst]*"
    copies = "asarray copies"
    examples = 3


def test_steps_are_data() -> None:
    options = options_with(StrictExecutionProvider)
    for model in onnx_models():
        try:
            session = tenonnx.InferenceSession(model, options, providers=["strict", "cpu"])
        except tenonnx.TenonnxError:  # an operator that no provider runs
            continue
        calls = [step.call for step in session.plan.steps if step.device.id != "cpu"]
        found = not_data(calls, without=(StandardNamespace,))
        assert not {name for name in found if not name.startswith("array_api_strict.")}, model


class Frozen:
    """An array that cannot be written to, and whose parts are copies."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = np.array(array)
        self.dtype, self.shape = self.array.dtype, self.array.shape

    def __getitem__(self, index: Any) -> Frozen:
        return Frozen(self.array[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("arrays are frozen")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.array.astype(dtype or self.dtype)


def frozen_library() -> Any:
    def lifted(name: str, *given: Any, **named: Any) -> Frozen:
        bare = [value.array if isinstance(value, Frozen) else value for value in given]
        return Frozen(getattr(np, name)(*bare, **named))

    names = ("add", "asarray", "astype", "flip", "full", "permute_dims", "reshape", "zeros")
    functions = {name: functools.partial(lifted, name) for name in names}
    return SimpleNamespace(
        __name__="frozen", **functions, **{name: np.dtype(name) for name in DTYPES}
    )


class FrozenDevice(StandardDevice):
    """The device of frozen arrays."""

    xp = frozen_library()


STRICT = StandardNamespace(array_api_strict, StandardDevice("array_api_strict"))
FROZEN = StandardNamespace(frozen_library(), FrozenDevice("frozen"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["add", "divide", "power", "maximum", "less", "left_shift"])
@given(
    st.sampled_from(DTYPES),
    st.sampled_from((*DTYPES, int, float)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_functions_promote_as_numpys_do(name: str, one: str, other: Any, swap: bool) -> None:
    function: np.ufunc = getattr(np, name)
    array = np.arange(5).astype(one)
    operands = [array, np.ones(5, other) if isinstance(other, str) else other(2)]
    operands = operands[::-1] if swap else operands
    try:
        expected = function(*operands)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            getattr(STRICT, name)(*map(uploaded, operands))
        return
    actual = getattr(STRICT, name)(*map(uploaded, operands))
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-6)


def uploaded(value: Any, xp: StandardNamespace = STRICT) -> Any:
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("xp", [STRICT, FROZEN], ids=["views", "frozen"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_parts_are_read_and_written_as_numpys_are(xp: StandardNamespace, data: Any) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    expected = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    actual = xp.asarray(expected.copy())
    np.testing.assert_array_equal(actual[index].numpy(), expected[index])
    actual[index] = 7
    expected[index] = 7
    np.testing.assert_array_equal(actual.numpy(), expected)


@pytest.mark.parametrize("xp", [STRICT, FROZEN], ids=["views", "frozen"])
def test_what_is_written_to_a_part_of_a_part_is_in_the_whole(xp: StandardNamespace) -> None:
    def written(a: Any) -> Any:
        a[1:].reshape(-1)[2:4] = 5
        a.swapaxes(0, 1)[0] += 9
        return a

    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    actual = written(xp.asarray(whole.copy())).numpy()
    np.testing.assert_array_equal(actual, written(whole))


def test_what_numpy_computed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tenonnx")
    xp = StandardNamespace(array_api_strict, StandardDevice("array_api_strict"))
    mantissas, exponents = xp.frexp(xp.asarray(np.array([8.0, 3.0])))
    assert (mantissas.tolist(), exponents.tolist()) == ([0.5, 0.75], [4, 2])
    assert xp.by_numpy == {"frexp": 1}
    assert caplog.messages == ["array_api_strict has no frexp of these arrays: numpy computes it"]


def test_own_kernels_get_the_library_and_its_arrays() -> None:
    seen = []
    table = tenonnx.OperatorTable()

    @table.op("Relu", since=6)
    def relu(xp: Any, x: Any) -> Any:
        seen.append((xp, type(x)))
        return xp.maximum(x, xp.zeros_like(x))

    class Own(StrictExecutionProvider):
        name = "OwnExecutionProvider"
        aliases = ()
        overrides = table

    class Plugin:
        @tenonnx.hookimpl
        def register_providers(self, register: Any) -> None:
            register(Own)

    plugins = tenonnx.PluginSet()
    plugins.register(Plugin())
    options = tenonnx.SessionOptions(plugins=plugins)
    session = tenonnx.InferenceSession(models.build("y = Relu(x)"), options, providers=[Own.name])
    assert session.run(None, {"x": np.array([-1, 2], np.float32)})[0].tolist() == [0, 2]
    assert seen == [(array_api_strict, type(array_api_strict.zeros(1)))]
    assert Own.device is not HOST
