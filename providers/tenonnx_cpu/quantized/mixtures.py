"""``com.microsoft``'s mixtures of experts, on kernels that read matrices as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.experts import Activation, mixture, route
from tenonnx_cpu.buffers import F32, contiguous
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import kind_of, product
from tenonnx_cpu.matmul.product import request as request_products
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import Activations, activations_at, matmul_q, request
from tenonnx_cpu.quantized.routed import ExpertLayer, Mixture, joined


class _NoKernelError(Exception):
    """No kernel takes some rows, or it is missing."""


class Dense(NamedTuple):
    """A layer of every expert: matrices ``(experts, outputs, inputs)``, and perhaps biases."""

    stack: NDArray
    biases: NDArray | None
    threads: int

    def __call__(self, x: NDArray, expert: int) -> NDArray:
        """Return an expert's outputs of rows."""
        bias = None if self.biases is None else self.biases[expert]
        y = product(x, self.stack[expert].T, self.threads, bias)
        if y is None:
            raise _NoKernelError
        return y  # type: ignore[no-any-return]  # what a launch computes


class DenseOfCodes(NamedTuple):
    """The same, of quantized matrices; ``whole`` is all of them side by side."""

    whole: Quantized
    matrices: tuple[Quantized, ...]
    biases: NDArray | None
    activations: Activations
    threads: int

    def __call__(self, x: NDArray, expert: int) -> NDArray:
        """Return an expert's outputs of rows."""
        bias = None if self.biases is None else self.biases[expert]
        made = matmul_q(
            contiguous(x), self.matrices[expert], self.threads, bias, activations=self.activations
        )
        if made is None:
            raise _NoKernelError
        return done(made)  # type: ignore[no-any-return]  # likewise


@specialize("MoE", "QMoE", domain="com.microsoft")
def mixture_of_experts(site: Site, plain: Call) -> Call | None:
    """Take float32 rows, and constant matrices of numbers, or of codes in the portable layout."""
    node = site.node
    of_codes = node.op_type == "QMoE"
    if of_codes and (site.given(*range(15, 22)) or site.attribute("quant_type", "int") != "int"):
        return None
    places = (
        ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13)) if of_codes else ((2, 3), (4, 5), (6, 7))
    )
    build = _of_codes if of_codes else _of_numbers
    layers = [build(site, *place) for place in places]
    if layers[0] is None or layers[1] is None or (layers[2] is None and site.given(places[2][0])):
        return None
    three: Any = tuple(layers)
    activation = Activation(
        site.attribute("activation_type", "relu"),
        site.attribute("activation_alpha", 1.0),
        site.attribute("activation_beta", 0.0),
        site.attribute("swiglu_limit", None),
        site.attribute("swiglu_fusion", 0),
        bool(site.attribute("swiglu_limit_after_activation", 0)),
    )
    count, sparse = site.attribute("k", 1), bool(site.attribute("use_sparse_mixer", 0))
    normalize = bool(site.attribute("normalize_routing_weights", 0))
    whole = None
    if of_codes and not (sparse or three[2] or site.given(14)):
        one, two = (ExpertLayer(layer.whole, layer.biases) for layer in three[:2])
        experts = len(three[0].matrices)
        whole = joined((one, two), experts, count, normalize=normalize, between=activation)
    routing = count, normalize, sparse
    call = MixtureCall(whole, three, activation, routing, of_codes, site.threads, plain)
    return Capturable(call)


@cacheable
@dataclass(frozen=True, eq=False)
class MixtureCall:
    """A mixture of experts.

    Attributes:
        whole: All of it as one launch, if there is one.
        layers: The experts' layers.
        activation: What is between the first and the second one.
        routing: How many experts a row has, whether their shares are normalized, and whether it is
            the sparse mixer.
        of_codes: Whether matrices are quantized.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    whole: Mixture | None
    layers: Any
    activation: Activation
    routing: tuple[int, bool, bool]
    of_codes: bool
    threads: int
    plain: Call

    def __call__(self, *inputs: Any) -> Any:
        """Return a launch, or the result."""
        x, scores = inputs[:2]
        if self.whole is not None:
            launch = self.whole.launch(x, scores, self.threads)
            if launch is not None:
                return launch
        weights = inputs[14] if self.of_codes and len(inputs) > 14 else None
        if x.dtype != F32 or not x.size:
            return self.plain(*inputs)
        count, normalize, sparse = self.routing
        experts, shares = route(
            np, scores, count, normalize=normalize, sparse=sparse, weights=weights
        )
        try:
            return mixture(np, x, experts, shares, self.layers, self.activation)
        except _NoKernelError:
            return self.plain(*inputs)


def _of_numbers(site: Site, stack: int, bias: int) -> Dense | None:
    matrices, biases = site.constant(stack), site.constant(bias)
    if matrices is None or not kind_of(matrices.dtype) or matrices.ndim != 3:
        return None
    if site.given(bias) and not _are_biases(biases, matrices.shape[:2]):
        return None
    request_products(kind_of(matrices.dtype))
    return Dense(matrices, biases, site.threads)


def _are_biases(biases: NDArray | None, shape: tuple[int, ...]) -> bool:
    """Return whether there is one float32 for every column of every matrix."""
    return biases is not None and biases.dtype == F32 and biases.shape == shape


def _of_codes(site: Site, stack: int, scale: int, bias: int, zero: int) -> DenseOfCodes | None:
    codes, scales, biases, zeros = (site.constant(n) for n in (stack, scale, bias, zero))
    if codes is None or scales is None or codes.dtype != np.uint8 or not kind_of(scales.dtype):
        return None
    if codes.ndim != 3 or (site.given(bias) and not _are_biases(biases, codes.shape[:2])):
        return None
    name = f"fc{1 + (stack - 2) // 3}_expert_weight_bits"
    bits = site.attribute(name, 0) or site.attribute("expert_weight_bits", 4)
    if bits not in (2, 4, 8):
        return None
    experts, columns = codes.shape[:2]
    depth = codes.shape[2] * 8 // bits
    block = site.attribute("block_size", 0) or depth
    # Zero points of whole columns are packed across these, which no kernel reads.
    if site.given(zero) and (zeros is None or zeros.ndim != 3 or len(zeros) != experts):
        return None
    if zeros is not None and zeros.dtype != np.uint8:
        return None
    if scales.shape[:2] != (experts, columns):
        return None
    wide = site.float32(scale).reshape(experts, columns, -1)

    def matrix(chosen: slice) -> Quantized:
        own = wide[chosen].reshape(-1, wide.shape[2])
        points = None if zeros is None else zeros[chosen].reshape(-1)
        return Quantized(
            codes[chosen].reshape(-1), own, points, bits, depth, len(own), block, by_column=True,
            zero=1 << bits - 1,
        )  # fmt: skip

    try:
        matrices = tuple(matrix(slice(expert, expert + 1)) for expert in range(experts))
        whole = matrix(slice(None))
    except ValueError:  # sizes that the operator itself refuses, in its own words
        return None
    activations = activations_at(site.attribute("accuracy_level", 0))
    request(matrices[0], activations)
    return DenseOfCodes(whole, matrices, biases, activations, site.threads)
