// CUDA's words for a C++ compiler: the threads of a block are fibers that take turns, and wait for
// each other at barriers and shuffles. Blocks run one after another, so shared memory is static.

#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
    alive = count;
    for (int number = 0; number < count; ++number) {
        Fiber& fiber = fibers[number];
        fiber.number = number;
        fiber.done = fiber.entered = false;
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
