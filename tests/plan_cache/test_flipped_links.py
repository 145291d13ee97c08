"""A path that names one file now and another a moment later gets the answers of one of them."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plan_models import LAYERS, answers, assert_same, is_kept, opened, saved

SHORT = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) { y = Neg(x) }"""
MOST_LOOKS = 400
"""Calls that look at or open a file while a session opens; there are about 60."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no links that flip")


class Link:
    """A symbolic link to one of two models.

    Attributes:
        path: It.
        expected: The answers of each model.
    """

    def __init__(self, folder: Path, *texts: str) -> None:
        self.path = folder / "model.onnx"
        self._spare = folder / "spare"
        self._targets = [saved(folder / f"{n}.onnx", text) for n, text in enumerate(texts)]
        self.expected = [answers(opened(each)) for each in self._targets]

    def point(self, number: int) -> None:
        """Have it be a link to a model, at once."""
        self._spare.symlink_to(self._targets[number])
        self._spare.replace(self.path)

    def assert_consistent(self, found: list[Any]) -> None:
        """Make sure that answers are those of one of the models."""
        for expected in self.expected:
            if all(map(_is_same, found, expected)):
                return
        raise AssertionError("the answers are those of neither model")

    def assert_right(self) -> None:
        """Make sure that sessions that open it in peace give the answers of its model."""
        for number, expected in enumerate(self.expected):
            self.point(number)
            assert_same(answers(opened(self.path)), expected)


def _is_same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


class Looks:
    """Calls a function before a certain look at a file below a folder.

    Attributes:
        number: The looks so far.
    """

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = str(folder)
        self.before(MOST_LOOKS, lambda: None)
        for module, name in ((os, "stat"), (os, "open"), (os, "lstat"), (builtins, "open")):
            patch.setattr(module, name, self._counting(getattr(module, name)))

    def before(self, number: int, function: Callable[[], None]) -> None:
        """Start to count; call a function before a look."""
        self.number, self._at, self._function = 0, number, function

    def _counting(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            if str(path).startswith(self._folder):
                self.number += 1
                if self.number == self._at:
                    self._function()
            return plain(path, *more, **named)

        return call


@pytest.mark.parametrize(
    ("other", "kept"), [(LAYERS.replace("Tanh", "Sigmoid"), True), (SHORT, True), (SHORT, False)]
)
def test_a_link_that_is_flipped_at_any_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, kept: bool
) -> None:
    (folder := tmp_path / "models").mkdir()
    link = Link(folder, LAYERS, other)
    looks = Looks(monkeypatch, folder)
    number = 1
    while True:
        link.point(0)
        if kept:
            assert_same(answers(opened(link.path)), link.expected[0])
        else:
            for each in (tmp_path / "cache" / "plans").glob("*"):
                each.unlink()
        looks.before(number, lambda: link.point(1))
        link.assert_consistent(answers(opened(link.path)))
        if looks.number < number:
            break
        looks.before(MOST_LOOKS, lambda: None)
        link.assert_right()
        number += 1
    assert 2 < number < MOST_LOOKS
    link.point(0)
    opened(link.path)
    assert is_kept(opened(link.path))


def test_a_link_that_is_flipped_all_the_time(tmp_path: Path) -> None:
    link = Link(tmp_path, LAYERS, SHORT)
    link.point(0)
    ended = threading.Event()

    def flip() -> None:
        number = 0
        while not ended.is_set():
            number = 1 - number
            link.point(number)

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        for _ in range(30):
            link.assert_consistent(answers(opened(link.path)))
    finally:
        ended.set()
        flipping.join()
    link.assert_right()
