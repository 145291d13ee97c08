from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_array.ml.svm import coupled
from tenonnx_cpu.ml.svm import COUPLE, couple

CHANCES = st.integers(2, 5).flatmap(
    lambda classes: st.tuples(
        hnp.arrays(
            np.float64,
            (3, classes * (classes - 1) // 2),
            elements=st.one_of(st.floats(0, 1), st.just(np.nan)),
        ),
        st.just(classes),
    )
)


@given(CHANCES)
def test_the_kernel_couples_as_numpy_does(given: tuple[Any, int]) -> None:
    chances, classes = given
    COUPLE.request()
    assert COUPLE.run is not None
    # Both stop improving by a rule that rounding may make true a step sooner.
    np.testing.assert_allclose(couple(chances, classes), coupled(chances, classes), atol=2e-3)
