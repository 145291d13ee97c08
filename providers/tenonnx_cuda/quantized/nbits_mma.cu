// Products with a stored matrix [N, K] of 8, 4 or 2 bits an element, on tensor cores.

#include "mma.cuh"
#include "quantized/levels.cuh"
#include "quantized/levels_mma.cuh"

// A block has LINES rows n; its warps share K out, in chunks whose bytes of a row are ROW_BYTES.
#define LINES 16
#define WARPS 8
#define STAGES 4
#define ROW_BYTES 64
#define CHUNK (8 * ROW_BYTES / BITS)
#define STEP 32  // of K: a lane has 8 neighbors of it, in the order 0 4, 1 5, 2 6, 3 7
#define COPIES (LINES * ROW_BYTES / 16 / WARP)  // of 16 bytes by a lane
#define ZERO_STEP (PADDED ? K_STEP != 0 : K_STEP)
#define SLOTS (K_BLOCK < CHUNK ? CHUNK / K_BLOCK : 1)  // scales of a chunk of a row

struct __align__(16) line { unsigned char bytes[ROW_BYTES + 16]; };  // so that no banks collide

// Elements of 8 neighbors of x as pairs in that order.
__device__ inline void eight(const H* x, unsigned* to) {
    const sixteen v = *(const sixteen*)x;
    UNROLL for (int i = 0; i < 4; ++i)
        to[i] = __byte_perm(v.words[i / 2], v.words[2 + i / 2], i % 2 ? 0x7632 : 0x5410);
}

// 8 neighbors of a row; the same pairs of them, less a zero.
struct stored { unsigned low, high; };
__device__ inline stored read(const unsigned char* at) {
    stored s = {0, 0};
    if (BITS == 8) {
        s.low = ((const unsigned*)at)[0];
        s.high = ((const unsigned*)at)[1];
    } else if (BITS == 4) {
        s.low = *(const unsigned*)at;
    } else {
        s.low = __byte_perm(*(const unsigned short*)at, 0, 0x4140);
    }
    s.low ^= SIGNS;
    s.high ^= SIGNS;
    return s;
}
__device__ inline unsigned pair(stored s, int i, unsigned zero) {
    if (BITS == 8) s.low = __byte_perm(s.low, s.high, 0x0400 + i * 0x0101);
    if (BITS == 4) s.low >>= i / 2 * 8;
    return leveled(s.low, BITS == 8 ? 0 : BITS == 4 ? i % 2 : i, zero, (const H*)0);
}

// Scales of a row's chunk, read at once where they lie side by side.
struct __align__(sizeof(S) * SLOTS < 16 ? sizeof(S) * SLOTS : 16) slots { S each[SLOTS]; };

// Scales and zeros of a row: those of a block of K are K_STEP and ZERO_STEP after the last ones.
struct row_levels {
    const S* scales;
    const unsigned char* zeros;
    int start, k_step;

    __device__ row_levels(const levels& l, int n) {
        const long long nb = n / l.n_block;
        scales = l.scales + nb * l.n_step;
        zeros = (const unsigned char*)l.zeros + (PADDED ? nb * l.zero_row * BITS / 8 : 0);
        start = PADDED ? 0 : (int)(nb * l.n_step);
        k_step = l.k_step;
    }
    __device__ slots scales_from(int block, int inside) const {
#if WHOLE && K_STEP == 1
        return *(const slots*)(scales + block);
#else
        slots found;
        UNROLL for (int s = 0; s < SLOTS; ++s)
            found.each[s] = WHOLE || s < inside ? scales[(long long)(block + s) * K_STEP] : S();
        return found;
#endif
    }
    __device__ unsigned packed(int block) const {
        return ZERO ? zeros[(start + block * ZERO_STEP) * BITS / 8] : 0;
    }
    __device__ unsigned zero(unsigned byte, int block) const {
        return (ZERO ? element(byte, (start + block * ZERO_STEP) % (8 / BITS)) : MIDDLE) + OFFSET;
    }
};

// y[m, n] = sum over k of x[m, k] * W[n, k], for ROWS of x in a block. K is a multiple of STEP, of
// CHUNK if WHOLE, and rows are multiples of 16 bytes; EARLY if no kernel writes the matrix. A scale is of K_BLOCK neighbors, a power of 2
// from STEP on; rows of zeros begin with a byte if they are PADDED. The grid: M by ROWS, N by LINES. The arguments of `levels` are those of nbits.cu.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) tensor_product(
    const H* x, const unsigned char* w, const S* scales, const void* zeros, T* y,
    int M, int N, int K, int k_step, int n_block, int n_step, int zero_row) {
    __shared__ line staged[WARPS][STAGES][LINES];
    if (!EARLY) follow();
    const levels l = {scales, zeros, K_BLOCK, k_step, n_block, n_step, zero_row};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int group = lane / 4, place = lane % 4, first = blockIdx.y * LINES;
    const row_levels rows[2] = {row_levels(l, min(first + group, N - 1)),
                                row_levels(l, min(first + group + 8, N - 1))};
    const int before = blockIdx.x * ROWS;
    x += (long long)before * PARTS * K;
    y += (long long)before * N;
    M = min(M - before, ROWS);
    const long long row_bytes = (long long)K * BITS / 8;
    const int chunks = (K + CHUNK - 1) / CHUNK;

    const int copied = lane / (ROW_BYTES / 16), byte = lane % (ROW_BYTES / 16) * 16;
    const unsigned char* from[COPIES];
    UNROLL for (int i = 0; i < COPIES; ++i)
        from[i] = w + min(first + copied + i * (LINES / COPIES), N - 1) * row_bytes + byte;
    unsigned char* const into = staged[warp][0][copied].bytes + byte;
    auto fetch = [&](int chunk, unsigned stage) {
        if (WHOLE ? chunk < chunks : chunk * ROW_BYTES + byte < row_bytes)
            UNROLL for (int i = 0; i < COPIES; ++i)
                copy_16(into + (stage * LINES + i * (LINES / COPIES)) * sizeof(line),
                        from[i] + (long long)chunk * ROW_BYTES);
        end_group();
    };
    // Scales are read a chunk ahead; those beyond K are 0.
    slots next_scales[2];
    unsigned next_zeros[SLOTS][2];
    auto look = [&](int chunk) {
        if (chunk >= chunks) return;
        const int block = chunk * CHUNK / K_BLOCK, inside = (K - 1) / K_BLOCK + 1 - block;
        UNROLL for (int r = 0; r < 2; ++r) {
            next_scales[r] = rows[r].scales_from(block, inside);
            UNROLL for (int s = 0; s < SLOTS; ++s)
                next_zeros[s][r] = WHOLE || s < inside ? rows[r].packed(block + s) : 0;
        }
    };

    float acc[TILES][4];
    const H* given[TILES];  // columns that there are not are the last row's: nobody reads their sums
    UNROLL for (int t = 0; t < TILES; ++t) {
        UNROLL for (int i = 0; i < 4; ++i) acc[t][i] = 0.0f;
        const int column = min(8 * t + group, M * PARTS - 1);
        given[t] = x + (long long)column * K + warp * CHUNK + 8 * place;
    }
    UNROLL for (int s = 0; s < STAGES - 1; ++s) fetch(warp + s * WARPS, s);
    look(warp);
    if (EARLY) follow();
    const unsigned char* const mine = staged[warp][0][group].bytes + place * BITS;
    unsigned stage = 0;
    for (int chunk = warp; chunk < chunks; chunk += WARPS, stage = (stage + 1) % STAGES) {
        float scale[SLOTS][2];
        unsigned zero[SLOTS][2];
        UNROLL for (int s = 0; s < SLOTS; ++s)
            UNROLL for (int r = 0; r < 2; ++r) {
                scale[s][r] = number(next_scales[r].each[s]);
                zero[s][r] = rows[r].zero(next_zeros[s][r], chunk * CHUNK / K_BLOCK + s);
            }
        fetch(chunk + (STAGES - 1) * WARPS, (stage + STAGES - 1) % STAGES);
        look(chunk + WARPS);
        await_group<STAGES - 1>();
        __syncwarp();
        const unsigned char* lines = mine + stage * LINES * sizeof(line);
        float d[TILES][4];
        UNROLL for (int j = 0; j < CHUNK / STEP; ++j) {
            const int slot = j * SLOTS * STEP / CHUNK;
            const bool starts = j * SLOTS * STEP % CHUNK == 0, ends = (j + 1) * SLOTS * STEP % CHUNK == 0;
            unsigned a[4][2];
            UNROLL for (int r = 0; r < 2; ++r) {
                const stored s = read(lines + r * 8 * sizeof(line) + j * STEP * BITS / 8);
                UNROLL for (int i = 0; i < 4; ++i) a[i][r] = pair(s, i, zero[slot][r]);
            }
            UNROLL for (int t = 0; t < TILES; ++t) {
                unsigned b[4] = {0, 0, 0, 0};
                if (WHOLE || chunk * CHUNK + j * STEP < K)
                    eight(given[t] + j * STEP, b);
                if (starts)
                    UNROLL for (int i = 0; i < 4; ++i) d[t][i] = 0.0f;
                UNROLL for (int h = 0; h < 2; ++h) {
                    const unsigned left[4] = {a[2 * h][0], a[2 * h][1], a[2 * h + 1][0], a[2 * h + 1][1]};
                    mma(d[t], left, b + 2 * h, (const H*)0);
                }
                if (ends)
                    UNROLL for (int i = 0; i < 4; ++i) acc[t][i] += scale[slot][i / 2] * d[t][i];
            }
        }
        UNROLL for (int t = 0; t < TILES; ++t) given[t] += WARPS * CHUNK;
        __syncwarp();
    }

    // What was staged is done with: the warps' sums take its place.
    await_group<0>();
    __syncthreads();
    float* sums = (float*)staged;
    UNROLL for (int t = 0; t < TILES; ++t)
        UNROLL for (int i = 0; i < 4; ++i) {
            const int row = group + 8 * (i / 2), column = 8 * t + 2 * place + i % 2;
            sums[(warp * LINES + row) * (8 * TILES) + column] = acc[t][i];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < LINES * M; i += WARPS * WARP) {
        const int row = i % LINES, m = i / LINES;
        float total = 0.0f;
        for (int part = PARTS - 1; part >= 0; --part)
            for (int each = 0; each < WARPS; ++each)
                total += sums[(each * LINES + row) * (8 * TILES) + m * PARTS + part];
        if (first + row < N) put(&y[(long long)m * N + first + row], total);
    }
}
