"""A language model of any exporter's: which inputs it has, and caches that never move."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx

CACHE = re.compile(r"past(?:_key_values)?[._](\d+)[._](?:decoder[._])?(key|value)")
PRESENT = re.compile(r"present(?:_key_values)?[._](\d+)[._](?:decoder[._])?(key|value)")


class Decoder:
    """A model and its caches, bound to it once.

    A model whose caches come out in the shape in which they went in, or that has
    GroupQueryAttention, gets buffers of ``capacity`` tokens and writes the new ones into them.
    Any other returns longer caches at every step, which become its inputs as they are.

    Args:
        runtime: The module to run it: ``tenonnx``, or ``onnxruntime`` to compare.
        path: The ``.onnx`` file.
        capacity: How many tokens there may be.
        device: Where the caches are, such as ``cuda``.
        options: What ``InferenceSession`` takes besides.
    """

    def __init__(
        self, runtime: Any, path: Path, capacity: int, device: str = "cpu", **options: Any
    ) -> None:
        self._runtime, self._device = runtime, device
        self.session = runtime.InferenceSession(path, **options)
        self.capacity, self.length = capacity, 0
        self._inputs = {arg.name: arg for arg in self.session.get_inputs()}
        self._pairs = self._find_pairs()
        self.in_place = self._writes_in_place(path)
        self._binding = self.session.io_binding()
        outputs = [arg.name for arg in self.session.get_outputs()]
        logits = next(name for name in outputs if name not in self._pairs.values())
        self._made = [logits] if self.in_place else [logits, *self._pairs.values()]
        self._binding.bind_output(logits)
        self.caches: dict[str, Any] = {}
        self._bind_caches()

    def _find_pairs(self) -> dict[str, str]:
        """Return the output that continues each cache."""
        outputs = {}
        for arg in self.session.get_outputs():
            if found := PRESENT.fullmatch(arg.name):
                outputs[found.groups()] = arg.name
        pairs = {}
        for name in self._inputs:
            if found := CACHE.fullmatch(name):
                pairs[name] = outputs[found.groups()]
        return pairs

    def _writes_in_place(self, path: Path) -> bool:
        shapes = {arg.name: list(arg.shape) for arg in self.session.get_outputs()}
        if all(list(self._inputs[past].shape) == shapes[now] for past, now in self._pairs.items()):
            return True
        nodes = onnx.load(path, load_external_data=False).graph.node
        return any(node.op_type == "GroupQueryAttention" for node in nodes)

    def _bind_caches(self) -> None:
        """Bind empty caches: buffers that hold all tokens, or none yet."""
        for past, present in self._pairs.items():
            batch, heads, _, size = self._inputs[past].shape
            length = self.capacity if self.in_place else 0
            sizes = [batch if isinstance(batch, int) else 1, heads, length, size]
            dtype = np.float16 if "float16" in self._inputs[past].type else np.float32
            empty = np.zeros(sizes, dtype)
            value = self._runtime.OrtValue.ortvalue_from_numpy(empty, self._device)
            self.caches[past] = value
            self._binding.bind_ortvalue_input(past, value)
            if self.in_place:
                self._binding.bind_ortvalue_output(present, value)

    def forward(self, tokens: list[int]) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the logits [vocabulary] of what follows the tokens so far and these.

        Raises:
            ValueError: The caches have no room for so many.
        """
        total = self.length + len(tokens)
        if total > self.capacity:
            raise ValueError(f"{total} tokens do not fit into caches of {self.capacity}")
        feeds = {
            "input_ids": np.array([tokens]),
            "position_ids": np.arange(self.length, total)[None],
            "attention_mask": np.ones((1, total), np.int64),
        }
        for name, array in feeds.items():
            if name in self._inputs:
                dtype = np.int32 if "int32" in self._inputs[name].type else np.int64
                self._binding.bind_cpu_input(name, array.astype(dtype, copy=False))
        logits, *grown = self._made
        self._binding.bind_output(logits)
        for name in grown:
            self._binding.bind_output(name, self._device)
        self.session.run_with_iobinding(self._binding)
        self.length = total
        first, *others = self._binding.get_outputs()
        if not self.in_place:
            for past, value in zip(self._pairs, others, strict=True):
                self.caches[past] = value
                self._binding.bind_ortvalue_input(past, value)
        last: np.ndarray[Any, np.dtype[Any]] = first.numpy()[0, -1]
        return last.astype(np.float32, copy=False)
