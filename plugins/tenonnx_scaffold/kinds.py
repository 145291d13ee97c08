"""Files of ``tenonnx new`` for each kind of plug-in: the smallest one that does something."""

from __future__ import annotations

INIT = '''\
"""A plug-in of tenonnx: the $kind $name.

Importing it is cheap: hooks import what they register.
"""

from __future__ import annotations

%s
tenonnx_api = 1
'''

PROVIDER = {
    "src/$module/__init__.py": INIT
    % """\
from collections.abc import Callable

import tenonnx
"""
    + '''

@tenonnx.hookimpl
def register_providers(register: Callable[[type[tenonnx.Provider]], None]) -> None:
    """Announce the provider."""
    from $module.provider import ${Camel}ExecutionProvider

    register(${Camel}ExecutionProvider)
''',
    "src/$module/provider.py": '''\
"""The provider."""

from __future__ import annotations

from typing import ClassVar

from tenonnx_array.provider import ArrayProvider


class ${Camel}ExecutionProvider(ArrayProvider):
    """Runs ONNX on an array library with numpy's names; put yours in numpy's place.

    One that has dtypes of its own, and the array API standard's names, is for
    ``tenonnx_array.standard.StandardProvider``.
    """

    name: ClassVar[str] = "${Camel}ExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("$name",)
    unasked: ClassVar[bool] = False
    namespace: ClassVar[str] = "numpy"
    install: ClassVar[str] = "numpy"
    without: ClassVar[dict[str, str]] = {"Bernoulli": "it draws other random numbers"}
''',
    "tests/test_$snake.py": """\
from __future__ import annotations

from typing import ClassVar

from tenonnx.testing import ProviderTests


class Test${Camel}(ProviderTests):
    provider = "$name"
    cases = "test_[ar]*"  # "*" runs all of ONNX's node cases
    gaps: ClassVar[dict[str, str]] = {  # known to fail, with the reason
        "test_attention_4d_causal_fp16_expanded": (
            "the suite rounds a Softmax to half precision at every step"
        )
    }
    frameworks = ()  # modules that importing the plug-in must not import
""",
}

TRANSFORM = {
    "src/$module/__init__.py": INIT
    % """\
from collections.abc import Callable

import tenonnx
"""
    + '''

@tenonnx.hookimpl
def register_transforms(register: Callable[[tenonnx.Transform], None]) -> None:
    """Announce the transform."""
    from $module.transform import apply

    register(tenonnx.Transform("$name", apply, level="extended", needs=("Neg",)))
''',
    "src/$module/transform.py": '''\
"""The transform: a Neg of a Neg is what was there before."""

from __future__ import annotations

import onnx_ir as ir
import tenonnx


def apply(model: ir.Model, context: tenonnx.TransformContext) -> bool:
    """Rewrites a model in place; returns whether it changed anything."""
    del context
    modified = False
    for graph in model.graphs():
        for node in graph:
            source = _negated_twice(node)
            if source is not None and not node.outputs[0].is_graph_output():
                ir.convenience.replace_all_uses_with(node.outputs[0], source)
                modified = True
    return modified


def _negated_twice(node: ir.Node) -> ir.Value | None:
    """Returns what a Neg of a Neg of somebody's began with, if somebody reads it."""
    if node.op_type != "Neg" or node.domain or not node.outputs[0].uses():
        return None
    first = node.inputs[0].producer() if node.inputs[0] else None
    if first is None or first.op_type != "Neg" or first.domain or first.graph is not node.graph:
        return None
    return first.inputs[0]
''',
    "tests/test_$snake.py": """\
from __future__ import annotations

from collections.abc import Sequence

import onnx
from tenonnx.testing import TransformTests, models


class Test${Camel}(TransformTests):
    transform = "$name"
    cases = "test_[ns]*"  # "*" tries it on all of ONNX's node cases

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        return [models.build("a = Neg(x) b = Neg(a) y = Relu(b)")]

    def untouched(self) -> Sequence[onnx.ModelProto]:
        return [models.build("a = Neg(x) y = Neg(a)"), models.mlp()]
""",
}

OPERATOR = {
    "src/$module/__init__.py": INIT
    % """\
from typing import TYPE_CHECKING

import tenonnx

if TYPE_CHECKING:
    from tenonnx.hookspecs import RegisterOperators

"""
    + '''

@tenonnx.hookimpl
def register_operators(register: RegisterOperators) -> None:
    """Announce the operator, for every provider that takes kernels."""
    from $module.operator import TABLE

    register(TABLE)
''',
    "src/$module/operator.py": '''\
"""The operator ``com.example::$Camel``."""

from __future__ import annotations

import tenonnx

TABLE = tenonnx.OperatorTable("com.example")


@TABLE.op("$Camel", since=1)
def kernel(xp: tenonnx.Namespace, x: tenonnx.Array, *, cap: float = 30.0) -> tenonnx.Array:
    """Squashes values into (-cap, cap): ``cap * tanh(x / cap)``; ``xp`` is the array library."""
    return xp.tanh(x / cap) * cap
''',
    "tests/test_$snake.py": """\
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenonnx


@pytest.mark.parametrize("cap", [0.5, 30.0])
def test_it_computes_its_formula(tenonnx_model: Callable[..., Any], cap: float) -> None:
    body = f"y = com.example.$Camel <cap: float = {cap}> (x)"
    session = tenonnx.InferenceSession(tenonnx_model(body, domains={"com.example": 1}))
    x = np.linspace(-100, 100, 41, dtype=np.float32)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, cap * np.tanh(x.astype(np.float64) / cap), rtol=1e-5)
    assert y.dtype == np.float32


def test_an_attribute_that_it_has_not_is_refused(tenonnx_model: Callable[..., Any]) -> None:
    body = "y = com.example.$Camel <top: float = 1.0> (x)"
    model = tenonnx_model(body, domains={"com.example": 1})
    with pytest.raises(tenonnx.NotSupported, match="no attribute top"):
        tenonnx.InferenceSession(model)
""",
}

FORMAT = {
    "src/$module/__init__.py": INIT
    % """\
from collections.abc import Callable

import tenonnx
"""
    + '''

@tenonnx.hookimpl
def register_formats(register: Callable[[tenonnx.Format], None]) -> None:
    """Announce the format."""
    from $module.format import load, save, sniff

    suffixes = (".$snake",)
    register(tenonnx.Format("$name", load, sniff, suffixes, save))
''',
    "src/$module/format.py": '''\
"""The format: ONNX behind a few bytes of its own, and a checksum."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import onnx_ir as ir
import tenonnx
from tenonnx.load import load as load_onnx

MAGIC = b"$snake\\0"
HEADER = len(MAGIC) + 4


def load(source: Any, registry: tenonnx.WeightRegistry) -> ir.Model:
    """Returns the model in a file or buffer; its weights are views of the registry's.

    Raises:
        InvalidProtobuf: The content is cut or altered.
    """
    whole = source if isinstance(source, bytes) else Path(source).read_bytes()
    content = whole[HEADER:]
    if not whole.startswith(MAGIC) or whole[len(MAGIC) : HEADER] != _sum(content):
        raise tenonnx.InvalidProtobuf(
            "the $name file is damaged", hint="Was its download or copy completed?"
        )
    return load_onnx(content, registry)


def save(model: ir.Model, path: Path) -> None:
    """Writes a model."""
    content = ir.to_proto(model).SerializeToString()
    path.write_bytes(MAGIC + _sum(content) + content)


def sniff(header: bytes) -> bool:
    """Recognizes the first bytes of a file."""
    return header.startswith(MAGIC)


def _sum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")
''',
    "tests/test_$snake.py": """\
from __future__ import annotations

from tenonnx.testing import FormatTests


class Test${Camel}(FormatTests):
    format = "$name"
    views = False  # its weights are views of what it read, not of a mapped file
""",
}

OBSERVER = {
    "src/$module/__init__.py": INIT
    % """\
import tenonnx
"""
    + '''

@tenonnx.hookimpl
def create_observer(plan: tenonnx.Plan) -> tenonnx.Observer | None:
    """Watch every plan; return ``None`` to leave one alone, which then runs at full speed."""
    del plan
    from $module.observer import ${Camel}Observer

    return ${Camel}Observer()
''',
    "src/$module/observer.py": '''\
"""The observer: how long each operator took, over all plans."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, ClassVar

import tenonnx


class ${Camel}Observer:
    """Adds up nanoseconds by operator."""

    nanoseconds: ClassVar[Counter[str]] = Counter()

    def on_step(self, step: tenonnx.Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        """Called after every step; without one when a loop begins another iteration."""
        del outputs
        if step is not None:
            self.nanoseconds[step.nodes[0].op_type] += time.perf_counter_ns() - start_ns
''',
    "tests/test_$snake.py": """\
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tenonnx

from $module.observer import ${Camel}Observer


def test_every_step_is_seen(tenonnx_model: Callable[..., Any]) -> None:
    ${Camel}Observer.nanoseconds.clear()
    session = tenonnx.InferenceSession(tenonnx_model("h = Neg(x) y = Sin(h)"))
    (y,) = session.run(None, {"x": np.zeros(3, np.float32)})
    assert y.shape == (3,)
    assert sum(${Camel}Observer.nanoseconds.values()) > 0
""",
}

KINDS: dict[str, dict[str, str]] = {
    "provider": PROVIDER,
    "transform": TRANSFORM,
    "operator": OPERATOR,
    "format": FORMAT,
    "observer": OBSERVER,
}
"""Templates by path, for each kind."""
