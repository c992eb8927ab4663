// The inner solver: the dual problem on a working set whose kernel block is at hand.
//
//     min over beta   1/2 beta'K beta + sum h_i(beta_i)     other variables fixed, their part held in the scores
//
// With up_i = -f_i - h_i'(beta_i from the right) and low_i = -f_i - h_i'(beta_i from the left), a step that raises beta_i
// gains at the rate up_i and one that lowers it at the rate -low_i. `descend` takes the single step of largest decrease;
// `swap` keeps the sum of beta: it raises i = argmax up and lowers the j of largest second-order decrease. The kernel rows
// of the changed variables update all scores, and the same pass finds the next candidate.
#pragma once
#include <initializer_list>

#include "isa.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

// Largest value seen in each lane, and where.
template <class T>
struct Largest {
    Vec<T> value = splat(T(-kInfinity));
    IVec<T> where = IVec<T>{} - 1;
    MARGRAVE_INLINE void see(Vec<T> v, IVec<T> at) {
        const auto better = v > value;
        value = better ? v : value;
        where = better ? at : where;
    }
    MARGRAVE_INLINE int index(T& best) const {  // ties: the lowest index
        best = value[0];
        typename Simd<T>::Int at = where[0];
        for (int j = 1; j < Simd<T>::width; ++j)
            if (value[j] > best || (value[j] == best && where[j] < at)) best = value[j], at = where[j];
        return int(at);
    }
};

template <class T>
MARGRAVE_INLINE IVec<T> iota() {
    IVec<T> v;
    for (int j = 0; j < Simd<T>::width; ++j) v[j] = j;
    return v;
}

template <class T, class L>
struct InnerSolver {
    static constexpr int W = Simd<T>::width;
    Inner<T>& p;
    const L& loss;
    T *minus_f, *right, *left, *curvature, *room_up, *room_down;
    int padded;

    InnerSolver(Inner<T>& inner, const L& l) : p(inner), loss(l), padded((inner.size + W - 1) / W * W) {
        T* array = p.scratch;
        for (T** a : {&minus_f, &right, &left, &curvature, &room_up, &room_down}) *a = array, array += p.leading;
        for (int i = 0; i < padded; ++i) {
            const bool real = i < p.size;
            minus_f[i] = real ? T(-p.scores[i]) : T(0);
            curvature[i] = real ? T(p.diagonal[i] + loss.curvature(p.y[i], p.C[i], p.y[i] > 0)) : T(1);
            if (real) moved(i);
            else right[i] = T(kInfinity), left[i] = T(-kInfinity), room_up[i] = room_down[i] = 0;
        }
    }

    // The derivatives and the room of a variable that took a new value.
    MARGRAVE_INLINE void moved(int i) {
        const double beta = p.beta[i];
        right[i] = beta < p.hi[i] ? T(loss.right(p.y[i], p.C[i], beta)) : T(kInfinity);
        left[i] = beta > p.lo[i] ? T(loss.left(p.y[i], p.C[i], beta)) : T(-kInfinity);
        room_up[i] = T(p.hi[i] - beta);
        room_down[i] = T(beta - p.lo[i]);
    }

    MARGRAVE_INLINE const T* row(int i) const { return p.kernel + i * p.leading; }

    std::int64_t descend() {
        std::int64_t steps = 0;
        double change = 0;
        const T* changed = row(0);
        for (;; ++steps) {
            Largest<T> gain;
            Vec<T> worst{};
            const Vec<T> by = splat(T(change));
            IVec<T> at = iota<T>();
            for (int j = 0; j < padded; j += W, at += W) {
                const Vec<T> g = load(minus_f + j) - by * load(changed + j);
                store(minus_f + j, g);
                const Vec<T> up = g - load(right + j), down = load(left + j) - g;
                const auto upward = up >= down;
                const Vec<T> rate = upward ? up : down, room = upward ? load(room_up + j) : load(room_down + j);
                const Vec<T> k = load(curvature + j), full = rate / k;
                const Vec<T> s = full < room ? full : room;
                gain.see(rate > 0 ? s * (rate - k * s * T(0.5)) : Vec<T>{} - 1, at);
                worst = rate > worst ? rate : worst;
            }
            T best, violation = 0;
            const int i = gain.index(best);
            for (int j = 0; j < W; ++j) violation = worst[j] > violation ? worst[j] : violation;
            if (steps >= p.max_steps || !(best > 0) || !(violation > p.tolerance)) return steps;
            const double before = p.beta[i];
            p.beta[i] = one_step(loss, p.y[i], p.C[i], before, -double(minus_f[i]), p.diagonal[i]);
            change = p.beta[i] - before;
            changed = row(i);
            if (change != 0) moved(i);
            else right[i] = T(kInfinity), left[i] = T(-kInfinity);  // below its resolution: leave it alone
        }
    }

    std::int64_t swap() {
        std::int64_t steps = 0;
        double change = 0;
        const T *raised = row(0), *lowered = row(0);
        for (;; ++steps) {
            Largest<T> highest;
            Vec<T> lowest = splat(T(kInfinity));
            const Vec<T> by = splat(T(change));
            IVec<T> at = iota<T>();
            for (int j = 0; j < padded; j += W, at += W) {
                const Vec<T> g = load(minus_f + j) - by * (load(raised + j) - load(lowered + j));
                store(minus_f + j, g);
                const Vec<T> low = g - load(left + j);
                highest.see(g - load(right + j), at);
                lowest = low < lowest ? low : lowest;
            }
            T top, bottom = lowest[0];
            const int i = highest.index(top);
            for (int j = 1; j < W; ++j) bottom = lowest[j] < bottom ? lowest[j] : bottom;
            if (steps >= p.max_steps || !(top - bottom > p.tolerance)) return steps;

            Largest<T> gain;
            const T* k_i = row(i);
            at = iota<T>();
            for (int j = 0; j < padded; j += W, at += W) {
                const Vec<T> rate = top - (load(minus_f + j) - load(left + j));
                const Vec<T> eta = curvature[i] + load(curvature + j) - 2 * load(k_i + j);
                gain.see(rate > 0 ? rate * rate / (eta > T(1e-12) ? eta : splat(T(1e-12))) : Vec<T>{} - 1, at);
            }
            T best;
            const int j = gain.index(best);
            if (!(best > 0)) return steps;
            const double eta = p.diagonal[i] + p.diagonal[j] - 2 * double(k_i[j]);
            const double slope = (double(minus_f[j]) - left[j]) - (double(minus_f[i]) - right[i]);
            const double room_i = p.hi[i] - p.beta[i], room_j = p.beta[j] - p.lo[j];
            const Mover movers[] = {{p.y[i], p.C[i], p.beta[i], 1}, {p.y[j], p.C[j], p.beta[j], -1}};
            change = line_minimum(loss, slope, eta > 1e-12 ? eta : 1e-12, room_i < room_j ? room_i : room_j, movers);
            if (!(change > 0) || (p.beta[i] + change == p.beta[i] && p.beta[j] - change == p.beta[j])) {
                right[i] = T(kInfinity), left[j] = T(-kInfinity);  // below their resolution: leave them alone
                change = 0;
                continue;
            }
            if constexpr (!L::quadratic) {
                // The choice knows only the least curvature. Against the steep wall near a bound the step is next to nothing,
                // and two such variables would pass it to and fro for ever: leave the steeper one alone.
                if (-change * slope < p.negligible) {
                    if (loss.steepness(p.C[i], p.y[i] * p.beta[i]) > loss.steepness(p.C[j], p.y[j] * p.beta[j])) right[i] = T(kInfinity);
                    else left[j] = T(-kInfinity);
                    change = 0;
                    continue;
                }
            }
            p.beta[i] = change < room_i ? p.beta[i] + change : p.hi[i];
            p.beta[j] = change < room_j ? p.beta[j] - change : p.lo[j];
            raised = k_i;
            lowered = row(j);
            moved(i);
            moved(j);
        }
    }
};

template <class T>
std::int64_t solve_inner(const LossParams& params, bool pairs, Inner<T>& inner) {
    std::int64_t steps = 0;
    Losses::visit(params, [&](auto loss) {
        InnerSolver<T, decltype(loss)> solver(inner, loss);
        steps = pairs ? solver.swap() : solver.descend();
    });
    return steps;
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
