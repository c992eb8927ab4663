// Choosing a working set: its older half leaves, the worst violators outside come in, with a free
// intercept as many to raise as to lower. One thread block per problem.
#pragma once
#include "cuda/point.cuh"

namespace margrave {
inline namespace MARGRAVE_ISA {

constexpr int kLargestSet = 2048;
constexpr int kBins = 2048;

struct ChoiceShared {
    int bins[kBins];
    int fresh[kLargestSet];
    int counts[32];
    int bin, above;
};

// Appends the `wanted` rows of largest |key| with this sign: of equals, the first.
class Chooser {
  public:
    __device__ Chooser(ChoiceShared& shared, const float* key, long long count)
        : s_(shared), key_(key), count_(count) {}

    __device__ int available(bool up) const {
        int found = 0;
#pragma unroll 8
        for (long long i = threadIdx.x; i < count_; i += blockDim.x)
            found += up ? key_[i] > 0 : key_[i] < 0;
        return total(found);
    }

    __device__ void take(int wanted, bool up, int at) {
        if (wanted == 0) return;
        // the bits of positive numbers are in the order of the numbers: find the smallest chosen
        unsigned known = 0;
        int rest = wanted;  // to be taken among those that begin with the known bits
        for (int shift : {21, 10, 0}) {
            count_bins(up, known, shift);
            find_bin(rest);
            known = known << (shift ? 11 : 10) | unsigned(s_.bin);
            rest -= s_.above;
            __syncthreads();
        }
        int above = at;
        int equal = at + wanted - rest;
        const int end = at + wanted;
        for (long long from = 0; from < count_; from += blockDim.x) {
            const long long i = from + threadIdx.x;
            const unsigned bits = i < count_ ? bits_of(key_[i], up) : 0;
            const Rank higher = rank_of(bits > known, s_.counts);
            const Rank same = rank_of(bits == known && bits, s_.counts);
            if (bits > known) s_.fresh[above + higher.before] = int(i);
            if (bits == known && bits && equal + same.before < end)
                s_.fresh[equal + same.before] = int(i);
            above += higher.all;
            equal += same.all;
        }
        __syncthreads();
    }

  private:
    __device__ static unsigned bits_of(float key, bool up) {
        const bool is = up ? key > 0 : key < 0;
        return is ? __float_as_uint(fabsf(key)) : 0;
    }

    // How many keys have each value of the bits above `shift`, after those that are known.
    __device__ void count_bins(bool up, unsigned known, int shift) {
        const int width = shift ? 11 : 10;
        for (int b = threadIdx.x; b < kBins; b += blockDim.x) s_.bins[b] = 0;
        __syncthreads();
#pragma unroll 8
        for (long long i = threadIdx.x; i < count_; i += blockDim.x) {
            const unsigned bits = bits_of(key_[i], up);
            if (bits && (shift == 21 || bits >> (shift + width) == known))
                atomicAdd(&s_.bins[bits >> shift & ((1u << width) - 1)], 1);
        }
        __syncthreads();
    }

    // The bin in which the rest ends, from the highest down, and how many are above it.
    __device__ void find_bin(int rest) {
        constexpr int each = kBins / 1024;  // bins of a thread, of 1,024 threads
        const int highest = kBins - 1 - int(threadIdx.x) * each;
        int own = 0;
        for (int b = 0; b < each; ++b) own += s_.bins[highest - b];
        int sum = own;
        const int lane = threadIdx.x % 32;
        for (int apart = 1; apart < 32; apart *= 2) {
            const int other = __shfl_up_sync(kWarp, sum, apart);
            if (lane >= apart) sum += other;
        }
        if (lane == 31) s_.counts[threadIdx.x / 32] = sum;
        __syncthreads();
        int before = 0;
        for (int w = 0; w < int(threadIdx.x) / 32; ++w) before += s_.counts[w];
        int above = before + sum - own;
        if (above < rest && above + own >= rest)
            for (int b = 0; b < each; ++b) {
                const int here = s_.bins[highest - b];
                if (above + here >= rest) {
                    s_.bin = highest - b;
                    s_.above = above;
                    break;
                }
                above += here;
            }
        __syncthreads();
    }

    ChoiceShared& s_;
    const float* key_;
    long long count_;
};

// A problem's working set: the numbers of its rows in the problem, and in the data.
struct Members {
    int *own, *rows, *count;
};

__device__ inline void choose(const Variables& v, Part& p, const Members& set,
                              bool has_free_intercept) {
    __shared__ ChoiceShared shared;
    int* members = set.own;
    if (threadIdx.x == 0) *set.count = 0;
    if (p.status != kRunning) return;
    const int capacity = int(p.capacity);
    int size = int(p.members);
    if (capacity < 8) {
        for (int t = threadIdx.x; t < size; t += blockDim.x) v.inside[p.first + members[t]] = 0;
        size = 0;
        __syncthreads();
    }
    Chooser chooser(shared, v.key + p.first, p.count);
    const int up = chooser.available(true);
    const int down = chooser.available(false);
    const int half = size == 0 ? capacity : max(1, capacity / 2);
    int ups, downs;
    if (has_free_intercept) {
        const int share = (half + 1) / 2;
        ups = min(up, max(share, half - min(half, down)));
        downs = min(down, half - min(half, ups));
    } else {  // both kinds together: the keys' signs do not matter
        ups = min(up + down, half);
        downs = 0;
    }
    if (!has_free_intercept) {
        for (long long i = threadIdx.x; i < p.count; i += blockDim.x)
            v.key[p.first + i] = fabsf(v.key[p.first + i]);
        __syncthreads();
    }
    chooser.take(ups, true, 0);
    chooser.take(downs, false, ups);
    const int fresh = ups + downs;
    const int leave = max(0, fresh - (capacity - size));
    int kept[kLargestSet / 1024];
    for (int t = threadIdx.x, k = 0; t < size; t += blockDim.x, ++k) {
        kept[k] = members[t];
        if (t < leave) v.inside[p.first + kept[k]] = 0;
    }
    __syncthreads();
    for (int t = threadIdx.x, k = 0; t < size; t += blockDim.x, ++k)
        if (t >= leave) members[t - leave] = kept[k];
    for (int t = threadIdx.x; t < fresh; t += blockDim.x) {
        members[size - leave + t] = shared.fresh[t];
        v.inside[p.first + shared.fresh[t]] = 1;
    }
    __syncthreads();
    size += fresh - leave;
    for (int t = threadIdx.x; t < size; t += blockDim.x) set.rows[t] = v.row[p.first + members[t]];
    if (threadIdx.x == 0) *set.count = int(p.members = size);
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
