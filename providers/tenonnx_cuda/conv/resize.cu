// Images resized along their last two axes, whichever way they lie.

// With LAST images are [height, width, channels], else [channels, height, width]. A line of the
// result is a sum of `taps_h` lines of x: those that rows [out_height, taps_h] say, by the weights of
// by_row. Columns likewise. y has a thread for each of its `count` elements, as they lie.
extern "C" __global__ void resize(
    const T* x, T* y, const int* rows, const float* by_row, const int* columns,
    const float* by_column, long long count, int channels, int height, int width, int out_height,
    int out_width, int taps_h, int taps_w) {
    follow();
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const long long place = LAST ? i / channels : i;
    const int across = place % out_width, down = place / out_width % out_height;
    const long long image = place / out_width / out_height;
    x += image * height * width * (LAST ? channels : 1) + (LAST ? i % channels : 0);
    float total = 0.0f;
    for (int h = 0; h < taps_h; ++h) {
        const long long line = (long long)rows[down * taps_h + h] * width;
        float part = 0.0f;
        for (int w = 0; w < taps_w; ++w) {
            const long long at = line + columns[across * taps_w + w];
            part += by_column[across * taps_w + w] * number(x[at * (LAST ? channels : 1)]);
        }
        total += by_row[down * taps_h + h] * part;
    }
    put(&y[i], total);
}
