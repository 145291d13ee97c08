from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tenonnx.planning import quiet


@pytest.fixture(params=["as numpy has it", "without it"], autouse=True)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.setattr(quiet, "_SETTING", None)


def logarithm() -> Any:
    return np.log(np.zeros(3))


def test_warnings_are_off_within_and_on_again_after() -> None:
    assert np.isneginf(quiet.quietly(logarithm, ())).all()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        logarithm()


def test_what_the_caller_had_set_is_set_again_after_an_error() -> None:
    with np.errstate(divide="raise"):
        with pytest.raises(KeyError):
            quiet.quietly({}.__getitem__, ["nothing"])
        with pytest.raises(FloatingPointError):
            logarithm()


def test_other_threads_keep_theirs() -> None:
    told: list[str] = []

    def ask() -> None:
        told.append(np.geterr()["divide"])

    def within() -> None:
        other = threading.Thread(target=ask)
        other.start()
        other.join()
        told.append(np.geterr()["divide"])

    quiet.quietly(within, ())
    assert told == ["warn", "ignore"]
