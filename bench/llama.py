"""One step of a Llama as exporters write it: caches that grow, masks, lengths found by Shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

from bench.builder import FLOAT, INT64, MICROSOFT, Builder, Feeds, Specs
from bench.llm import Form, linear

# Forms of attention: nodes, as torch's exporters write them, or an operator.
Attention: TypeAlias = Literal["nodes", "operator", "group-query"]

Built = tuple[onnx.ModelProto, Feeds]
LENGTHS = 1024
INT32 = onnx.TensorProto.INT32


class _Llama:
    """A model that is being written: a token, its position, a cache for each layer."""

    def __init__(self, form: Form, attends: Attention, heads: int, groups: int, size: int) -> None:
        self.b = Builder()
        self.form, self.attends = form, attends
        self.heads, self.groups, self.size = heads, groups, size
        self.inputs: Specs = {
            "input_ids": (INT64, ["batch", "length"]),
            "attention_mask": (INT64, ["batch", "total"]),
        }
        self.outputs: Specs = {}

    @property
    def width(self) -> int:
        return self.heads * self.size

    def dimension(self, x: str, axis: int) -> str:
        """A length of a value, as a vector of one element."""
        b = self.b
        picked = b("Gather", b("Shape", x), b.scalar(axis), axis=0)
        return b("Unsqueeze", picked, b.ints(0))

    def caches(self, layer: int) -> tuple[str, str]:
        """The inputs and outputs of a layer's cache; returns the inputs' names."""
        names = []
        for kind in ("key", "value"):
            past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            self.inputs[past] = (FLOAT, ["batch", self.groups, "past", self.size])
            self.outputs[present] = (FLOAT, ["batch", self.groups, "total", self.size])
            names.append(past)
        return names[0], names[1]

    def angles(self) -> tuple[str, str]:
        """Cosine and sine of the positions' angles, computed in every run."""
        b, size = self.b, self.size
        self.inputs["position_ids"] = (INT64, ["batch", "length"])
        rates = (10000.0 ** (-np.arange(0, size, 2) / size)).astype(np.float32)
        rows = b("Concat", self.dimension("position_ids", 0), b.ints(-1), b.ints(1), axis=0)
        ones = b("ConstantOfShape", b.ints(3), value=onnx.numpy_helper.from_array(np.array([1])))
        shape = b("Where", b("Equal", rows, b("Mul", ones, b.ints(-1))), ones, rows)
        frequencies = b("Expand", b.weight(rates[None, :, None]), shape)
        positions = b("Cast", b("Unsqueeze", "position_ids", b.ints(1)), to=FLOAT)
        turned = b("Transpose", b("MatMul", frequencies, positions), perm=[0, 2, 1])
        both = b("Concat", turned, turned, axis=-1)
        cos, sin = (b("Unsqueeze", b(op, both), b.ints(1)) for op in ("Cos", "Sin"))
        return cos, sin

    def mask(self) -> str:
        """Return the summand of scores: causal, and the least number for hidden tokens."""
        b = self.b
        least = float(np.finfo(np.float32).min)
        before = b("Gather", b("Shape", "past_key_values.0.key"), b.scalar(2), axis=0)
        count = b("Gather", b("Shape", "input_ids"), b.scalar(1), axis=0)
        own = b("Range", before, b("Add", before, count), b.scalar(1))
        total = self.dimension("attention_mask", 1)
        keys = b("Range", b.scalar(0), b("Squeeze", total, b.ints(0)), b.scalar(1))
        later = b("Greater", keys, b("Reshape", own, b.ints(-1, 1)))
        rows = b("Concat", b("Unsqueeze", count, b.ints(0)), total, axis=0)
        value = onnx.numpy_helper.from_array(np.array([least], np.float32))
        full = b("ConstantOfShape", rows, value=value)
        causal = b("Mul", full, b("Cast", later, to=FLOAT))
        causal = b("Unsqueeze", causal, b.ints(0, 1))
        shape = [self.dimension("input_ids", 0), b.ints(1), b.ints(-1), b.ints(-1)]
        wanted = b("Concat", *shape, axis=0)
        ones = b("ConstantOfShape", b.ints(4), value=onnx.numpy_helper.from_array(np.array([1])))
        wanted = b("Where", b("Equal", wanted, b("Mul", ones, b.ints(-1))), ones, wanted)
        causal = b("Expand", causal, wanted)
        seen = b("Unsqueeze", "attention_mask", b.ints(1, 2))
        hidden = b("Equal", b("Add", causal, b("Cast", seen, to=FLOAT)), b.number(0))
        return b("Where", hidden, b.number(least), causal)

    def split_heads(self, x: str, heads: int) -> str:
        b = self.b
        sizes = [self.dimension(x, 0), self.dimension(x, 1), b.ints(heads), b.ints(self.size)]
        return b("Transpose", b("Reshape", x, b("Concat", *sizes, axis=0)), perm=[0, 2, 1, 3])

    def rotated(self, x: str, cos: str, sin: str) -> str:
        b, half = self.b, self.size // 2
        low = b("Slice", x, b.ints(0), b.ints(half), b.ints(3))
        high = b("Slice", x, b.ints(half), b.ints(np.iinfo(np.int64).max), b.ints(3))
        turned = b("Concat", b("Neg", high), low, axis=-1)
        return b("Add", b("Mul", x, cos), b("Mul", turned, sin))

    def repeated(self, x: str) -> str:
        """Each head of keys or values as often as queries share it."""
        b, times = self.b, self.heads // self.groups
        sizes = [self.dimension(x, axis) for axis in range(4)]
        wanted = b("Concat", *sizes[:2], b.ints(times), *sizes[2:], axis=0)
        ones = b("ConstantOfShape", b.ints(5), value=onnx.numpy_helper.from_array(np.array([1])))
        shape = b("Where", b("Equal", wanted, b("Mul", ones, b.ints(-1))), ones, wanted)
        wide = b("Expand", b("Unsqueeze", x, b.ints(2)), shape)
        heads = b("Concat", sizes[0], b.ints(self.heads), *sizes[2:], axis=0)
        return b("Reshape", wide, heads)

    def by_nodes(self, q: str, k: str, v: str, layer: int, given: Any) -> str:
        b = self.b
        cos, sin, mask = given
        past_k, past_v = self.caches(layer)
        q, k, v = (
            self.split_heads(x, heads)
            for x, heads in ((q, self.heads), (k, self.groups), (v, self.groups))
        )
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        k = b("Concat", past_k, k, axis=2, out=f"present.{layer}.key")
        v = b("Concat", past_v, v, axis=2, out=f"present.{layer}.value")
        keys, values = self.repeated(k), self.repeated(v)
        scores = b("MatMul", q, b("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = b("Add", b("Mul", scores, b.number(self.size**-0.5)), mask)
        mixed = b("MatMul", b("Softmax", scores, axis=-1), values)
        sizes = [self.dimension(q, 0), self.dimension(q, 2), b.ints(self.width)]
        turned = b("Transpose", mixed, perm=[0, 2, 1, 3])
        return b("Reshape", turned, b("Concat", *sizes, axis=0))

    def by_operator(self, q: str, k: str, v: str, layer: int, given: Any) -> str:
        b = self.b
        cos, sin, mask = given
        q, k, v = (
            self.split_heads(x, heads)
            for x, heads in ((q, self.heads), (k, self.groups), (v, self.groups))
        )
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        names = [f"mixed{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        b.many("Attention", q, k, v, mask, *self.caches(layer), outputs=names)
        sizes = [self.dimension(q, 0), self.dimension(q, 2), b.ints(self.width)]
        turned = b("Transpose", names[0], perm=[0, 2, 1, 3])
        return b("Reshape", turned, b("Concat", *sizes, axis=0))

    def by_group_query(self, q: str, k: str, v: str, layer: int, given: Any) -> str:
        names = [f"mixed{layer}", f"present.{layer}.key", f"present.{layer}.value"]
        return self.b.many(
            "GroupQueryAttention", q, k, v, *self.caches(layer), *given, outputs=names,
            domain=MICROSOFT, num_heads=self.heads, kv_num_heads=self.groups, do_rotary=1,
        )  # fmt: skip

    def counts(self) -> tuple[str, ...]:
        """Return further inputs of onnxruntime's operator: lengths, and tables of angles."""
        b = self.b
        seen = b("ReduceSum", "attention_mask", b.ints(1), keepdims=1)
        lengths = b("Cast", b("Sub", seen, b.ints(1)), to=INT32)
        total = b("Cast", b("Gather", b("Shape", "attention_mask"), b.scalar(1), axis=0), to=INT32)
        rates = 10000.0 ** (-np.arange(0, self.size, 2) / self.size)
        turned = np.outer(np.arange(LENGTHS), rates)
        return lengths, total, *(b.weight(f(turned).astype(np.float32)) for f in (np.cos, np.sin))

    def layer(self, x: str, number: int, inner: int, given: Any) -> str:
        b, width, narrow = self.b, self.width, self.groups * self.size
        normed = self.norm(x)
        q, k, v = (linear(b, normed, width, n, self.form) for n in (width, narrow, narrow))
        attend: dict[str, Callable[..., str]] = {
            "nodes": self.by_nodes,
            "operator": self.by_operator,
            "group-query": self.by_group_query,
        }
        mixed = attend[self.attends](q, k, v, number, given)
        x = b("Add", x, linear(b, mixed, width, width, self.form))
        normed = self.norm(x)
        gate, up = (linear(b, normed, width, inner, self.form) for _ in range(2))
        hidden = b("Mul", b("Mul", gate, b("Sigmoid", gate)), up)
        return b("Add", x, linear(b, hidden, inner, width, self.form))

    def norm(self, x: str) -> str:
        b = self.b
        mean = b("ReduceMean", b("Pow", x, b.number(2)), b.ints(-1), keepdims=1)
        inverse = b("Div", b.number(1), b("Sqrt", b("Add", mean, b.number(1e-5))))
        return b("Mul", b.small(self.width, around=1), b("Mul", x, inverse))


def llama(
    form: Form = "nbits",
    attends: Attention = "nodes",
    *,
    past: int = 96,
    layers: int = 4,
    heads: int = 8,
    groups: int = 2,
    size: int = 64,
    inner: int = 1408,
    vocabulary: int = 4096,
) -> Built:
    """One step of a small Llama: a token after others, whose keys and values are inputs."""
    m = _Llama(form, attends, heads, groups, size)
    b = m.b
    m.outputs["logits"] = (FLOAT, ["batch", "length", vocabulary])
    x = b("Gather", b.small(vocabulary, m.width), "input_ids")
    given = m.counts() if attends == "group-query" else (*m.angles(), m.mask())
    for layer in range(layers):
        x = m.layer(x, layer, inner, given)
    b("Identity", linear(b, m.norm(x), m.width, vocabulary, form), out="logits")
    return b.model(m.inputs, m.outputs, opset=23), fed(m.inputs, past)


def _normal(inputs: Specs, sizes: Mapping[int | str, int]) -> Feeds:
    """Return random arrays, their named sizes as given."""
    random = np.random.default_rng(1)
    shapes = {name: [sizes.get(n, n) for n in shape] for name, (_, shape) in inputs.items()}
    return {name: random.standard_normal(of, dtype=np.float32) for name, of in shapes.items()}  # type: ignore[arg-type] # no names are left


def fed(inputs: Specs, past: int) -> Feeds:
    """Return the inputs of a step after so many tokens."""
    feeds: Feeds = {
        "input_ids": np.array([[3]]),
        "attention_mask": np.ones((1, past + 1), np.int64),
    }
    if "position_ids" in inputs:
        feeds["position_ids"] = np.array([[past]])
    caches = {name: spec for name, spec in inputs.items() if name.startswith("past")}
    return feeds | _normal(caches, {"batch": 1, "past": past})


def after(feeds: Feeds, outputs: dict[str, Any]) -> Feeds:
    """Return the inputs of the step that follows: its token is the likeliest, the caches grew."""
    mask = feeds["attention_mask"]
    found = {
        "input_ids": outputs["logits"][:, -1:].argmax(-1),
        "attention_mask": np.concatenate([mask, mask[:, :1]], 1),
    }
    if "position_ids" in feeds:
        found["position_ids"] = feeds["position_ids"] + 1
    for name, array in outputs.items():
        if name.startswith("present"):
            found[name.replace("present", "past_key_values")] = array
    return found
