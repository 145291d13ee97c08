// Attention whose keys are cut into `parts` shares of `span` keys each. With more than one, each
// leaves unscaled sums in acc [parts, batch * heads * queries, VALUE] and stats [parts, ...].

// What `combine` makes one result of: acc and sum stand for exp(score - most) times v, and alone.
struct share { float most, sum; };

// y of the shares' sums: a block for each query of each head, in the order of stats.
extern "C" __global__ void combine(
    const float* acc, const share* stats, const float* sinks, T* y, int parts, int heads,
    int queries, long long y_b, long long y_h, long long y_s) {
    const long long row = blockIdx.x, rows = gridDim.x;
    const int query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    float top = sinks ? sinks[head] : -INF;
    for (int p = 0; p < parts; ++p) top = fmaxf(top, stats[p * rows + row].most);
    float total = sinks ? expf(sinks[head] - top) : 0.0f;
    for (int p = 0; p < parts; ++p) {
        const share s = stats[p * rows + row];
        if (s.most != -INF) total += s.sum * expf(s.most - top);
    }
    for (int d = threadIdx.x; d < VALUE; d += blockDim.x) {
        float value = 0.0f;
        for (int p = 0; p < parts; ++p) {
            const float most = stats[p * rows + row].most;
            if (most != -INF) value += acc[(p * rows + row) * VALUE + d] * expf(most - top);
        }
        put(&y[batch * y_b + head * y_h + query * y_s + d], total > 0.0f ? value / total : 0.0f);
    }
}
