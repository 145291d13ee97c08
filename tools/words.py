"""Finds retired words in code and documents: ``python -m tools.words``.

The list is ``docs/retired_words.toml``; the glossary has the words to use. It also finds names that
mean several things: constants of one name in more than two files, classes of one name in a package.
A reader who meets ``LARGEST`` has to look up what it counts; ``MAX_ROW_ELEMENTS`` says it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "retired_words.toml"
FOLDERS = (
    *(".ci", ".github", "bench", "core", "docs"),
    *("examples", "plugins", "providers", "tests", "tools"),
)
SUFFIXES = {".cff", ".cu", ".cuh", ".ini", ".md", ".py", ".toml", ".yml"}
LEFT_OUT = {"__pycache__", "build", "results", LIST.name, "test_retired_words.py"}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)

# Modules whose names are not retired, because of their subjects.
ABOUT = {
    "plugins/tenonnx_contrib/images.py": "operators on images",
    "providers/tenonnx_array/images.py": "operators on images",
}

PACKAGES = ("core", "plugins", "providers")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")

# A third file with the same name has most often been given a third meaning.
MAX_FILES = 2

# Names that are conventions: they mean the same wherever they are.
CONVENTIONS = {
    "F": "float32 in kernels, whose literals would be float64",
    "HELP": "the help text of the module's command, which the command line reads",
    "LISTING": "the operators of a package's modules, which ``tools/kernel_listing.py`` writes",
    "_HOMES": "the modules of a package's names, for its ``__getattr__``",
}

# Classes that programs know by these names.
PUBLIC_CLASSES = {
    "OnnxModel": "kserve and mlserver load it by its module's path",
    "OrtDevice": "onnxruntime's two: of its interface, and of the module behind it",
}


def paths() -> list[Path]:
    """Return the files that are checked."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += ROOT.iterdir()
    return sorted(p for p in found if p.suffix in SUFFIXES and LEFT_OUT.isdisjoint(p.parts))


def compiled(patterns: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    """Return patterns in which a space stands for any white space and a comment's line break."""
    return [
        (re.compile(pattern.replace(" ", r"\s+(?:#:? )?"), re.MULTILINE), better)
        for pattern, better in patterns.items()
    ]


def without_code(text: str) -> str:
    """Return a document with blanks for its code; lines keep their numbers."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", "x", found.group()), text)


def findings(name: str, text: str, words: dict[str, dict[str, str]]) -> Iterator[tuple[int, str]]:
    """Yield line and complaint for every retired word of a file and of its path."""
    parts = Path(name).with_suffix("").parts
    for part in parts if name.endswith((".py", ".cu")) and name not in ABOUT else ():
        if part in words["modules"]:
            yield 1, f"the module's name {part!r}; call it {words['modules'][part]}"
    document = name.endswith(".md")
    prose = (without_code(text) if document else text).lower()
    checks = [(text.lower(), compiled(words["texts"])), (prose, compiled(words["sentences"]))]
    if document:
        checks.append((prose, compiled(words["documents"])))
    for checked, patterns in checks:
        for pattern, better in patterns:
            for found in pattern.finditer(checked):
                said = " ".join(found.group().split())
                yield checked.count("\n", 0, found.start()) + 1, f"{said!r}; write: {better}"


def repeated(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a complaint for each name that is given too often.

    Args:
        texts: The text of modules by path, whose second part is the package.
    """
    constants: dict[str, list[str]] = defaultdict(list)
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, text in texts.items():
        tree = ast.parse(text)
        for name in sorted(_constants(tree)):
            constants[name].append(path)
        for name in sorted({n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}):
            classes[path.split("/")[1], name].append(path)
    for name, paths in constants.items():
        if len(paths) > MAX_FILES and name not in CONVENTIONS:
            yield f"{paths[-1]}: the constant {name} of {len(paths)} files; say what each counts"
    for (package, name), paths in classes.items():
        if len(paths) > 1 and name not in PUBLIC_CLASSES:
            others = " and ".join(paths[:-1])
            yield f"{paths[-1]}: {package} has another class {name} in {others}"


def _constants(tree: ast.Module) -> set[str]:
    """Return a module's constants; type variables are named by one letter everywhere."""
    found = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets, value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=one), value=value):
                names = [one]
            case _:
                continue
        is_type = isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"
        found |= {name for name in names if CONSTANT.fullmatch(name) and not is_type}
    return found


def main() -> int:
    """Print what is found, one a line, and return 1 if there is anything."""
    words = tomllib.loads(LIST.read_text("utf-8"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths()}
    modules = {name: text for name, text in texts.items() if name.endswith(".py")}
    complaints = [
        f"{name}:{line}: {complaint}"
        for name, text in texts.items()
        for line, complaint in findings(name, text, words)
    ]
    packaged = {n: t for n, t in modules.items() if n.split("/")[0] in PACKAGES}
    complaints += repeated({n: t for n, t in packaged.items() if "tests" not in n.split("/")})
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
