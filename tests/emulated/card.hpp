// A graphics card for tests: the threads of a block are fibers of one thread of this machine, which
// take turns at barriers and at what the threads of a warp exchange.
//
// A block in which threads wait for each other for ever is an error, and the order of turns can be
// changed, so that a race shows as another result.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

struct Place {
    unsigned x = 0, y = 0, z = 0;
};
inline Place threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr std::size_t kStack = 128 << 10;
constexpr unsigned kLanes = 32;

enum State { kReady, kAtWarp, kAtBlock, kDone };
struct Fiber {
    ucontext_t begin;
    jmp_buf here;
    State state;
    bool begun;
    unsigned turn;
    std::unique_ptr<char[]> stack{new char[kStack]};
};
struct Warp {
    unsigned alive, waiting;
    unsigned ready;  // a bit for each lane
    std::uint64_t slots[2][kLanes];
    unsigned sums[2];
};

inline std::vector<Fiber> fibers;
inline std::vector<Warp> warps;
inline std::vector<double> dynamic;
inline unsigned now, alive, waiting, order, random_state;
inline jmp_buf scheduler;
inline void (*body)(void*);
inline void* what;

inline void suspend(State state) {
    Fiber& self = fibers[now];
    self.state = state;
    warps[now / kLanes].ready &= ~(1u << now % kLanes);
    if (_setjmp(self.here) == 0) _longjmp(scheduler, 1);
}

inline void wake(unsigned first, unsigned last, State from) {
    for (unsigned i = first; i < last; ++i)
        if (fibers[i].state == from) {
            fibers[i].state = kReady;
            warps[i / kLanes].ready |= 1u << i % kLanes;
        }
}
inline void release_block() {
    waiting = 0;
    wake(0, fibers.size(), kAtBlock);
}
inline void release_warp(unsigned w) {
    warps[w].waiting = 0;
    wake(w * kLanes, (w + 1) * kLanes, kAtWarp);
}

inline void block_barrier() {
    if (++waiting == alive)
        release_block();
    else
        suspend(kAtBlock);
}
inline void warp_barrier() {
    const unsigned w = now / kLanes;
    if (++warps[w].waiting == warps[w].alive)
        release_warp(w);
    else
        suspend(kAtWarp);
}

inline void fiber_main() {
    body(what);
    const unsigned w = now / kLanes;
    fibers[now].state = kDone;
    warps[w].ready &= ~(1u << now % kLanes);
    if (--alive && waiting == alive) release_block();
    if (--warps[w].alive && warps[w].waiting == warps[w].alive) release_warp(w);
    _longjmp(scheduler, 1);
}

// The next fiber, of the same warp if one is ready; none if all wait.
inline int next() {
    const unsigned n = warps.size();
    unsigned from = now / kLanes;
    if (order >= 2) {
        random_state = random_state * 1664525u + 1013904223u;
        from = random_state / 65536 % n;
    }
    for (unsigned step = 0; step < n; ++step) {
        const unsigned w = order == 1 ? (from + n - step) % n : (from + step) % n;
        const unsigned ready = warps[w].ready;
        if (!ready) continue;
        const unsigned lane = order == 1 ? 31 - __builtin_clz(ready) : __builtin_ctz(ready);
        return int(w * kLanes + lane);
    }
    return -1;
}

inline void run_block(unsigned threads) {
    if (fibers.size() != threads) fibers = std::vector<Fiber>(threads);
    warps.assign(threads / kLanes, Warp{kLanes, 0, 0xffffffffu, {}, {}});
    for (unsigned i = 0; i < threads; ++i) {
        fibers[i].state = kReady;
        fibers[i].begun = false;
        fibers[i].turn = 0;
    }
    alive = threads;
    waiting = 0;
    now = threads - 1;
    _setjmp(scheduler);
    if (alive == 0) return;
    const int chosen = next();
    if (chosen < 0) throw std::runtime_error("threads of a block wait for each other for ever");
    now = unsigned(chosen);
    threadIdx.x = now;
    Fiber& fiber = fibers[now];
    if (fiber.begun) _longjmp(fiber.here, 1);
    fiber.begun = true;
    getcontext(&fiber.begin);
    fiber.begin.uc_stack.ss_sp = fiber.stack.get();
    fiber.begin.uc_stack.ss_size = kStack;
    fiber.begin.uc_link = nullptr;
    makecontext(&fiber.begin, fiber_main, 0);
    setcontext(&fiber.begin);
}

// What each lane of a warp gives, from another lane.
template <class T, class F>
T exchange(T x, F&& lane_of) {
    static_assert(sizeof(T) <= 8);
    Fiber& self = fibers[now];
    Warp& warp = warps[now / kLanes];
    std::uint64_t* slots = warp.slots[self.turn++ % 2];
    std::memcpy(slots + now % kLanes, &x, sizeof x);
    warp_barrier();
    T found;
    std::memcpy(&found, slots + lane_of(now % kLanes), sizeof found);
    return found;
}
template <class F>
unsigned combined(unsigned x, F&& combine) {
    Fiber& self = fibers[now];
    Warp& warp = warps[now / kLanes];
    unsigned& sum = warp.sums[self.turn++ % 2];
    sum = warp.waiting == 0 ? x : combine(sum, x);
    warp_barrier();
    return sum;
}

// --- launches: arguments as pointers to them ----------------------------------------------------

template <class... A>
struct Call {
    void (*function)(A...);
    void** arguments;

    template <std::size_t... I>
    void with(std::index_sequence<I...>) const {
        function(*static_cast<A*>(arguments[I])...);
    }
    static void run(void* self) {
        static_cast<const Call*>(self)->with(std::index_sequence_for<A...>{});
    }
};

template <class... A>
const char* launch(void (*function)(A...), void** arguments, const std::size_t* sizes,
                   std::size_t count, const unsigned* grid, unsigned threads, std::size_t shared,
                   unsigned turns) {
    const std::size_t expected[] = {sizeof(A)...};
    if (count != sizeof...(A)) return "wrong number of arguments";
    for (std::size_t i = 0; i < count; ++i)
        if (sizes[i] != expected[i]) return "an argument of another size";
    if (threads == 0 || threads > 1024 || threads % kLanes) return "wrong number of threads";
    if (grid[1] > 65535 || grid[2] > 65535) return "too many blocks";
    Call<A...> call{function, arguments};
    body = &Call<A...>::run;
    what = &call;
    order = turns;
    random_state = turns;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads, 1, 1};
    try {
        for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
            for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
                for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) {
                    dynamic.assign(shared / sizeof(double) + 1, NAN);
                    run_block(threads);
                }
    } catch (const std::exception& failure) {
        fibers.clear();
        return "threads of a block wait for each other for ever";
    }
    return nullptr;
}

}  // namespace emulated

// --- the language ---------------------------------------------------------------------------------

#define __CUDACC__
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
using std::max;
using std::min;

inline void __syncthreads() { emulated::block_barrier(); }
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask, int = 32) {
    return emulated::exchange(x, [=](unsigned lane) { return lane ^ unsigned(mask); });
}
template <class T>
T __shfl_up_sync(unsigned, T x, unsigned by) {
    return emulated::exchange(x, [=](unsigned lane) { return lane < by ? lane : lane - by; });
}
template <class T>
T __shfl_sync(unsigned, T x, int from) {
    return emulated::exchange(x, [=](unsigned) { return unsigned(from); });
}
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __reduce_max_sync(unsigned, unsigned x) {
    return emulated::combined(x, [](unsigned a, unsigned b) { return std::max(a, b); });
}
inline unsigned __reduce_min_sync(unsigned, unsigned x) {
    return emulated::combined(x, [](unsigned a, unsigned b) { return std::min(a, b); });
}
inline unsigned __ballot_sync(unsigned, bool x) {
    const unsigned own = unsigned(x) << emulated::now % emulated::kLanes;
    return emulated::combined(own, [](unsigned a, unsigned b) { return a | b; });
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T>
T atomicAdd(T* at, T x) {
    const T before = *at;
    *at += x;
    return before;
}
