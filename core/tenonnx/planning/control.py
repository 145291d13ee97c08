"""Functions for the generated code of If, Loop, Scan and SequenceMap."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tenonnx.process import interruption
from tenonnx.provider import Device

if TYPE_CHECKING:
    from tenonnx.graph.values import ValueInfo

Item = TypeVar("Item")


def truth(condition: Any) -> bool:
    """Return a one-element boolean tensor as a Python truth value."""
    if getattr(condition, "size", 1) != 1:
        raise ValueError(f"the condition has shape {condition.shape}; expected one element")
    return bool(condition)


def stoppable(items: Iterable[Item]) -> Iterable[Item]:
    """Return a loop's iterator; in a thread with limits, it checks them before each step."""
    # Threads without limits, as nearly all, have the plain iterator: a generator costs each turn.
    return _asking(items) if interruption.limits() else items


def _asking(items: Iterable[Item]) -> Iterator[Item]:
    for item in items:
        interruption.check()
        yield item


def iterations(trip_count: Any) -> Iterable[int]:
    """Return the iteration numbers of a Loop; endless when the trip count is absent."""
    numbers = itertools.count() if trip_count is None else range(int(trip_count.item()))
    return stoppable(numbers)


def iteration_number(number: int) -> np.ndarray[Any, Any]:
    """Return a Loop body's first input: an int64 scalar."""
    return np.array(number, np.int64)


def iteration_numbers(number: int) -> np.ndarray[Any, Any]:
    """Return the first input of a Loop's body that declares one axis for it, or more."""
    return np.array([number], np.int64)


def slices(array: Any, axis: int, reverse: bool) -> list[Any]:
    """Return the views of an array along an axis that Scan's iterations see, in their order."""
    axis %= max(array.ndim, 1)
    index: list[Any] = [slice(None)] * axis
    numbers = range(array.shape[axis])
    return [array[(*index, i, ...)] for i in (reversed(numbers) if reverse else numbers)]


def batch_size(*arrays: Any) -> int:
    """Return how many entries of a batch Scan-8's inputs have.

    Raises:
        ValueError: They do not all have as many.
    """
    sizes = {len(array) for array in arrays}
    if len(sizes) > 1:
        raise ValueError(f"the scan inputs have batches of different sizes: {sorted(sizes)}")
    return sizes.pop()


def batch_slices(array: Any, entry: int, lengths: Any, reverse: bool) -> list[Any]:
    """Return the views that Scan-8's iterations see of one batch entry, up to its length."""
    length = array.shape[1] if lengths is None else int(lengths[entry])
    numbers = range(length)
    return [array[entry, i, ...] for i in (reversed(numbers) if reverse else numbers)]


def join_batch(arrays: list[Any]) -> np.ndarray[Any, Any]:
    """Stack Scan-8's results of all batch entries, short ones filled with zeros."""
    shapes = [array.shape for array in arrays]
    joined = np.zeros((len(arrays), *np.max(shapes, axis=0)), arrays[0].dtype)
    for target, array in zip(joined, arrays, strict=True):
        target[tuple(map(slice, array.shape))] = array
    return joined


def same_length(*sequences: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Zip scan inputs.

    Raises:
        ValueError: Their scan axes differ in length.
    """
    lengths = {len(sequence) for sequence in sequences}
    if len(lengths) > 1:
        raise ValueError(f"the scan inputs have different lengths: {sorted(lengths)}")
    return stoppable(zip(*sequences, strict=True))


def sequence_items(*inputs: Any) -> Iterable[tuple[Any, ...]]:
    """Zip SequenceMap's inputs: sequences give their items, tensors are repeated."""
    count = len(inputs[0])
    each = (i if isinstance(i, list) else itertools.repeat(i, count) for i in inputs)
    return stoppable(zip(*each, strict=True))


def stacker(device: Device, value: ValueInfo, axis: int = 0, reverse: bool = False) -> Stacker:
    """Return what makes one scan output of the values of all iterations.

    Args:
        device: Where the values live.
        value: The body's output; its type and shape describe an output of no iterations.
        axis: Where the new axis goes.
        reverse: The last iteration's value comes first.
    """
    dtype = np.dtype(np.float32) if value.dtype is None else value.dtype
    shape = tuple(d if isinstance(d, int) else 0 for d in value.shape or ())
    return Stacker(device, value.name, dtype, shape, axis, reverse)


@dataclass(frozen=True, eq=False)
class Stacker:
    """One scan output, of the values of all iterations.

    Attributes:
        device: Where the values live.
        name: The name of the body's output.
        dtype: The dtype of an output of no iterations.
        shape: The shape of a value; 0 for sizes that are not known.
        axis: Where the new axis goes.
        reverse: Whether the last iteration's value comes first.
    """

    device: Device
    name: str | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axis: int
    reverse: bool

    def __call__(self, values: list[Any]) -> Any:
        """Return the values of all iterations as one array.

        Raises:
            ValueError: They differ in shape.
        """
        axis, shape = self.axis, self.shape
        if not values:
            place = axis % (len(shape) + 1)
            return self.device.upload(np.empty((*shape[:place], 0, *shape[place:]), self.dtype))
        try:
            return self.device.stack(values[::-1] if self.reverse else values, axis)
        except ValueError as error:
            shapes = sorted({str(each.shape) for each in values})
            if len(shapes) == 1:
                raise
            raise ValueError(
                f"the values of {self.name!r} have the shapes {' and '.join(shapes[:3])}; "
                "expected one shape in all iterations"
            ) from error
