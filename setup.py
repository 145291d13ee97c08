"""Gives setuptools what pyproject.toml cannot say: the README with absolute links."""

import sys
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))

from mkdocs_hooks import absolute_links  # noqa: E402 - it is found there

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

setup(
    long_description=absolute_links(
        (ROOT / "README.md").read_text("utf-8"), PROJECT["urls"]["Source"]
    ),
    long_description_content_type="text/markdown",
)
