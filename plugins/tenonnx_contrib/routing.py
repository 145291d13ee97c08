"""The choice of a token's experts, from groups of experts."""

from __future__ import annotations

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.nonlinear import sigmoid

table = OperatorTable("com.microsoft")

# The smallest share whose logarithm is taken: that of 0 is infinite.
MIN_SHARE = 1e-20


@table.op(
    "MoEGroupRouter",
    multiple=True,
    shapes=(
        "expert_bias: n; len(logits) > 1; "
        "projection_weight is not None or expert_bias is None or n == logits[-1]; "
        "projection_weight is None or expert_bias is None or n == projection_weight[0]"
    ),
)
def moe_group_router(
    xp: Namespace,
    logits: Array,
    expert_bias: Array,
    projection_weight: Array | None = None,
    *,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = -10000.0,
    top_k: int,
    topk_group: int = 1,
    _outputs: int,
) -> tuple[Array | None, ...]:
    """Return scores (tokens, experts) for MoE: logarithms of the chosen, a sentinel elsewhere.

    Experts are ranked by the sigmoid of their logits plus a bias, ``top_k`` of them, from the
    ``topk_group`` groups whose best ``group_topk`` add up to most. Other outputs are the ranks and
    the sigmoids of all experts.

    Raises:
        ValueError: The experts do not fall into groups, or logits are to be projected without the
            outputs for all experts.
    """
    if projection_weight is not None:
        if _outputs < 2:
            raise ValueError("expected selection_scores with projection_weight, found router_probs")
        logits = logits.astype(xp.float32) @ projection_weight.astype(xp.float32).T
    experts = logits.shape[-1]
    if n_group < 1 or experts % n_group or not 0 < topk_group <= n_group:
        raise ValueError(
            f"expected {experts} experts in n_group={n_group} groups, topk_group={topk_group} of "
            "them chosen"
        )
    shares = sigmoid(xp, logits.reshape(-1, experts).astype(xp.float32))
    ranks = shares + expert_bias
    if _outputs > 1:
        return None, ranks, shares
    size = experts // n_group
    grouped = ranks.reshape(-1, n_group, size)
    best = -xp.sort(-grouped, axis=-1)[..., : min(group_topk, size)]
    # By the negated, in stable order: of equal groups and experts the first ones are chosen.
    groups = xp.argsort(-xp.sum(best, axis=-1), axis=-1, kind="stable")[:, :topk_group]
    kept = xp.any(groups[:, :, None] == xp.arange(n_group), axis=1)
    ranks = xp.where(xp.repeat(kept, size, axis=1), ranks, -xp.inf)
    chosen = xp.argsort(-ranks, axis=-1, kind="stable")[:, : min(top_k, topk_group * size)]
    taken = xp.any(chosen[:, :, None] == xp.arange(experts), axis=1)
    scores = xp.where(taken, xp.log(xp.maximum(shares, MIN_SHARE)), router_sentinel)
    return (scores.astype(logits.dtype),)
