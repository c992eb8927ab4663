// The inner solver: the dual problem on a working set whose kernel block is at hand.
//
//     min over beta   1/2 beta'K beta + sum h_i(beta_i)
//
// All other variables are fixed; their contribution is part of the scores. With
//
//     up_i = -f_i - h_i'(beta_i from the right),   low_i = -f_i - h_i'(beta_i from the left)
//
// raising beta_i decreases the objective at the rate up_i, lowering it at the rate -low_i.
// `descend` takes the single step of largest decrease. `swap` keeps the sum of beta: it raises i =
// argmax up and lowers the j of largest second-order decrease; where rows have two sides, both i
// and j are on the side of larger max up - min low. The kernel rows of the changed variables update
// all scores, and the same pass finds the next candidate.
#pragma once
#include <initializer_list>

#include "exact_step.hpp"
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
            if (value[j] > best || (value[j] == best && where[j] < at)) {
                best = value[j];
                at = where[j];
            }
        return int(at);
    }
};

template <class T>
MARGRAVE_INLINE IVec<T> iota() {
    IVec<T> v;
    for (int j = 0; j < Simd<T>::width; ++j) v[j] = j;
    return v;
}

// Least curvature of a swap, as a share of both rows' kernel values with themselves: equal rows
// have none. Where these are zero too, it is the least number with a reciprocal.
constexpr double kFlat = 1e-12;
template <class T>
constexpr T kTiny = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

template <class T, class L>
struct InnerSolver {
    static constexpr int W = Simd<T>::width;
    static constexpr int kSides = 1 + L::sides;

    Inner<T>& p;
    const L& loss;
    T *minus_f, *right_derivative, *left_derivative, *curvature, *room_up, *room_down, *side;
    int padded;

    InnerSolver(Inner<T>& inner, const L& l)
        : p(inner), loss(l), padded((inner.size + W - 1) / W * W) {
        T* array = p.scratch;
        for (T** a : {&minus_f, &right_derivative, &left_derivative, &curvature, &room_up,
                      &room_down, &side}) {
            *a = array;
            array += p.leading;
        }
        for (int i = 0; i < p.size; ++i) {
            minus_f[i] = T(-p.scores[i]);
            curvature[i] = T(p.diagonal[i] + loss.curvature(p.y[i], p.C[i], p.y[i] > 0));
            side[i] = p.y[i] < 0;
            moved(i);
        }
        for (int i = p.size; i < padded; ++i) {
            minus_f[i] = 0;
            curvature[i] = 1;
            side[i] = 0;
            room_up[i] = 0;
            room_down[i] = 0;
            never_raise(i);
            never_lower(i);
        }
    }

    // Updates the derivatives and the room of a variable that has a new value.
    MARGRAVE_INLINE void moved(int i) {
        const double beta = p.beta[i];
        right_derivative[i] =
            beta < p.hi[i] ? T(loss.right_derivative(p.y[i], p.C[i], beta)) : T(kInfinity);
        left_derivative[i] =
            beta > p.lo[i] ? T(loss.left_derivative(p.y[i], p.C[i], beta)) : T(-kInfinity);
        room_up[i] = T(p.hi[i] - beta);
        room_down[i] = T(beta - p.lo[i]);
    }

    // Until the variable moves again.
    MARGRAVE_INLINE void never_raise(int i) { right_derivative[i] = T(kInfinity); }
    MARGRAVE_INLINE void never_lower(int i) { left_derivative[i] = T(-kInfinity); }

    MARGRAVE_INLINE const T* row(int i) const { return p.kernel + i * p.leading; }

    // One variable at a time.
    std::int64_t descend() {
        double change = 0;
        const T* changed = row(0);
        for (std::int64_t steps = 0;; ++steps) {
            const Single next = update_and_choose(change, changed);
            if (steps >= p.max_steps || !(next.gain > 0) || !(next.violation > p.tolerance) ||
                is_over(steps))
                return steps;
            const int i = next.i;
            const double before = p.beta[i];
            p.beta[i] = one_step(loss, p.y[i], p.C[i], before, -double(minus_f[i]), p.diagonal[i]);
            change = p.beta[i] - before;
            changed = row(i);
            if (change != 0) {
                moved(i);
            } else {  // the step is lost in rounding
                never_raise(i);
                never_lower(i);
            }
        }
    }

    // Two variables at a time, with their sum kept.
    std::int64_t swap() {
        Swap last{0, row(0), row(0)};
        for (std::int64_t steps = 0;; ++steps) {
            const Raised raised = update_and_choose_raised(last);
            if (steps >= p.max_steps || !(raised.violation > p.tolerance) || is_over(steps))
                return steps;
            const int lowered = choose_lowered(raised);
            if (lowered < 0) return steps;
            last = {move_pair(raised.i, lowered), row(raised.i), row(lowered)};
        }
    }

  private:
    struct Single {
        int i;
        T gain;       // its decrease of the objective
        T violation;  // the largest of all
    };
    // The variable to raise.
    struct Raised {
        int i;
        int side;
        T up;
        T violation;  // max up - min low on its side
    };
    // A step that raised one variable by `change` and lowered another: their kernel rows.
    struct Swap {
        double change;
        const T* raised;
        const T* lowered;
    };

    // Every few milliseconds: whether to stop.
    MARGRAVE_INLINE bool is_over(std::int64_t steps) const {
        return steps % 1024 == 1023 && p.is_over(p.watch);
    }

    // Adds the last step to the scores and finds the single step of largest decrease.
    MARGRAVE_INLINE Single update_and_choose(double change, const T* changed) {
        Largest<T> gain;
        Vec<T> worst{};
        const Vec<T> by = splat(T(change));
        IVec<T> at = iota<T>();
        for (int j = 0; j < padded; j += W, at += W) {
            const Vec<T> g = load(minus_f + j) - by * load(changed + j);
            store(minus_f + j, g);
            const Vec<T> up = g - load(right_derivative + j);
            const Vec<T> down = load(left_derivative + j) - g;
            const auto upward = up >= down;
            const Vec<T> rate = upward ? up : down;
            const Vec<T> room = upward ? load(room_up + j) : load(room_down + j);
            const Vec<T> k = load(curvature + j);
            const Vec<T> full = rate / k;
            const Vec<T> s = full < room ? full : room;
            gain.see(rate > 0 ? s * (rate - k * s * T(0.5)) : Vec<T>{} - 1, at);
            worst = rate > worst ? rate : worst;
        }
        Single found;
        found.i = gain.index(found.gain);
        found.violation = 0;
        for (int j = 0; j < W; ++j)
            found.violation = worst[j] > found.violation ? worst[j] : found.violation;
        return found;
    }

    // Adds the last step to the scores and finds i = argmax up, on the side of larger violation.
    MARGRAVE_INLINE Raised update_and_choose_raised(const Swap& last) {
        Largest<T> highest[kSides];
        Vec<T> lowest[kSides];
        for (int s = 0; s < kSides; ++s) lowest[s] = splat(T(kInfinity));
        const Vec<T> by = splat(T(last.change));
        IVec<T> at = iota<T>();
        for (int j = 0; j < padded; j += W, at += W) {
            const Vec<T> difference = load(last.raised + j) - load(last.lowered + j);
            const Vec<T> g = load(minus_f + j) - by * difference;
            store(minus_f + j, g);
            const Vec<T> up = g - load(right_derivative + j);
            const Vec<T> low = g - load(left_derivative + j);
            if constexpr (kSides == 1) {
                highest[0].see(up, at);
                lowest[0] = low < lowest[0] ? low : lowest[0];
            } else {
                const auto other = load(side + j) > 0;
                const Vec<T> none = splat(T(kInfinity));
                const Vec<T> low_0 = other ? none : low;
                const Vec<T> low_1 = other ? low : none;
                highest[0].see(other ? -none : up, at);
                highest[1].see(other ? up : -none, at);
                lowest[0] = low_0 < lowest[0] ? low_0 : lowest[0];
                lowest[1] = low_1 < lowest[1] ? low_1 : lowest[1];
            }
        }
        Raised best{-1, 0, 0, T(-kInfinity)};
        for (int s = 0; s < kSides; ++s) {
            T up;
            const int i = highest[s].index(up);
            T low = lowest[s][0];
            for (int j = 1; j < W; ++j) low = lowest[s][j] < low ? lowest[s][j] : low;
            if (s == 0 || up - low > best.violation) best = {i, s, up, up - low};
        }
        return best;
    }

    // The j whose lowering, together with the raising of i, decreases the objective most to second
    // order; -1 if none does.
    MARGRAVE_INLINE int choose_lowered(const Raised& raised) const {
        Largest<T> gain;
        const T* k_i = row(raised.i);
        const T curvature_i = curvature[raised.i];
        const Vec<T> same = splat(T(raised.side));
        IVec<T> at = iota<T>();
        for (int j = 0; j < padded; j += W, at += W) {
            Vec<T> rate = raised.up - (load(minus_f + j) - load(left_derivative + j));
            if constexpr (kSides == 2) rate = load(side + j) == same ? rate : Vec<T>{};
            const Vec<T> sum = curvature_i + load(curvature + j);
            const Vec<T> eta = sum - 2 * load(k_i + j);
            const Vec<T> least = sum * T(kFlat) + kTiny<T>;
            gain.see(rate > 0 ? rate * rate / (eta > least ? eta : least) : Vec<T>{} - 1, at);
        }
        T best;
        const int j = gain.index(best);
        return best > 0 ? j : -1;
    }

    // Raises i and lowers j by the exact minimiser, which is returned; zero if they stay.
    MARGRAVE_INLINE double move_pair(int i, int j) {
        const double sum = p.diagonal[i] + p.diagonal[j];
        const double flat = kFlat * sum + double(kTiny<T>);
        const double eta = std::max(sum - 2 * double(row(i)[j]), flat);
        const double slope =
            (double(minus_f[j]) - left_derivative[j]) - (double(minus_f[i]) - right_derivative[i]);
        const double room_i = p.hi[i] - p.beta[i];
        const double room_j = p.beta[j] - p.lo[j];
        const Mover movers[] = {{p.y[i], p.C[i], p.beta[i], 1}, {p.y[j], p.C[j], p.beta[j], -1}};
        const double change =
            line_minimum(loss, slope, eta, room_i < room_j ? room_i : room_j, movers);
        const bool lost = p.beta[i] + change == p.beta[i] && p.beta[j] - change == p.beta[j];
        if (!(change > 0) || lost) {  // lost in rounding
            never_raise(i);
            never_lower(j);
            return 0;
        }
        if constexpr (!L::quadratic) {
            if (-change * slope < p.negligible) {
                leave_steeper(i, j);
                return 0;
            }
        }
        p.beta[i] = change < room_i ? p.beta[i] + change : p.hi[i];
        p.beta[j] = change < room_j ? p.beta[j] - change : p.lo[j];
        moved(i);
        moved(j);
        return change;
    }

    // j was chosen by its least curvature. Near a bound h is so steep that the step is
    // negligible, and two such variables would exchange it forever: the steeper one stays fixed.
    MARGRAVE_INLINE void leave_steeper(int i, int j) {
        const double steepness_i = loss.steepness(p.C[i], p.y[i] * p.beta[i]);
        const double steepness_j = loss.steepness(p.C[j], p.y[j] * p.beta[j]);
        if (steepness_i > steepness_j)
            never_raise(i);
        else
            never_lower(j);
    }
};

template <class T>
std::int64_t solve_inner(const LossParams& params, bool has_free_intercept, Inner<T>& inner) {
    std::int64_t steps = 0;
    Losses::visit(params, [&](auto loss) {
        InnerSolver<T, decltype(loss)> solver(inner, loss);
        steps = has_free_intercept ? solver.swap() : solver.descend();
    });
    return steps;
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
