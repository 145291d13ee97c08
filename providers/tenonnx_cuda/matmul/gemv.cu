// Products of a few rows x [M, K], M <= ROWS, with a matrix of 16-bit floats, for which reading it
// is all: y = activation(alpha * x * W + beta * added + bias), where there are added and bias.

#include "elementwise/activations.cuh"
#include "endings.cuh"  // of elementwise.formulas

#define WARPS 8
#define WIDTH 32  // columns of a block
#define DEPTH 8   // 16 bytes that a lane waits for at once
#define UNROLL _Pragma("unroll")  // registers have no addresses

struct __align__(16) eight { unsigned words[4]; };

__device__ inline void spread(eight v, float* to) {
    UNROLL for (int i = 0; i < 4; ++i) {
        to[2 * i] = number(T{(unsigned short)v.words[i]});
        to[2 * i + 1] = number(T{(unsigned short)(v.words[i] >> 16)});
    }
}

struct ending {
    const T *added, *bias;
    float alpha, beta;

    __device__ float of(float sum, long long at, int n) const {
        sum *= alpha;
        if (added) sum += beta * number(added[at]);
        if (bias) sum += number(bias[n]);
        return ACTIVATED(sum, 0.0f, 0.0f);
    }
};

// W [K, N] has rows that are `apart` elements apart, a multiple of 8 as N is. A lane has 8 columns
// of every 64th row. The grid: N by WIDTH.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) gemv_by_columns(
    const T* x, const T* w, const T* added, const T* bias, T* y, float alpha, float beta, int M,
    int N, int K, int apart) {
    __shared__ float sums[WARPS][ROWS][WIDTH];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = lane / 4;
    const int own = lane % 4 * 8, n = min((int)blockIdx.x * WIDTH + own, N - 8);
    float acc[ROWS][8];
    UNROLL for (int m = 0; m < ROWS; ++m)
        UNROLL for (int e = 0; e < 8; ++e) acc[m][e] = 0.0f;
    for (int start = warp * 8 + group; start < K; start += DEPTH * WARPS * 8) {
        eight held[DEPTH];
        T factors[DEPTH][ROWS];
        UNROLL for (int i = 0; i < DEPTH; ++i) {
            const int k = start + i * WARPS * 8;
            held[i] = k < K ? *(const eight*)(w + (long long)k * apart + n) : eight();
            UNROLL for (int m = 0; m < ROWS; ++m)
                factors[i][m] = k < K ? x[(long long)min(m, M - 1) * K + k] : T();
        }
        UNROLL for (int i = 0; i < DEPTH; ++i) {
            float values[8];
            spread(held[i], values);
            UNROLL for (int m = 0; m < ROWS; ++m)
                UNROLL for (int e = 0; e < 8; ++e) acc[m][e] += number(factors[i][m]) * values[e];
        }
    }
    UNROLL for (int m = 0; m < ROWS; ++m)
        UNROLL for (int e = 0; e < 8; ++e) {
            float sum = acc[m][e];
            UNROLL for (int step = 4; step < WARP; step *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
            if (group == 0) sums[warp][m][own + e] = sum;
        }
    __syncthreads();
    const ending end = {added, bias, alpha, beta};
    for (int i = threadIdx.x; i < M * WIDTH; i += WARPS * WARP) {
        const int m = i / WIDTH, column = blockIdx.x * WIDTH + i % WIDTH;
        float sum = 0.0f;
        UNROLL for (int each = 0; each < WARPS; ++each) sum += sums[each][m][i % WIDTH];
        const long long at = (long long)m * N + column;
        if (column < N) put(&y[at], end.of(sum, at, column));
    }
}

// W [N, K] has rows that are `apart` elements apart, a multiple of 8 as K is: a warp for each. The
// grid: N by WARPS.
extern "C" __global__ void __launch_bounds__(WARPS * WARP) gemv_by_rows(
    const T* x, const T* w, const T* added, const T* bias, T* y, float alpha, float beta, int M,
    int N, int K, int apart) {
    const int n = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (n >= N) return;
    float acc[ROWS];
    UNROLL for (int m = 0; m < ROWS; ++m) acc[m] = 0.0f;
    for (int start = lane * 8; start < K; start += DEPTH * WARP * 8) {
        eight held[DEPTH];
        UNROLL for (int i = 0; i < DEPTH; ++i) {
            const int k = start + i * WARP * 8;
            held[i] = k < K ? *(const eight*)(w + (long long)n * apart + k) : eight();
        }
        UNROLL for (int i = 0; i < DEPTH; ++i) {
            const int k = start + i * WARP * 8;
            float values[8], factors[8];
            spread(held[i], values);
            UNROLL for (int m = 0; m < ROWS; ++m) {
                const T* const given = x + (long long)min(m, M - 1) * K + k;
                spread(k < K ? *(const eight*)given : eight(), factors);
                UNROLL for (int e = 0; e < 8; ++e) acc[m] += factors[e] * values[e];
            }
        }
    }
    const ending end = {added, bias, alpha, beta};
    UNROLL for (int m = 0; m < ROWS; ++m) {
        const float sum = warp_sum(acc[m]);
        const long long at = (long long)m * N + n;
        if (lane == 0 && m < M) put(&y[at], end.of(sum, at, n));
    }
}
