"""RNN, GRU and LSTM: the step of each; ``recurrence`` has the loop over time they share.

``tenonnx_cpu.recurrent`` computes them with kernels and comes back here for all that those do not
take. ``attention_lstm`` of tenonnx_contrib uses ``layer`` and
``memory``, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx_array.gates import gate_functions
from tenonnx_array.recurrence import Recurrence

if TYPE_CHECKING:
    from tenonnx_array.gates import Function
    from tenonnx_array.recurrence import States, Step

table = OperatorTable()
op = table.op


def layer(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None,
    sequence_lens: Array | None,
    activations: tuple[str, ...],
    each: int,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,  # noqa: ARG001 - early versions made Y optional; it comes for free
) -> tuple[Recurrence, list[Function]]:
    """Return the loop and the activation functions: the common part of all three operators.

    Its keyword parameters are attributes of the operators, which ``like=[layer]`` declares. A
    direction has ``each`` of the activations.
    """
    net = Recurrence(xp, X, W, R, B, sequence_lens, direction, hidden_size, layout)
    parameters = (activation_alpha, activation_beta, clip)
    return net, gate_functions(xp, activations, each, net.directions, *parameters)


@op("RNN", since=14, multiple=True, like=[layer], without=["output_sequence"])
@op("RNN", since=7, multiple=True, like=[layer], without=["layout", "output_sequence"])
@op(
    "RNN",
    multiple=True,
    like=[layer],
    without=["layout"],
    shapes=(
        "X: T N I if not layout; X: N T I if layout; W: D H I; R: D H H; B: D 2*H; "
        "sequence_lens: N; initial_h: D N H if not layout; initial_h: N D H if layout; "
        "D == 1 + (direction == 'bidirectional'); hidden_size in (None, H)"
    ),
)
def rnn(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return every hidden state ``H = f(X @ W' + H @ R' + b)``, and the last."""
    net, (f,) = layer(xp, X, W, R, B, sequence_lens, activations, 1, **attributes)

    def step(x: Array, states: States) -> States:
        return (f(x + xp.matmul(states[0], net.R)),)

    return net.run(step, net.input_bias + net.recurrent_bias, initial_h)


@op("GRU", since=14, multiple=True, like=[layer], without=["output_sequence"])
@op("GRU", since=7, multiple=True, like=[layer], without=["layout", "output_sequence"])
@op("GRU", since=3, multiple=True, like=[layer], without=["layout"])
@op(
    "GRU",
    multiple=True,
    like=[layer],
    without=["layout", "linear_before_reset"],
    shapes=(
        "X: T N I if not layout; X: N T I if layout; W: D 3*H I; R: D 3*H H; B: D 6*H; "
        "sequence_lens: N; initial_h: D N H if not layout; initial_h: N D H if layout; "
        "D == 1 + (direction == 'bidirectional'); hidden_size in (None, H)"
    ),
)
def gru(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh") * 2,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return every hidden state of a gated recurrent unit, and the last.

    The gates lie in the weights in the order update, reset, hidden.
    """
    net, (f, g) = layer(xp, X, W, R, B, sequence_lens, activations, 2, **attributes)
    if linear_before_reset:
        inner = net.recurrent_bias[..., 2 * net.hidden_size :]
        outer = net.recurrent_bias[..., : 2 * net.hidden_size]
        # The reset gate scales this bias, too, so the step adds it, and not all steps at once.
        bias = net.input_bias + xp.concatenate((outer, xp.zeros_like(inner)), axis=-1)
        return net.run(reset_after(xp, net, f, g, inner[:, None]), bias, initial_h)
    return net.run(reset_before(xp, net, f, g), net.input_bias + net.recurrent_bias, initial_h)


def reset_before(xp: Namespace, net: Recurrence, f: Function, g: Function) -> Step:
    """Return GRU's step in which the reset gate scales the state."""
    n = net.hidden_size

    def step(x: Array, states: States) -> States:
        (h,) = states
        gates = f(x[..., : 2 * n] + xp.matmul(h, net.R[..., : 2 * n]))
        z, r = gates[..., :n], gates[..., n:]
        return ((1 - z) * g(x[..., 2 * n :] + xp.matmul(r * h, net.R[..., 2 * n :])) + z * h,)

    return step


def reset_after(xp: Namespace, net: Recurrence, f: Function, g: Function, bias: Array) -> Step:
    """Return GRU's step in which the reset gate scales the projected state and its bias."""
    n = net.hidden_size

    def step(x: Array, states: States) -> States:
        (h,) = states
        projected = xp.matmul(h, net.R)
        gates = f(x[..., : 2 * n] + projected[..., : 2 * n])
        z, r = gates[..., :n], gates[..., n:]
        return ((1 - z) * g(x[..., 2 * n :] + r * (projected[..., 2 * n :] + bias)) + z * h,)

    return step


@op("LSTM", since=14, multiple=True, like=[layer], without=["output_sequence"])
@op("LSTM", since=7, multiple=True, like=[layer], without=["layout", "output_sequence"])
@op(
    "LSTM",
    multiple=True,
    like=[layer],
    without=["layout"],
    shapes=(
        "X: T N I if not layout; X: N T I if layout; W: D 4*H I; R: D 4*H H; B: D 8*H; "
        "sequence_lens: N; initial_h initial_c: D N H if not layout; "
        "initial_h initial_c: N D H if layout; D == 1 + (direction == 'bidirectional'); "
        "hidden_size in (None, H); P: D 3*H"
    ),
)
def lstm(
    xp: Namespace,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh", "Tanh") * 2,
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Return every hidden state of a long short-term memory, the last one, and the last cell.

    The gates lie in the weights in the order input, output, forget, cell; in P, input, output,
    forget.
    """
    net, (f, g, h) = layer(xp, X, W, R, B, sequence_lens, activations, 3, **attributes)
    step = memory(xp, net, f, g, h, bool(input_forget), P)
    return net.run(step, net.input_bias + net.recurrent_bias, initial_h, initial_c)


def memory(
    xp: Namespace,
    net: Recurrence,
    f: Function,
    g: Function,
    h: Function,
    coupled: bool,
    P: Array | None,
) -> Step:
    """Return LSTM's step; ``coupled`` makes the forget gate one minus the input gate."""
    n = net.hidden_size
    peep = None if P is None else [net.wide(P)[:, None, k * n : (k + 1) * n] for k in range(3)]

    def step(x: Array, states: States) -> States:
        hidden, cell = states
        x = x + xp.matmul(hidden, net.R)
        if peep is None:
            gates = f(x[..., : 3 * n])
            i, o, forget = (gates[..., k * n : (k + 1) * n] for k in range(3))
        else:
            i = f(x[..., :n] + peep[0] * cell)
            forget = f(x[..., 2 * n : 3 * n] + peep[2] * cell)
        cell = (1 - i if coupled else forget) * cell + i * g(x[..., 3 * n :])
        if peep is not None:
            # The output gate sees the new cell, the other two see the old one.
            o = f(x[..., n : 2 * n] + peep[1] * cell)
        return o * h(cell), cell

    return step
