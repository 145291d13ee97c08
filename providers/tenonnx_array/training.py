"""One step of an optimizer: Adagrad, Adam, Momentum (domain ai.onnx.preview.training).

Every kernel takes the learning rate, the count of past updates, and then all tensors, all
their gradients and all of each kind of state; it returns the new tensors and states.
"""

from __future__ import annotations

from tenonnx.operators import Array, Namespace, OperatorTable

table = OperatorTable("ai.onnx.preview.training")
op = table.op


def grouped(inputs: tuple[Array, ...], kinds: int) -> list[tuple[Array, ...]]:
    """Return (tensor, gradient, *states) for every tensor.

    Raises:
        ValueError: The inputs do not divide into so many kinds.
    """
    if len(inputs) % kinds:
        raise ValueError(f"expected a multiple of {kinds} tensors, found {len(inputs)}")
    count = len(inputs) // kinds
    return [inputs[i::count] for i in range(count)]


def flat(updates: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return all tensors, then all of each kind of state."""
    return tuple(array for kind in zip(*updates, strict=True) for array in kind)


@op("Adagrad", multiple=True)
def adagrad(
    xp: Namespace,
    R: Array,
    T: Array,
    *inputs: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    """Return X and the sum of squared gradients H after one step (Duchi et al., 2011)."""
    updates = []
    for X, G, H in grouped(inputs, 3):
        rate = (R / (1 + T * decay_factor)).astype(X.dtype)
        G = norm_coefficient * X + G
        H = H + G * G
        updates.append((X - rate * G / (xp.sqrt(H) + epsilon), H))
    return flat(updates)


@op("Adam", multiple=True)
def adam(
    xp: Namespace,
    R: Array,
    T: Array,
    *inputs: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    """Return X, the mean gradient V and the mean squared gradient H (arXiv:1412.6980)."""
    adjusted = R * xp.sqrt(1 - beta**T) / xp.where(T > 0, 1 - alpha**T, 1)
    updates = []
    for X, G, V, H in grouped(inputs, 4):
        rate = xp.where(T > 0, adjusted, R).astype(X.dtype)
        G = norm_coefficient * X + G
        V = alpha * V + (1 - alpha) * G
        H = beta * H + (1 - beta) * G * G
        X = X - rate * V / (xp.sqrt(H) + epsilon)
        updates.append(((1 - norm_coefficient_post) * X, V, H))
    return flat(updates)


@op("Momentum", multiple=True)
def momentum(
    xp: Namespace,
    R: Array,
    T: Array,
    *inputs: Array,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Array, ...]:
    """Return X and its momentum V after one step; the first takes the whole gradient.

    Raises:
        ValueError: A mode other than standard and nesterov.
    """
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"expected the mode standard or nesterov, found {mode!r}")
    updates = []
    for X, G, V in grouped(inputs, 3):
        rate, fresh = R.astype(X.dtype), xp.where(T > 0, beta, 1).astype(X.dtype)
        G = norm_coefficient * X + G
        V = alpha * V + fresh * G
        updates.append((X - rate * (G + alpha * V if mode == "nesterov" else V), V))
    return flat(updates)
