"""``Config``: what a folder says, and what a caller changed of it."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tenonnx_generate.errors import Missing, Refused
from tenonnx_generate.files import CONFIG_LIMIT, parse_object, read_text

CONFIG_FILE = "genai_config.json"

# Providers by the short names that ``provider_options`` has, in small letters.
PROVIDERS = {
    "coreml": "CoreMLExecutionProvider",
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "dml": "DmlExecutionProvider",
    "jax": "JaxExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
}


class Config:
    """The ``genai_config.json`` of a folder, to be changed before a model is made of it.

    Args:
        config_path: The folder, or the file in it.

    Raises:
        Missing: There is no such file.
        Refused: It is no JSON object, or too large.
    """

    def __init__(self, config_path: str | os.PathLike[str]) -> None:
        path = os.fspath(config_path)
        is_file = os.path.basename(path) == CONFIG_FILE
        self.folder = (os.path.dirname(path) or os.curdir) if is_file else path
        if not os.path.isdir(self.folder):
            raise Missing(
                f"{self.folder} is no folder",
                hint=f"name the folder of a language model, which has {CONFIG_FILE}",
            )
        file = os.path.join(self.folder, CONFIG_FILE)
        if not os.path.isfile(file):
            raise Missing(
                f"{self.folder} has no {CONFIG_FILE}",
                hint="onnxruntime_genai.models.builder writes it beside the model",
            )
        self.document = parse_object(read_text(file, CONFIG_LIMIT), file)

    def overlay(self, text: str) -> None:
        """Merge a JSON object into what there is: objects by key, all else is replaced.

        Raises:
            Refused: The text is no JSON object.
        """
        self.document = _merged(self.document, parse_object(text, "the overlay"))

    def draft(self) -> Config | None:
        """Return the configuration of the model in ``model.draft``, which has the same folder."""
        model = self.document.get("model")
        if not isinstance(model, dict) or model.get("draft") is None:
            return None
        made = copy.copy(self)
        rest = {key: value for key, value in model.items() if key != "draft"}
        made.document = {**self.document, "model": {**rest, "decoder": model["draft"]}}
        return made

    def clear_providers(self) -> None:
        """Forget the providers: the CPU's is left."""
        self._session_options()["provider_options"] = []

    def append_provider(self, name: str) -> None:
        """Add a provider, such as ``cuda``, after those that there are.

        Raises:
            Refused: There is none of that name.
        """
        if name.lower() not in PROVIDERS and name not in PROVIDERS.values():
            raise Refused(f"{name!r} is no provider (there are: {', '.join(PROVIDERS)})")
        if not any(name in entry for entry in self._providers()):
            self._providers().append({name: {}})

    def set_provider_option(self, name: str, key: str, value: str) -> None:
        """Set an option of a provider, which is added if it is not there."""
        self.append_provider(name)
        next(entry for entry in self._providers() if name in entry)[name][str(key)] = str(value)

    def set_providers(self, providers: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Replace the providers by others, in order of preference; the CPU's comes last.

        Args:
            providers: Their names, a plug-in's among them, and options. Opening the model checks
                them.
        """
        self.clear_providers()
        self._providers().extend({name: dict(options)} for name, options in providers)

    def _providers(self) -> list[dict[str, dict[str, Any]]]:
        found = self._session_options().setdefault("provider_options", [])
        if not isinstance(found, list) or not all(
            isinstance(entry, dict) and all(isinstance(each, dict) for each in entry.values())
            for entry in found
        ):
            raise Refused(f"provider_options is {found!r}; expected a list of objects")
        return found

    def _session_options(self) -> dict[str, Any]:
        place = self.document
        for key in ("model", "decoder", "session_options"):
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise Refused(f"{key} in {CONFIG_FILE} is {place!r}; expected an object")
        return place


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        result[key] = _merged(below, value) if both else value  # type: ignore[arg-type]  # it is
    return result
