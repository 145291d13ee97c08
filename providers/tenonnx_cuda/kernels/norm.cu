// Normalisation of rows of n elements, a block each: Layer, RMS, and both after a residual sum.

#include "packs.cuh"
#include "held.cuh"

// y = (s - mean) / sqrt(var + epsilon) * scale + bias, with s = x + skip + extra.
// With rms the mean is taken for 0. Null: skip, extra (a row), scale, bias, total (gets s), mean,
// deviation (gets 1 / sqrt(...)).
extern "C" __global__ void __launch_bounds__(THREADS) normalise(
    const T* x, const T* skip, const T* extra, const T* scale, const T* bias, T* y, T* total,
    float* mean_out, float* deviation_out, int n, float epsilon, int rms) {
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
