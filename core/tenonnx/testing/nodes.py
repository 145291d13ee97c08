"""ONNX's own node cases, which the onnx package ships: a model of one node, inputs and outputs."""

from __future__ import annotations

import copy
import fnmatch
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tenonnx.session import InferenceSession
from tenonnx.testing.compare import assert_similar

# Cases whose answers versions of ONNX have changed: tenonnx gives the others, for this reason.
CORRECTED = {
    "test_maxunpool_export_with_output_shape": "ONNX 1.24 has indices count in output_shape",
    "test_resize_downsample_scales_cubic_align_corners": "ONNX 1.24 divides by the size less one",
    "test_resize_downsample_scales_linear_align_corners": "ONNX 1.24 divides by the size less one",
}

if onnx.defs.onnx_opset_version() >= 29:  # 1.24's; development builds call themselves 1.23
    CORRECTED = {
        "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True": (
            "ONNX 1.24 counts what ceil_mode adds behind the pads; 1.23 and onnxruntime do not"
        ),
    }


# The messages in files of values, by the kinds of types.
FILE_TYPES: dict[str, Any] = {
    "tensor_type": onnx.TensorProto,
    "sequence_type": onnx.SequenceProto,
    "optional_type": onnx.OptionalProto,
}


@dataclass(frozen=True)
class NodeCase:
    """One case of the suite.

    Attributes:
        name: As ``test_softmax_axis_1``.
        model: The model.
        data: Inputs and the outputs they must give, in the order of the graph.
        rtol: The suite's relative tolerance.
        atol: Absolute tolerance.
    """

    name: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    def check(self, open_model: Callable[[onnx.ModelProto], InferenceSession]) -> InferenceSession:
        """Run the case on a session of the caller's; return that session.

        Raises:
            AssertionError: An output is wrong, or an input was written to.
        """
        session = open_model(self.model)
        names = [given.name for given in session.get_inputs()]
        for given, expected in self.data:
            inputs = [_array(value) for value in given]
            before = copy.deepcopy(inputs)
            outputs = session.run(None, dict(zip(names, inputs, strict=False)))
            assert_similar([_array(v) for v in expected], outputs, self.rtol, self.atol)
            assert_similar(before, inputs, 0, 0, "an input after the run")
        return session


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value


@functools.cache
def node_cases(pattern: str = "*") -> dict[str, NodeCase]:
    """Return the cases whose names match a pattern, by name; building them takes seconds."""
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    named = (case for case in found if fnmatch.fnmatch(case.name, pattern))
    read = ((case, *_contents(case)) for case in named)
    return {
        case.name: NodeCase(case.name, model, data, case.rtol, case.atol)
        for case, model, data in read
        if data
    }


def _contents(case: Any) -> tuple[onnx.ModelProto, Sequence[Any]]:
    """Return a case's model and data, which onnx before 1.23 has in files."""
    if case.model is not None:
        return case.model, case.data_sets or ()
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    ends = ("input", model.graph.input), ("output", model.graph.output)
    sets = sorted(folder.glob("test_data_set_*"))
    return model, [tuple(_values(each, *end) for end in ends) for each in sets]


def _values(folder: Path, prefix: str, declared: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    """Return the inputs or outputs of a data set that has files for them."""
    made = []
    for number, info in enumerate(declared):
        file = folder / f"{prefix}_{number}.pb"
        if file.exists():
            message = FILE_TYPES[info.type.WhichOneof("value")]
            made.append(_array(message.FromString(file.read_bytes())))
    return made
