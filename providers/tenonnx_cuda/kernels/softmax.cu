// Softmax of rows of n elements, a block each; with is_log its logarithm.

// float16 is rounded after every step, as the operator's body in ONNX is.
__device__ inline float step(float x, const f16*) { return half_to_float(float_to_half(x)); }
template <class Other> __device__ inline float step(float x, const Other*) { return x; }

extern "C" __global__ void softmax(const T* x, T* y, int n, int is_log) {
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float most = -INF;
    for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, number(x[row + i]));
    most = block_max(most, shared);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = number(x[row + i]) - most;
        sum += is_log ? expf(v) : step(expf(step(v, x)), x);
    }
    sum = block_sum(sum, shared);
    const float shift = most + logf(sum), total = step(sum, x);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float v = number(x[row + i]);
        put(&y[row + i], is_log ? v - shift : step(expf(step(v - most, x)), x) / total);
    }
}
