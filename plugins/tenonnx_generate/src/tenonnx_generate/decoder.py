"""Running a model's new tokens with the caches of some sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import HOST, InferenceSession, IOBinding, OrtValue
from tenonnx_generate.adapter_inputs import RowAdapters
from tenonnx_generate.cache import give_back, reserve, write
from tenonnx_generate.errors import Unsupported
from tenonnx_generate.model import Model

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapter
    from tenonnx_generate.image_source import ImageSource

NDArray = np.ndarray[Any, np.dtype[Any]]


class Decoder:
    """A model's session, bound to the caches of a batch of sequences, which are on its device.

    Args:
        model: The model.
        rows: How many sequences there are.
        capacity: How many tokens each may have.
        in_place: The graph writes into the caches that it is given, as GroupQueryAttention and
            TensorScatter do. Of any other, each run returns caches that are longer.

    Attributes:
        lengths: How many tokens the caches of each row have. Less may be said at any time:
            what follows is written anew.
        images: The images among the tokens, of a model that takes some.
    """

    def __init__(self, model: Model, rows: int, capacity: int, *, in_place: bool) -> None:
        self._model, self.in_place = model, in_place
        self.lengths = [0] * rows
        self.images: ImageSource | None = None
        self._adapters = RowAdapters(model.adapter_inputs, rows)
        self._bindings: dict[tuple[Any, ...], IOBinding] = {}
        self._bound: dict[IOBinding, Mapping[str, NDArray]] = {}
        """The inputs of adapters that a binding has, which stays."""
        self._latest: IOBinding | None = None
        self._inputs: dict[str, NDArray] = {}
        self._places: dict[str, int] = {}
        self._device = model.session.device
        self._caches: dict[str, Any] = {}
        self._fed: dict[str, Any] = {}
        self._states = {
            name: self._device.upload(
                np.zeros(model.state_shape(name, rows), model.cache_dtype(name))
            )
            for name in model.states
        }
        self._state_lengths = [0] * rows
        """The number of tokens that the states of each row have seen: they cannot go back."""
        self._sequences = rows
        self._grown: list[dict[str, Any]] = [{} for _ in range(rows)]
        if in_place:
            for name in model.caches:
                # Layers with a window want room for one, whatever the sequence may be.
                shape = model.cache_shape(name, rows, max(capacity, model.description.window))
                self._caches[name] = reserve(shape, model.cache_dtype(name), self._device)

    def run(
        self,
        first: int,
        tokens: NDArray,
        adapters: Mapping[int, Adapter | None] = MappingProxyType({}),
        *,
        every: bool = False,
    ) -> NDArray:
        """Run the next tokens of one or more rows in a row.

        Args:
            first: The first of the rows.
            tokens: Theirs, [rows, tokens]. Of several rows, one each.
            adapters: The adapter of each row whose result counts; none without.
            every: Return the logits that follow each token.

        Returns:
            The logits that follow, [rows, vocabulary]; with ``every``, [rows, tokens, vocabulary].
        """
        count, width = tokens.shape
        lengths = self.lengths[first : first + count]
        given = self._adapters.given(first, count, adapters)
        self._check_states(first, count)
        session = self._model.whole_session if every else self._model.session
        binding = self._binding(session, first, count, *given)
        made = self._made_inputs(tokens, lengths)
        self._inputs = made | given
        # Adapters' inputs stay bound from step to step, until a row has another adapter.
        new = made if self._bound.get(binding) is given else self._inputs
        for name, array in new.items():
            binding.bind_cpu_input(name, array)
        if self.in_place:
            self._bound[binding] = given
        session.run_with_iobinding(binding)
        self._latest = binding
        if not self.in_place:
            self._keep(first)
        self.lengths[first : first + count] = [length + width for length in lengths]
        self._take_states(first, count)
        logits = self.output(self._model.description.outputs["logits"])
        return (logits if every else logits[:, -1]).astype(np.float32, copy=False)

    def goes_on_from(self, row: int, length: int) -> int:
        """Return how many of a row's first tokens need not be run again: all, or none."""
        return length if not self._states or length == self._state_lengths[row] else 0

    def feed(self, arrays: Mapping[str, NDArray], sequences: int) -> None:
        """Take what an encoder made; the caches are void then. No run copies it.

        Args:
            arrays: Each has a row for every sequence, or for as many in a row as it takes for all.
            sequences: How many there are. Row r of the caches is of sequence r % sequences.
        """
        self._sequences = sequences
        own = range(len(self.lengths))
        self._fed = {}
        for name, array in arrays.items():
            # Rows that are run at once want one each.
            each = array[[self._fed_row(row, array) for row in own]] if self.in_place else array
            self._fed[name] = self._device.upload(each)
        self._bindings.clear()
        self._bound.clear()
        self.lengths[:] = [0] * len(own)

    def output(self, name: str) -> NDArray:
        """Return an output of the latest run.

        Raises:
            KeyError: There was no run, or it has no such output.
        """
        array: NDArray = self._value(name).numpy()
        return array

    def input(self, name: str) -> NDArray:
        """Return an input of the latest run.

        Raises:
            KeyError: There was no run, or it has no such input.
        """
        return self._inputs[name]

    def copy(self, source: int, target: int, length: int, same: int = 0) -> None:
        """Give a row the first tokens of another's caches; it has ``same`` of them already."""
        for cache in self._caches.values():
            write(self._device, cache[target, :, same:length], cache[source, :, same:length])
        self._grown[target] = self._grown[source]
        self.lengths[target] = length

    def exchange(self, first: int, second: int) -> None:
        """Have two rows change places."""
        longest = max(self.lengths[first], self.lengths[second])
        for cache in self._caches.values():
            one, other = cache[first, :, :longest], cache[second, :, :longest]
            held = self._device.download(one).copy()
            write(self._device, one, other)
            write(self._device, other, self._device.upload(held))
        lengths = self.lengths
        lengths[first], lengths[second] = lengths[second], lengths[first]

    def give_back(self, row: int) -> None:
        """Empty the caches of a row, and return their memory."""
        self.lengths[row] = 0
        for cache in self._caches.values():
            give_back(cache, row)

    def _check_states(self, first: int, count: int) -> None:
        """Empty the states of rows that begin; those of others must have seen what caches have."""
        for row in range(first, first + count) if self._states else ():
            if not self.lengths[row]:
                for state in self._states.values():
                    empty = np.zeros(state[row].shape, state.dtype)
                    write(self._device, state[row], self._device.upload(empty))
            elif self.lengths[row] != self._state_lengths[row]:
                raise Unsupported(
                    f"the states of row {row} have seen {self._state_lengths[row]} tokens, and "
                    f"cannot go back to {self.lengths[row]}"
                )

    def _take_states(self, first: int, count: int) -> None:
        """Keep the states that a run returned."""
        for name, present in self._model.states.items():
            write(
                self._device, self._states[name][first : first + count], self._value(present).value
            )
        self._state_lengths[first : first + count] = self.lengths[first : first + count]

    def _bind_others(self, binding: IOBinding, first: int, count: int) -> None:
        """Bind states, what an encoder made, and outputs that are no caches."""
        for name, state in self._states.items():
            self._bind(binding, name, state[first : first + count])
        states = set(self._model.states.values())
        for name in self._bound_names()[len(self._model.caches) :]:
            if name in states:
                binding.bind_output(name, self._device)
            else:
                binding.bind_output(name)
        self._bind_fed(binding, first, count)

    def _bound_names(self) -> list[str]:
        """Return the outputs in the order in which they were bound."""
        caches = list(self._model.caches.values())
        return [*caches, *(name for name in self._model.outputs if name not in caches)]

    def _binding(self, session: InferenceSession, first: int, count: int, *given: str) -> IOBinding:
        """Return a binding of some rows' caches; it is made once where they stay.

        Inputs that adapters give stay bound: there is one binding for each set of them.
        """
        if not self.in_place:
            binding = session.io_binding()
            grown = self._grown[first]
            for name, present in self._model.caches.items():
                held = grown.get(name)
                if held is None:
                    shape = self._model.cache_shape(name, 1, 0)
                    held = self._device.upload(np.zeros(shape, self._model.cache_dtype(name)))
                self._bind(binding, name, held[:, :, : self.lengths[first]])
                binding.bind_output(present, self._device)
            self._bind_others(binding, first, count)
            return binding
        found = self._bindings.get((session, first, count, *given))
        if found is None:
            found = self._bindings[session, first, count, *given] = session.io_binding()
            for name, present in self._model.caches.items():
                value = OrtValue(self._caches[name][first : first + count], self._device)
                found.bind_ortvalue_input(name, value)
                found.bind_ortvalue_output(present, value)
            self._bind_others(found, first, count)
        return found

    def _bind_fed(self, binding: IOBinding, first: int, count: int) -> None:
        for name, array in self._fed.items():
            start = first if self.in_place else self._fed_row(first, array)
            self._bind(binding, name, array[start : start + count])

    def _bind(self, binding: IOBinding, name: str, array: Any) -> None:
        """Bind an input to an array of the device."""
        if self._device is HOST:
            binding.bind_cpu_input(name, array)
        else:
            binding.bind_ortvalue_input(name, OrtValue(array, self._device))

    def _fed_row(self, row: int, array: NDArray) -> int:
        """Return the row of an encoder's array that a row of the caches reads."""
        return row % self._sequences // (self._sequences // len(array))

    def _keep(self, row: int) -> None:
        """Keep the caches that a run returned, where they are."""
        self._grown[row] = {
            name: self._value(present).value for name, present in self._model.caches.items()
        }

    def _value(self, name: str) -> OrtValue:
        """Return an output of the latest run, wherever it is."""
        if self._latest is None:
            raise KeyError(name)
        if not self._places:
            self._places = {name: place for place, name in enumerate(self._bound_names())}
        return self._latest.get_outputs()[self._places[name]]

    def _made_inputs(self, tokens: NDArray, lengths: Sequence[int]) -> dict[str, NDArray]:
        """Return ids, mask and positions, as far as the graph asks for them."""
        names, width = self._model.description.inputs, tokens.shape[1]
        total = max(lengths) + width
        if self.images is None:
            made = {names["input_ids"]: tokens.astype(self._model.input_dtype("input_ids"))}
        else:
            embedded = self.images.embedded(tokens, min(lengths))
            made = {names["inputs_embeds"]: embedded}
        if (dtype := self._model.input_dtype("attention_mask")) is not None:
            if len(lengths) == 1:
                made[names["attention_mask"]] = np.ones((1, total), dtype)
            else:
                mask = np.arange(total) < np.array(lengths)[:, None] + width
                made[names["attention_mask"]] = mask.astype(dtype)
        if (dtype := self._model.input_dtype("position_ids")) is not None:
            positions = np.array(lengths)[:, None] + np.arange(width)
            if (axes := self._model.position_axes) > 1:
                told = self.images
                positions = (
                    np.repeat(positions[None], axes, axis=0)
                    if told is None
                    else told.positions(positions)
                )
            made[names["position_ids"]] = positions.astype(dtype)
        return made
