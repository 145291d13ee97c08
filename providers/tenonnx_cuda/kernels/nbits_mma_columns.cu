// Products with a stored matrix [K, N] of 8, 4 or 2 bits an element, on tensor cores.

#include "mma.cuh"
#include "levels.cuh"
#include "levels_mma.cuh"

// A block has 8 words of a row of the matrix, WIDTH columns n; its warps share its slice of K out,
// STEP at a time, of which a lane has 4 neighbours of every 16.
#define WARPS 8
#define WIDTH (8 * PER)
#define UNROLL _Pragma("unroll")  // registers have no addresses

struct __align__(8) eight_bytes { unsigned words[2]; };

// 4 neighbours of a row of x as pairs.
template <class X> __device__ inline void four(const X* x, int, unsigned* to) {
    const eight_bytes v = *(const eight_bytes*)x;
    to[0] = v.words[0];
    to[1] = v.words[1];
}
__device__ inline void four(const f32* x, int part, unsigned* to) {
    const sixteen v = *(const sixteen*)x;
    UNROLL for (int i = 0; i < 2; ++i)
        to[i] = part_of(__uint_as_float(v.words[2 * i]), part) |
                (part_of(__uint_as_float(v.words[2 * i + 1]), part) << 16);
}

// Element e of two words, those of two neighbours of K.
__device__ inline unsigned couple(unsigned one, unsigned two, int e) {
    const unsigned mask = (1u << BITS) - 1;
    const unsigned both = ((one >> (BITS * e)) & mask) | (((two >> (BITS * e)) & mask) << 16);
    return SIGNED ? both ^ ((1u << (BITS - 1)) * 0x10001u) : both;
}

// partial[s, m, n] = sum over the slice s of k of x[m, k] * W[k, n] for M * PARTS <= 8 * TILES. K
// and slice are multiples of STEP, and a scale is of K_BLOCK neighbours, a multiple of STEP. The
// grid: N by WIDTH, slices. The arguments of `levels` are those of nbits.cu.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) tensor_columns(
    const T* x, const unsigned* w, const S* scales, const void* zeros, float* partial,
    int M, int N, int K, int slice, int k_step, int n_step) {
    __shared__ float sums[WIDTH][8 * TILES];
    const levels l = {scales, zeros, K_BLOCK, k_step, N_BLOCK, n_step, 0};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int group = lane / 4, place = lane % 4, words = N / PER;
    const int word = min((int)blockIdx.x * 8 + group, words - 1), first = word * PER;
    const int start = blockIdx.y * slice, stop = min(K, start + slice);
    const int offset = SIGNED ? 1 << (BITS - 1) : 0;
    float acc[PER / 2][TILES][4];
    UNROLL for (int j = 0; j < PER / 2; ++j)
        UNROLL for (int t = 0; t < TILES; ++t)
            UNROLL for (int i = 0; i < 4; ++i) acc[j][t][i] = 0.0f;
    for (int base = start + warp * STEP; base < stop; base += WARPS * STEP) {
        unsigned held[STEP / 4];
        UNROLL for (int i = 0; i < STEP / 4; ++i)
            held[i] = w[(long long)(base + i / 4 * 16 + 4 * place + i % 4) * words + word];
        unsigned b[STEP / 16][TILES][2];
        UNROLL for (int h = 0; h < STEP / 16; ++h)
            UNROLL for (int t = 0; t < TILES; ++t) {
                const int column = 8 * t + group, m = column / PARTS;
                b[h][t][0] = b[h][t][1] = 0;
                if (m < M)
                    four(x + (long long)m * K + base + 16 * h + 4 * place, column % PARTS, b[h][t]);
            }
        UNROLL for (int j = 0; j < PER / 2; ++j) {
            // Rows of a lane's results are columns of the matrix that are its own.
            const int n = first + 2 * j;
            const float zero[2] = {l.zero(base, n) + offset, l.zero(base, n + 1) + offset};
            const float scale[2] = {l.scale(base, n), l.scale(base, n + 1)};
            float d[TILES][4];
            UNROLL for (int t = 0; t < TILES; ++t)
                UNROLL for (int i = 0; i < 4; ++i) d[t][i] = 0.0f;
            UNROLL for (int h = 0; h < STEP / 16; ++h) {
                unsigned a[4];
                UNROLL for (int i = 0; i < 4; ++i)
                    a[i] = leveled(couple(held[4 * h + i / 2 * 2], held[4 * h + i / 2 * 2 + 1],
                                          2 * j + i % 2), zero[i % 2], (const H*)0);
                UNROLL for (int t = 0; t < TILES; ++t) mma(d[t], a, b[h][t], (const H*)0);
            }
            UNROLL for (int t = 0; t < TILES; ++t)
                UNROLL for (int i = 0; i < 4; ++i) acc[j][t][i] += scale[i / 2] * d[t][i];
        }
    }
    // One warp after another, so that the same x gives the same y.
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
        const int n = blockIdx.x * WIDTH + i % WIDTH, m = i / WIDTH;
        float total = 0.0f;
        for (int part = PARTS - 1; part >= 0; --part) total += sums[i % WIDTH][m * PARTS + part];
        if (n < N) partial[((long long)blockIdx.y * M + m) * N + n] = total;
    }
}

// y[i] = sum over s of partial[s, i], in order.
extern "C" __global__ void add_slices(const float* partial, T* y, int slices, long long count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float total = 0.0f;
    for (int s = 0; s < slices; ++s) total += partial[s * count + i];
    put(&y[i], total);
}
