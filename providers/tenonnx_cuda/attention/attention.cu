// Attention of a tile of ROWS queries over all keys, COLUMNS at a time; no matrix of scores exists.

// SIZE and VALUE are the sizes of a head of q and k, and of v. MASK: 0 none, 1 T added, 2 bytes of
// which 0 hides. A block of THREADS threads, of which THREADS / ROWS share a row of scores.
#include "attention/shares.cuh"
#define LANES (THREADS / ROWS)
#define OWN ((VALUE + LANES - 1) / LANES)

#if MASK == 2
typedef unsigned char mask_type;
#else
typedef T mask_type;
#endif

// The grid: tiles of queries by parts, heads, batch. Query i of sequence b sees key j if
//   j >= before + i - left (left >= 0), j <= before + i + right (right >= 0), j < lengths[b],
// where before is what keys_before says. A query that sees none
// gives 0. Of each head a sink, if there are any, is one more score, which stands for no key.
extern "C" __global__ void attend(
    const T* q, const T* k, const T* v, const mask_type* mask, const long long* lengths,
    const float* sinks, T* y, int group, int queries, int keys,
    long long q_b, long long q_h, long long q_s, long long k_b, long long k_h, long long k_s,
    long long v_b, long long v_h, long long v_s, long long y_b, long long y_h, long long y_s,
    long long mask_b, long long mask_h, long long mask_s, int mask_keys,
    int offset, int left, int right, float scale, float softcap,
    int parts, int span, float* acc_out, share* stats) {
    follow();
    __shared__ float q_tile[ROWS][SIZE + 1];
    __shared__ float k_tile[COLUMNS][SIZE + 1];
    __shared__ float v_tile[COLUMNS][VALUE];
    __shared__ float score[ROWS][COLUMNS + 1];
    const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int part = blockIdx.x % parts, first = blockIdx.x / parts * ROWS, query = first + row;
    const int head = blockIdx.y, batch = blockIdx.z;
    const int length = lengths ? (int)min(lengths[batch], (long long)keys) : keys;
    const long long place = keys_before(lengths, offset, queries, batch) + query;
    const long long own = own_span(length, parts, span);
    q += batch * q_b + head * q_h;
    k += batch * k_b + head / group * k_h;
    v += batch * v_b + head / group * v_h;
    for (int i = threadIdx.x; i < ROWS * SIZE; i += THREADS) {
        const int r = i / SIZE, d = i % SIZE;
        q_tile[r][d] = first + r < queries ? number(q[(first + r) * q_s + d]) * scale : 0.0f;
    }
    float most = -INF, sum = 0.0f, acc[OWN];
    for (int i = 0; i < OWN; ++i) acc[i] = 0.0f;
    // Tiles that none of the block's queries sees are not even loaded.
    const long long last = place - row + ROWS - 1;
    long long stop = min((long long)length, (part + 1) * own), from = part * own;
    if (right >= 0) stop = min(stop, last + right + 1);
    if (left >= 0) from = max(from, place - row - left);
    for (int start = (int)(from / COLUMNS * COLUMNS); start < stop; start += COLUMNS) {
        __syncthreads();
        for (int i = threadIdx.x; i < COLUMNS * SIZE; i += THREADS) {
            const int c = i / SIZE, d = i % SIZE;
            k_tile[c][d] = start + c < keys ? number(k[(start + c) * k_s + d]) : 0.0f;
        }
        for (int i = threadIdx.x; i < COLUMNS * VALUE; i += THREADS) {
            const int c = i / VALUE, d = i % VALUE;
            v_tile[c][d] = start + c < length ? number(v[(start + c) * v_s + d]) : 0.0f;
        }
        __syncthreads();
        for (int c = lane; c < COLUMNS; c += LANES) {
            const int key = start + c;
            float s = 0.0f;
            for (int d = 0; d < SIZE; ++d) s += q_tile[row][d] * k_tile[c][d];
            if (softcap > 0.0f) s = softcap * tanhf(s / softcap);
            bool seen = key < length && query < queries;
            if (left >= 0) seen = seen && key >= place - left;
            if (right >= 0) seen = seen && key <= place + right;
#if MASK
            seen = seen && key < mask_keys;
            if (seen) {
                const mask_type m = mask[batch * mask_b + head * mask_h + query * mask_s + key];
#if MASK == 2
                seen = m != 0;
#else
                s += number(m);
#endif
            }
#endif
            score[row][c] = seen ? s : -INF;
        }
        __syncthreads();
        float top = most;
        for (int c = 0; c < COLUMNS; ++c) top = larger(top, score[row][c]);
        if (top == -INF) continue;
        const float factor = most == -INF ? 0.0f : expf(most - top);
        most = top;
        sum *= factor;
        for (int i = 0; i < OWN; ++i) acc[i] *= factor;
        for (int c = 0; c < COLUMNS; ++c) {
            const float weight = expf(score[row][c] - top);
            sum += weight;
            for (int i = 0; i < OWN; ++i) {
                const int d = lane + i * LANES;
                if (d < VALUE) acc[i] += weight * v_tile[c][d];
            }
        }
    }
    if (query >= queries) return;
    if (parts > 1) {
        const long long to =
            (((long long)part * gridDim.z + batch) * gridDim.y + head) * queries + query;
        if (lane == 0) stats[to] = {most, sum};
        for (int i = 0; i < OWN; ++i) {
            const int d = lane + i * LANES;
            if (d < VALUE) acc_out[to * VALUE + d] = acc[i];
        }
        return;
    }
    if (sinks) {
        const float top = fmaxf(most, sinks[head]), factor = most == -INF ? 0.0f : expf(most - top);
        sum = sum * factor + expf(sinks[head] - top);
        for (int i = 0; i < OWN; ++i) acc[i] *= factor;
    }
    y += batch * y_b + head * y_h + query * y_s;
    for (int i = 0; i < OWN; ++i) {
        const int d = lane + i * LANES;
        if (d < VALUE) put(&y[d], sum == 0.0f ? 0.0f : acc[i] / sum);
    }
}
