// Softmax of rows of n elements, a block each; with is_log its logarithm.

#include "elementwise/packs.cuh"
#include "norm/held.cuh"

// float16 is rounded after every step, as the operator's body in ONNX is.
__device__ inline float step(float x, const f16*) { return half_to_float(float_to_half(x)); }
template <class Other> __device__ inline float step(float x, const Other*) { return x; }

__device__ inline float power(float v, float most, int is_log, const T* x) {
    return is_log ? expf(v - most) : step(expf(step(v - most, x)), x);
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const T* x, T* y, int n, int is_log) {
    follow();
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float v[HELD][WIDTH] = {}, most = -INF, sum = 0.0f;
    add(v, x + row, n);
    each_held(n, [&](int h, int e) { most = fmaxf(most, v[h][e]); });
    most = block_max(most, shared);
    each_held(n, [&](int h, int e) {
        const float part = power(v[h][e], most, is_log, x);
        sum += part;
        if (!is_log) v[h][e] = part;
    });
    sum = block_sum(sum, shared);
    const float shift = most + logf(sum), total = step(sum, x);
    write(y + row, n, [&](int h, int e) { return is_log ? v[h][e] - shift : v[h][e] / total; });
}

// The same of rows that no block holds, which are read three times; the second time from the cache.
extern "C" __global__ void __launch_bounds__(THREADS) softmax_long(
    const T* x, T* y, int n, int is_log) {
    follow();
    __shared__ float shared[WARP];
    x += (size_t)blockIdx.x * n;
    y += (size_t)blockIdx.x * n;
    const int first = threadIdx.x * WIDTH, stride = THREADS * WIDTH;
    float most = -INF, sum = 0.0f;
    for (long long i = first; i < n; i += stride) {
        const pack some = *(const pack*)(x + i);
        for (int e = 0; e < WIDTH; ++e) most = fmaxf(most, number(some.each[e]));
    }
    most = block_max(most, shared);
    for (long long i = first; i < n; i += stride) {
        const pack some = *(const pack*)(x + i);
        for (int e = 0; e < WIDTH; ++e) sum += power(number(some.each[e]), most, is_log, x);
    }
    sum = block_sum(sum, shared);
    const float shift = most + logf(sum), total = step(sum, x);
    for (long long i = first; i < n; i += stride) {
        pack some = *(const pack*)(x + i);
        for (int e = 0; e < WIDTH; ++e) {
            const float v = number(some.each[e]);
            put(&some.each[e], is_log ? v - shift : power(v, most, is_log, x) / total);
        }
        *(pack*)(y + i) = some;
    }
}
