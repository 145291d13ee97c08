"""A row of the table: an operator, inputs, and the exact answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Sample: TypeAlias = Sequence["Array | None"]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
LARGEST, ABSOLUTE = "largest", "absolute"


@dataclass(frozen=True, eq=False)
class Case:
    """An operator on inputs of a few kinds.

    Attributes:
        op: Its name.
        samples: Inputs by their kind. Those of float64 are rounded to the dtype that is measured;
            others stay as they are.
        exact: The first result of float64 inputs that hold the rounded values, in float64; without
            it, what numpy's form computes of them in float64.
        terms: The sum of the terms' absolute values, where they can cancel: errors count in ulps
            of it then. Or ``LARGEST``: of the result's largest element, or ``ABSOLUTE``: of what
            numpy's form makes of the inputs' absolute values.
        attributes: The node's.
        name: What tells the case from others of the operator.
        domain: The operator's domain.
        version: The opset's.
        dtypes: What is measured.
        fed: How many of the inputs every run is given; the others are the model's constants.
    """

    op: str
    samples: Mapping[str, Sample]
    exact: Callable[..., Array] | None = None
    terms: Callable[..., Array] | str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int = 22
    dtypes: Sequence[str] = tuple(DTYPES)
    fed: int = 1

    @property
    def title(self) -> str:
        """The operator and what tells the case from others."""
        return f"{self.op}, {self.name}" if self.name else self.op


def random(*shape: int) -> np.random.Generator:
    """Return the generator that arrays of a shape are drawn from; all begin alike."""
    return np.random.default_rng((18, *shape))


def normal(*shape: int, scale: float = 1.0, around: float = 0.0) -> Array:
    """Return normally distributed numbers."""
    return random(*shape).standard_normal(shape) * scale + around


def uniform(low: float, high: float, *shape: int) -> Array:
    """Return uniformly distributed numbers."""
    return random(*shape, 1).uniform(low, high, shape)


def spread(low: float, high: float, *shape: int, signed: bool = True) -> Array:
    """Return numbers whose magnitudes' logarithms are uniform between those of two bounds."""
    generator = random(*shape, 2)
    magnitude = np.exp(generator.uniform(np.log(low), np.log(high), shape))
    return magnitude * generator.choice([-1.0, 1.0], shape) if signed else magnitude


def rounded(sample: Sample, dtype: np.dtype[Any]) -> list[Array | None]:
    """Return inputs in a dtype."""
    return [x.astype(dtype) if x is not None and x.dtype == np.float64 else x for x in sample]


def widened(sample: Sample, inputs: Sequence[Array | None]) -> list[Array | None]:
    """Return in float64 those inputs that ``rounded`` made of a sample's float64."""
    pairs = zip(sample, inputs, strict=True)
    return [
        x.astype(np.float64)
        if x is not None and given is not None and given.dtype == np.float64
        else x
        for given, x in pairs
    ]
