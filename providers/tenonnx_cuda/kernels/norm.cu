// Normalisation of rows of n elements, a block each: Layer, RMS, and both after a residual sum.

// y = (s - mean) / sqrt(var + epsilon) * scale + bias, with s = x + skip + extra.
// With rms the mean is taken for 0. Null: skip, extra (a row), scale, bias, total (gets s), mean,
// deviation (gets 1 / sqrt(...)).
extern "C" __global__ void normalise(
    const T* x, const T* skip, const T* extra, const T* scale, const T* bias, T* y, T* total,
    float* mean_out, float* deviation_out, int n, float epsilon, int rms) {
    __shared__ float shared[WARP];
    const size_t row = (size_t)blockIdx.x * n;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float s = number(x[row + i]);
        if (skip) s += number(skip[row + i]);
        if (extra) s += number(extra[i]);
        if (total) put(&total[row + i], s);
        sum += s;
    }
    const float mean = rms ? 0.0f : block_sum(sum, shared) / n;
    // Around the mean in a second pass: the squares' mean less the mean's square would cancel.
    float squares = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float s = number(x[row + i]);
        if (skip) s += number(skip[row + i]);
        if (extra) s += number(extra[i]);
        squares += (s - mean) * (s - mean);
    }
    const float deviation = 1.0f / sqrtf(block_sum(squares, shared) / n + epsilon);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float s = number(x[row + i]);
        if (skip) s += number(skip[row + i]);
        if (extra) s += number(extra[i]);
        float v = (s - mean) * deviation;
        if (scale) v *= number(scale[i]);
        if (bias) v += number(bias[i]);
        put(&y[row + i], v);
    }
    if (threadIdx.x == 0 && mean_out) mean_out[blockIdx.x] = mean;
    if (threadIdx.x == 0 && deviation_out) deviation_out[blockIdx.x] = deviation;
}
