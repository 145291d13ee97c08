// Normalization of images by channel, whichever way they lie, and of their channels in groups.

// With LAST images are [places, channels], else [channels, places].
// y of x [batch, channels, places] by what is known of each channel. A thread for each element.
extern "C" __global__ void batch_norm(
    const T* x, const T* scale, const T* bias, const T* mean, const T* variance, T* y,
    long long count, int channels, int places, float epsilon) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int channel = LAST ? i % channels : i / places % channels;
    const float factor = number(scale[channel]) / sqrtf(number(variance[channel]) + epsilon);
    put(&y[i], (number(x[i]) - number(mean[channel])) * factor + number(bias[channel]));
}

// y of x [batch, groups, size, places]: each group around its mean, over its deviation. A scale and a
// bias are for `shared` channels. The grid: groups, batch.
extern "C" __global__ void group_norm(
    const T* x, const T* scale, const T* bias, T* y, int size, int shared, int places,
    float epsilon) {
    follow();
    __shared__ float sums[WARP];
    const int groups = gridDim.x, first = blockIdx.x * size, count = size * places;
    const long long image = (long long)blockIdx.y * groups * count;
    const long long start = image + (LAST ? first : (long long)first * places);
    x += start;
    y += start;
    // Where an element of the group is, and its channel in the group.
#define AT(i) (LAST ? (long long)((i) / size) * groups * size + (i) % size : (i))
#define CHANNEL(i) (first + (LAST ? (i) % size : (i) / places))
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += number(x[AT(i)]);
    const float mean = block_sum(sum, sums) / count;
    // Around the mean, after it: the squares' mean less the mean's square would cancel.
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const float apart = number(x[AT(i)]) - mean;
        squares += apart * apart;
    }
    const float factor = 1.0f / sqrtf(block_sum(squares, sums) / count + epsilon);
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int of = CHANNEL(i) / shared;
        put(&y[AT(i)], (number(x[AT(i)]) - mean) * factor * number(scale[of]) + number(bias[of]));
    }
}
