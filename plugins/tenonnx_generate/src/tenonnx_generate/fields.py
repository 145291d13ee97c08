"""Reading values of a configuration: each is checked, and errors name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx_generate.config import CONFIG_FILE, PROVIDERS
from tenonnx_generate.errors import Refused


def section_of(place: Mapping[str, Any], key: str, default: Any = None) -> dict[str, Any]:
    """Return an object of a configuration.

    Raises:
        Refused: There is none, or something else.
    """
    found = place.get(key, default)
    if not isinstance(found, dict):
        raise Refused(f"{key} in {CONFIG_FILE} is {found!r:.60}; expected an object")
    return found


def text_of(place: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a text of a configuration.

    Raises:
        Refused: There is none, or something else.
    """
    found = place.get(key, default)
    if not isinstance(found, str) or not found:
        raise Refused(f"{key} in {CONFIG_FILE} is {found!r:.60}; expected a text")
    return found


def number_of(
    place: Mapping[str, Any], key: str, low: int, high: int, default: int | None = None
) -> int:
    """Return a whole number of a configuration.

    Raises:
        Refused: There is none in this range.
    """
    found = place.get(key, default)
    if found is None and default is not None:
        found = default
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise Refused(
            f"{key} in {CONFIG_FILE} is {found!r:.60}; expected a number from {low} to {high}"
        )
    return found


def names_of(given: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the names of inputs or outputs that a configuration gives, and others' defaults.

    Raises:
        Refused: One is no text, or those of layers have not one ``%d``.
    """
    names = {key: text_of(given, key, default) for key, default in defaults.items()}
    for key, name in names.items():
        if key.endswith("_names") and name.count("%") + name.count("%d") != 2:
            raise Refused(f"{key} in {CONFIG_FILE} is {name!r:.60}; expected one %d, for the layer")
    return names


def providers_of(session: Mapping[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Return what ``InferenceSession`` takes of session options; the CPU's comes last.

    Raises:
        Refused: They are no list of objects.
    """
    listed = session.get("provider_options", [])
    if not isinstance(listed, list):
        raise Refused(f"provider_options in {CONFIG_FILE} is {listed!r:.60}; expected a list")
    found: list[tuple[str, dict[str, str]]] = []
    for entry in listed:
        if not isinstance(entry, dict):
            raise Refused(
                f"provider_options in {CONFIG_FILE} has {entry!r:.60}; expected an object"
            )
        for name, options in entry.items():
            if not isinstance(options, dict):
                raise Refused(f"options of {name!r:.60} in {CONFIG_FILE} are no object")
            full = PROVIDERS.get(str(name).lower(), str(name))
            found.append((full, {key: str(value) for key, value in options.items()}))
    if all(name != PROVIDERS["cpu"] for name, _ in found):
        found.append((PROVIDERS["cpu"], {}))
    return found
