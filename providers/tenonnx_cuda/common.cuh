// What every kernel starts with. T is the element type of activations; sums are float.

#define WARP 32
#define ALL_LANES 0xffffffffu
#define INF __uint_as_float(0x7f800000u)  // NVRTC has no INFINITY

typedef float f32;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

#ifndef HOSTED
// Without NVIDIA's headers, so that NVRTC alone compiles this.
__device__ inline float half_to_float(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
__device__ inline unsigned short float_to_half(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

// A kernel that FOLLOWS may start while the one before it ends (compute capability 9.0), and waits
// here: above it, only what no other kernel writes is read.
__device__ inline void follow() {
#ifdef FOLLOWS
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline float number(f32 x) { return x; }
__device__ inline float number(f16 x) { return half_to_float(x.bits); }
__device__ inline float number(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ inline void put(f32* at, float x) { *at = x; }
__device__ inline void put(f16* at, float x) { at->bits = float_to_half(x); }
__device__ inline void put(bf16* at, float x) {
    unsigned bits = __float_as_uint(x);
    // To nearest, ties to even; a NaN whose payload would round to infinity stays one.
    bits = x != x ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
    at->bits = (unsigned short)(bits >> 16);
}

// What x is after it was stored in elements like those at `like`.
template <class Stored> __device__ inline float rounded(float x, const Stored*) {
    Stored stored;
    put(&stored, x);
    return number(stored);
}

// A NaN is larger than anything.
__device__ inline float larger(float a, float b) { return b > a || b != b ? b : a; }

__device__ inline float warp_sum(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

// Every thread of the block gets the sum; shared holds a float per warp.
__device__ inline float block_sum(float x, float* shared) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < (int)blockDim.x / WARP; ++warp) total += shared[warp];
    return total;
}
__device__ inline float block_max(float x, float* shared) {
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    float most = shared[0];
    for (int warp = 1; warp < (int)blockDim.x / WARP; ++warp) most = fmaxf(most, shared[warp]);
    return most;
}
