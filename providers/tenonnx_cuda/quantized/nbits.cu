// Products with a matrix of 8, 4 or 2 bits an element, read as it is stored.

#include "quantized/levels.cuh"

// y[m, n] = sum over k of x[m, k] * W[n, k], for ROWS rows of x at a time: a warp for each n, so
// that a row of W is read once, in order. words is K / PER. The grid: n by warps, m by ROWS.
extern "C" __global__ void rows_product(
    const T* x, const unsigned* w, const S* scales, const void* zeros, T* y, int M, int N, int K,
    int k_block, int k_step, int n_block, int n_step, int zero_row) {
    follow();
    const levels l = {scales, zeros, k_block, k_step, n_block, n_step, zero_row};
    const int n = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first = blockIdx.y * ROWS, words = K / PER;
    if (n >= N) return;
    const unsigned* row = w + (long long)n * words;
    float acc[ROWS];
    for (int m = 0; m < ROWS; ++m) acc[m] = 0.0f;
    for (int i = lane; i < words; i += WARP) {
        const unsigned word = row[i];
        // A word lies in one block: the host sees to it.
        const float scale = l.scale(i * PER, n), zero = l.zero(i * PER, n);
        for (int e = 0; e < PER; ++e) {
            const float value = ((float)element(word, e) - zero) * scale;
            for (int m = 0; m < ROWS; ++m)
                if (first + m < M) acc[m] += value * number(x[(long long)(first + m) * K + i * PER + e]);
        }
    }
    for (int m = 0; m < ROWS; ++m) {
        const float total = warp_sum(acc[m]);
        if (lane == 0 && first + m < M) put(&y[(long long)(first + m) * N + n], total);
    }
}

// partial[s, m, n] = sum over the slice s of k of x[m, k] * W[k, n]: a thread for each word, which
// is PER columns, so that neighbors read neighbors. The grid: words of a row, slices, m by ROWS.
extern "C" __global__ void columns_product(
    const T* x, const unsigned* w, const S* scales, const void* zeros, float* partial,
    int M, int N, int K, int slice, int k_block, int k_step, int n_block, int n_step) {
    follow();
    const levels l = {scales, zeros, k_block, k_step, n_block, n_step, 0};
    const int word = blockIdx.x * blockDim.x + threadIdx.x, words = N / PER;
    const int first = blockIdx.z * ROWS, start = blockIdx.y * slice;
    if (word >= words) return;
    float acc[ROWS][PER];
    for (int m = 0; m < ROWS; ++m)
        for (int e = 0; e < PER; ++e) acc[m][e] = 0.0f;
    const int stop = min(K, start + slice);
    for (int k = start; k < stop; ++k) {
        const unsigned bits = w[(long long)k * words + word];
        for (int e = 0; e < PER; ++e) {
            const int n = word * PER + e;
            const float value = ((float)element(bits, e) - l.zero(k, n)) * l.scale(k, n);
            for (int m = 0; m < ROWS; ++m)
                if (first + m < M) acc[m][e] += value * number(x[(long long)(first + m) * K + k]);
        }
    }
    for (int m = 0; m < ROWS; ++m)
        for (int e = 0; e < PER; ++e)
            if (first + m < M)
                partial[((long long)blockIdx.y * M + first + m) * N + word * PER + e] = acc[m][e];
}
