// Attention on tensor cores: a warp has 16 rows and a share of the keys.

// Rows are the queries of the heads that have their keys in common: row r is query r / group of
// head r % group, so that one query of a large group fills a tile as well as many of one head do.
// SIZE, a multiple of 32, and VALUE, one of 8 * EACH, are sizes of a head of q and k, and of v; T
// is f16 or bf16. MASK: 0 none, 1 T added, 2 bytes of which 0 hides. With STAGED, for one share, the
// warps of a block go through the keys together, which pass through shared memory while the tile
// before is multiplied; without, a warp meets no other, and reads them where they are.

#include "mma.cuh"
#include "attention/shares.cuh"
#define WARPS 4
#define ROWS 16
#define KEYS 32  // at a time
#define RUNS (VALUE / (8 * EACH))
#define UNROLL _Pragma("unroll")  // registers have no addresses
#define BLOCKS (!STAGED ? 1 : SIZE + VALUE > 192 ? 2 : 3)  // of a multiprocessor, without spills
#define LOG2E 1.4426950408889634f
// Rows of shared memory are so long that no banks collide: the eight lanes that read together have
// 64 bytes each of two rows of keys, or 32 of four rows of values.
#define KEY_ROW (SIZE + (SIZE % 64 ? 0 : 32))
#define VALUE_ROW (VALUE + 8)

#if MASK == 2
typedef unsigned char mask_type;
#else
typedef T mask_type;
#endif

struct __align__(16) sixteen { unsigned words[4]; };
struct __align__(EACH * 2) few { unsigned words[EACH / 2]; };

#ifdef HOSTED
inline float power_of_two(float x) { return exp2f(x); }
inline unsigned both(float low, float high) {
    T pair[2];
    put(&pair[0], low);
    put(&pair[1], high);
    return pair[0].bits | ((unsigned)pair[1].bits << 16);
}
#else
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline unsigned packed(float low, float high, const f16*) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ inline unsigned packed(float low, float high, const bf16*) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ inline unsigned both(float low, float high) { return packed(low, high, (const T*)0); }
#endif

#if STAGED
// Starts copying KEYS rows of `size` elements from `base` on; those that are not there are zeros.
template <int SIZED, int ROW>
__device__ inline void fetch(T (*to)[ROW], const T* from, long long step, int base, int length) {
    for (int i = threadIdx.x; i < KEYS * SIZED / 8; i += WARPS * WARP) {
        const int key = i / (SIZED / 8), at = i % (SIZED / 8) * 8;
        if (base + key < length)
            copy_16(&to[key][at], from + (base + key) * step + at);
        else
            *(sixteen*)&to[key][at] = {{0, 0, 0, 0}};
    }
}
#endif

// The arguments are those of attend in attention.cu. The grid: tiles of rows by parts, WARPS of them a
// block; heads of k; batch.
extern "C" __global__ void __launch_bounds__(WARPS * WARP, BLOCKS) attend_tensor(
    const T* q, const T* k, const T* v, const mask_type* mask, const long long* lengths,
    const float* sinks, T* y, int group, int queries, int keys,
    long long q_b, long long q_h, long long q_s, long long k_b, long long k_h, long long k_s,
    long long v_b, long long v_h, long long v_s, long long y_b, long long y_h, long long y_s,
    long long mask_b, long long mask_h, long long mask_s, int mask_keys,
    int offset, int left, int right, float scale, float softcap,
    int parts, int span, float* acc_out, share* stats) {
    follow();
    const int lane = threadIdx.x % WARP, lane_group = lane / 4, place = lane % 4;
    const int rows = queries * group, batch = blockIdx.z, heads = group * gridDim.y;
#if STAGED
    // Blocks that see many keys start first. Warps without rows copy along.
    const int unit = (gridDim.x - 1 - blockIdx.x) * WARPS + threadIdx.x / WARP, part = 0;
    const int first = unit * ROWS, block_first = first / (ROWS * WARPS) * (ROWS * WARPS);
    __align__(16) __shared__ T key_tile[2][KEYS][KEY_ROW];
    __align__(16) __shared__ T value_tile[2][KEYS][VALUE_ROW];
#else
    const int unit = blockIdx.x * WARPS + threadIdx.x / WARP;
    const int first = unit / parts * ROWS, part = unit % parts;
    if (first >= rows) return;
#endif
    const int length = lengths ? (int)min(lengths[batch], (long long)keys) : keys;
    const int before = (int)keys_before(lengths, offset, queries, batch);
    const long long share_span = own_span(length, parts, span);
    const float inner = scale / softcap, outer = (softcap > 0.0f ? softcap : scale) * LOG2E;
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
    // The keys that any of its rows sees; early and late are the rows' first and last query.
    const int early = before + first / group, late = before + min(first + ROWS - 1, rows - 1) / group;
    int stop = (int)min((long long)length, (part + 1) * share_span);
    if (right >= 0) stop = min(stop, late + right + 1);
    int start = (int)(part * share_span);
    if (left >= 0) start = max(start, (early - left) / KEYS * KEYS);
#if STAGED
    const int block_late = before + min(block_first + WARPS * ROWS - 1, rows - 1) / group;
    const int to = right >= 0 ? min(length, block_late + right + 1) : length;
    const int from = left >= 0 ? max(0, (before + block_first / group - left) / KEYS * KEYS) : 0;
    if (first >= rows) stop = start = 0;
    int stage = 0;
    fetch<SIZE, KEY_ROW>(key_tile[0], k, k_s, from, length);
    fetch<VALUE, VALUE_ROW>(value_tile[0], v, v_s, from, length);
    end_group();
    for (int base = from; base < to; base += KEYS, stage ^= 1) {
        await_group<0>();
        __syncthreads();  // the tile is there, and everybody is done with the one before
        if (base + KEYS < to) {
            fetch<SIZE, KEY_ROW>(key_tile[stage ^ 1], k, k_s, base + KEYS, length);
            fetch<VALUE, VALUE_ROW>(value_tile[stage ^ 1], v, v_s, base + KEYS, length);
        }
        end_group();
        if (base < start || base >= stop) continue;
#else
    for (int base = start; base < stop; base += KEYS) {
        // Both are asked for before either is waited for; those beyond the last are it, and unseen.
        sixteen keys_read[KEYS / 8][SIZE / 32];
        few values_read[KEYS / 16][RUNS][4];
        UNROLL for (int t = 0; t < KEYS / 8; ++t) {
            const long long key = min(base + 8 * t + lane_group, length - 1);
            UNROLL for (int s = 0; s < SIZE / 32; ++s)
                keys_read[t][s] = *(const sixteen*)(k + key * k_s + 32 * s + 8 * place);
        }
        UNROLL for (int u = 0; u < KEYS / 16; ++u)
            UNROLL for (int j = 0; j < 4; ++j) {
                const long long key = min(base + 16 * u + 2 * place + j % 2 + 8 * (j / 2), length - 1);
                UNROLL for (int n = 0; n < RUNS; ++n)
                    values_read[u][n][j] = *(const few*)(v + key * v_s + (8 * n + lane_group) * EACH);
            }
#endif
        float score[KEYS / 8][4];
        UNROLL for (int t = 0; t < KEYS / 8; ++t) {
            UNROLL for (int i = 0; i < 4; ++i) score[t][i] = 0.0f;
            UNROLL for (int s = 0; s < SIZE / 32; ++s) {
#if STAGED
                const T* from_tile = &key_tile[stage][8 * t + lane_group][32 * s + 8 * place];
                const sixteen words = *(const sixteen*)from_tile;
#else
                const sixteen words = keys_read[t][s];
#endif
                UNROLL for (int h = 0; h < 2; ++h) {
                    const unsigned a[4] = {factor[s][0][2 * h], factor[s][1][2 * h],
                                           factor[s][0][2 * h + 1], factor[s][1][2 * h + 1]};
                    mma(score[t], a, words.words + 2 * h, (const T*)0);
                }
            }
        }
        // Scores are powers of two. Where every row sees every key nothing else is to be looked at.
        bool whole = !MASK && base + KEYS <= length;
        if (left >= 0) whole = whole && base >= late - left;
        if (right >= 0) whole = whole && base + KEYS - 1 <= early + right;
        if (softcap > 0.0f)
            UNROLL for (int i = 0; i < KEYS / 2; ++i)
                score[i / 4][i % 4] = tanhf(score[i / 4][i % 4] * inner);
        UNROLL for (int i = 0; i < KEYS / 2; ++i) score[i / 4][i % 4] *= outer;
        if (!whole)
            UNROLL for (int i = 0; i < KEYS / 2; ++i) {
                const int r = i % 4 / 2, key = base + i / 4 * 8 + 2 * place + i % 2;
                bool seen = key < length;
                if (left >= 0) seen = seen && key >= before + query[r] - left;
                if (right >= 0) seen = seen && key <= before + query[r] + right;
#if MASK
                seen = seen && key < mask_keys;
                if (seen) {
                    const mask_type m = mask[batch * mask_b + head[r] * mask_h + query[r] * mask_s + key];
#if MASK == 2
                    seen = m != 0;
#else
                    // bfloat16's least number does not hide a key, and times LOG2E is -infinity.
                    const float bias = number(m);
                    score[i / 4][i % 4] += (bias == -INF ? bias : larger(bias, -2e38f)) * LOG2E;
#endif
                }
#endif
                if (!seen) score[i / 4][i % 4] = -INF;
            }
        float top[2] = {most[0], most[1]};
        UNROLL for (int i = 0; i < KEYS / 2; ++i)
            top[i % 4 / 2] = fmaxf(top[i % 4 / 2], score[i / 4][i % 4]);
        float zero[2];  // what exponents are less, also where no key was seen yet
        UNROLL for (int r = 0; r < 2; ++r) {
            // The four lanes of a row agree on its largest score.
            for (int step = 1; step < 4; step *= 2)
                top[r] = fmaxf(top[r], __shfl_xor_sync(ALL_LANES, top[r], step));
            zero[r] = top[r] == -INF ? 0.0f : top[r];
            const float shrink = power_of_two(most[r] - zero[r]);
            most[r] = top[r];
            sum[r] *= shrink;
            UNROLL for (int n = 0; n < RUNS; ++n)
                UNROLL for (int e = 0; e < EACH; ++e) {
                    acc[n][e][2 * r] *= shrink;
                    acc[n][e][2 * r + 1] *= shrink;
                }
        }
        UNROLL for (int i = 0; i < KEYS / 2; ++i) {
            float* here = &score[i / 4][i % 4];
            *here = power_of_two(*here - zero[i % 4 / 2]);
            sum[i % 4 / 2] += *here;
        }
        UNROLL for (int u = 0; u < KEYS / 16; ++u) {
            // Where results of one product lie is where the next one wants its factor.
            const float* low = score[2 * u];
            const float* high = score[2 * u + 1];
            const unsigned a[4] = {both(low[0], low[1]), both(low[2], low[3]),
                                   both(high[0], high[1]), both(high[2], high[3])};
            UNROLL for (int n = 0; n < RUNS; ++n) {
#if STAGED
                few line[4];
                UNROLL for (int j = 0; j < 4; ++j) {
                    const int step = 16 * u + 2 * place + j % 2 + 8 * (j / 2);
                    line[j] = *(const few*)&value_tile[stage][step][(8 * n + lane_group) * EACH];
                }
#else
                const few* line = values_read[u][n];
#endif
                // Column `lane_group` of product e is element lane_group * EACH + e of v.
                UNROLL for (int e = 0; e < EACH; ++e) {
                    unsigned b[2];
                    UNROLL for (int h = 0; h < 2; ++h)
                        b[h] = __byte_perm(line[2 * h].words[e / 2], line[2 * h + 1].words[e / 2],
                                           e % 2 ? 0x7632 : 0x5410);
                    mma(acc[n][e], a, b, (const T*)0);
                }
            }
        }
    }
#if STAGED
    if (first >= rows) return;
#endif

    UNROLL for (int r = 0; r < 2; ++r) {
        for (int step = 1; step < 4; step *= 2) sum[r] += __shfl_xor_sync(ALL_LANES, sum[r], step);
        if (first + lane_group + 8 * r >= rows) continue;
        if (parts > 1) {
            const long long to = part * (long long)gridDim.z * heads * queries +
                                 ((long long)batch * heads + head[r]) * queries + query[r];
            if (place == 0) stats[to] = {most[r] / LOG2E, sum[r]};
            UNROLL for (int n = 0; n < RUNS; ++n)
                UNROLL for (int e = 0; e < EACH; ++e)
                    UNROLL for (int i = 0; i < 2; ++i)
                        acc_out[to * VALUE + (8 * n + 2 * place + i) * EACH + e] = acc[n][e][2 * r + i];
            continue;
        }
        float shrink = 1.0f, total = sum[r];
        if (sinks) {
            const float sink = sinks[head[r]] * LOG2E, above = fmaxf(most[r], sink);
            shrink = most[r] == -INF ? 0.0f : power_of_two(most[r] - above);
            total = total * shrink + power_of_two(sink - above);
        }
        const float part_of = shrink / total;
        T* to = y + batch * y_b + head[r] * y_h + query[r] * y_s;
        UNROLL for (int n = 0; n < RUNS; ++n)
            UNROLL for (int e = 0; e < EACH; ++e)
                UNROLL for (int i = 0; i < 2; ++i)
                    put(&to[(8 * n + 2 * place + i) * EACH + e],
                        total == 0.0f ? 0.0f : acc[n][e][2 * r + i] * part_of);
    }
}
