"""The exceptions: all are names of ``tenonnx.errors``, whenever they are made."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from tenonnx import errors, seldom_errors


@pytest.mark.parametrize("kind", seldom_errors.EVERY, ids=lambda kind: kind.__name__)
def test_an_exception_is_found_under_its_name(kind: type[Exception]) -> None:
    assert getattr(errors, kind.__name__) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert kind.__module__ == "tenonnx.errors"
    assert issubclass(kind, errors.TenonnxError)


def test_an_unknown_name_is_told_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match=r"'tenonnx.errors' has no attribute 'Wrong'"):
        errors.Wrong  # noqa: B018 - the look-up is what fails


def test_seldom_ones_are_made_when_they_are_asked_for() -> None:
    code = (
        "import sys, tenonnx; tenonnx.Fail; print('tenonnx.seldom_errors' in sys.modules)\n"
        "try: raise tenonnx.NoSuchFile('gone')\n"
        "except FileNotFoundError as error: print(type(error), error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "<class 'tenonnx.errors.NoSuchFile'> gone"]
