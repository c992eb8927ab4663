// The inner solver: the dual problem on a working set whose kernel block is at hand.
//
//     min over beta   1/2 beta'K beta + sum h_i(beta_i)     other variables fixed, their part held in the scores
//
// With up_i = -f_i - h_i'(beta_i from the right) and low_i = -f_i - h_i'(beta_i from the left), a step that raises beta_i
// gains at the rate up_i and one that lowers it at the rate -low_i. `descend` takes the single step of largest decrease;
// `swap` keeps the sum of beta: it raises i = argmax up and lowers the j of largest second-order decrease. Where rows have two
// sides, i and j are on the side of larger max up - min low. The kernel rows of the changed variables update all scores, and
// the same pass finds the next candidate.
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

// Least curvature of a swap, as a share of both rows' kernel values with themselves: equal rows have none. Where these are zero
// too, it is the least number with a reciprocal.
constexpr double kFlat = 1e-12;
template <class T>
constexpr T kTiny = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

template <class T, class L>
struct InnerSolver {
    static constexpr int W = Simd<T>::width;
    Inner<T>& p;
    const L& loss;
    T *minus_f, *right, *left, *curvature, *room_up, *room_down, *side;
    int padded;

    InnerSolver(Inner<T>& inner, const L& l) : p(inner), loss(l), padded((inner.size + W - 1) / W * W) {
        T* array = p.scratch;
        for (T** a : {&minus_f, &right, &left, &curvature, &room_up, &room_down, &side}) *a = array, array += p.leading;
        for (int i = 0; i < padded; ++i) {
            const bool real = i < p.size;
            minus_f[i] = real ? T(-p.scores[i]) : T(0);
            curvature[i] = real ? T(p.diagonal[i] + loss.curvature(p.y[i], p.C[i], p.y[i] > 0)) : T(1);
            side[i] = real && p.y[i] < 0;
            if (real) moved(i);
            else right[i] = T(kInfinity), left[i] = T(-kInfinity), room_up[i] = room_down[i] = 0;
        }
    }

    // The derivatives and the room of a variable that took a new value.
    MARGRAVE_INLINE void moved(int i) {
        const double beta = p.beta[i];
        right[i] = beta < p.hi[i] ? T(loss.right_derivative(p.y[i], p.C[i], beta)) : T(kInfinity);
        left[i] = beta > p.lo[i] ? T(loss.left_derivative(p.y[i], p.C[i], beta)) : T(-kInfinity);
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
        constexpr int sides = 1 + L::sides;
        std::int64_t steps = 0;
        double change = 0;
        const T *raised = row(0), *lowered = row(0);
        for (;; ++steps) {
            Largest<T> highest[sides];
            Vec<T> lowest[sides];
            for (int s = 0; s < sides; ++s) lowest[s] = splat(T(kInfinity));
            const Vec<T> by = splat(T(change));
            IVec<T> at = iota<T>();
            for (int j = 0; j < padded; j += W, at += W) {
                const Vec<T> g = load(minus_f + j) - by * (load(raised + j) - load(lowered + j));
                store(minus_f + j, g);
                const Vec<T> up = g - load(right + j), low = g - load(left + j);
                if constexpr (sides == 1) {
                    highest[0].see(up, at);
                    lowest[0] = low < lowest[0] ? low : lowest[0];
                } else {
                    const auto other = load(side + j) > 0;
                    const Vec<T> none = splat(T(kInfinity)), low_0 = other ? none : low, low_1 = other ? low : none;
                    highest[0].see(other ? -none : up, at);
                    highest[1].see(other ? up : -none, at);
                    lowest[0] = low_0 < lowest[0] ? low_0 : lowest[0];
                    lowest[1] = low_1 < lowest[1] ? low_1 : lowest[1];
                }
            }
            T top = 0, violation = T(-kInfinity);
            int i = -1, on = 0;
            for (int s = 0; s < sides; ++s) {
                T most, bottom = lowest[s][0];
                const int where = highest[s].index(most);
                for (int j = 1; j < W; ++j) bottom = lowest[s][j] < bottom ? lowest[s][j] : bottom;
                if (s == 0 || most - bottom > violation) violation = most - bottom, top = most, i = where, on = s;
            }
            if (steps >= p.max_steps || !(violation > p.tolerance)) return steps;

            Largest<T> gain;
            const T* k_i = row(i);
            const Vec<T> same = splat(T(on));
            at = iota<T>();
            for (int j = 0; j < padded; j += W, at += W) {
                Vec<T> rate = top - (load(minus_f + j) - load(left + j));
                if constexpr (sides == 2) rate = load(side + j) == same ? rate : Vec<T>{};
                const Vec<T> sum = curvature[i] + load(curvature + j), eta = sum - 2 * load(k_i + j), least = sum * T(kFlat) + kTiny<T>;
                gain.see(rate > 0 ? rate * rate / (eta > least ? eta : least) : Vec<T>{} - 1, at);
            }
            T best;
            const int j = gain.index(best);
            if (!(best > 0)) return steps;
            const double sum = p.diagonal[i] + p.diagonal[j], eta = std::max(sum - 2 * double(k_i[j]), kFlat * sum + double(kTiny<T>));
            const double slope = (double(minus_f[j]) - left[j]) - (double(minus_f[i]) - right[i]);
            const double room_i = p.hi[i] - p.beta[i], room_j = p.beta[j] - p.lo[j];
            const Mover movers[] = {{p.y[i], p.C[i], p.beta[i], 1}, {p.y[j], p.C[j], p.beta[j], -1}};
            change = line_minimum(loss, slope, eta, room_i < room_j ? room_i : room_j, movers);
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
