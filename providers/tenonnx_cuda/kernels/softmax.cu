// Softmax of rows of n elements, a block each; with is_log its logarithm.

#include "packs.cuh"
#include "held.cuh"

// float16 is rounded after every step, as the operator's body in ONNX is.
__device__ inline float step(float x, const f16*) { return half_to_float(float_to_half(x)); }
template <class Other> __device__ inline float step(float x, const Other*) { return x; }

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const T* x, T* y, int n, int is_log) {
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float v[HELD][WIDTH] = {}, most = -INF, sum = 0.0f;
    add(v, x + row, n);
    each_held(n, [&](int h, int e) { most = fmaxf(most, v[h][e]); });
    most = block_max(most, shared);
    each_held(n, [&](int h, int e) {
        const float power = is_log ? expf(v[h][e] - most) : step(expf(step(v[h][e] - most, x)), x);
        sum += power;
        if (!is_log) v[h][e] = power;
    });
    sum = block_sum(sum, shared);
    const float shift = most + logf(sum), total = step(sum, x);
    write(y + row, n, [&](int h, int e) { return is_log ? v[h][e] - shift : v[h][e] / total; });
}
