"""The documents say what is so: signatures, dependencies, links, commands and examples."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sources import PRODUCTS, ROOT, modules
from tenonnx import hookspecs

DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "build" for part in path.relative_to(ROOT).parts)
)
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECTS = [PROJECT, *(tomllib.loads((each / "pyproject.toml").read_text()) for each in PRODUCTS)]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, and at which line its code begins."""

    language: str
    words: tuple[str, ...]
    code: str
    line: int


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text()
    for found in FENCE.finditer(text):
        language, *words = found["info"].split() or [""]
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(language, tuple(words), found["code"], line)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_documents() -> list[Path]:
    return [path for path in DOCUMENTS if any(b.language == "python" for b in blocks(path))]


@pytest.mark.parametrize("path", python_documents(), ids=name_of)
def test_python_in_documents_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document's blocks run in order, in one namespace, in a folder of their own.

    ``file=NAME`` makes a block a file there; ``no-run`` only has it compiled; ``needs=NAMES``
    skips the rest where a module is missing; a block of ``output`` is what the one before prints.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = types.ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", document)
    before = set(sys.modules)
    printed = io.StringIO()
    for block in blocks(path):
        if "output" in (block.language, *block.words):
            assert printed.getvalue().strip() == block.code.strip()
        if block.language != "python":
            continue
        for needed in (word[6:] for word in block.words if word.startswith("needs=")):
            for name in needed.split(","):
                pytest.importorskip(name)
        # Tracebacks show the document's line.
        code = compile("\n" * (block.line - 1) + block.code, name_of(path), "exec")
        files = [word.removeprefix("file=") for word in block.words if word.startswith("file=")]
        if files:
            Path(files[0]).write_text(block.code)
        elif "no-run" not in block.words:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, vars(document))
    # What holds files open ends here: a later collection would end files before their owners.
    vars(document).clear()
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def slugs(path: Path) -> set[str]:
    """Return the anchors that a document's headings make."""
    text = FENCE.sub("", path.read_text())
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)  # on the site, by its full name
    return {
        *shown,
        *(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles),
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for found in LINK.finditer(FENCE.sub("", path.read_text())):
        target, _, anchor = found["target"].partition("#")
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        place = (path.parent / target).resolve() if target else path
        assert place.is_relative_to(ROOT), target
        assert place.exists(), target
        assert not anchor or anchor in slugs(place), found["target"]


def hook_signatures() -> dict[str, str]:
    tree = ast.parse(Path(hookspecs.__file__).read_text())
    return {
        node.name: f"def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.returns
        and "hookspec" in map(ast.unparse, node.decorator_list)
    }


@pytest.mark.parametrize("name", hook_signatures())
def test_every_hook_is_documented_with_its_signature_and_a_plugin(name: str) -> None:
    page = (ROOT / f"docs/hooks/{name}.md").read_text()
    assert f"{hook_signatures()[name]}: ..." in page
    assert f"@tenonnx.hookimpl\ndef {name}(" in page
    assert f"(hooks/{name}.md)" in (ROOT / "docs/plugins.md").read_text()


def test_there_is_a_page_for_every_hook_and_no_other() -> None:
    assert {path.stem for path in (ROOT / "docs/hooks").iterdir()} == set(hook_signatures())


def dependencies() -> set[str]:
    """Return what this tree's distributions require of others."""
    lists = list(PROJECT["dependency-groups"].values())
    for project in PROJECTS:
        lists += [project["build-system"]["requires"], project["project"]["dependencies"]]
        lists += project["project"].get("optional-dependencies", {}).values()
    requirements = [entry for found in lists for entry in found if isinstance(entry, str)]
    names = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
    return {name for name in names if not name.startswith("tenonnx")}


def test_every_dependency_has_its_line_and_no_other_has() -> None:
    text = (ROOT / "docs/dependencies.md").read_text()
    listed = re.findall(r"^\| `([\w.-]+)` \| \S", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == dependencies()


def test_the_architecture_table_names_what_there_is() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `([\w.]+)` \| \[\w+\.py\]\(\.\./([\w/]+\.py)\) ", text, re.M)
    assert len(rows) >= 6
    for function, file in rows:
        code = (ROOT / file).read_text()
        last = function.split(".")[-1]
        assert re.search(rf"^\s*(def|class) {last}\b", code, re.M), (function, file)


def commands(path: Path) -> list[str]:
    """Return the lines of a document's ``console`` blocks that begin with ``$``."""
    lines = (line for b in blocks(path) if b.language == "console" for line in b.code.splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_the_readme_tests_what_continuous_integration_tests() -> None:
    script = (ROOT / ".ci/run").read_text().splitlines()
    assert script[-1].startswith("python -m pytest")
    (told,) = (c for c in commands(ROOT / "README.md") if "-m pytest" in c)
    assert told.split(" && ")[-1] == f".venv/bin/{script[-1]}"


def test_the_readme_first_command_classifies_digits() -> None:
    steps = commands(ROOT / "README.md")[0].split(" && ")
    assert steps[:2] == ["python3 -m venv .venv", ".venv/bin/pip install -q ."]
    python, *rest = shlex.split(steps[2])
    assert python == ".venv/bin/python"
    done = subprocess.run([sys.executable, *rest], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b449\b.*\b450\b", done.stdout), done.stdout


def test_python_in_documents_fits_the_width() -> None:
    for path in DOCUMENTS:
        for block in blocks(path):
            if block.language == "python":
                long = [line for line in block.code.splitlines() if len(line) > 100]
                assert not long, (name_of(path), long)


def code_messages() -> str:
    """Return the code's literal strings, with … for what is filled in, each on a line."""
    lines = []
    for path in modules():
        text = path.read_text()
        if "raise " not in text and "warn" not in text:
            continue  # it says nothing to users
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(value, "value", "…") for value in node.values]
                lines.append("".join(p if isinstance(p, str) else "…" for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                lines.append(re.sub(r"%(\.\d+f|[sdr])", "…", node.value))
    return "\n".join(lines)


def test_messages_that_troubleshooting_explains_are_in_the_code() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    _, _, by_message = page.partition("## By message")
    messages = re.findall(r"^\| `([^`]+)` \|", by_message, re.MULTILINE)
    assert len(messages) > 30
    known = code_messages()
    patterns = {message: re.escape(message).replace("…", ".*") for message in messages}
    assert not [message for message, found in patterns.items() if not re.search(found, known)]
