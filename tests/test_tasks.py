"""Twenty tasks of new users: each is found from the front page in three clicks.

A click is a link of a document, as the site has it; its navigation and its search are not needed.
"""

from __future__ import annotations

import posixpath
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = runpy.run_path(str(ROOT / "tools" / "mkdocs_hooks.py"))
CLICKS = 3

TASKS = {
    "run a first model": ("docs/quickstart.md", "tenonnx run "),
    "run a program that imports onnxruntime": ("docs/onnxruntime.md", "tenonnx.as_onnxruntime"),
    "run my model on 4 threads": ("docs/performance.md#threads", "intra_op_num_threads = 4"),
    "why is it slow": ("docs/performance.md#why-is-it-slow", "tenonnx profile"),
    "stop a run that takes too long": ("docs/reference.md#stop-a-run", "time_limit"),
    "write outputs into my own memory": ("docs/reference.md#bind-outputs", "io_binding"),
    "compare with onnxruntime": ("docs/cli.md#what-compare-compares", "tenonnx compare"),
    "make a model smaller": ("docs/quantizing.md", "tenonnx quantize"),
    "hold an answer to a JSON schema": ("docs/generating.md#a-json-schema", "--json-schema"),
    "use a LoRA adapter": ("docs/generating.md#adapters", "--adapter"),
    "transcribe a sound": ("docs/generating.md#audio", "--audio"),
    "keep memory within a limit": ("docs/performance.md#a-limit-on-memory", "memory"),
    "share weights among workers": ("docs/deploying.md#processes", "weights"),
    "serve over HTTP": ("docs/serving.md", "tenonnx serve"),
    "batch requests": ("docs/serving.md#joining-requests", "--batch"),
    "build a container image": ("docs/container.md", "docker build"),
    "serve from FastAPI": ("docs/recipes/serve-in-your-own-application.md", "FastAPI"),
    "start fast on a new machine": ("docs/deploying.md#compiled-files", "tenonnx compile"),
    "write a provider for library X": ("docs/recipes/add-a-provider.md", "Provider"),
    "write an operator": ("docs/recipes/write-an-operator-in-a-script.md", "tenonnx.operator"),
    "understand an error message": ("docs/troubleshooting.md#by-message", "message"),
}
"""The page and heading that answer each task, and words that must stand there."""


def links(name: str) -> Iterator[str]:
    """Yield the documents, with headings, that a document links to."""
    text = HOOKS["FENCE"].sub("", (ROOT / name).read_text("utf-8"))
    for found in HOOKS["LINK"].finditer(text):
        path, hash_sign, heading = found["target"].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if path.endswith(".md") and "://" not in path:
            yield f"{target}{hash_sign}{heading}"


def clicks() -> dict[str, int]:
    """Return how many links lead from the front page to a document or one of its headings."""
    found, new = {"README.md": 0}, ["README.md"]
    while new:
        name = new.pop(0)
        for target in links(name):
            for place in (target, target.partition("#")[0]):
                if place not in found:
                    found[place] = found[name.partition("#")[0]] + 1
                    new += [place] if "#" not in place else []
    return found


def section(place: str) -> str:
    """Return the text below a heading, with its subheadings; all of a document without one."""
    name, _, heading = place.partition("#")
    text = (ROOT / name).read_text("utf-8")
    for found in re.finditer(r"^(#+) (.*)\n", text, re.MULTILINE) if heading else ():
        slug = re.sub(r"[^\w -]", "", found[2]).strip().lower().replace(" ", "-")
        if slug == heading:
            rest = text[found.end() :]
            end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
            return rest[: end.start()] if end else rest
    assert not heading, f"{name} has no heading {heading}"
    return text


@pytest.fixture(scope="module")
def distances() -> dict[str, int]:
    return clicks()


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_three_clicks_from_the_front_page(task: str, distances: dict[str, int]) -> None:
    place, words = TASKS[task]
    assert distances.get(place, CLICKS + 1) <= CLICKS
    assert words in section(place)
