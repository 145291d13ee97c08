"""Common files of what ``tenonnx new`` writes: metadata, checks, README and license."""

from __future__ import annotations

COMMON: dict[str, str] = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tenonnx-$name"
version = "0.1.0"
description = "A plug-in of tenonnx: the $kind $name."
readme = "README.md"
requires-python = ">=3.11"
license = "MIT"
license-files = ["LICENSE"]
dependencies = ["tenonnx"]
keywords = ["onnx", "tenonnx"]

# This line is all it takes to be found.
[project.entry-points.tenonnx]
$snake = "$module"

[dependency-groups]
test = ["mypy>=1.18", "ruff>=0.14", "tenonnx[testing]"]

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
$module = ["py.typed"]

[tool.pytest.ini_options]
testpaths = ["tests"]
filterwarnings = ["error"]

[tool.mypy]
strict = true
files = ["src", "tests"]

[tool.ruff]
line-length = 100
src = ["src"]

[tool.ruff.lint]
select = ["B", "E", "F", "I", "RUF", "SIM", "UP", "W"]
""",
    "README.md": """\
# tenonnx-$name

A plug-in of tenonnx that brings the $kind `$name`.

```console
$$ pip install tenonnx-$name
$$ tenonnx plugins
```

## Develop

```console
$$ pip install -e . --group test
$$ pytest && ruff check && ruff format --check && mypy
```

`tests/` holds the $kind to its contract by `tenonnx.testing`. mypy does not follow an editable
install of tenonnx: `MYPYPATH` has to name its source folders then. To publish:
`python -m build && twine upload dist/*`.
""",
    "LICENSE": """\
MIT License

Copyright (c) the authors of tenonnx-$name

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT
OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
""",
    ".gitignore": "__pycache__/\n*.egg-info/\n.*_cache/\n.hypothesis/\nbuild/\ndist/\n",
    ".github/workflows/test.yml": """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.12", "3.13"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: $${{ matrix.python }}
      - run: pip install -U "pip>=25.1" && pip install -e . --group test
      - run: ruff check && ruff format --check && mypy
      - run: pytest
""",
    "src/$module/py.typed": "",
}
"""Templates by path."""
