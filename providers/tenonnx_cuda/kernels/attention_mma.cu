// Attention on tensor cores: a warp has 16 rows and a share of the keys, and meets no other warp.

// Rows are the queries of the heads that have their keys in common: row r is query r / group of
// head r % group, so that one query of a large group fills a tile as well as many of one head do.
// SIZE, a multiple of 32, and VALUE, one of 8 * EACH, are sizes of a head of q and k, and of v; T
// is f16 or bf16. MASK: 0 none, 1 T added, 2 bytes of which 0 hides.

#include "mma.cuh"
#include "shares.cuh"
#define WARPS 4
#define ROWS 16
#define KEYS 32  // at a time
#define RUNS (VALUE / (8 * EACH))
#define UNROLL _Pragma("unroll")  // registers have no addresses

#if MASK == 2
typedef unsigned char mask_type;
#else
typedef T mask_type;
#endif

struct __align__(16) sixteen { unsigned words[4]; };
struct __align__(EACH * 2) few { unsigned words[EACH / 2]; };

__device__ inline unsigned both(float low, float high) {
    T pair[2];
    put(&pair[0], low);
    put(&pair[1], high);
    return pair[0].bits | ((unsigned)pair[1].bits << 16);
}

// The arguments are those of attend in attention.cu. The grid: tiles of rows by parts, WARPS of them a
// block; heads of k; batch.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) attend_tensor(
    const T* q, const T* k, const T* v, const mask_type* mask, const long long* lengths,
    const float* sinks, T* y, int group, int queries, int keys,
    long long q_b, long long q_h, long long q_s, long long k_b, long long k_h, long long k_s,
    long long v_b, long long v_h, long long v_s, long long y_b, long long y_h, long long y_s,
    long long mask_b, long long mask_h, long long mask_s, int mask_keys,
    int offset, int left, int right, float scale, float softcap,
    int parts, int span, float* acc_out, share* stats) {
    const int lane = threadIdx.x % WARP, lane_group = lane / 4, place = lane % 4;
    const int unit = blockIdx.x * WARPS + threadIdx.x / WARP;
    const int first = unit / parts * ROWS, part = unit % parts;
    const int rows = queries * group, batch = blockIdx.z, heads = group * gridDim.y;
    if (first >= rows) return;
    const int length = lengths ? (int)min(lengths[batch], (long long)keys) : keys;
    const long long before = keys_before(lengths, offset, queries, batch);
    const long long share_span = own_span(lengths, length, parts, span);
    k += batch * k_b + blockIdx.y * k_h;
    v += batch * v_b + blockIdx.y * v_h;

    // Two rows of a lane: which query and head they are.
    int query[2], head[2];
    unsigned factor[SIZE / 32][2][4];
    UNROLL for (int i = 0; i < 2; ++i) {
        const int row = min(first + lane_group + 8 * i, rows - 1);
        query[i] = row / group;
        head[i] = blockIdx.y * group + row % group;
        const T* from = q + batch * q_b + head[i] * q_h + query[i] * q_s + 8 * place;
        UNROLL for (int s = 0; s < SIZE / 32; ++s) {
            const sixteen words = *(const sixteen*)(from + 32 * s);
            UNROLL for (int w = 0; w < 4; ++w) factor[s][i][w] = words.words[w];
        }
    }

    float most[2] = {-INF, -INF}, sum[2] = {0.0f, 0.0f}, acc[RUNS][EACH][4];
    UNROLL for (int r = 0; r < RUNS; ++r)
        UNROLL for (int e = 0; e < EACH; ++e)
            UNROLL for (int i = 0; i < 4; ++i) acc[r][e][i] = 0.0f;
    const long long early = before + first / group, late = before + min(first + ROWS - 1, rows - 1) / group;
    long long stop = min((long long)length, (part + 1) * share_span);
    if (right >= 0) stop = min(stop, late + right + 1);
    long long start = part * share_span;
    if (left >= 0) start = max(start, (early - left) / KEYS * KEYS);
    for (long long base = start; base < stop; base += KEYS) {
        float score[KEYS / 8][4];
        UNROLL for (int t = 0; t < KEYS / 8; ++t) {
            UNROLL for (int i = 0; i < 4; ++i) score[t][i] = 0.0f;
            const long long key = base + 8 * t + lane_group;
            UNROLL for (int s = 0; s < SIZE / 32; ++s) {
                sixteen words = {{0, 0, 0, 0}};
                if (key < length) words = *(const sixteen*)(k + key * k_s + 32 * s + 8 * place);
                UNROLL for (int h = 0; h < 2; ++h) {
                    const unsigned a[4] = {factor[s][0][2 * h], factor[s][1][2 * h],
                                           factor[s][0][2 * h + 1], factor[s][1][2 * h + 1]};
                    mma(score[t], a, words.words + 2 * h, (const T*)0);
                }
            }
        }
        float top[2] = {most[0], most[1]};
        UNROLL for (int t = 0; t < KEYS / 8; ++t)
            UNROLL for (int i = 0; i < 4; ++i) {
                const int r = i / 2;
                const long long key = base + 8 * t + 2 * place + i % 2, own = before + query[r];
                float s = score[t][i] * scale;
                if (softcap > 0.0f) s = softcap * tanhf(s / softcap);
                bool seen = key < length;
                if (left >= 0) seen = seen && key >= own - left;
                if (right >= 0) seen = seen && key <= own + right;
#if MASK
                seen = seen && key < mask_keys;
                if (seen) {
                    const mask_type m = mask[batch * mask_b + head[r] * mask_h + query[r] * mask_s + key];
#if MASK == 2
                    seen = m != 0;
#else
                    s += number(m);
#endif
                }
#endif
                score[t][i] = seen ? s : -INF;
                top[r] = fmaxf(top[r], score[t][i]);
            }
        UNROLL for (int r = 0; r < 2; ++r) {
            // The four lanes of a row agree on its largest score.
            for (int step = 1; step < 4; step *= 2)
                top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], step));
            const float shrink = most[r] == -INF ? 0.0f : expf(most[r] - top[r]);
            most[r] = top[r];
            sum[r] *= shrink;
            UNROLL for (int n = 0; n < RUNS; ++n)
                UNROLL for (int e = 0; e < EACH; ++e) {
                    acc[n][e][2 * r] *= shrink;
                    acc[n][e][2 * r + 1] *= shrink;
                }
        }
        UNROLL for (int t = 0; t < KEYS / 8; ++t)
            UNROLL for (int i = 0; i < 4; ++i) {
                const float p = most[i / 2] == -INF ? 0.0f : expf(score[t][i] - most[i / 2]);
                score[t][i] = p;
                sum[i / 2] += p;
            }
        UNROLL for (int u = 0; u < KEYS / 16; ++u) {
            // Where results of one product lie is where the next one wants its factor.
            const float* low = score[2 * u];
            const float* high = score[2 * u + 1];
            const unsigned a[4] = {both(low[0], low[1]), both(low[2], low[3]),
                                   both(high[0], high[1]), both(high[2], high[3])};
            UNROLL for (int n = 0; n < RUNS; ++n) {
                few line[4];
                UNROLL for (int j = 0; j < 4; ++j) {
                    const long long key = base + 16 * u + 2 * place + j % 2 + 8 * (j / 2);
                    UNROLL for (int w = 0; w < EACH / 2; ++w) line[j].words[w] = 0;
                    if (key < length) line[j] = *(const few*)(v + key * v_s + (8 * n + lane_group) * EACH);
                }
                // Column `lane_group` of product e is element lane_group * EACH + e of v.
                UNROLL for (int e = 0; e < EACH; ++e) {
                    unsigned b[2];
                    UNROLL for (int h = 0; h < 2; ++h) {
                        const unsigned one = line[2 * h].words[e / 2], two = line[2 * h + 1].words[e / 2];
                        b[h] = e % 2 ? (one >> 16) | (two & 0xffff0000u) : (one & 0xffffu) | (two << 16);
                    }
                    mma(acc[n][e], a, b, (const T*)0);
                }
            }
        }
    }

    UNROLL for (int r = 0; r < 2; ++r) {
        for (int step = 1; step < 4; step *= 2) sum[r] += __shfl_xor_sync(ALL_LANES, sum[r], step);
        if (first + lane_group + 8 * r >= rows) continue;
        if (parts > 1) {
            const long long to = part * (long long)gridDim.z * heads * queries +
                                 ((long long)batch * heads + head[r]) * queries + query[r];
            if (place == 0) stats[to] = {most[r], sum[r]};
            UNROLL for (int n = 0; n < RUNS; ++n)
                UNROLL for (int e = 0; e < EACH; ++e)
                    UNROLL for (int i = 0; i < 2; ++i)
                        acc_out[to * VALUE + (8 * n + 2 * place + i) * EACH + e] = acc[n][e][2 * r + i];
            continue;
        }
        float shrink = 1.0f, total = sum[r];
        if (sinks) {
            const float top = fmaxf(most[r], sinks[head[r]]);
            shrink = most[r] == -INF ? 0.0f : expf(most[r] - top);
            total = total * shrink + expf(sinks[head[r]] - top);
        }
        T* to = y + batch * y_b + head[r] * y_h + query[r] * y_s;
        UNROLL for (int n = 0; n < RUNS; ++n)
            UNROLL for (int e = 0; e < EACH; ++e)
                UNROLL for (int i = 0; i < 2; ++i)
                    put(&to[(8 * n + 2 * place + i) * EACH + e],
                        total > 0.0f ? acc[n][e][2 * r + i] * shrink / total : 0.0f);
    }
}
