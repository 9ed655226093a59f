// Runs kernels on the processor, block by block. The threads of a block are fibers: each runs until
// it waits for others, and when all that can run have run, barriers that are complete open. A barrier
// that some thread never reaches is an error, not a hang.
#include "emulated.h"

#include <algorithm>
#include <csetjmp>
#include <map>
#include <memory>
#include <string>
#include <ucontext.h>
#include <vector>

Index threadIdx, blockIdx, blockDim, gridDim;
// What each of the architectures that the kernels are compiled for gives a block.
constexpr size_t SHARED_MAX = 99 * 1024;
alignas(128) unsigned char shared_memory[SHARED_MAX + 256];

namespace emulated {
namespace {

constexpr unsigned WARP = 32;
constexpr unsigned THREADS_MAX = 1024;
// Of a kernel that is not declared to be a wide one.
constexpr unsigned PLAIN_THREADS_MAX = 256;
// Blocks along y and z.
constexpr unsigned GRID_MAX = 65535;
// Bytes behind a block's shared memory that it must leave alone.
constexpr size_t GUARD_BYTES = sizeof shared_memory - SHARED_MAX;
constexpr size_t STACK_BYTES = 64 * 1024;

enum class State { Running, AtBlockBarrier, AtWarpBarrier, Done };

struct Fiber {
    std::unique_ptr<unsigned char[]> stack;
    ucontext_t start;
    sigjmp_buf place;
    bool begun;
    State state;
    // Which of two places its next exchange goes through: a lane is at most one exchange ahead.
    unsigned turn;
};

struct Known {
    size_t params_size;
    Body body;
    bool wide;
};

std::map<std::string, Known> &known() {
    static std::map<std::string, Known> kernels;
    return kernels;
}

std::vector<Fiber> fibers(THREADS_MAX);
unsigned exchanged[2][THREADS_MAX];
Factors exchanged_factors[2][THREADS_MAX];
unsigned current;
sigjmp_buf scheduler;
Body body;
const void *params;

void run_fiber() {
    body(params);
    fibers[current].state = State::Done;
    siglongjmp(scheduler, 1);
}

// Contexts begin fibers; jumps, which leave the signal mask alone, switch between them.
void resume(unsigned thread) {
    current = thread;
    threadIdx.x = thread;
    Fiber &fiber = fibers[thread];
    if (sigsetjmp(scheduler, 0) != 0) return;
    if (fiber.begun) siglongjmp(fiber.place, 1);
    fiber.begun = true;
    if (!fiber.stack) fiber.stack.reset(new unsigned char[STACK_BYTES]);
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = STACK_BYTES;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, run_fiber, 0);
    setcontext(&fiber.start);
}

void wait(State state) {
    Fiber &fiber = fibers[current];
    fiber.state = state;
    if (sigsetjmp(fiber.place, 0) == 0) siglongjmp(scheduler, 1);
}

bool all(unsigned first, unsigned threads, State state) {
    return std::all_of(fibers.begin() + first, fibers.begin() + first + threads,
                       [&](const Fiber &fiber) { return fiber.state == state; });
}

void release(unsigned first, unsigned threads) {
    for (unsigned thread = first; thread < first + threads; thread++)
        fibers[thread].state = State::Running;
}

// Whether the block came to its end.
bool run_block(unsigned threads, bool backwards) {
    for (unsigned thread = 0; thread < threads; thread++) {
        fibers[thread].begun = false;
        fibers[thread].turn = 0;
    }
    release(0, threads);
    for (;;) {
        // The order of threads must not matter: every other block runs them from the last.
        for (unsigned i = 0; i < threads; i++) {
            unsigned thread = backwards ? threads - 1 - i : i;
            if (fibers[thread].state == State::Running) resume(thread);
        }
        bool opened = false;
        for (unsigned warp = 0; warp < threads; warp += WARP)
            if (all(warp, WARP, State::AtWarpBarrier)) {
                release(warp, WARP);
                opened = true;
            }
        if (opened) continue;
        if (all(0, threads, State::Done)) return true;
        if (!all(0, threads, State::AtBlockBarrier)) return false;
        release(0, threads);
    }
}

} // namespace

void block_barrier() { wait(State::AtBlockBarrier); }
void warp_barrier() { wait(State::AtWarpBarrier); }

uint32_t exchange(uint32_t value, unsigned from_lane) {
    const unsigned thread = current, turn = fibers[thread].turn ^= 1;
    exchanged[turn][thread] = value;
    warp_barrier();
    return exchanged[turn][thread / WARP * WARP + from_lane % WARP];
}

const Factors *exchange_factors(const Factors &mine) {
    const unsigned thread = current, turn = fibers[thread].turn ^= 1;
    memcpy(exchanged_factors[turn][thread], mine, sizeof mine);
    warp_barrier();
    return exchanged_factors[turn] + thread / WARP * WARP;
}

Kernel::Kernel(const char *name, size_t params_size, Body body, bool wide) {
    known()[name] = Known{params_size, body, wide};
}

} // namespace emulated

enum Outcome {
    DONE,
    UNKNOWN_KERNEL,
    WRONG_PARAMS,
    WRONG_BLOCK,
    WRONG_SHARED,
    DIVERGED,
    WRONG_GRID,
    OVERRUN
};

// One launch at a time. `grid` has three numbers.
extern "C" int mortise_emulator_launch(const char *name, const unsigned *grid, unsigned threads,
                                       size_t shared, const void *params, size_t params_size) {
    using namespace emulated;
    const auto found = known().find(name);
    if (found == known().end()) return UNKNOWN_KERNEL;
    if (found->second.params_size != params_size) return WRONG_PARAMS;
    const unsigned threads_max = found->second.wide ? THREADS_MAX : PLAIN_THREADS_MAX;
    if (threads == 0 || threads > threads_max || threads % WARP != 0) return WRONG_BLOCK;
    if (grid[0] == 0 || grid[0] >> 31 != 0) return WRONG_GRID;
    for (int axis = 1; axis < 3; axis++)
        if (grid[axis] == 0 || grid[axis] > GRID_MAX) return WRONG_GRID;
    if (shared > SHARED_MAX) return WRONG_SHARED;
    body = found->second.body;
    emulated::params = params;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads, 1, 1};
    threadIdx = {0, 0, 0};
    bool backwards = false;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                memset(shared_memory, 0xff, shared + GUARD_BYTES);
                if (!run_block(threads, backwards)) return DIVERGED;
                const unsigned char *guard = shared_memory + shared;
                if (!std::all_of(guard, guard + GUARD_BYTES, [](auto byte) { return byte == 0xff; }))
                    return OVERRUN;
                backwards = !backwards;
            }
    return DONE;
}

#include "../kernels/all.cu"
