// Normalization of rows of n elements, a block each: Layer, RMS, and both after a residual sum.

#include "elementwise/packs.cuh"
#include "norm/held.cuh"

// y = (s - mean) / sqrt(var + epsilon) * scale + bias, with s = x + skip + extra.
// With rms the mean is taken for 0. Null: skip, extra (a row), scale, bias, total (gets s), mean,
// deviation (gets 1 / sqrt(...)).
extern "C" __global__ void __launch_bounds__(THREADS) normalize(
    const T* x, const T* skip, const T* extra, const T* scale, const T* bias, T* y, T* total,
    float* mean_out, float* deviation_out, int n, float epsilon, int rms) {
    follow();
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float s[HELD][WIDTH] = {};
    pack factors[HELD], shifts[HELD];  // of the type that they have, for want of registers
    add(s, x + row, n);
    if (skip) add(s, skip + row, n);
    if (extra) add(s, extra, n);
    if (scale) keep(factors, scale, n);
    if (bias) keep(shifts, bias, n);
    if (total) write(total + row, n, [&](int h, int e) { return s[h][e]; });
    float sum = 0.0f, squares = 0.0f;
    if (!rms) each_held(n, [&](int h, int e) { sum += s[h][e]; });
    const float mean = rms ? 0.0f : block_sum(sum, shared) / n;
    // Around the mean, after it: the squares' mean less the mean's square would cancel.
    each_held(n, [&](int h, int e) { squares += (s[h][e] - mean) * (s[h][e] - mean); });
    const float deviation = 1.0f / sqrtf(block_sum(squares, shared) / n + epsilon);
    write(y + row, n, [&](int h, int e) {
        float v = (s[h][e] - mean) * deviation;
        if (scale) v *= number(factors[h].each[e]);
        return bias ? v + number(shifts[h].each[e]) : v;
    });
    if (threadIdx.x == 0 && mean_out) mean_out[blockIdx.x] = mean;
    if (threadIdx.x == 0 && deviation_out) deviation_out[blockIdx.x] = deviation;
}

// The same of rows that no block holds, which are read three times; the later times from the cache.
extern "C" __global__ void __launch_bounds__(THREADS) normalize_long(
    const T* x, const T* skip, const T* extra, const T* scale, const T* bias, T* y, T* total,
    float* mean_out, float* deviation_out, int n, float epsilon, int rms) {
    follow();
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float s[HELD][WIDTH], sum = 0.0f, squares = 0.0f;
    // Calls f with the beginning of each part of the row, of which s is held then, and what is left.
    const auto parts = [&](auto f) {
        for (long long start = 0; start < n; start += THREADS * WIDTH * HELD) {
            const int left = n - start;
            UNROLL for (int h = 0; h < HELD; ++h)
                UNROLL for (int e = 0; e < WIDTH; ++e) s[h][e] = 0.0f;
            add(s, x + row + start, left);
            if (skip) add(s, skip + row + start, left);
            if (extra) add(s, extra + start, left);
            f(start, left);
        }
    };
    if (!rms)
        parts([&](long long, int left) { each_held(left, [&](int h, int e) { sum += s[h][e]; }); });
    const float mean = rms ? 0.0f : block_sum(sum, shared) / n;
    parts([&](long long, int left) {
        each_held(left, [&](int h, int e) { squares += (s[h][e] - mean) * (s[h][e] - mean); });
    });
    const float deviation = 1.0f / sqrtf(block_sum(squares, shared) / n + epsilon);
    parts([&](long long start, int left) {
        if (total) write(total + row + start, left, [&](int h, int e) { return s[h][e]; });
        write(y + row + start, left, [&](int h, int e) {
            const long long at = start + neighbors(h) + e;
            float v = (s[h][e] - mean) * deviation;
            if (scale) v *= number(scale[at]);
            return bias ? v + number(bias[at]) : v;
        });
    });
    if (threadIdx.x == 0 && mean_out) mean_out[blockIdx.x] = mean;
    if (threadIdx.x == 0 && deviation_out) deviation_out[blockIdx.x] = deviation;
}
