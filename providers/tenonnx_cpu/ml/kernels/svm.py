"""Class probabilities from those of pairs of classes."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, f64, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import look, parallel

# Products of the rows that are done before the run can be stopped: some milliseconds.
MAX_CHUNK_PRODUCTS = 1 << 22


@parallel
def couple_some(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    chances, p, work, steps, first, last = arguments
    classes = p.shape[1]
    q, qp = work[:classes], work[classes]
    for row in range(first, last):
        for i in range(classes):
            q[i, i] = 0
            p[row, i] = 1 / classes
        pair = 0
        for i in range(classes):
            for j in range(i + 1, classes):
                r = min(max(chances[row, pair], 1e-7), 1 - 1e-7)
                q[i, j] = q[j, i] = -r * (1 - r)
                q[j, j] += r * r
                q[i, i] += (1 - r) * (1 - r)
                pair += 1
        for _ in range(steps):
            pqp = 0.0
            for i in range(classes):
                qp[i] = 0
                for j in range(classes):
                    qp[i] += q[i, j] * p[row, j]
                pqp += p[row, i] * qp[i]
            worst = 0.0
            for i in range(classes):
                worst = max(worst, abs(qp[i] - pqp))
            if worst < 0.005 / classes:
                break
            for i in range(classes):
                step = (pqp - qp[i]) / q[i, i]
                p[row, i] += step
                pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) ** 2
                for j in range(classes):
                    qp[j] = (qp[j] + step * q[i, j]) / (1 + step)
                    p[row, j] /= 1 + step


@kernel(
    (In(f64, 2), Out(f64, 2), Out(f64, 2), size),
    Contract(plan="a probability per pair of classes", captured=False),
)
def couple(chances, p, work, steps):  # type: ignore[no-untyped-def] # the signature has them
    """Do what ``tenonnx_array.ml.svm.coupled`` does, a row at a time.

    Args:
        chances: [N, P]; that a row is of class i rather than j, for each pair i < j.
        p: The probabilities, [N, E].
        work: [E + 1, E].
        steps: How often to improve on a row at most.
    """
    span = max(1, MAX_CHUNK_PRODUCTS // (max(1, steps) * p.shape[1] ** 2 + 1))
    for first in range(0, p.shape[0], span):
        if first:
            look()
        couple_some((chances, p, work, steps, first, min(p.shape[0], first + span)), 1, 1)
