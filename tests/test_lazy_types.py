"""onnx_ir's enums are the same whether ml_dtypes is imported before them or when it is needed."""

from __future__ import annotations

import pytest

from test_lazy_modules import child

TYPES = """
kinds = [kind for kind in ir.DataType if kind != ir.DataType.UNDEFINED]
there = "ml_dtypes._ml_dtypes_ext" in sys.modules
print([ir.DataType.from_numpy(kind.numpy()) == kind for kind in kinds].count(False), there)
print([kind.numpy().name for kind in kinds], ir.DataType.FLOAT8E5M2.max, ir.DataType.INT4.min)
import ml_dtypes
import numpy
print(ir.DataType.BFLOAT16.numpy() == numpy.dtype(ml_dtypes.bfloat16))
for wrong in (lambda: ir.DataType.UNDEFINED.numpy(), lambda: ir.DataType.from_numpy(
        numpy.dtype("M8[s]"))):
    try:
        print(wrong())
    except TypeError as error:
        print(error)
"""


def test_element_types_are_the_same_with_ml_dtypes_and_without() -> None:
    lazily = child("import sys\nfrom tenonnx.lazy_modules import onnx_ir as ir" + TYPES)
    assert lazily == child("import sys, onnx_ir as ir" + TYPES).replace("0 True", "0 False")


@pytest.mark.parametrize(
    ("kind", "looked_for"), [("FLOAT", False), ("BFLOAT16", True), ("UNDEFINED", True)]
)
def test_ml_dtypes_is_imported_when_one_of_its_types_is_looked_for(
    kind: str, looked_for: bool
) -> None:
    code = f"""
        import contextlib, sys
        from tenonnx.lazy_modules import onnx_ir as ir
        with contextlib.suppress(TypeError):
            ir.DataType.{kind}.numpy()
        print("ml_dtypes" in sys.modules)
        """
    assert child(code) == str(looked_for)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", id="the-tables-alone"),
        pytest.param("wide = ml_dtypes.bfloat16", id="a-type-elsewhere"),
        pytest.param("del _DATA_TYPE_TO_NP_TYPE[16]", id="a-table-without-it"),
        pytest.param("_DATA_TYPE_TO_NP_TYPE[4] = np.dtype(ml_dtypes.int4)", id="in-one-table"),
        pytest.param("from ml_dtypes import bfloat16", id="a-name"),
    ],
)
def test_enums_that_use_types_otherwise_get_the_real_ones(more: str) -> None:
    """No stand-in is left anywhere."""
    enums = f"""
import ml_dtypes
import numpy as np
_NP_TYPE_TO_DATA_TYPE = {{np.dtype("float32"): 1, np.dtype(ml_dtypes.bfloat16): 16}}
_DATA_TYPE_TO_NP_TYPE = {{v: k for k, v in _NP_TYPE_TO_DATA_TYPE.items()}}
{more}
"""
    code = f"""
import sys
from tenonnx import lazy_types
names = {{"__name__": "enums"}}
lazy_types.run(compile({enums!r}, "enums", "exec"), names)
later = "ml_dtypes" not in sys.modules
import ml_dtypes, numpy as np
wide = np.dtype(ml_dtypes.bfloat16)
print(later, names["_NP_TYPE_TO_DATA_TYPE"][wide], names["_DATA_TYPE_TO_NP_TYPE"].get(16) == wide)
print(names.get("wide", ml_dtypes.bfloat16) is names.get("bfloat16", ml_dtypes.bfloat16))
"""
    told = child(code).split()
    assert told[0] == str(not more)
    assert told[1] == "16"
    assert told[3] == "True"
