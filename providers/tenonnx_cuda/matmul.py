"""Products of 16-bit floats as they are: cuBLAS sums them in float32."""

from __future__ import annotations

from tenonnx.operators import Array
from tenonnx_array.linalg import product
from tenonnx_cuda.chosen import Call, Site, choose, same_element


@choose("MatMul")
def matmul(site: Site, plain: Call) -> Call:
    """MatMul; the array kernel would write float32 copies of both factors first."""

    def call(A: Array, B: Array) -> Array:
        if same_element(A, B) in ("f16", "bf16"):
            return product(site.xp, A, B)
        return plain(A, B)

    return call
