// Convolution as a product of W [maps, channels * window] and windows of x that no one stores.

// A block computes TILE maps at TILE places of one group of one image, from a slice of the sum,
// DEPTH elements of which are in shared memory at a time. KH and KW are the window. With TENSOR a
// factor keeps 10 bits, which are all that those of 16 bits have: 8 warps have 16 maps at 32 places
// each. Without, 16 x 16 threads have EACH x EACH results apiece.
#define TILE 64
#define EACH 4
#define THREADS 256
#define WINDOW (KH * KW)
#define UNROLL _Pragma("unroll")  // registers have no addresses
#if TENSOR
#include "mma.cuh"
#define DEPTH 32
#define FACTOR(x) tf32(number(x))
#else
#define DEPTH 16
#define FACTOR(x) number(x)
#endif

// x [batch, groups * channels, height, width], w [groups * maps, channels, KH, KW]. partial
// [slices, batch * groups * maps, places], which `finish` in ending.cu adds up. The grid: places by slices,
// maps, batch * groups. Rows of shared memory are so long that no banks collide.
extern "C" __global__ void __launch_bounds__(THREADS) convolve(
    const T* x, const T* w, float* partial, int groups, int channels, int maps, int slices,
    int slice, int height, int width, int out_height, int out_width, int stride_h, int stride_w,
    int dilation_h, int dilation_w, int pad_h, int pad_w) {
    follow();
    __shared__ float w_tile[TILE][DEPTH + 4];
    __shared__ float x_tile[DEPTH][TILE + 8];
    const int depth = channels * WINDOW, places = out_height * out_width;
    const int part = blockIdx.x % slices, first_map = blockIdx.y * TILE;
    const int first_place = blockIdx.x / slices * TILE;
    x += (long long)blockIdx.z * channels * height * width;
    w += (long long)(blockIdx.z % groups) * maps * depth;
    // A thread brings windows of one place only, of which it knows the corner.
    const int place = first_place + threadIdx.x % TILE;
    const int top = place / out_width * stride_h - pad_h;
    const int side = place % out_width * stride_w - pad_w;
    const int stop = min(depth, (part + 1) * slice);
#if TENSOR
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int row = warp % 4 * 16 + lane / 4, column = warp / 4 * 32;
    float acc[4][4];
#else
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float acc[EACH][EACH];
#endif
    UNROLL for (int i = 0; i < EACH; ++i)
        UNROLL for (int j = 0; j < EACH; ++j) acc[i][j] = 0.0f;
    for (int start = part * slice; start < stop; start += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += THREADS) {
            const int d = start + i % DEPTH, map = first_map + i / DEPTH;
            const bool inside = d < stop && map < maps;
            w_tile[i / DEPTH][i % DEPTH] = inside ? FACTOR(w[(long long)map * depth + d]) : 0.0f;
        }
        for (int i = threadIdx.x / TILE; i < DEPTH; i += THREADS / TILE) {
            const int d = start + i, channel = d / WINDOW;
            const int across = side + d % KW * dilation_w, down = top + d % WINDOW / KW * dilation_h;
            const bool inside = d < stop && place < places && down >= 0 && down < height &&
                                across >= 0 && across < width;
            const long long at = ((long long)channel * height + down) * width + across;
            x_tile[i][threadIdx.x % TILE] = inside ? FACTOR(x[at]) : 0.0f;
        }
        __syncthreads();
#if TENSOR
        UNROLL for (int k = 0; k < DEPTH; k += 8) {
            const int low = k + lane % 4;
            const float a[4] = {w_tile[row][low], w_tile[row + 8][low],
                                w_tile[row][low + 4], w_tile[row + 8][low + 4]};
            UNROLL for (int t = 0; t < 4; ++t) {
                const int at = column + 8 * t + lane / 4;
                const float b[2] = {x_tile[low][at], x_tile[low + 4][at]};
                mma_tf32(acc[t], a, b);
            }
        }
#else
        for (int d = 0; d < DEPTH; ++d)
            UNROLL for (int i = 0; i < EACH; ++i)
                UNROLL for (int j = 0; j < EACH; ++j)
                    acc[i][j] += w_tile[ty + 16 * i][d] * x_tile[d][tx + 16 * j];
#endif
        __syncthreads();
    }
    partial += ((long long)part * gridDim.z + blockIdx.z) * maps * places;
    UNROLL for (int i = 0; i < EACH; ++i)
        UNROLL for (int j = 0; j < EACH; ++j) {
#if TENSOR
            const int map = first_map + row + 8 * (j / 2);
            const int to = first_place + column + 8 * i + lane % 4 * 2 + j % 2;
#else
            const int map = first_map + ty + 16 * i, to = first_place + tx + 16 * j;
#endif
            if (map < maps && to < places) partial[(long long)map * places + to] = acc[i][j];
        }
}
