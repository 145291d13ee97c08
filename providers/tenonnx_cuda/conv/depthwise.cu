// Convolution of each channel by itself, whichever way images lie.

// KH and KW are the window, TIMES the maps of a channel. Without LAST images are [channels, height,
// width], and a thread has a place; with it [height, width, channels], and a thread has VECTOR maps
// at a place, next to those of its neighbor, as 16 bytes of float32 or 8 of 16 bits. VECTOR is 1 if
// TIMES is not.
#include "elementwise/activations.cuh"
#include "endings.cuh"  // of elementwise.formulas
#define THREADS 256
#define WINDOW (KH * KW)
#define CHUNK (LAST ? 32 * VECTOR : 1)  // maps of a block
#define EACH 4                          // places of a thread
#define UNROLL _Pragma("unroll")        // registers have no addresses

struct __align__(sizeof(T) * VECTOR) vector { T items[VECTOR]; };

// x [batch, channels, height, width], w [maps, 1, KH, KW], y and extra [batch, maps, places], each in
// the order that LAST says but w. The grid: places, chunks of maps, batch. Null: bias, extra.
extern "C" __global__ void __launch_bounds__(THREADS) depthwise(
    const T* x, const T* w, const T* bias, const T* extra, T* y, int maps, int height, int width,
    int out_height, int out_width, int stride_h, int stride_w, int dilation_h, int dilation_w,
    int pad_h, int pad_w, float alpha, float beta) {
    follow();
    __shared__ float taps[WINDOW][CHUNK];
    const int first = blockIdx.y * CHUNK, channels = maps / TIMES;
    for (int i = threadIdx.x; i < WINDOW * CHUNK; i += THREADS) {
        const int map = first + i / WINDOW;
        const float weight = map < maps ? number(w[(long long)map * WINDOW + i % WINDOW]) : 0.0f;
        taps[i % WINDOW][i / WINDOW] = weight;
    }
    __syncthreads();
    const int places = out_height * out_width, across = THREADS / (CHUNK / VECTOR);
    const int lane = threadIdx.x % (CHUNK / VECTOR) * VECTOR, map = first + lane;
    if (map >= maps) return;
    const long long pixel = LAST ? channels : 1, result = LAST ? maps : 1;
    x += (long long)blockIdx.z * channels * height * width +
         (long long)(map / TIMES) * (LAST ? 1 : (long long)height * width);
    const long long to = (long long)blockIdx.z * maps * places + (LAST ? map : (long long)map * places);
    const int start = blockIdx.x * across * EACH + threadIdx.x / (CHUNK / VECTOR);
    for (int place = start; place < min(places, start + across * EACH); place += across) {
        const int top = place / out_width * stride_h - pad_h;
        const int side = place % out_width * stride_w - pad_w;
        float sum[VECTOR];
        UNROLL for (int v = 0; v < VECTOR; ++v) sum[v] = bias ? number(bias[map + v]) : 0.0f;
        UNROLL for (int i = 0; i < KH; ++i)
            UNROLL for (int j = 0; j < KW; ++j) {
                const int down = top + i * dilation_h, right = side + j * dilation_w;
                if (down < 0 || down >= height || right < 0 || right >= width) continue;
                const vector a = *(const vector*)(x + ((long long)down * width + right) * pixel);
                UNROLL for (int v = 0; v < VECTOR; ++v)
                    sum[v] += number(a.items[v]) * taps[i * KW + j][lane + v];
            }
        const long long at = to + place * result;
        vector made, more;
        if (extra) more = *(const vector*)(extra + at);
        UNROLL for (int v = 0; v < VECTOR; ++v) {
            if (extra) sum[v] += number(more.items[v]);
            put(&made.items[v], ACTIVATED(sum[v], alpha, beta));
        }
        *(vector*)(y + at) = made;
    }
}
