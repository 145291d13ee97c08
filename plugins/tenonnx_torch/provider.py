"""The provider: a step per node, or torch.compile's function for each run of them."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from tenonnx import Array, EPFail, OperatorTable, cacheable
from tenonnx_array.provider import ArrayDevice
from tenonnx_array.standard import StandardProvider
from tenonnx_array.tracing import ArrayType, Function, TracingProvider

log = logging.getLogger("tenonnx")

# The operators of each module of kernels; a module is imported when a model needs it.
KERNEL_OPERATORS = {
    "kernels": (
        "Conv-1 MaxPool-1 MaxPool-8 MaxPool-10 "
        "AveragePool-1 AveragePool-7 AveragePool-10 AveragePool-19 "
        "BatchNormalization-9 BatchNormalization-14 Erf-9 Gelu-20 Gemm-7 HardSwish-14 "
        "LayerNormalization-17 LogSoftmax-13 MatMul-1 Mish-18 Relu-6 Sigmoid-6 Softmax-13 "
        "Softplus-1 Where-9"
    )
}

TORCH_DTYPES = "BOOL INT8 INT16 INT32 INT64 UINT8 FLOAT16 BFLOAT16 FLOAT DOUBLE"


@cacheable
@dataclass(frozen=True)
class TorchOptions:
    """Options of the provider.

    Attributes:
        device: torch's name of the device: ``cpu``, ``cuda:0``.
        compile: Whether ``torch.compile`` makes one function of as many nodes as possible.
        backend: The compiler, for ``compile``.
    """

    device: str = "cpu"
    compile: bool = False
    backend: str = "inductor"


@cacheable
class TorchDevice(ArrayDevice):
    """One of torch's devices; on the CPU, arrays and weights are used in place."""

    def __init__(self, device: str) -> None:
        super().__init__("torch", f"torch:{device}")
        self.device = device
        self._read_only: WeakValueDictionary[int, np.ndarray[Any, Any]] = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.device,)

    def upload(self, array: np.ndarray[Any, Any]) -> Array:
        """Return a tensor: of the same memory on the CPU, a copy elsewhere."""
        array = np.asarray(array)  # a kernel on the host may leave a scalar
        brain = array.dtype == ml_dtypes.bfloat16
        array = array.view(np.int16) if brain else array
        if min(array.strides, default=0) < 0 or not array.flags.aligned:
            array = array.copy()
        tensor = self.xp.from_dlpack(array)
        if not array.flags.writeable:
            self._read_only[tensor.untyped_storage().data_ptr()] = array
        return (tensor.view(self.xp.bfloat16) if brain else tensor).to(self.device)

    def download(self, array: Array) -> np.ndarray[Any, Any]:
        """Return a numpy array: of the same memory on the CPU, a copy elsewhere.

        torch does not know that a weight is read-only; an array of a weight's view is.
        """
        tensor = array.detach().cpu()
        brain = tensor.dtype == self.xp.bfloat16
        found = (tensor.view(self.xp.int16) if brain else tensor).numpy()
        if tensor.untyped_storage().data_ptr() in self._read_only:
            found.flags.writeable = False
        return np.asarray(found.view(ml_dtypes.bfloat16) if brain else found)


class TorchExecutionProvider(StandardProvider, TracingProvider):
    """A provider of nodes on one of torch's devices, one by one or by torch.compile."""

    name: ClassVar[str] = "TorchExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("torch",)
    unasked: ClassVar[bool] = False
    domains: ClassVar[frozenset[str] | None] = frozenset(("",))
    Options: ClassVar[type | None] = TorchOptions
    namespace = "array_api_compat.torch"
    libraries = ("torch", "array_api_compat")
    install = "'tenonnx[torch]'"
    overrides = OperatorTable.listed("tenonnx_torch", KERNEL_OPERATORS)
    without: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("GRU", "LSTM", "RNN"), "torch would need several calls per time step"),
        "Bernoulli": "it draws other random numbers",
    }
    elements = frozenset(TORCH_DTYPES.split())

    def __init__(self, options: TorchOptions | None = None, *rest: Any) -> None:
        self.options = options or TorchOptions()
        super().__init__(self.options, *rest)
        self.traces = self.options.compile
        self.serializes = self.options.backend == "inductor"
        self.device = TorchDevice(self.options.device)
        if self.options.device != "cpu":
            self._try_device()

    def _try_device(self) -> None:
        try:
            self.library.empty(1, device=self.options.device)
        except (RuntimeError, AssertionError) as error:
            raise EPFail(
                f"torch cannot use device={self.options.device!r}: {error}",
                hint="check torch.cuda.is_available(): this build of torch may lack GPU support",
            ) from error

    def placed(self) -> Mapping[str, Any]:
        """Return the keyword with which torch creates arrays on the device."""
        return {"device": self.options.device}

    @classmethod
    def depends_on(cls) -> tuple[Any, ...]:
        """Return the version of the compiler."""
        return (("torch", metadata.version("torch")),)

    def machine(self) -> str:
        """Return the device; of a CPU, its features."""
        if self.options.device != "cpu":
            return repr(self.library.cuda.get_device_properties(self.options.device))
        return repr(self.library.backends.cpu.get_cpu_capability())

    def serialized(self, function: Function, types: Sequence[ArrayType]) -> bytes:
        """Return what torch's compiler packages ahead of time, if the function can be traced."""
        library, inductor = torch(), importlib.import_module("torch._inductor")
        package = getattr(inductor, "aoti_compile_and_package", None)
        if package is None:  # torch documents it, in a module that it does not promise
            return b""
        device = self.options.device
        given = tuple(
            library.empty(each.shape, dtype=getattr(library, each.dtype), device=device)
            for each in types
        )
        if (graph := self._graph(function, given)) is None:
            return b""
        program = library.export.export(graph, given)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "segment.pt2"))
            package(program, package_path=path)
            return Path(path).read_bytes()

    def deserialized(self, binary: memoryview) -> Function:
        """Return the function in such a package."""
        inductor = importlib.import_module("torch._inductor")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "segment.pt2")
            path.write_bytes(binary)
            call: Function = inductor.aoti_load_package(str(path))
        return call

    def jit(self, function: Function) -> Function:
        """Return a step that calls torch.compile's functions, one for each set of shapes."""
        graphs: dict[Any, Function] = {}

        def call(*arrays: Array) -> tuple[Array, ...]:
            key = tuple((array.shape, array.dtype) for array in arrays)
            found = graphs.get(key)
            if found is None:
                found = graphs.setdefault(key, self._compiled(function, arrays))
            return found(*arrays)

        return call

    def _compiled(self, function: Function, arrays: tuple[Array, ...]) -> Function:
        if (graph := self._graph(function, arrays)) is None:
            return function
        compiled: Function = torch().compile(graph, backend=self.options.backend)
        return compiled

    def _graph(self, function: Function, arrays: tuple[Array, ...]) -> Function | None:
        """Return a function as torch's graph; ``None`` if it reads values."""
        assert self.xp.has_views, "determined before arrays are faked"
        tracing = importlib.import_module("torch.fx.experimental.proxy_tensor")
        make = tracing.make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
        try:
            graph: Function = make(*arrays)
        except Exception as error:  # functions that read values raise any class
            why = str(error).partition("\n")[0]
            log.warning("torch.compile leaves a segment as it is: %s", why)
            return None
        return graph


def torch() -> Any:
    """Return the library."""
    return importlib.import_module("torch")
