// Products with a stored matrix [N, K] of 8, 4 or 2 bits an element, on tensor cores.

#include "mma.cuh"
#include "levels.cuh"
#include "levels_mma.cuh"

// A block has LINES rows n; its warps share K out, in chunks whose bytes of a row are ROW_BYTES.
#define LINES 16
#define WARPS 8
#define STAGES 4
#define ROW_BYTES 64
#define CHUNK (8 * ROW_BYTES / BITS)
#define STEP 32  // of K: a lane has 8 neighbours of it, in the order 0 4, 1 5, 2 6, 3 7

struct __align__(16) line { unsigned char bytes[ROW_BYTES + 16]; };  // so that no banks collide

// Elements of 8 neighbours of x as pairs in that order.
template <class X> __device__ inline void eight(const X* x, int, unsigned* to) {
    const sixteen v = *(const sixteen*)x;
    for (int i = 0; i < 4; ++i) {
        const unsigned low = v.words[i / 2], high = v.words[2 + i / 2];
        to[i] = i % 2 ? (low >> 16) | (high & 0xffff0000u) : (low & 0xffffu) | (high << 16);
    }
}
__device__ inline void eight(const f32* x, int part, unsigned* to) {
    const sixteen low = *(const sixteen*)x, high = *(const sixteen*)(x + 4);
    for (int i = 0; i < 4; ++i)
        to[i] = part_of(__uint_as_float(low.words[i]), part) |
                (part_of(__uint_as_float(high.words[i]), part) << 16);
}

// 8 neighbours of a row, of which pair(s, i) has i in its low half and i + 4 in its high one.
struct stored { unsigned low, high; };
__device__ inline stored read(const unsigned char* at) {
    stored s = {0, 0};
    if (BITS == 8) {
        s.low = ((const unsigned*)at)[0];
        s.high = ((const unsigned*)at)[1];
    } else if (BITS == 4) {
        s.low = *(const unsigned*)at;
    } else {
        const unsigned v = *(const unsigned short*)at;
        s.low = (v & 0xffu) | (v >> 8 << 16);
    }
    return s;
}
__device__ inline unsigned pair(stored s, int i) {
    const unsigned ones = 0x10001u, mask = ((1u << BITS) - 1) * ones;
    const unsigned both = BITS == 8
        ? ((s.low >> (8 * i)) & 0xffu) | (((s.high >> (8 * i)) & 0xffu) << 16)
        : (s.low >> (BITS * i)) & mask;
    return SIGNED ? both ^ ((1u << (BITS - 1)) * ones) : both;
}

// y[m, n] = sum over k of x[m, k] * W[n, k] for M * PARTS <= 8 * TILES. K is a multiple of STEP
// whose rows are multiples of 16 bytes, and a scale is of K_BLOCK neighbours, a multiple of STEP.
// The grid: N by LINES. The arguments of `levels` are those of nbits.cu.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) tensor_product(
    const T* x, const unsigned char* w, const S* scales, const void* zeros, T* y,
    int M, int N, int K, int k_step, int n_block, int n_step, int zero_row) {
    __shared__ line staged[WARPS][STAGES][LINES];
    const levels l = {scales, zeros, K_BLOCK, k_step, n_block, n_step, zero_row};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int group = lane / 4, place = lane % 4, first = blockIdx.x * LINES;
    const int n_low = min(first + group, N - 1), n_high = min(first + group + 8, N - 1);
    const long long row_bytes = (long long)K * BITS / 8;
    const int chunks = (K + CHUNK - 1) / CHUNK, offset = SIGNED ? 1 << (BITS - 1) : 0;

    auto fetch = [&](int chunk, int stage) {
        for (int i = lane; i < LINES * ROW_BYTES / 16; i += WARP) {
            const int row = i / (ROW_BYTES / 16), at = i % (ROW_BYTES / 16) * 16;
            const long long from = (long long)chunk * ROW_BYTES + at;
            if (from < row_bytes)
                copy_16(staged[warp][stage][row].bytes + at,
                        w + min(first + row, N - 1) * row_bytes + from);
        }
        end_group();
    };

    float acc[TILES][4];
    for (int t = 0; t < TILES; ++t)
        for (int i = 0; i < 4; ++i) acc[t][i] = 0.0f;
    for (int s = 0; s < STAGES - 1; ++s) fetch(warp + s * WARPS, s);
    for (int chunk = warp, stage = 0; chunk < chunks; chunk += WARPS, stage = (stage + 1) % STAGES) {
        fetch(chunk + (STAGES - 1) * WARPS, (stage + STAGES - 1) % STAGES);
        await_group<STAGES - 1>();
        __syncwarp();
        const line* lines = staged[warp][stage];
        const int stop = min(CHUNK, K - chunk * CHUNK);
        for (int k = 0; k < stop; k += STEP) {
            const int at = chunk * CHUNK + k, byte = (k + 8 * place) * BITS / 8;
            const float zero_low = l.zero(at, n_low) + offset;
            const float zero_high = l.zero(at, n_high) + offset;
            const stored low = read(lines[group].bytes + byte);
            const stored high = read(lines[group + 8].bytes + byte);
            unsigned a[4][2];
            for (int i = 0; i < 4; ++i) {
                a[i][0] = leveled(pair(low, i), zero_low, (const H*)0);
                a[i][1] = leveled(pair(high, i), zero_high, (const H*)0);
            }
            const float scale_low = l.scale(at, n_low), scale_high = l.scale(at, n_high);
            for (int t = 0; t < TILES; ++t) {
                const int column = 8 * t + group, m = column / PARTS;
                unsigned b[4] = {0, 0, 0, 0};
                if (m < M)
                    eight(x + (long long)m * K + at + 8 * place, column % PARTS, b);
                float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                for (int h = 0; h < 2; ++h) {
                    const unsigned left[4] = {a[2 * h][0], a[2 * h][1], a[2 * h + 1][0], a[2 * h + 1][1]};
                    mma(d, left, b + 2 * h, (const H*)0);
                }
                acc[t][0] += scale_low * d[0];
                acc[t][1] += scale_low * d[1];
                acc[t][2] += scale_high * d[2];
                acc[t][3] += scale_high * d[3];
            }
        }
        __syncwarp();
    }

    // What was staged is done with: the warps' sums take its place.
    await_group<0>();
    __syncthreads();
    float* sums = (float*)staged;
    for (int t = 0; t < TILES; ++t)
        for (int i = 0; i < 4; ++i) {
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
