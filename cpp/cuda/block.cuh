// What the threads of a block find together.
#pragma once
#include <cstdint>

#include "loss.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

constexpr unsigned kWarp = 0xffffffffu;

// One number from those of all threads of the block, the same in each, in a fixed order.
template <class T, class F>
__device__ T combined(T x, T nothing, F&& combine) {
    __shared__ T parts[32];
    const int lane = threadIdx.x % 32;
    for (int apart = 16; apart; apart /= 2) x = combine(x, __shfl_xor_sync(kWarp, x, apart));
    __syncthreads();  // the parts of the last call may still be read
    if (lane == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = lane < int(blockDim.x) / 32 ? parts[lane] : nothing;
    for (int apart = 16; apart; apart /= 2) x = combine(x, __shfl_xor_sync(kWarp, x, apart));
    return x;
}
template <class T>
__device__ T total(T x) {
    return combined(x, T(0), [](T a, T b) { return a + b; });
}
__device__ inline double largest(double x) {
    return combined(x, -kInfinity, [](double a, double b) { return fmax(a, b); });
}
__device__ inline double smallest(double x) {
    return combined(x, kInfinity, [](double a, double b) { return fmin(a, b); });
}

// How many threads before this one have a number, and how many of all; `counts` has room for 32.
struct Rank {
    int before, all;
};
__device__ inline Rank rank_of(bool has, int* counts) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const unsigned votes = __ballot_sync(kWarp, has);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int sum = lane < int(blockDim.x) / 32 ? counts[lane] : 0;
    for (int apart = 1; apart < 32; apart *= 2) {
        const int other = __shfl_up_sync(kWarp, sum, apart);
        if (lane >= apart) sum += other;
    }
    const int all = __shfl_sync(kWarp, sum, 31);
    const int earlier = __shfl_sync(kWarp, sum, warp ? warp - 1 : 0);
    __syncthreads();
    return {(warp ? earlier : 0) + __popc(votes & ((1u << lane) - 1)), all};
}

// The largest of some numbers, and where it is: of equals, the lowest place.
template <class T>
struct Best {
    T value = T(-kInfinity);
    int at = 0x7fffffff;

    __device__ void see(T other, int place) {
        if (other > value || (other == value && place < at)) take(other, place);
    }
    // A place after all those seen so far.
    __device__ void see_next(T other, int place) {
        if (other > value) take(other, place);
    }
    __device__ void take(T other, int place) {
        value = other;
        at = place;
    }
};

__device__ inline Best<float> best_of_warp(Best<float> best) {
    const unsigned bits = __float_as_uint(best.value);
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    const unsigned top = __reduce_max_sync(kWarp, ordered);
    best.at = int(__reduce_min_sync(kWarp, ordered == top ? unsigned(best.at) : 0x7fffffffu));
    best.value = __uint_as_float(top & 0x80000000u ? top & 0x7fffffffu : ~top);
    return best;
}
__device__ inline Best<double> best_of_warp(Best<double> best) {
    for (int apart = 16; apart; apart /= 2) {
        const double value = __shfl_xor_sync(kWarp, best.value, apart);
        best.see(value, __shfl_xor_sync(kWarp, best.at, apart));
    }
    return best;
}

// The best of all threads for N questions at a time. Two buffers in turn: one barrier is enough.
template <class T, int N>
struct Contest {
    T value[2][N][32];
    int at[2][N][32];
};
template <class T, int N>
__device__ void decide(Contest<T, N>& contest, Best<T> (&best)[N], int& turn) {
    const int lane = threadIdx.x % 32;
    turn ^= 1;
    for (int q = 0; q < N; ++q) {
        best[q] = best_of_warp(best[q]);
        if (lane == 0) {
            contest.value[turn][q][threadIdx.x / 32] = best[q].value;
            contest.at[turn][q][threadIdx.x / 32] = best[q].at;
        }
    }
    __syncthreads();
    for (int q = 0; q < N; ++q) {
        const bool is = lane < int(blockDim.x) / 32;
        best[q] = best_of_warp(is ? Best<T>{contest.value[turn][q][lane], contest.at[turn][q][lane]}
                                  : Best<T>{});
    }
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
