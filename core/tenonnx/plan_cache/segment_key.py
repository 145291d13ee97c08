"""The key of a compiled segment: equal keys, equal bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.graph import array_of
from tenonnx.plan_cache import NotCacheable, key
from tenonnx.process import distributions
from tenonnx.weights.digest import digest
from tenonnx.weights.storage import PROCESS
from tenonnx.weights.weight import weight_in

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.provider import Provider, Segment


def segment_key(provider: Provider, segment: Segment, version: str) -> str:
    """Return what names the bytes that a provider compiles a segment to.

    It says the nodes, the types and shapes of values, the constants, the provider's code, options
    and dependencies. It means nothing to other processes if one of these does not.

    Args:
        provider: It.
        segment: The segment.
        version: That of the bytes' form.
    """
    kind = type(provider)
    try:
        depends = provider.depends_on()
        lasts = depends is not None
        found = _code_of(kind.__module__.partition(".")[0])
    except NotCacheable:
        lasts, found = False, None
    parts = [
        *(version, distributions.release(), kind.__module__, kind.__qualname__),
        *(repr(provider.depends_on()), repr(provider.options), repr(found)),
        repr(_described(segment)),
    ]
    constants = [_constant(value) for value in segment.inputs if _is_constant(value)]
    lasts = lasts and not any(PROCESS in each for each in constants)
    return f"{version}:{digest(*parts, *constants)}" + ("" if lasts else f":{PROCESS}")


def _code_of(package: str) -> tuple[object, ...]:
    """Return what tells the code of a plug-in's package, and its version, from others."""
    whose = key.packages().get(package)
    if whose is None:
        raise NotCacheable(f"{package} is of no plug-in that is installed")
    return whose, distributions.version(whose), key.state_of_code(package, whose)


def _described(segment: Segment) -> list[object]:
    """Return all of a segment but names of values and contents of constants."""
    from onnx_ir import serde

    numbers = {value: number for number, value in enumerate(segment.inputs)}
    told: list[object] = [[_type(value) for value in segment.inputs]]
    for node in segment.nodes:
        reads = [None if value is None else numbers[value] for value in node.inputs]
        for value in node.outputs:
            numbers[value] = len(numbers)
        attributes = sorted(
            serde.serialize_attribute(each).SerializeToString(deterministic=True)
            for each in node.attributes.values()
        )
        types = [_type(value) for value in node.outputs]
        told.append([node.domain, node.op_type, node.version, reads, types, attributes])
    told.append([numbers[value] for value in segment.outputs])
    return told


def _type(value: ir.Value) -> tuple[str, str]:
    return str(value.type), str(value.shape)


def _is_constant(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()


def _constant(value: ir.Value) -> str:
    if (weight := weight_in(value.const_value)) is not None:
        return weight.name_for_others()
    assert value.const_value is not None, "an initializer has a value"
    return digest(array_of(value.const_value).tobytes())
