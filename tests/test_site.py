"""Links and blocks of the documents, as the site has them."""

from __future__ import annotations

import inspect
import pkgutil
import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from sources import modules
from tenonnx import errors

HOOKS = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "mkdocs_hooks.py"))
DOCS = Path(__file__).parents[1] / "docs"
SHOWN = "".join((DOCS / page).read_text() for page in ("api.md", "reference.md"))
CODE = "core/tenonnx/planning/plan.py"
WORDS = "docs/retired_words.toml"


@pytest.mark.parametrize(
    ("place", "target", "expected"),
    [
        ("README.md", "docs/plugins.md#how", "plugins.md#how"),
        ("README.md", "docs/recipes/add-a-format.md", "recipes/add-a-format.md"),
        ("docs/plugins.md", "recipes/add-a-format.md", "recipes/add-a-format.md"),
        ("docs/recipes/add-a-format.md", "../plugins.md", "../plugins.md"),
        ("docs/recipes/add-a-format.md", "../../README.md", "../index.md"),
        ("docs/plugins.md", "../SECURITY.md#report", "security.md#report"),
        ("CONTRIBUTING.md", "docs/hooks/create_observer.md", "hooks/create_observer.md"),
        ("CONTRIBUTING.md", "README.md#limits", "index.md#limits"),
        ("docs/plugins.md", "#how", "#how"),
        ("docs/glossary.md", "retired_words.toml", f"https://host/tenonnx/blob/HEAD/{WORDS}"),
        ("docs/plugins.md", "https://onnx.ai/ir-py/", "https://onnx.ai/ir-py/"),
        ("README.md", CODE, f"https://host/tenonnx/blob/HEAD/{CODE}"),
        ("docs/plugins.md", f"../{CODE}#L3", f"https://host/tenonnx/blob/HEAD/{CODE}#L3"),
    ],
)
def test_links_lead_to_pages_and_to_the_repository(place: str, target: str, expected: str) -> None:
    link = HOOKS["site_link"]("text", target, place, "https://host/tenonnx")
    assert link == f"[text]({expected})"


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)", SHOWN, re.MULTILINE))
def test_the_interface_that_is_shown_is_there_and_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(pkgutil.resolve_name(name))


def test_pages_that_messages_name_are_there() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Documentation"] == errors.DOCUMENTATION
    assert f"site_url: {errors.DOCUMENTATION}/\n" in (DOCS.parent / "mkdocs.yml").read_text()
    found = set()
    for path in modules():
        source = path.read_text()
        found |= set(re.findall(r"\bpage\(['\"]([\w/-]+)['\"]\)", source))
        for text in re.findall(r"(?m)^.*\bdocs/\w+.*$", source):
            assert '"' not in text.replace('"""', ""), f"{path}: a wheel has no {text.strip()}"
    assert len(found) >= 3
    assert all(DOCS.joinpath(f"{name}.md").exists() for name in found)


def test_links_to_code_are_text_where_no_repository_is_known() -> None:
    assert HOOKS["site_link"]("plan.py", f"../{CODE}", "docs/plugins.md", "") == "plan.py"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("python", "python"),
        ("python no-run", "python"),
        ("python file=dense.py", 'python title="dense.py"'),
        ("text output", "text"),
        ("output", "text"),
        ("", ""),
    ],
)
def test_what_tests_are_told_of_a_block_is_not_shown(info: str, expected: str) -> None:
    assert HOOKS["site_info"](info) == expected


def test_short_code_and_the_punctuation_behind_it_stay_together() -> None:
    shown = HOOKS["on_page_content"]("<p>By <code>--top-k</code>, or not.</p>", page=None)
    assert shown == '<p>By <span class="whole"><code>--top-k</code>,</span> or not.</p>'
    block = "<pre><code>a = 1\nb = 2</code></pre>"
    assert HOOKS["on_page_content"](block) == block


def test_a_package_index_gets_no_relative_link() -> None:
    root = Path(__file__).parents[1]
    shown = HOOKS["absolute_links"]((root / "README.md").read_text(), "https://host/tenonnx")
    targets = [found["target"] for found in HOOKS["LINK"].finditer(HOOKS["FENCE"].sub("", shown))]
    assert len(targets) > 20
    assert all(target.startswith(("https://", "mailto:", "#")) for target in targets)
    inside = [t.partition("/blob/HEAD/")[2].partition("#")[0] for t in targets]
    assert all((root / path).exists() for path in inside if path)


def test_badges_are_true_and_not_on_the_site() -> None:
    root = Path(__file__).parents[1]
    readme = (root / "README.md").read_text()
    (badges,) = HOOKS["BADGES"].finditer(readme)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    source = project["urls"]["Source"]
    static = "https://img.shields.io/badge"
    ours = f"{source}/blob/main"
    runs = f"{source}/actions/workflows/ci.yml"
    assert badges[0].split() == [
        f"[![Python]({static}/Python-{versions[0]}--{versions[-1]}-blue)]({ours}/pyproject.toml)",
        f"[![License]({static}/License-{project['license']}-blue)]({ours}/LICENSE)",
        f"[![CI]({runs}/badge.svg)]({runs})",
    ]
    assert (root / ".github/workflows/ci.yml").exists()
    pictures = HOOKS["IMAGE"].findall(HOOKS["BADGES"].sub("", readme))
    assert [(root / target).exists() for _, target in pictures] == [True]
    assert "![" not in HOOKS["IMAGE"].sub("", HOOKS["BADGES"].sub("", readme))


def test_pictures_are_links_on_the_site_and_absolute_on_an_index() -> None:
    picture = "![ratios](bench/results/cpu.png)\n"
    page, config = SimpleNamespace(file=SimpleNamespace(src_uri="index.md")), SimpleNamespace()
    config.extra = {"repository": "https://example.org/r"}
    shown = HOOKS["on_page_markdown"](picture, page, config, None)
    assert shown == "[ratios](https://example.org/r/blob/HEAD/bench/results/cpu.png)\n"
    indexed = HOOKS["absolute_links"](picture, "https://example.org/r")
    assert indexed == "![ratios](https://example.org/r/raw/HEAD/bench/results/cpu.png)\n"
