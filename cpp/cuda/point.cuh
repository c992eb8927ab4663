// A point of the dual of one or many problems on a graphics card, and what is computed from it:
// see dual_point.hpp. Numbers of all rows are found by chunks of rows (blockIdx.x) of each problem
// (blockIdx.y), then one thread block per problem combines them.
#pragma once
#include "cuda/block.cuh"
#include "root.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

constexpr int kChunk = 1024;  // rows

enum Ended : long long { kRunning, kConverged, kStalled };

// One problem: its rows, what is given, and its figures; a working set takes at most `most_steps`
// per variable, and the problem is solved when its gap is at most `target`,
// or its violation `enough`. Python has the same list of fields.
struct Part {
    long long first, count, capacity, most_steps;
    double sums[2], scale, fixed_dual, fixed_gap, target, enough;
    double top[2], bottom[2], middle[2], bias[2];
    double violation, primal, dual, gap, own_gap, negligible, inner_share;
    long long support, steps, rounds, values, members, status;
};

// A number for each row of all problems.
struct Variables {
    const int* row;  // of the data
    const double *y, *C, *shift;
    double *beta, *scores;
    unsigned char* inside;  // whether it is in the working set
    float* key;             // its KKT violation, as a share of the largest; negative if to be lowered
};

template <class L>
struct Point {
    const L loss;
    const Variables& v;
    const Part& part;

    __device__ int side(long long i) const { return L::sides && v.y[i] < 0; }
    __device__ double shift(long long i) const { return v.shift ? v.shift[i] : 0.0; }
    __device__ double right(long long i) const {
        const double y = v.y[i], C = v.C[i], beta = v.beta[i];
        return beta < loss.hi(y, C) ? loss.right_derivative(y, C, beta) : kInfinity;
    }
    __device__ double left(long long i) const {
        const double y = v.y[i], C = v.C[i], beta = v.beta[i];
        return beta > loss.lo(y, C) ? loss.left_derivative(y, C, beta) : -kInfinity;
    }
    __device__ double gap(long long i, double bias) const {
        return loss.gap(v.y[i], v.C[i], v.beta[i], v.scores[i] + bias);
    }
    // Whether a violation is worth a step: near a bound h' may be unbounded.
    __device__ bool counts(long long i) const {
        return L::quadratic || gap(i, part.middle[0]) > part.negligible;
    }
    __device__ double rise(long long i) const {
        return -v.scores[i] - right(i) - part.middle[side(i)];
    }
    __device__ double fall(long long i) const {
        return part.middle[side(i)] + v.scores[i] + left(i);
    }
};

// The largest up and the smallest low of a chunk, for each side.
template <class L>
__device__ void find_extremes(const Point<L>& at, double* found, int chunks) {
    double top[2] = {-kInfinity, -kInfinity};
    double bottom[2] = {kInfinity, kInfinity};
    const Part& p = at.part;
    const long long end = min(p.count, (blockIdx.x + 1LL) * kChunk);
    for (long long t = blockIdx.x * kChunk + threadIdx.x; t < end; t += blockDim.x) {
        const long long i = p.first + t;
        if (!at.counts(i)) continue;
        const int s = at.side(i);
        top[s] = fmax(top[s], -at.v.scores[i] - at.right(i));
        bottom[s] = fmin(bottom[s], -at.v.scores[i] - at.left(i));
    }
    double* to = found + (std::int64_t(blockIdx.y) * chunks + blockIdx.x) * 4;
    for (int s = 0; s < 2; ++s) {
        top[s] = largest(top[s]);
        bottom[s] = smallest(bottom[s]);
        if (threadIdx.x == 0) {
            to[2 * s] = top[s];
            to[2 * s + 1] = bottom[s];
        }
    }
}

// The violation, and for parabolas the bias in the middle, from the extremes of all chunks.
template <class L>
__device__ void settle(Part& p, const double* found, int chunks, bool has_free_intercept) {
    double top[2] = {-kInfinity, -kInfinity};
    double bottom[2] = {kInfinity, kInfinity};
    const int mine = int((p.count + kChunk - 1) / kChunk);
    const double* from = found + std::int64_t(blockIdx.x) * chunks * 4;
    for (int c = threadIdx.x; c < mine; c += blockDim.x)
        for (int s = 0; s < 2; ++s) {
            top[s] = fmax(top[s], from[4 * c + 2 * s]);
            bottom[s] = fmin(bottom[s], from[4 * c + 2 * s + 1]);
        }
    for (int s = 0; s < 2; ++s) {
        top[s] = largest(top[s]);
        bottom[s] = smallest(bottom[s]);
    }
    if (threadIdx.x) return;
    for (int s = 0; s < 2; ++s) {
        p.top[s] = top[s];
        p.bottom[s] = bottom[s];
    }
    if (!has_free_intercept) {
        p.violation = fmax(0.0, fmax(top[0], -bottom[0]));
        for (int s = 0; s < 2; ++s) p.middle[s] = p.bias[s] = 0;
        return;
    }
    p.violation = top[0] - bottom[0];
    if (L::sides) p.violation = fmax(p.violation, top[1] - bottom[1]);
    if (!L::quadratic) return;
    for (int s = 0; s <= int(L::sides); ++s)
        p.middle[s] = p.bias[s] = top[s] == -kInfinity      ? bottom[s]
                                  : bottom[s] == kInfinity ? top[s]
                                                           : (top[s] + bottom[s]) / 2;
}

// Gap terms, dual value and support of a chunk, and the rows' violations.
template <class L>
__device__ void sum_up(const Point<L>& at, double* found, int chunks) {
    double gap = 0;
    double dual = 0;
    double support = 0;
    const Part& p = at.part;
    const Variables& v = at.v;
    const double largest_violation = p.violation > 0 ? p.violation : 1.0;
    const long long end = min(p.count, (blockIdx.x + 1LL) * kChunk);
    for (long long t = blockIdx.x * kChunk + threadIdx.x; t < end; t += blockDim.x) {
        const long long i = p.first + t;
        gap += at.gap(i, p.bias[at.side(i)]);
        dual += 0.5 * v.beta[i] * (v.scores[i] + at.shift(i)) +
                at.loss.h(v.y[i], v.C[i], v.beta[i]);
        support += v.beta[i] != 0;
        double key = 0;
        // with too few places to balance old against new, the worst of all are taken
        if (!(v.inside[i] && p.capacity >= 8) && at.counts(i)) {
            const double rise = at.rise(i);
            const double fall = at.fall(i);
            key = rise > 0 && rise >= fall ? rise : fall > 0 ? -fall : 0.0;
        }
        v.key[i] = float(key / largest_violation);
    }
    double* to = found + (std::int64_t(blockIdx.y) * chunks + blockIdx.x) * 4;
    gap = total(gap);
    dual = total(dual);
    support = total(support);
    if (threadIdx.x == 0) {
        to[0] = gap;
        to[1] = dual;
        to[2] = support;
    }
}

// Primal and dual value and the gap from the sums of all chunks, and whether the problem is solved.
__device__ inline void conclude(Part& p, const double* found, int chunks) {
    double gap = 0;
    double dual = 0;
    double support = 0;
    const int mine = int((p.count + kChunk - 1) / kChunk);
    const double* from = found + std::int64_t(blockIdx.x) * chunks * 4;
    for (int c = threadIdx.x; c < mine; c += blockDim.x) {
        gap += from[4 * c];
        dual += from[4 * c + 1];
        support += from[4 * c + 2];
    }
    gap = total(gap);
    dual = total(dual) + p.fixed_dual;
    support = total(support);
    if (threadIdx.x) return;
    p.dual = dual;
    p.primal = gap + p.fixed_gap - dual;
    const double scale = fmax(fmax(fabs(p.primal), fabs(dual)), fmax(p.scale, 1e-300));
    p.own_gap = gap / scale;
    p.gap = (gap + p.fixed_gap) / scale;
    p.support = (long long)(support);
    p.negligible =
        1e-3 * p.target * fmax(fabs(p.primal), fabs(p.dual)) / double(p.count);
    if (p.status == kRunning) {
        if (p.own_gap <= p.target || (p.enough > 0 && p.violation <= p.enough))
            p.status = kConverged;
        else if (!(p.violation > 0))
            p.status = kStalled;
    }
}

// The bias that minimises b sum beta + sum C loss(f + b), by one thread block per problem.
template <class L>
__device__ void find_best_bias(const Point<L>& at, Part& p) {
    for (int s = 0; s <= int(L::sides); ++s) {
        const auto slope = [&](double b) {
            double sum = 0;
#pragma unroll 8
            for (long long i = p.first + threadIdx.x; i < p.first + p.count; i += blockDim.x)
                if (at.side(i) == s) sum += at.loss.slope(at.v.y[i], at.v.C[i], at.v.scores[i] + b);
            return p.sums[s] + total(sum);
        };
        const double spread = fabs(p.top[s] - p.bottom[s]);
        const double width = L::quadratic && spread < kInfinity ? fmax(1e-3, spread) : 1.0;
        const double from = p.bias[s];
        const auto bracket = root_bracket(slope, from, width, !L::quadratic);
        const double trials[] = {from, bracket.first, bracket.second};
        double best = kInfinity;
        double chosen = from;
        for (double b : trials) {
            double gap = 0;
#pragma unroll 8
            for (long long i = p.first + threadIdx.x; i < p.first + p.count; i += blockDim.x)
                if (at.side(i) == s) gap += at.gap(i, b);
            gap = total(gap);
            if (gap < best) {
                best = gap;
                chosen = b;
            }
        }
        __syncthreads();  // all have read the bias
        if (threadIdx.x == 0) {
            p.bias[s] = chosen;
            if (!L::quadratic) p.middle[s] = chosen;
        }
        __syncthreads();
    }
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
