// CUDA's words for a C++ compiler, which hosted.cpp gives their meaning. It is read for every kernel, so
// it includes next to nothing. Shared memory is static, for blocks run one after another.

#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HOSTED
#define __global__
#define __device__
#define __forceinline__
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// What kernels use of <cmath>, which takes the compiler longer than they do.
extern "C" float erff(float), exp2f(float), expf(float), fmaxf(float, float);
extern "C" float logf(float), sqrtf(float), tanhf(float);

struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace hosted {

struct Thread {
    dim3 index;
    int number = 0;
};

extern dim3 block, grid, block_index;
extern Thread* now;

[[noreturn]] void fail(const char* what);
void wait_for_block();
void wait_for_warp();
// Returns what lane `from` of the warp gives, or the own value if there is none.
float shuffle(float value, int from);

// What a warp's lanes hold of the factors of a product on tensor cores.
struct Fragments { unsigned a[4], b[2]; };
// Gives a warp's lanes what the others hold; they wait for each other before they give more.
const Fragments* exchange(const Fragments& own);

void copy(void* to, const void* from);
void end_group();
void await_groups(size_t later);

// Calls a kernel for each thread of each block.
void run(const unsigned* shape, void (*kernel)(void*), void* given);

template <size_t... I> struct Places {};
template <size_t N, size_t... I> struct PlacesUpTo : PlacesUpTo<N - 1, N - 1, I...> {};
template <size_t... I> struct PlacesUpTo<0, I...> { using type = Places<I...>; };

template <class... A>
struct Work {
    void (*kernel)(A...);
    void** given;
    template <size_t... I> void call(Places<I...>) { kernel(*(A*)given[I]...); }
    static void start(void* work) {
        ((Work*)work)->call(typename PlacesUpTo<sizeof...(A)>::type());
    }
};

template <class... A>
void launch(void (*kernel)(A...), const unsigned* shape, void** given) {
    Work<A...> work{kernel, given};
    run(shape, Work<A...>::start, &work);
}

// PTX's table of mma.m16n8k16, for elements that `decode` makes numbers of.
template <class Decode>
void multiply(float* d, const unsigned* a, const unsigned* b, Decode decode) {
    const int lane = now->number % 32;
    Fragments own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    const Fragments* all = exchange(own);
    auto half = [&](unsigned word, int which) { return decode((unsigned short)(word >> (16 * which))); };
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const int quad = k % 8 / 2;
            const unsigned left = all[row % 8 * 4 + quad].a[row / 8 + 2 * (k / 8)];
            d[i] += half(left, k % 2) * half(all[column * 4 + quad].b[k / 8], k % 2);
        }
    }
    wait_for_warp();
}

}  // namespace hosted

#define threadIdx (hosted::now->index)
#define blockIdx (hosted::block_index)
#define blockDim (hosted::block)
#define gridDim (hosted::grid)

inline void __syncthreads() { hosted::wait_for_block(); }
inline void __syncwarp(unsigned = ~0u) { hosted::wait_for_warp(); }
inline float __shfl_xor_sync(unsigned, float x, int mask) {
    return hosted::shuffle(x, (hosted::now->number % 32) ^ mask);
}
inline float __shfl_sync(unsigned, float x, int from) { return hosted::shuffle(x, from); }

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
inline float half_to_float(unsigned short bits) {
    _Float16 x;
    memcpy(&x, &bits, 2);
    return (float)x;
}
inline unsigned short float_to_half(float value) {
    const _Float16 x = (_Float16)value;
    unsigned short bits;
    memcpy(&bits, &x, 2);
    return bits;
}
inline float bfloat_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// The types of the kernels' elements come after this.
struct f16;
struct bf16;
inline void mma(float* d, const unsigned* a, const unsigned* b, const f16*) {
    hosted::multiply(d, a, b, half_to_float);
}
inline void mma(float* d, const unsigned* a, const unsigned* b, const bf16*) {
    hosted::multiply(d, a, b, bfloat_to_float);
}
inline float tf32(float x) {
    const unsigned bits = __float_as_uint(x);
    return __builtin_isfinite(x) ? __uint_as_float((bits + 0x1000u) & ~0x1fffu) : x;
}
// PTX's table of mma.m16n8k8.
inline void mma_tf32(float* d, const float* a, const float* b) {
    hosted::Fragments own;
    for (int i = 0; i < 4; ++i) own.a[i] = __float_as_uint(tf32(a[i]));
    for (int i = 0; i < 2; ++i) own.b[i] = __float_as_uint(tf32(b[i]));
    const hosted::Fragments* all = hosted::exchange(own);
    const int lane = hosted::now->number % 32;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 8; ++k)
            d[i] += __uint_as_float(all[row % 8 * 4 + k % 4].a[row / 8 + 2 * (k / 4)]) *
                    __uint_as_float(all[column * 4 + k % 4].b[k / 4]);
    }
    __syncwarp();
}
template <class Decode>
unsigned multiply_add(unsigned a, unsigned b, unsigned c, Decode decode, bool brief) {
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        auto half = [&](unsigned word) { return decode((unsigned short)(word >> shift)); };
        const float exact = half(a) * half(b) + half(c);
        const unsigned bits = brief ? __float_as_uint(exact) >> 16 : float_to_half(exact);
        if (decode((unsigned short)bits) != exact)
            hosted::fail("a level that the type has not");
        result |= (bits & 0xffffu) << shift;
    }
    return result;
}
inline unsigned multiply_add(unsigned a, unsigned b, unsigned c, const f16*) {
    return multiply_add(a, b, c, half_to_float, false);
}
inline unsigned multiply_add(unsigned a, unsigned b, unsigned c, const bf16*) {
    return multiply_add(a, b, c, bfloat_to_float, true);
}
inline unsigned both_or(unsigned x, unsigned mask, unsigned bits) { return (x & mask) | bits; }

// Byte i of the result is that of the 8 of low and high which nibble i of the choice names.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned choice) {
    const unsigned long long all = (unsigned long long)high << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= (unsigned)(all >> ((choice >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
    return result;
}

// Copies happen when they are waited for, as late as the device may make them.
inline void copy_16(void* to, const void* from) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) hosted::fail("a copy that lies askew");
    hosted::copy(to, from);
}
inline void end_group() { hosted::end_group(); }
template <int LATER> void await_group() { hosted::await_groups(LATER); }

template <class W>
W atomicCAS(W* at, W expected, W next) {
    const W seen = *at;
    if (seen == expected) *at = next;
    return seen;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
