"""The exceptions: all are of one base, and can be pickled."""

from __future__ import annotations

import pickle

import pytest

from tenonnx import errors

KINDS = [
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_exception_is_of_one_base_and_can_be_pickled(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.TenonnxError)
    made = pickle.loads(pickle.dumps(kind("message")))
    assert type(made) is kind
    assert str(made) == "message"
