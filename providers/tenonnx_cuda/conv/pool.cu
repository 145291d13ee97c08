// Pooling over windows, and over whole images, whichever way images lie.

// With LAST images are [height, width, channels], else [channels, height, width].
// MAXIMUM: the largest of a window; else the mean, in which so many places before and after an image
// count as zeros. y has a thread for each of its `count` elements, in the order in which they lie.
extern "C" __global__ void pool(
    const T* x, T* y, long long count, int channels, int height, int width, int out_height,
    int out_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int dilation_h,
    int dilation_w, int pad_h, int pad_w, int before_h, int before_w, int after_h, int after_w) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const long long outer = LAST ? i / channels : i;
    const int channel = LAST ? i % channels : i / out_width / out_height % channels;
    const int across = outer % out_width, down = outer / out_width % out_height;
    const long long image = i / channels / out_width / out_height;
    x += LAST ? image * height * width * channels + channel
              : (image * channels + channel) * height * width;
    const int top = down * stride_h - pad_h, side = across * stride_w - pad_w;
    float total = MAXIMUM ? -INF : 0.0f;
    int number_of = 0;
    for (int h = 0; h < kernel_h; ++h) {
        const int row = top + h * dilation_h;
        if (row < -before_h || row >= height + after_h) continue;
        for (int w = 0; w < kernel_w; ++w) {
            const int column = side + w * dilation_w;
            if (column < -before_w || column >= width + after_w) continue;
            ++number_of;
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            const float here = number(x[((long long)row * width + column) * (LAST ? channels : 1)]);
            total = MAXIMUM ? larger(total, here) : total + here;
        }
    }
    put(&y[i], MAXIMUM ? total : total / max(number_of, 1));
}

// y [batch, channels] of whole images of `places` each: a block of 32 x 8 threads has 8 channels, a
// warp each, or with LAST 32, a lane each.
extern "C" __global__ void __launch_bounds__(256) pool_whole(
    const T* x, T* y, int channels, int batch, int places) {
    follow();
    __shared__ float shares[8][WARP + 1];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float total = MAXIMUM ? -INF : 0.0f;
#if LAST
    const int channel = blockIdx.x * WARP + lane;
    x += (long long)blockIdx.y * places * channels + channel;
    if (channel < channels)
        for (int p = warp; p < places; p += 8) {
            const float here = number(x[(long long)p * channels]);
            total = MAXIMUM ? larger(total, here) : total + here;
        }
    shares[warp][lane] = total;
    __syncthreads();
    if (warp || channel >= channels) return;
    for (int w = 1; w < 8; ++w)
        total = MAXIMUM ? larger(total, shares[w][lane]) : total + shares[w][lane];
    put(&y[(long long)blockIdx.y * channels + channel], MAXIMUM ? total : total / places);
#else
    const long long row = blockIdx.x * 8LL + warp;
    if (row >= (long long)batch * channels) return;
    for (int p = lane; p < places; p += WARP) {
        const float here = number(x[row * places + p]);
        total = MAXIMUM ? larger(total, here) : total + here;
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, total, step);
        total = MAXIMUM ? larger(total, other) : total + other;
    }
    if (lane == 0) put(&y[row], MAXIMUM ? total : total / places);
#endif
}
