// Convolution as a product of W [maps, channels * window] and windows of x that no one writes down.

// A block computes TILE maps at TILE places of one group of one image, with 16 x 16 threads that
// have EACH x EACH results apiece; DEPTH elements of the sum are in shared memory at a time.
#define TILE 64
#define EACH 4
#define DEPTH 16

// x [batch, groups * channels, height, width], w [groups * maps, channels, kh, kw], y likewise. The
// grid: places, maps, batch * groups.
extern "C" __global__ void convolve(
    const T* x, const T* w, const T* bias, T* y, int groups, int channels, int maps,
    int height, int width, int kh, int kw, int out_height, int out_width,
    int stride_h, int stride_w, int dilation_h, int dilation_w, int pad_h, int pad_w) {
    __shared__ float w_tile[DEPTH][TILE + 1];
    __shared__ float x_tile[DEPTH][TILE + 1];
    const int group = blockIdx.z % groups, window = kh * kw, depth = channels * window;
    const int places = out_height * out_width;
    const int first_place = blockIdx.x * TILE, first_map = blockIdx.y * TILE;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    x += (long long)blockIdx.z * channels * height * width;
    w += (long long)group * maps * depth;
    float acc[EACH][EACH];
    for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) acc[i][j] = 0.0f;
    for (int start = 0; start < depth; start += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += blockDim.x) {
            const int d = start + i % DEPTH, map = first_map + i / DEPTH;
            const bool inside = d < depth && map < maps;
            w_tile[i % DEPTH][i / DEPTH] = inside ? number(w[(long long)map * depth + d]) : 0.0f;
        }
        for (int i = threadIdx.x; i < DEPTH * TILE; i += blockDim.x) {
            const int d = start + i / TILE, place = first_place + i % TILE;
            float value = 0.0f;
            if (d < depth && place < places) {
                const int channel = d / window, u = d % window / kw, v = d % window % kw;
                const int row = place / out_width * stride_h - pad_h + u * dilation_h;
                const int column = place % out_width * stride_w - pad_w + v * dilation_w;
                if (row >= 0 && row < height && column >= 0 && column < width)
                    value = number(x[((long long)channel * height + row) * width + column]);
            }
            x_tile[i / TILE][i % TILE] = value;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; ++d)
            for (int i = 0; i < EACH; ++i)
                for (int j = 0; j < EACH; ++j)
                    acc[i][j] += w_tile[d][ty + 16 * i] * x_tile[d][tx + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) {
            const int map = first_map + ty + 16 * i, place = first_place + tx + 16 * j;
            if (map >= maps || place >= places) continue;
            const float shift = bias ? number(bias[group * maps + map]) : 0.0f;
            put(&y[((long long)blockIdx.z * maps + map) * places + place], acc[i][j] + shift);
        }
}
