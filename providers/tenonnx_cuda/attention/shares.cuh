// Attention whose keys are cut into `parts` shares of `span` keys each. With more than one, each
// leaves unscaled sums in acc [parts, batch * heads * queries, VALUE] and stats [parts, ...].
#define SHARE 32  // a share is a number of so many keys
#define LEAST 32
#define FROM_ZERO -2

// How many keys are before the first query: `offset`, or as many as make it the sequence's last
// `queries`; with FROM_ZERO a sequence of fewer steps than there are queries begins with the first.
__device__ inline long long keys_before(const long long* lengths, int offset, int queries, int batch) {
    if (offset >= 0) return offset;
    const long long before = lengths[batch] - queries;
    return offset == FROM_ZERO && before < 0 ? 0 : before;
}

// Keys of a share; without a span, what there is is cut evenly.
__device__ inline long long own_span(int length, int parts, int span) {
    if (span) return span;
    const long long even = (length + (long long)parts * SHARE - 1) / ((long long)parts * SHARE) * SHARE;
    return even < LEAST ? LEAST : even;
}

// A part of the result that `combine` adds up: acc and sum stand for exp(score - most) times v, and alone.
struct share { float most, sum; };

// What a share's sums count for beside a score of `top`. Without any score they are 0, or NaN.
__device__ inline float counts(float most, float top) { return most == -INF ? 1.0f : expf(most - top); }

// y of the shares' sums: a block for each query of each head, in the order of stats. Its warps share
// the parts out, and lanes the elements of v.
#define JOINERS 8
#define JOINED ((VALUE + WARP - 1) / WARP)
#define MOST_PARTS 1024

extern "C" __global__ void __launch_bounds__(JOINERS * WARP) combine(
    const float* acc, const share* stats, const float* sinks, T* y, int parts, int heads,
    int queries, long long y_b, long long y_h, long long y_s) {
    follow();
    __shared__ float weight[MOST_PARTS], shared[JOINERS], sums[JOINERS][JOINED * WARP];
    const long long row = blockIdx.x, rows = gridDim.x;
    const int query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float top = sinks ? sinks[head] : -INF;
    for (int p = threadIdx.x; p < parts; p += JOINERS * WARP) top = fmaxf(top, stats[p * rows + row].most);
    top = block_max(top, shared);
    float total = 0.0f;
    for (int p = threadIdx.x; p < parts; p += JOINERS * WARP) {
        const share s = stats[p * rows + row];
        weight[p] = counts(s.most, top);
        total += s.sum * weight[p];
    }
    total = block_sum(total, shared);  // which also waits for the weights
    if (sinks) total += expf(sinks[head] - top);
    float value[JOINED];
    for (int i = 0; i < JOINED; ++i) value[i] = 0.0f;
    for (int p = warp; p < parts; p += JOINERS) {
        const float* from = acc + (p * rows + row) * VALUE;
        for (int i = 0; i < JOINED; ++i)
            if (i * WARP + lane < VALUE) value[i] += from[i * WARP + lane] * weight[p];
    }
    for (int i = 0; i < JOINED; ++i) sums[warp][i * WARP + lane] = value[i];
    __syncthreads();
    for (int d = threadIdx.x; d < VALUE; d += JOINERS * WARP) {
        float all = 0.0f;
        for (int w = 0; w < JOINERS; ++w) all += sums[w][d];
        put(&y[batch * y_b + head * y_h + query * y_s + d], total == 0.0f ? 0.0f : all / total);
    }
}
