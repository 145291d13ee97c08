"""``python -m bench.cuda.kernels`` times the provider's kernels one by one on a device.

Each is launched many times from a graph, over inputs that together exceed the cache. Beside a time
stands what it reads and computes a second, to be held against the copy and against cuBLAS, and
how long Python takes to start it.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from bench.cuda.measure import report
from tenonnx.cli.timing import seconds

# Bytes that inputs take together at least.
CACHE = 256 << 20

# K and N of a product in a decoder of 4 billion parameters.
LAYER = (3072, 8192)

# Heads of queries, heads of keys, and their size.
HEADS = (32, 8, 128)


class WithoutCudnn:
    """A device as if cuDNN were not there.

    Args:
        platform: The device.
    """

    cudnn = None

    def __init__(self, platform: Any) -> None:
        self._platform = platform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)


def chosen(
    op: str, domain: str, version: int, *, cudnn: bool = True, **attributes: Any
) -> Callable[..., Any]:
    """Return the kernel that the provider chooses for a node; it raises where it takes none."""
    from tenonnx_cuda.cupy_platform import connect
    from tenonnx_cuda.kernel_selection import Site, Target, choices
    from tenonnx_cuda.options import CudaOptions

    def plain(*_: Any) -> Any:
        raise RuntimeError("left to the array kernel")

    attrs = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
    node = ir.Node(domain, op, [], attrs, version=version)
    ir.Graph([], [], nodes=[node])
    platform: Any = connect(0) if cudnn else WithoutCudnn(connect(0))
    options = CudaOptions(sdpa_kernel=8 if cudnn else 0)  # also where lengths have kernels each
    call = choices()[domain, op](Site(node, Target(platform, options)), plain)
    if not callable(call):
        raise RuntimeError("no kernel is chosen")
    return call


def microseconds(run: Callable[..., Any], inputs: list[tuple[Any, ...]], count: int = 50) -> float:
    """Return the least time of one call in several rounds, over each of some inputs in turn.

    The calls are recorded as a graph: Python takes longer to start a kernel than many take to run.
    """
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    best = float("inf")
    with stream:
        for given in inputs:
            run(*given)  # compiles it
        stream.begin_capture()
        for given in itertools.islice(itertools.cycle(inputs), count):
            run(*given)
        graph = stream.end_capture()
        for _ in range(6):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            graph.launch()
            stop.record()
            stop.synchronize()
            best = min(best, 1e3 * cupy.cuda.get_elapsed_time(start, stop) / count)
    return best


def host_microseconds(run: Callable[..., Any], given: tuple[Any, ...], count: int = 50) -> float:
    """Return how long Python takes to start a call from its third time on."""
    import cupy

    from tenonnx_cuda.capture.replay import Replayed
    from tenonnx_cuda.cupy_platform import connect

    run = Replayed(run, connect(0))
    wait = cupy.cuda.Device().synchronize
    taken = []
    for _ in range(4):
        wait()
        taken.append(seconds(lambda: [run(*given) for _ in range(count)]) / count)
    wait()
    return 1e6 * min(taken)


def copies(nbytes: int) -> int:
    """Return how many inputs of a size exceed the cache."""
    return max(2, min(64, -(-CACHE // nbytes)))


def copying() -> dict[str, float]:
    """A device-to-device copy: bytes read and written."""
    import cupy

    given = cupy.random.random(CACHE, dtype=np.float32)
    target = cupy.empty_like(given)
    took = microseconds(lambda: cupy.copyto(target, given), [()], count=10)
    return {"copy": took, "copy GB/s": 2 * given.nbytes / took / 1e3}


def product(rows: int, dtype: str, *, by_rows: bool) -> Callable[[], dict[str, float]]:
    """An int4 product, by the layout of MatMulNBits or that of DequantizeLinear and MatMul."""

    def measure() -> dict[str, float]:
        import cupy

        K, N = LAYER
        scales = cupy.ones((N * K // 32,), dtype)
        if by_rows:
            run = chosen("MatMulNBits", "com.microsoft", 1, K=K, N=N, bits=4, block_size=32)
            scales = scales.reshape(N, K // 32)
        else:
            run = chosen("DequantizeMatMul", "ai.tenonnx", 1, bits=4, signed=1, rows=K,
                         columns=N, axis=0, block_size=32, transposed=0)  # fmt: skip
            scales = scales.reshape(K // 32, N)
        x = cupy.random.standard_normal((rows, K)).astype(dtype)
        each = N * K // 2 + scales.nbytes
        inputs = []
        for _ in range(copies(each)):
            weights = cupy.random.randint(0, 256, N * K // 2, dtype=np.uint8)
            inputs.append((x, weights.reshape(N, K // 32, 16) if by_rows else weights, scales))
        name = f"int4 {'[N, K]' if by_rows else '[K, N]'} {dtype} x {rows}"
        took = microseconds(run, inputs)
        figures = {name: took, f"{name} GB/s": each / took / 1e3}
        figures |= {f"{name} host µs": host_microseconds(run, inputs[0])}
        return figures | {f"{name} TFLOP/s": 2e-6 * rows * N * K / took}

    return measure


def cublas(rows: int, dtype: str) -> Callable[[], dict[str, float]]:
    """The same product with weights of 16 bits, which is what int4 replaces."""

    def measure() -> dict[str, float]:
        import cupy

        from tenonnx_cuda.cupy_platform import connect

        K, N = LAYER
        x = cupy.random.standard_normal((rows, K)).astype(dtype)
        inputs = [
            (x, cupy.random.standard_normal((K, N), dtype=np.float32).astype(dtype))
            for _ in range(copies(2 * K * N))
        ]
        name = f"cuBLAS {dtype} x {rows}"
        took = microseconds(connect(0).xp.matmul, inputs)
        return {name: took, f"{name} TFLOP/s": 2e-6 * rows * N * K / took}

    return measure


def attention(
    queries: int, keys: int, dtype: str, *, cudnn: bool = True
) -> Callable[[], dict[str, float]]:
    """Causal attention of grouped heads, of one sequence."""

    def measure() -> dict[str, float]:
        import cupy

        heads, groups, size = HEADS
        run = chosen("Attention", "", 23, cudnn=cudnn, is_causal=int(queries > 1))
        shapes = ((1, heads, queries, size), (1, groups, keys, size), (1, groups, keys, size))
        each = 2 * sum(int(np.prod(shape)) for shape in shapes)
        inputs = [
            tuple(cupy.random.standard_normal(s, dtype=np.float32).astype(dtype) for s in shapes)
            for _ in range(copies(each))
        ]
        name = f"attention {dtype}, {queries} after {keys - queries}"
        name += "" if cudnn else " without cuDNN"
        took = microseconds(run, inputs, count=20)
        work = operations(queries, keys)
        return {
            name: took,
            f"{name} GB/s": each / took / 1e3,
            f"{name} TFLOP/s": 1e-6 * work / took,
        }

    return measure


def operations(queries: int, keys: int) -> float:
    """The number of operations of causal attention."""
    heads, _, size = HEADS
    return 4 * heads * queries * (keys if queries == 1 else keys - queries / 2) * size


def torchs(queries: int, backend: str) -> Callable[[], dict[str, float]]:
    """The same in float16 by one of torch's kernels, for as many queries as keys."""

    def measure() -> dict[str, float]:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        heads, groups, size = HEADS
        q, k, v = (
            torch.randn(1, h, queries, size, device="cuda", dtype=torch.float16)
            for h in (heads, groups, groups)
        )
        attend = torch.nn.functional.scaled_dot_product_attention
        best = float("inf")
        with sdpa_kernel(getattr(SDPBackend, f"{backend}_ATTENTION")), torch.inference_mode():
            for _ in range(6):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(20):
                    attend(q, k, v, is_causal=True, enable_gqa=True)
                stop.record()
                stop.synchronize()
                best = min(best, 1e3 * start.elapsed_time(stop) / 20)
        name = f"torch {backend} attention, {queries}"
        return {name: best, f"{name} TFLOP/s": 1e-6 * operations(queries, queries) / best}

    return measure


def convolution(
    channels: int, size: int, dtype: str, *, cudnn: bool
) -> Callable[[], dict[str, float]]:
    """A 3x3 convolution of ResNet-50 with its bias and ReLU, channels last."""

    def measure() -> dict[str, float]:
        import cupy

        run = chosen("FusedConv", "com.microsoft", 1, cudnn=cudnn, activation="Relu",
                     pads=[1, 1, 1, 1])  # fmt: skip

        def draw(*shape: int) -> Any:
            return cupy.random.standard_normal(shape, dtype=np.float32).astype(dtype)

        each = channels * (size * size + 9 * channels) * np.dtype(dtype).itemsize
        inputs = []
        for _ in range(copies(each)):
            images, weights = draw(1, size, size, channels), draw(channels, 3, 3, channels)
            first = (a.transpose(0, 3, 1, 2) for a in (images, weights))
            inputs.append((*first, draw(channels)))
        name = f"convolution {dtype}, {channels} x {size}" + ("" if cudnn else " without cuDNN")
        took = microseconds(run, inputs, count=20)
        return {name: took, f"{name} TFLOP/s": 18e-6 * (channels * size) ** 2 / took}

    return measure


def cases() -> dict[str, Callable[[], dict[str, float]]]:
    """Return what is timed."""
    found: dict[str, Callable[[], dict[str, float]]] = {"copy": copying}
    for rows, dtype in itertools.product((1, 4, 16, 32, 64, 128, 512), ("float16", "float32")):
        for by_rows in (True, False):
            layout = "[N, K]" if by_rows else "[K, N]"
            found[f"int4 {layout} {dtype} x {rows}"] = product(rows, dtype, by_rows=by_rows)
    for rows in (1, 2, 4, 16, 64, 512):
        found[f"cuBLAS float16 x {rows}"] = cublas(rows, "float16")
    found["cuBLAS float32 x 512"] = cublas(512, "float32")
    for keys in (512, 4096, 32768):
        found[f"attention float16, 1 after {keys - 1}"] = attention(1, keys, "float16")
    for queries, cudnn in itertools.product((512, 2048, 8192), (True, False)):
        name = f"attention float16, {queries} after 0" + ("" if cudnn else " without cuDNN")
        found[name] = attention(queries, queries, "float16", cudnn=cudnn)
    for queries, backend in itertools.product((2048, 8192), ("FLASH", "CUDNN")):
        found[f"torch {backend} attention, {queries}"] = torchs(queries, backend)
    for (channels, size), dtype, cudnn in itertools.product(
        ((64, 56), (512, 7)), ("float16", "float32"), (True, False)
    ):
        name = f"convolution {dtype}, {channels} x {size}" + ("" if cudnn else " without cuDNN")
        found[name] = convolution(channels, size, dtype, cudnn=cudnn)
    return found


def round_factors() -> None:
    """Let cuBLAS round factors of float32 to 10 bits, as a session does unless it is told not."""
    import cupy

    from tenonnx_cuda.matmul.cublas import TF32

    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    cublas.setMathMode(cupy.cuda.Device().cublas_handle, TF32)


def main(arguments: list[str] | None = None) -> None:
    """Time all kernels, or some."""
    parser = argparse.ArgumentParser(prog="python -m bench.cuda.kernels", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the names of what is timed")
    parser.add_argument("--after", default="", metavar="NAME", help="only what comes after a name")
    parsed = parser.parse_args(arguments)
    wanted = tuple(parsed.names) or ("",)
    round_factors()
    report({n: case for n, case in cases().items() if n.startswith(wanted)}, parsed.after)


if __name__ == "__main__":
    main()
