"""Inputs and outputs bound to memory of the caller's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.errors import InvalidArgument, did_you_mean
from tenonnx.interface.named_devices import find_device
from tenonnx.interface.ort_value import OrtValue, OrtValueVector
from tenonnx.interface.repeated_run import RepeatedRun
from tenonnx.interface.value_types import element_dtype
from tenonnx.planning.device_arrays import exposes_arrays
from tenonnx.provider import HOST, Device

if TYPE_CHECKING:
    from tenonnx.interface.session_info import Session
    from tenonnx.interface.signature import Signature
    from tenonnx.planning.plan import Plan
    from tenonnx.planning.program import Program

NDArray = np.ndarray[Any, np.dtype[Any]]


class BoundRun(NamedTuple):
    """The inputs and outputs of a run on a binding.

    Attributes:
        inputs: By name; arrays of the host are that and not values.
        buffers: An array for each of the model's outputs, of the host or of a device that lends its
            arrays; ``None`` for one that is to be made.
        targets: Where each of them is to be, if that device lends its arrays; else the host. One
            that is not bound stays where it is made: nobody takes it.
    """

    inputs: dict[str, Any]
    buffers: list[Any]
    targets: list[Device]


class IOBinding:
    """Values for a session's inputs and places for its outputs; ``session.io_binding()``.

    An output bound to a buffer is written there, by its kernel itself where the kernel can. If
    the buffer is also an input's and nothing but that kernel reads the input, it is updated in
    place: a cache of keys and values grows without a copy.
    """

    def __init__(self, session: Session) -> None:
        inputs = (*session.get_inputs(), *session.get_overridable_initializers())
        self._input_names = dict.fromkeys(arg.name for arg in inputs)
        self._output_names = dict.fromkeys(arg.name for arg in session.get_outputs())
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._devices: dict[str, Device] = {}
        self._results: dict[str, OrtValue] = {}
        self._repeated: RepeatedRun | None = None
        self._changed: dict[str, Any] = {}
        """Arrays of the host that were bound since, in place of others."""

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a host array, which is read when the session runs.

        Args:
            name: The input's name.
            arr_on_cpu: An array of the input's dtype, rank and fixed sizes; it is not copied.

        Raises:
            InvalidArgument: The model has no such input. The array is checked by the run.
        """
        name = self._known(name, inputs=True)
        if type(self._inputs.get(name)) is type(arr_on_cpu) is np.ndarray:
            self._changed[name] = arr_on_cpu
        else:
            self._repeated = None
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value, which stays where it is.

        Args:
            name: The input's name.
            ortvalue: A value of the input's type, on any device.

        Raises:
            InvalidArgument: The model has no such input.
        """
        self._repeated = None
        self._inputs[self._known(name, inputs=True)] = ortvalue

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to memory at an address, which must stay as long as it is bound.

        Args:
            name: The input's name.
            device_type: Where the memory is: ``cpu``, ``cuda``.
            device_id: The device's number.
            element_type: A numpy dtype, or a number of ``onnx.TensorProto``.
            shape: The sizes of the array, whose elements lie in order (C-contiguous).
            buffer_ptr: The address of the first element.

        Raises:
            InvalidArgument: The model has no such input, or the device is neither the host nor one
                that lends its arrays.
        """
        array = _array_at(device_type, device_id, element_type, shape, buffer_ptr)
        self._repeated = None
        self._inputs[self._known(name, inputs=True)] = array

    def bind_output(
        self,
        name: str,
        device_type: str | Device = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to memory at an address, or to a device on which it is to appear.

        Args:
            name: The output's name.
            device_type: Where the output is to be: ``cpu``, ``cuda``, or such as a session's
                ``device``.
            device_id: The device's number.
            element_type: With an address: a numpy dtype, or a number of ``onnx.TensorProto``.
            shape: With an address: the sizes of the array there.
            buffer_ptr: The address; without one an array is made by each run.

        Raises:
            InvalidArgument: The model has no such output.
        """
        name, self._repeated = self._known(name, inputs=False), None
        if buffer_ptr:
            array = _array_at(device_type, device_id, element_type, shape or (), buffer_ptr)
            self._outputs[name] = array
        else:
            self._devices[name] = _device_of(device_type, device_id)
            self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value, whose memory each run writes.

        Args:
            name: The output's name.
            ortvalue: A tensor of the output's shape and dtype; the run checks them.

        Raises:
            InvalidArgument: The model has no such output, or it is bound to what is no value.
        """
        if not isinstance(ortvalue, OrtValue):
            raise InvalidArgument(
                f"output '{name}' is bound to {type(ortvalue).__name__}; expected an OrtValue",
                hint="make one of an array: OrtValue.ortvalue_from_numpy(array)",
            )
        self._repeated = None
        self._outputs[self._known(name, inputs=False)] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._repeated = None
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._repeated = None
        self._outputs.clear()
        self._devices.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: inputs are read when the session runs."""

    def synchronize_outputs(self) -> None:
        """Do nothing: outputs are there when a run returns."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return [self._results[name] for name in self._outputs if name in self._results]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Return the outputs of the last run, in the order in which they were bound."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs as host arrays: those bound on the host are not copied."""
        return [value.numpy() for value in self.get_outputs()]

    def prepared(self, program: Program) -> BoundRun:
        """Return what a run of a program is given now.

        Raises:
            InvalidArgument: No output is bound, or one is bound to what is no tensor.
        """
        if not self._outputs:
            raise InvalidArgument("no output is bound", hint="call bind_output for each one")
        buffers: list[Any] = []
        targets: list[Device] = []
        for name, value in zip(self._output_names, program.outputs, strict=True):
            bound = self._outputs.get(name)
            if name not in self._outputs:
                # Nobody reads it: it stays where the run makes it, instead of being copied.
                home = program.home_of(value) or HOST
                buffers.append(None)
                targets.append(home if exposes_arrays(home) else HOST)
            elif (buffer := _array_of(bound)) is not bound:
                buffers.append(buffer)
                targets.append(HOST)
            else:
                buffer, target = self._elsewhere(name)
                buffers.append(buffer)
                targets.append(target)
        inputs = {name: _array_of(given) for name, given in self._inputs.items()}
        return BoundRun(inputs, buffers, targets)

    def _elsewhere(self, name: str) -> tuple[Any, Device]:
        """Return the buffer of an output that is bound to no array of the host, and its device."""
        bound, device = self._outputs.get(name), self._target(name)
        if bound is not None and not bound.is_tensor():
            raise InvalidArgument(
                f"output '{name}' is bound to {bound.data_type()}, not to a tensor"
            )
        if device is HOST or exposes_arrays(device):
            return None if bound is None else bound.value, device
        return None, HOST

    def run_first(
        self, plan: Plan, signature: Signature, inputs: dict[str, Any], buffers: Sequence[Any]
    ) -> list[Any]:
        """Run a plan on what is bound, all of it on the host, and return its outputs.

        Raises:
            InvalidArgument: An input is missing or does not fit, or a buffer does not fit.
            RuntimeException: A node failed; the message names it.
        """
        given = signature.arguments(inputs)
        if not all(type(each) is np.ndarray for each in given):
            return plan.run_into(given, buffers)
        bound = (*self._inputs.values(), *self._outputs.values())
        values = [(each, each.value) for each in bound if isinstance(each, OrtValue)]
        repeated = RepeatedRun(plan, signature, given, buffers, values)
        outputs = repeated.first()
        self._repeated, self._changed = repeated, {}
        return outputs

    def run_again(self, plan: Plan) -> bool:
        """Run as ``run_first`` did, if nothing but arrays of the host is bound otherwise since."""
        repeated, changed = self._repeated, self._changed
        if repeated is None or repeated.plan is not plan:
            return False
        self._repeated, self._changed = None, {}  # it is gone if this fails
        if (outputs := repeated.run_with(changed)) is None:
            return False
        self.take(outputs)
        self._repeated = repeated
        return True

    def take(self, outputs: Sequence[Any]) -> None:
        """Keep a run's outputs: one per output of the model, those with buffers in theirs."""
        own = self._outputs
        for name, output in zip(self._output_names, outputs, strict=True):
            if name in own:
                bound = own[name]
                if bound is None or output is not bound.value:
                    bound = self._delivered(name, bound, output)
                self._results[name] = bound

    def _delivered(self, name: str, bound: OrtValue | None, output: Any) -> OrtValue:
        """Return an output where it is to be: in the value that is bound, or in one of its own."""
        device = self._target(name)
        if not isinstance(output, np.ndarray) and exposes_arrays(device):
            there = OrtValue(output, device)
            if bound is None:
                return there
            bound.update_inplace(there)
        elif bound is None:
            return OrtValue(output if device is HOST else device.upload(output), device)
        elif bound.device is not HOST:
            bound.update_inplace(output)
        return bound

    def _target(self, name: str) -> Device:
        """Return where an output is to be; the host for one that is not bound."""
        bound = self._outputs.get(name)
        return bound.device if bound is not None else self._devices.get(name, HOST)

    def _known(self, name: str, *, inputs: bool) -> str:
        names = self._input_names if inputs else self._output_names
        if name not in names:
            kind = "input" if inputs else "output"
            raise InvalidArgument(f"the model has no {kind} {name!r}{did_you_mean(name, names)}")
        return name

    @property
    def _iobinding(self) -> IOBinding:
        """The binding itself: clients reach for the inner object that onnxruntime has."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an IOBinding is bound to memory of this process and cannot be pickled")


# onnxruntime's inner object, which is one with the binding here.
SessionIOBinding = IOBinding


def _array_of(given: Any) -> Any:
    """Return the array of a tensor on the host; anything else as it is."""
    here = type(given) is OrtValue and given.device is HOST
    return given.value if here and type(given.value) is np.ndarray else given


def _device_of(given: str | Device, number: int) -> Device:
    return find_device(given, number) if isinstance(given, str) else given


def _array_at(
    device_type: str | Device, device_id: int, element_type: Any, shape: Sequence[int], address: int
) -> OrtValue:
    device: Any = _device_of(device_type, device_id)
    dtype = element_dtype(element_type)
    if dtype.hasobject:
        raise InvalidArgument("strings are no memory to be bound", hint="bind an array instead")
    if exposes_arrays(device):
        return OrtValue(device.at(address, dtype, tuple(shape)), device)
    if device is not HOST:
        raise InvalidArgument(
            f"memory of {device.id} is bound by address", hint="bind an OrtValue instead"
        )
    count = int(np.prod(shape, dtype=np.int64))
    memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    return OrtValue(np.ctypeslib.as_array(memory).view(dtype).reshape(tuple(shape)))
