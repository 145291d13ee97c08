"""Another thread looks around while a session imports: ``python windows.py MODEL`` prints JSON.

The program imports neither ``logging`` nor ``json`` before that thread does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


class Window:
    """Programs of another thread that run whenever a module of a package is looked for."""

    def __init__(self, looks: dict[str, dict[str, Callable[[], str]]]) -> None:
        self.found: dict[str, list[str]] = {name: [] for each in looks.values() for name in each}
        self._looks = looks
        self._inside = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        package = arguments[0].partition(".")[0] if event == "import" else ""
        if package not in self._looks or self._inside:
            return
        self._inside = True
        thread = threading.Thread(target=self._look, args=(package,))
        thread.start()
        thread.join()
        self._inside = False

    def _look(self, package: str) -> None:
        for name, look in self._looks[package].items():
            self.found[name].append(look())


def _logger() -> str:
    import logging

    made = logging.getLogger(f"app.{threading.get_ident()}")
    return f"{type(made).__module__}.{type(made).__qualname__}"


def _version() -> str:
    import json

    return str(getattr(json, "__version__", None))


def _extension() -> str:
    return type(sys.modules.get("onnx.onnx_cpp2py_export")).__name__.replace("NoneType", "absent")


def main() -> None:
    """Look from another thread whenever a session imports a module of onnx or onnx_ir."""
    window = Window(
        {
            "onnx": {"extension_of_onnx": _extension},
            "onnx_ir": {
                "loggers_of_another_thread": _logger,
                "modules_of_another_thread": _version,
            },
        }
    )
    import tenonnx

    tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    import json

    import onnx.checker  # noqa: F401

    print(json.dumps(window.found))


if __name__ == "__main__":
    main()
