// CUDA's words for a C++ compiler: the threads of a block are fibers that take turns, and wait for
// each other at barriers and shuffles. Blocks run one after another, so shared memory is static.

#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#define HOSTED
#define __global__
#define __device__
#define __forceinline__
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct int4_ { int x, y, z, w; };

namespace hosted {

constexpr size_t STACK = 64 << 10;

struct Barrier {
    int waiting = 0;
    unsigned long generation = 0;
};

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    bool entered = false;
    std::unique_ptr<char[]> stack{new char[STACK]};
    dim3 thread;
    int number = 0;
    bool done = false;
    std::vector<std::pair<void*, const void*>> copies;
    std::deque<std::vector<std::pair<void*, const void*>>> groups;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline jmp_buf scheduler_place;
inline Fiber* now = nullptr;
inline Barrier block_barrier;
inline std::vector<Barrier> warp_barriers;
inline std::vector<float> exchanged;
inline dim3 block, grid, block_index;
inline int alive = 0;
inline void (*body)(void*) = nullptr;
inline void* body_data = nullptr;

// Contexts only start a fiber: to switch them asks the system for the signals' mask every time.
inline void yield() {
    if (_setjmp(now->place) == 0) _longjmp(scheduler_place, 1);
}

inline void resume(Fiber& fiber) {
    now = &fiber;
    if (_setjmp(scheduler_place) != 0) return;
    if (fiber.entered) _longjmp(fiber.place, 1);
    fiber.entered = true;
    setcontext(&fiber.context);
}

inline void wait(Barrier& barrier, int size) {
    const unsigned long generation = barrier.generation;
    if (++barrier.waiting == size) {
        barrier.waiting = 0;
        ++barrier.generation;
        return;
    }
    // A turn in which nothing moves means that some thread never comes here.
    for (long turn = 0; barrier.generation == generation; ++turn) {
        if (turn > 1000000) throw std::runtime_error("a barrier that not all threads reach");
        yield();
    }
}

inline int warp_size(int warp) {
    const int count = (int)(block.x * block.y * block.z);
    return std::min(32, count - 32 * warp);
}

inline float shuffle(float value, int from) {
    const int warp = now->number / 32, lane = now->number % 32;
    exchanged[now->number] = value;
    wait(warp_barriers[warp], warp_size(warp));
    const bool inside = from >= 0 && from < warp_size(warp);
    const float got = inside ? exchanged[32 * warp + from] : value;
    wait(warp_barriers[warp], warp_size(warp));
    (void)lane;
    return got;
}

// What a warp's lanes hold of the factors of a product on tensor cores.
struct Fragments { unsigned a[4], b[2]; };
inline std::vector<Fragments> fragments;

// Gives a warp's lanes what the others hold; they wait for each other before they give more.
inline const Fragments* exchange(const Fragments& own) {
    const int warp = now->number / 32;
    fragments[now->number] = own;
    wait(warp_barriers[warp], warp_size(warp));
    return &fragments[32 * warp];
}

// PTX's table of mma.m16n8k16, for elements that `decode` makes numbers of.
template <class Decode>
void multiply(float* d, const unsigned* a, const unsigned* b, Decode decode) {
    const int warp = now->number / 32, lane = now->number % 32;
    Fragments own;
    std::memcpy(own.a, a, sizeof own.a);
    std::memcpy(own.b, b, sizeof own.b);
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
    wait(warp_barriers[warp], warp_size(warp));
}

inline void trampoline() {
    body(body_data);
    now->done = true;
    --alive;
    yield();
}

inline void run_block() {
    const int count = (int)(block.x * block.y * block.z);
    if ((int)fibers.size() != count) fibers = std::vector<Fiber>(count);
    block_barrier = Barrier();
    warp_barriers.assign((count + 31) / 32, Barrier());
    exchanged.assign(count, 0.0f);
    fragments.assign(count, Fragments());
    alive = count;
    for (int number = 0; number < count; ++number) {
        Fiber& fiber = fibers[number];
        fiber.number = number;
        fiber.done = fiber.entered = false;
        fiber.copies.clear();
        fiber.groups.clear();
        fiber.thread.x = number % block.x;
        fiber.thread.y = number / block.x % block.y;
        fiber.thread.z = number / block.x / block.y;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, trampoline, 0);
    }
    while (alive > 0)
        for (Fiber& fiber : fibers)
            if (!fiber.done) resume(fiber);
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** given, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_const_t<A>*>(given[I])...);
}

template <class... A>
void launch(void (*kernel)(A...), const unsigned* shape, void** given) {
    grid = {shape[0], shape[1], shape[2]};
    block = {shape[3], shape[4], shape[5]};
    auto work = [&] { call(kernel, given, std::index_sequence_for<A...>()); };
    body_data = &work;
    body = [](void* data) { (*static_cast<decltype(work)*>(data))(); };
    for (block_index.z = 0; block_index.z < grid.z; ++block_index.z)
        for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
            for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) run_block();
}

}  // namespace hosted

#define threadIdx (hosted::now->thread)
#define blockIdx (hosted::block_index)
#define blockDim (hosted::block)
#define gridDim (hosted::grid)

inline void __syncthreads() {
    hosted::wait(hosted::block_barrier, (int)(blockDim.x * blockDim.y * blockDim.z));
}
inline void __syncwarp(unsigned = ~0u) {
    const int warp = hosted::now->number / 32;
    hosted::wait(hosted::warp_barriers[warp], hosted::warp_size(warp));
}
inline float __shfl_xor_sync(unsigned, float x, int mask) {
    return hosted::shuffle(x, (hosted::now->number % 32) ^ mask);
}
inline float __shfl_sync(unsigned, float x, int from) { return hosted::shuffle(x, from); }

inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float half_to_float(unsigned short bits) {
    _Float16 x;
    std::memcpy(&x, &bits, 2);
    return (float)x;
}
inline unsigned short float_to_half(float value) {
    const _Float16 x = (_Float16)value;
    unsigned short bits;
    std::memcpy(&bits, &x, 2);
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
    return std::isfinite(x) ? __uint_as_float((bits + 0x1000u) & ~0x1fffu) : x;
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
            throw std::runtime_error("a level that the type has not");
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
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) throw std::runtime_error("a copy that lies askew");
    hosted::now->copies.push_back({to, from});
}
inline void end_group() {
    hosted::now->groups.push_back(std::move(hosted::now->copies));
    hosted::now->copies.clear();
}
template <int LATER> void await_group() {
    auto& groups = hosted::now->groups;
    for (; groups.size() > LATER; groups.pop_front())
        for (auto& [to, from] : groups.front()) std::memcpy(to, from, 16);
}

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
