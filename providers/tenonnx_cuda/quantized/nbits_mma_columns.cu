// Products with a stored matrix [K, N] of 8, 4 or 2 bits an element, on tensor cores.

#include "mma.cuh"
#include "quantized/levels.cuh"
#include "quantized/levels_mma.cuh"

// A block has 8 words of a row of the matrix, WIDTH columns n; its warps share its slice of K out,
// STEP at a time, of which a lane has 4 neighbors of every 16.
#define WARPS 8
#define STAGES 4
#define WORDS 8
#define WIDTH (WORDS * PER)
#define COPIES (STEP * WORDS / 4 / WARP)  // of 16 bytes by a lane

// 4 rows of words, and so many bytes that no banks collide where lanes read every fourth row.
struct __align__(16) four_rows { unsigned words[4][WORDS], apart[WORDS]; };

struct __align__(8) eight_bytes { unsigned words[2]; };

// Element e of two words, those of two neighbors of K, less a zero.
__device__ inline unsigned couple(unsigned one, unsigned two, int e, unsigned zero) {
    const int byte = e * BITS / 8;
    const unsigned both = __byte_perm(one, two, byte | (4 + byte) << 8);
    return leveled(both, e % (8 / BITS), zero, (const H*)0);
}

// Scales and zeros of a word's columns, read at once where they lie side by side.
struct __align__(sizeof(S) * PER < 16 ? sizeof(S) * PER : 16) word_levels {
    S scales[PER];
};
__device__ inline word_levels scales_of(const levels& l, int k, int n) {
#if N_BLOCK == 1 && N_STEP == 1
    return *(const word_levels*)(l.scales + (long long)(k / K_BLOCK) * l.k_step + n);
#else
    const int n_step = l.n_step;
    word_levels found;
    UNROLL for (int e = 0; e < PER; ++e)
        found.scales[e] = l.scales[(long long)(k / K_BLOCK) * l.k_step +
                                   (long long)((n + e) / N_BLOCK) * N_STEP];
    return found;
#endif
}
__device__ inline unsigned zeros_of(const levels& l, int k, int n) {
    if (ZERO == 0) return 0;
#if N_BLOCK == 1 && N_STEP == 1
    return ((const unsigned*)l.zeros)[((long long)(k / K_BLOCK) * l.k_step + n) / PER];
#else
    unsigned found = 0;
    UNROLL for (int e = 0; e < PER; ++e)
        found |= (l.packed_zero(k, n + e) & ((1u << BITS) - 1)) << (BITS * e);
    return found;
#endif
}

// y[s, m, n] = sum over the slice s of k of x[m, k] * W[k, n], in the type Y, for ROWS of x in a
// block. EARLY if no kernel writes the matrix. K and slice are multiples of STEP, rows of 16 bytes, and a scale is of K_BLOCK neighbors,
// a multiple of STEP. The grid: M by ROWS, N by WIDTH, slices. The arguments of `levels` are those of nbits.cu.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) tensor_columns(
    const H* x, const unsigned* w, const S* scales, const void* zeros, Y* y,
    int M, int N, int K, int slice, int k_step, int n_step) {
    if (!EARLY) follow();
    __shared__ four_rows staged[WARPS][STAGES][STEP / 4];
    const levels l = {scales, zeros, K_BLOCK, k_step, N_BLOCK, n_step, 0};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int group = lane / 4, place = lane % 4, words = N / PER;
    const int first = min((int)blockIdx.y * WORDS + group, words - 1) * PER;
    const int start = blockIdx.z * slice, stop = min(K, start + slice);

    const int before = blockIdx.x * ROWS;
    x += (long long)before * PARTS * K;
    y += ((long long)blockIdx.z * M + before) * N;
    M = min(M - before, ROWS);

    const int row = lane / (WORDS / 4), at = lane % (WORDS / 4) * 4;
    const unsigned* const from = w + (long long)row * words + min((int)blockIdx.y * WORDS + at, words - 4);
    unsigned* const into = &staged[warp][0][row / 4].words[row % 4][at];
    auto fetch = [&](int base, unsigned stage) {
        if (base < stop)
            UNROLL for (int i = 0; i < COPIES; ++i)
                copy_16(into + (stage * STEP / 4 + i * WARP / WORDS) * (sizeof(four_rows) / 4),
                        from + (long long)(base + i * (4 * WARP / WORDS)) * words);
        end_group();
    };
    word_levels next_scales;
    unsigned next_zeros;
    auto look = [&](int base) {
        if (base >= stop) return;
        next_scales = scales_of(l, base, first);
        next_zeros = zeros_of(l, base, first);
    };

    float acc[PER / 2][TILES][4];
    const H* given[TILES];  // columns that there are not are the last row's: nobody reads their sums
    UNROLL for (int t = 0; t < TILES; ++t) {
        UNROLL for (int j = 0; j < PER / 2; ++j)
            UNROLL for (int i = 0; i < 4; ++i) acc[j][t][i] = 0.0f;
        given[t] = x + (long long)min(8 * t + group, M * PARTS - 1) * K + 4 * place;
    }
    UNROLL for (int s = 0; s < STAGES - 1; ++s) fetch(start + (warp + s * WARPS) * STEP, s);
    look(start + warp * STEP);
    if (EARLY) follow();
    unsigned stage = 0;
    for (int base = start + warp * STEP; base < stop; base += WARPS * STEP, stage = (stage + 1) % STAGES) {
        const word_levels now = next_scales;
        const unsigned zero_word = next_zeros ^ (ZERO ? SIGNS : 0);
        fetch(base + (STAGES - 1) * WARPS * STEP, (stage + STAGES - 1) % STAGES);
        look(base + WARPS * STEP);
        await_group<STAGES - 1>();
        __syncwarp();
        const four_rows* const rows = &staged[warp][stage][place];
        unsigned held[STEP / 4];
        UNROLL for (int i = 0; i < STEP / 4; ++i) held[i] = rows[i / 4 * 4].words[i % 4][group] ^ SIGNS;
        eight_bytes b[STEP / 16][TILES];
        UNROLL for (int h = 0; h < STEP / 16; ++h)
            UNROLL for (int t = 0; t < TILES; ++t) b[h][t] = *(const eight_bytes*)(given[t] + base + 16 * h);
        UNROLL for (int j = 0; j < PER / 2; ++j) {
            // Rows of a lane's results are columns of the matrix that are its own.
            float d[TILES][4], scale[2];
            unsigned zero[2];
            UNROLL for (int r = 0; r < 2; ++r) {
                const int e = 2 * j + r;
                scale[r] = number(now.scales[e]);
                zero[r] = ZERO ? (zero_word >> (BITS * e)) & ((1u << BITS) - 1) : MIDDLE + OFFSET;
            }
            UNROLL for (int t = 0; t < TILES; ++t)
                UNROLL for (int i = 0; i < 4; ++i) d[t][i] = 0.0f;
            UNROLL for (int h = 0; h < STEP / 16; ++h) {
                unsigned a[4];
                UNROLL for (int i = 0; i < 4; ++i)
                    a[i] = couple(held[4 * h + i / 2 * 2], held[4 * h + i / 2 * 2 + 1], 2 * j + i % 2,
                                  zero[i % 2]);
                UNROLL for (int t = 0; t < TILES; ++t) mma(d[t], a, b[h][t].words, (const H*)0);
            }
            UNROLL for (int t = 0; t < TILES; ++t)
                UNROLL for (int i = 0; i < 4; ++i) acc[j][t][i] += scale[i / 2] * d[t][i];
        }
        __syncwarp();
    }
    // One warp after another, so that the same x gives the same y, where the staged words were.
    await_group<0>();
    __syncthreads();
    float(*const sums)[8 * TILES] = (float(*)[8 * TILES])staged;
    for (int turn = 0; turn < WARPS; ++turn) {
        if (turn == warp)
            UNROLL for (int j = 0; j < PER / 2; ++j)
                UNROLL for (int t = 0; t < TILES; ++t)
                    UNROLL for (int i = 0; i < 4; ++i) {
                        float* sum = &sums[group * PER + 2 * j + i / 2][8 * t + 2 * place + i % 2];
                        *sum = (turn ? *sum : 0.0f) + acc[j][t][i];
                    }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < WIDTH * M; i += WARPS * WARP) {
        const int n = blockIdx.y * WIDTH + i % WIDTH, m = i / WIDTH;
        float total = 0.0f;
        for (int part = PARTS - 1; part >= 0; --part) total += sums[i % WIDTH][m * PARTS + part];
        if (n < N) put(&y[(long long)m * N + n], total);
    }
}
