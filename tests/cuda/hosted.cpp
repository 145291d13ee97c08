// What the kernels of hosted.hpp run on: the threads of a block are fibers that take turns, and wait for
// each other at barriers. Blocks run one after another.

#include "hosted.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hosted {

dim3 block, grid, block_index;
Thread* now = nullptr;

[[noreturn]] void fail(const char* what) { throw std::runtime_error(what); }

namespace {

constexpr size_t STACK = 64 << 10;

struct Barrier {
    int waiting = 0;
    unsigned long generation = 0;
};

using Copies = std::vector<std::pair<void*, const void*>>;

struct Fiber : Thread {
    ucontext_t context;
    jmp_buf place;
    bool entered = false, done = false;
    std::unique_ptr<char[]> stack{new char[STACK]};
    Copies copies;
    std::deque<Copies> groups;
};

std::deque<Fiber> fibers;  // that never move, for each holds its place on its own stack
jmp_buf scheduler;
Barrier block_barrier;
std::vector<Barrier> warp_barriers;
std::vector<float> exchanged;
std::vector<Fragments> fragments;
int alive = 0;
void (*body)(void*) = nullptr;
void* body_data = nullptr;

Fiber& fiber() { return *static_cast<Fiber*>(now); }

// Contexts only start a fiber: to switch them asks the system for the signals' mask every time.
void yield() {
    if (_setjmp(fiber().place) == 0) _longjmp(scheduler, 1);
}

void resume(Fiber& next) {
    now = &next;
    if (_setjmp(scheduler) != 0) return;
    if (next.entered) _longjmp(next.place, 1);
    next.entered = true;
    setcontext(&next.context);
}

// A fiber's whole life: the same thread of one block after another.
void live() {
    for (;;) {
        body(body_data);
        fiber().done = true;
        --alive;
        yield();
    }
}

void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, live, 0);
}

int threads() { return (int)(block.x * block.y * block.z); }

int warp_size() { return std::min(32, threads() - now->number / 32 * 32); }

void wait(Barrier& barrier, int size) {
    const unsigned long generation = barrier.generation;
    if (++barrier.waiting == size) {
        barrier.waiting = 0;
        ++barrier.generation;
        return;
    }
    // A turn in which nothing moves means that some thread never comes here.
    for (long turn = 0; barrier.generation == generation; ++turn) {
        if (turn > 1000000) fail("a barrier that not all threads reach");
        yield();
    }
}

void run_block() {
    const int count = threads();
    while ((int)fibers.size() < count) start(fibers.emplace_back());
    block_barrier = Barrier();
    warp_barriers.assign((count + 31) / 32, Barrier());
    exchanged.assign(count, 0.0f);
    fragments.assign(count, Fragments());
    alive = count;
    for (int number = 0; number < count; ++number) {
        Fiber& each = fibers[number];
        each.number = number;
        each.index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
        each.done = false;
        each.copies.clear();
        each.groups.clear();
    }
    while (alive > 0)
        for (int number = 0; number < count; ++number)
            if (!fibers[number].done) resume(fibers[number]);
}

}  // namespace

void wait_for_block() { wait(block_barrier, threads()); }

void wait_for_warp() { wait(warp_barriers[now->number / 32], warp_size()); }

float shuffle(float value, int from) {
    exchanged[now->number] = value;
    wait_for_warp();
    const bool inside = from >= 0 && from < warp_size();
    const float got = inside ? exchanged[now->number / 32 * 32 + from] : value;
    wait_for_warp();
    return got;
}

const Fragments* exchange(const Fragments& own) {
    fragments[now->number] = own;
    wait_for_warp();
    return &fragments[now->number / 32 * 32];
}

void copy(void* to, const void* from) { fiber().copies.push_back({to, from}); }

void end_group() {
    fiber().groups.push_back(std::move(fiber().copies));
    fiber().copies.clear();
}

void await_groups(size_t later) {
    auto& groups = fiber().groups;
    for (; groups.size() > later; groups.pop_front())
        for (auto& [to, from] : groups.front()) memcpy(to, from, 16);
}

void run(const unsigned* shape, void (*kernel)(void*), void* given) {
    grid = {shape[0], shape[1], shape[2]};
    block = {shape[3], shape[4], shape[5]};
    body = kernel;
    body_data = given;
    for (block_index.z = 0; block_index.z < grid.z; ++block_index.z)
        for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
            for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) run_block();
}

}  // namespace hosted
