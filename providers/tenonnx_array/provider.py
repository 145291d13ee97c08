"""An execution provider over any array namespace: subclass it and name the namespace.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from tenonnx import installed, interruption
from tenonnx.lazy_modules import graph
from tenonnx.operators import Kernel, Namespace, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.provider import HOST, Device, Provider, Segment, Step

if TYPE_CHECKING:
    import onnx_ir as ir

CHUNKED: Final = {
    "light": (
        "Abs Add And Ceil Clip Div Equal Floor Greater GreaterOrEqual Less LessOrEqual Max Min Mul "
        "Neg Not Or Reciprocal Relu Sign Sqrt Sub Where Xor"
    ),
    "pointwise": (
        "Acos Acosh Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Celu "
        "Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mean Mish Mod "
        "PRelu Pow Round Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sum Swish Tan Tanh "
        "ThresholdedRelu com.microsoft::BiasAdd com.microsoft::BiasGelu com.microsoft::FastGelu "
        "com.microsoft::Gelu com.microsoft::QLinearAdd com.microsoft::QLinearLeakyRelu "
        "com.microsoft::QLinearMul com.microsoft::QLinearSigmoid com.microsoft::QLinearWhere "
        "com.microsoft::QuickGelu com.microsoft::ScaledSiLU ai.onnx.ml::CategoryMapper "
        "ai.onnx.ml::LabelEncoder"
    ),
    "written": "Cast StringConcat",
    "one_hot": "OneHot",
    "reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "softmax": "Hardmax LogSoftmax Softmax",
    "along": "LpNormalization",
    "last_axes": (
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization "
        "com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization"
    ),
    "batch": (
        "ConvTranspose GroupNormalization com.microsoft::GroupNorm com.microsoft::NhwcMaxPool"
    ),
    "samples": (
        "ai.onnx.ml::Binarizer ai.onnx.ml::Imputer ai.onnx.ml::LinearClassifier "
        "ai.onnx.ml::LinearRegressor ai.onnx.ml::Normalizer ai.onnx.ml::OneHotEncoder "
        "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor ai.onnx.ml::Scaler"
    ),
    "batch_norm": "BatchNormalization",
    "channels": "InstanceNormalization",
    "planes": (
        "AveragePool LpPool MaxPool com.microsoft::QLinearAveragePool "
        "com.microsoft::QLinearGlobalAveragePool"
    ),
    "signals": "com.microsoft::Irfft com.microsoft::Rfft",
    "quantization": (
        "DequantizeLinear QuantizeLinear com.microsoft::DequantizeLinear "
        "com.microsoft::QuantizeLinear"
    ),
    "transform": "DFT",
    "matrices": "Det com.microsoft::Inverse",
    "gather": "Gather",
    "gather_elements": "GatherElements",
    "gather_nd": "GatherND",
    "together": "GridSample com.microsoft::GridSample",
    "all_but_channels": "LRN",
    "mean_variance": "MeanVarianceNormalization",
    "rotary": "RotaryEmbedding",
    "crops": "com.microsoft::CropAndResize",
    "reverse_sequence": "ReverseSequence",
    "scatter_elements": "ScatterElements",
    "heads": "Attention",
    "whole": (
        "Col2Im Compress Dropout DynamicQuantizeLinear NegativeLogLikelihoodLoss ScatterND "
        "SoftmaxCrossEntropyLoss SwiGLU Trilu Unique ai.onnx.ml::ArrayFeatureExtractor "
        "ai.onnx.ml::FeatureVectorizer "
        "ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam "
        "ai.onnx.preview.training::Momentum com.microsoft::Attention com.microsoft::BiasSoftmax "
        "com.microsoft::BiasSplitGelu com.microsoft::ComplexMul com.microsoft::ComplexMulConj "
        "com.microsoft::EmbedLayerNormalization com.microsoft::GatedAdd "
        "com.microsoft::GroupQueryAttention com.microsoft::IsAllFinite com.microsoft::MulInteger "
        "com.microsoft::MoE com.microsoft::MultiHeadAttention com.microsoft::PackedAttention "
        "com.microsoft::PackedMultiHeadAttention com.microsoft::PagedAttention "
        "com.microsoft::QLinearConcat com.microsoft::QLinearReduceMean "
        "com.microsoft::QLinearSoftmax com.microsoft::QMoE com.microsoft::ReduceSumInteger "
        "com.microsoft::RotaryEmbedding com.microsoft::SkipGroupNorm "
        "com.microsoft::SparseAttention com.microsoft::Trilu com.microsoft::Unique"
    ),
}
"""Operators of which numpy computes large inputs in chunks, by the rule of `chunk_rules`."""

RULE_OF = {key: rule for rule, keys in CHUNKED.items() for key in keys.split()}
"""The other way round, as a node's domain and operator are written there."""

SMALL = 1 << 18
"""Elements that numpy computes at once, some hundredths of a second of the slowest operators."""

FEW = 1 << 11
"""Elements of those that make much of each: strings, or rows."""

LARGEST = ("whole", "heads")
"""Rules by which the largest input tells how long a step takes."""

MANY = 1 << 22
"""Elements that numpy computes of light ones at once: a hundredth of a second, into new memory."""


FIRST = frozenset(["reduction", "last_axes", "batch_norm", "channels", "quantization"])
"""Rules of those that have as much to do as their first input has elements."""

WORDS = frozenset(["Cast", "Equal", "Where"])
"""Light ones that may be given strings."""

STRING = 8
"""The data type of strings, as attributes name it."""


class Stoppable:
    """A call of numpy's that is made in chunks of large inputs, so that it can be stopped."""

    def __init__(self, call: Callable[..., Any], node: ir.Node, rule: str) -> None:
        self.func, self.node, self.rule = call, node, rule
        light = rule == "light" or node.op_type in ("Cast", "DequantizeLinear")
        self._small = FEW if _is_slow(node) else MANY if light else SMALL
        if rule == "heads":
            self._small = SMALL >> 3
        self._axis = graph.python_attributes(node).get("axis", 0) if rule == "gather" else 0

    def __call__(self, *inputs: Any) -> Any:
        """Returns what the call does."""
        if (len(inputs) == 1 and inputs[0].size <= FEW) or self._is_small(inputs):
            return self.func(*inputs)
        return self.in_chunks(self.func, inputs)

    def in_chunks(self, whole: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Returns what the call does of large inputs; ``whole``, if they cannot be cut."""
        from tenonnx_array.chunks import in_chunks  # for the largest inputs only

        return in_chunks(self.func, self.node, inputs, self.rule, whole)

    def _is_small(self, inputs: Sequence[Any]) -> bool:
        """Says whether numpy is soon done with inputs."""
        if self.rule in FIRST:
            return bool(inputs[0].size <= self._small)
        if self.rule in LARGEST:
            return all(x is None or x.size <= self._small for x in inputs)
        if self.rule == "gather":  # of a table of words, few are taken
            data, indices = inputs
            taken = data.shape[self._axis :][:1] or (1,)
            return bool(indices.size * data.size <= self._small * taken[0])
        size, shape = 1, None
        for x in inputs:
            if x is not None and x.shape != shape:  # the result has no more than their product
                shape = x.shape
                size *= x.size or 1
        small = self._small
        if size > FEW and self.node.op_type in WORDS and any(map(_has_words, inputs)):
            small = FEW if self.node.op_type == "Cast" else SMALL
        return size <= small or (small == MANY and _broadcast_size(inputs) <= MANY)


def _has_words(x: Any) -> bool:
    return x is not None and x.dtype.hasobject


def _is_slow(node: ir.Node) -> bool:
    """Tells whether the result has strings, or is larger than its inputs."""
    if node.op_type == "Cast":
        return graph.python_attributes(node).get("to") in (STRING, "STRING")
    return node.op_type in ("StringConcat", "OneHot")


def _broadcast_size(inputs: Sequence[Any]) -> int:
    """Returns the number of elements that inputs have together; 0 if they do not fit."""
    try:
        return int(np.broadcast(*(x for x in inputs if x is not None)).size)
    except ValueError:
        return 0


class Writing(Stoppable):
    """One whose call can write into a buffer that it is given."""

    def __init__(
        self, call: Callable[..., Any], node: ir.Node, rule: str, write: Callable[..., Any]
    ) -> None:
        super().__init__(call, node, rule)
        self.write = write

    def __call__(self, *inputs: Any, _out: Any = None) -> Any:
        """Returns what the call does, in the buffer if that can be."""
        if (len(inputs) == 1 and inputs[0].size <= FEW) or self._is_small(inputs):
            return self.func(*inputs) if _out is None else self.write(_out, *inputs)
        whole = self.func if _out is None else functools.partial(self.write, _out)
        return self.in_chunks(whole, inputs)


def stoppable(call: Callable[..., Any], node: ir.Node) -> Callable[..., Any]:
    """Returns a call of numpy's as one that can be stopped, if the operator can be cut."""
    domain = node.domain and f"{node.domain}::"
    rule = RULE_OF.get(f"{domain}{node.op_type}")
    if rule is None:
        return call
    from tenonnx.planning.writing import writer  # a plan that was kept has asked it

    write = writer(call)
    return Stoppable(call, node, rule) if write is None else Writing(call, node, rule, write)


class ArrayDevice:
    """The memory of a namespace's arrays, unless it is the process's own as numpy has it.

    Args:
        namespace: The module's name; it is imported when the first array is moved.
        id: Two devices of one ``id`` are the same memory.
    """

    def __init__(self, namespace: str, id: str | None = None) -> None:  # noqa: A002 - Device's name
        self.namespace = namespace
        self.id = id or namespace

    @functools.cached_property
    def xp(self) -> Namespace:
        """The namespace."""
        return importlib.import_module(self.namespace)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Returns the namespace's array for a numpy array."""
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Returns a numpy array that its reader may write to, for a namespace's array."""
        found = np.asarray(array)
        return found if found.flags.writeable else found.copy()

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Joins arrays of one shape along a new axis."""
        return self.xp.stack(arrays, axis=axis)


class ArrayProvider(Provider):
    """Runs nodes one by one with the operator table, bound to a namespace with numpy's names.

    A subclass sets ``name`` and ``namespace``, and what its library does not have.
    """

    namespace: ClassVar[str] = "numpy"
    """The module that has numpy's names; it is imported when the first node is compiled."""

    install: ClassVar[str] = ""
    """The argument of ``pip install`` for a missing module; its name if empty."""

    libraries: ClassVar[tuple[str, ...]] = ()
    """Modules that have to be installed; the namespace's if empty."""

    overrides: ClassVar[OperatorTable] = OperatorTable()
    """Kernels of this provider's own, in place of the table's at the same version."""

    complete: ClassVar[bool] = False
    """Whether ``overrides`` are all the kernels: the table's and those that plug-ins add, which
    are written in numpy's names, are not to be used."""

    without: ClassVar[Mapping[str, str]] = {}
    """Operators of the table that do not run on this namespace, each with the reason."""

    elements: ClassVar[frozenset[str] | None] = None
    """Names of the ONNX element types that the library has, as ``"FLOAT"``; ``None`` for all."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Gives a provider over another namespace than numpy a device, unless it has one."""
        super().__init_subclass__(**arguments)
        if "namespace" in vars(cls) and cls.namespace != "numpy" and cls.device is HOST:
            device: Device = ArrayDevice(cls.namespace)
            cls.device = device

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        super().__init__(options, operators, session_options)

    @functools.cached_property
    def table(self) -> OperatorTable:
        """Kernels of the table, of the provider's own and of plug-ins."""
        table, more = _table(type(self)), self.operators
        return OperatorTable().update(table, more) if more and not self.complete else table

    @classmethod
    def check(cls) -> str | None:
        """Says which library is not installed, without importing any."""
        for library in cls.libraries or (cls.namespace.partition(".")[0],):
            if installed.spec(library) is None:
                return f"{library} is not installed: pip install {cls.install or library}"
        return None

    @property
    def xp(self) -> Namespace:
        """The array namespace."""
        return importlib.import_module(self.namespace)

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts a node whose operator, attributes and element types there are."""
        if self.domains is not None and node.domain not in self.domains:
            return f"it has no operators of {node.domain}"
        kernel = self.table.find(node.domain, node.op_type, node.version or 1)
        if kernel is None:
            return f"no kernel for {node.domain or 'ai.onnx'}::{node.op_type}-{node.version}"
        if not node.domain and (reason := self.without.get(node.op_type)):
            return reason
        if unknown := [name for name in node.attributes.data if name not in kernel.attributes]:
            return f"{kernel} has no attribute {', '.join(sorted(unknown))}"
        if len(node.outputs) > 1 and not kernel.multiple:
            return f"{kernel} has one output, the node names {len(node.outputs)}"
        return kernel.misfit(node.inputs) or self.lacks(node) or True

    def has_operator(self, node: ir.Node) -> bool:
        """Says whether the table has a node's operator."""
        return self.table.find(node.domain, node.op_type, node.version or 1) is not None

    def lacks(self, node: ir.Node) -> str | None:
        """Returns why the library cannot run a node whose kernel there is; ``None`` if it can."""
        if self.elements is not None:
            from tenonnx.dtypes import dtype_of

            for value in (*node.inputs, *node.outputs):
                element = dtype_of(value)
                if element is not None and element.name not in self.elements:
                    return f"no elements of type {element.name}"
        return None

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns a step per node."""
        return [self._step(node) for node in segment.nodes]

    def kernel(self, node: ir.Node) -> Kernel:
        """Returns the kernel of a node that the provider supports."""
        kernel = self.table.find(node.domain, node.op_type, node.version or 1)
        assert kernel is not None, "the node was placed here because the table has its operator"
        return kernel

    def bound(self, node: ir.Node, xp: Namespace) -> Callable[..., Any]:
        """Returns a function of a node's inputs on the arrays of ``xp``.

        Raises:
            InvalidArgument: The node has an attribute that its operator does not, or lacks one.
        """
        return self.kernel(node).bind(xp, graph.python_attributes(node), len(node.outputs))

    def _step(self, node: ir.Node) -> Step:
        interruption.check()
        kernel = self.kernel(node)
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        call = self.bound(node, namespace := self._namespace(kernel))
        return Step(
            call=stoppable(call, node) if namespace is np else call,
            inputs=tuple(inputs),
            outputs=tuple(node.outputs),
            nodes=(node,),
            multiple=kernel.multiple,
            device=self.device,
            host=kernel.host,
            host_output=kernel.host_output,
            bodies=tuple(name for name, _ in graph.subgraphs(node)),
        )

    def _namespace(self, kernel: Kernel) -> Namespace:
        return np if kernel.host == "all" else self.xp


@functools.cache
def _table(provider: type[ArrayProvider]) -> OperatorTable:
    if provider.complete:
        return provider.overrides
    from tenonnx_array import TABLE

    return OperatorTable().update(TABLE, provider.overrides)
