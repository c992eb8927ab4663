// The inner solver on a graphics card (see inner.hpp): one thread block per working set, a few
// variables per thread, in registers; the kernel block lies in memory.
#pragma once
#include "cuda/choose.cuh"
#include "exact_step.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

// Least curvature of a swap, as a share of both rows' kernel values with themselves.
constexpr double kFlat = 1e-12;
template <class T>
constexpr T kTiny = T(sizeof(T) == 4 ? 1e-30 : 1e-290);

// A quotient to compare with others: it may be rounded coarsely.
__device__ inline float ratio(float a, float b) { return __fdividef(a, b); }
__device__ inline double ratio(double a, double b) { return a / b; }

// Without branches, so that a thread fetches the kernel values of all its variables at once.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

// The variables of a working set that changed: rows of the data, and by how much.
template <class T>
struct Changes {
    int* rows;
    T* coef;
    int* count;
};

template <class L, class T, int V>
class SetSolver {
    static constexpr int kSides = 1 + int(L::sides);

  public:
    // What is given of each variable of the set, side by side.
    struct Given {
        double *y, *C;
        T *diagonal, *curvature;
    };
    struct Moved {
        double y, C, beta, lo, hi, diagonal, minus_f, derivative;
    };
    struct Shared {
        Contest<T, 2 * kSides> first;
        Contest<T, 1> second;
        Moved raised;
        double change;
        int verdict;
        int counts[32];
    };

    __device__ SetSolver(const L& loss, const Variables& v, Part& part, const int* members,
                         const T* kernel, int leading, Shared& shared, const Given& given)
        : loss_(loss),
          v_(v),
          p_(part),
          members_(members),
          kernel_(kernel),
          leading_(leading),
          size_(int(part.members)),
          tolerance_(T(part.inner_share * part.violation)),
          most_(part.most_steps * part.members),
          s_(shared),
          given_(given) {
        for (int i = threadIdx.x; i < size_; i += blockDim.x) {
            const long long row = p_.first + members_[i];
            given_.y[i] = v_.y[row];
            given_.C[i] = v_.C[row];
            given_.diagonal[i] = value(i, i);
            given_.curvature[i] = T(given_.diagonal[i] +
                                    loss_.curvature(given_.y[i], given_.C[i], given_.y[i] > 0));
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const int i = place(k);
            beta_[k] = 0;
            minus_f_[k] = 0;
            side_[k] = 0;
            right_[k] = T(kInfinity);  // without a variable: it never moves
            left_[k] = T(-kInfinity);
            curvature_[k] = 1;
            room_up_[k] = 0;
            room_down_[k] = 0;
            if (i >= size_) continue;
            const long long row = p_.first + members_[i];
            beta_[k] = v_.beta[row];
            minus_f_[k] = T(-v_.scores[row]);
            side_[k] = given_.y[i] < 0;
            curvature_[k] = given_.curvature[i];
            moved(k);
        }
    }

    // One variable at a time.
    __device__ long long descend() {
        T by = 0;
        int changed = 0;
        int turn = 0;
        for (long long steps = 0;; ++steps) {
            Best<T> best[2 * kSides];  // the decrease of the objective, and the violation
            T row[V];
            load_row(changed, row);
#pragma unroll
            for (int k = 0; k < V; ++k) {
                const int i = place(k);
                minus_f_[k] = fma(-by, row[k], minus_f_[k]);
                const T up = minus_f_[k] - right_[k];
                const T down = left_[k] - minus_f_[k];
                const T rate = larger(up >= down ? up : down, T(0));
                const T room = up >= down ? room_up_[k] : room_down_[k];
                const T full = ratio(rate, curvature_[k]);
                const T s = full < room ? full : room;
                best[0].see_next(s * (rate - curvature_[k] * s * T(0.5)), i);
                best[1].see_next(rate, i);
            }
            decide(s_.first, best, turn);
            if (steps >= most_ || !(best[0].value > 0) || !(best[1].value > tolerance_))
                return steps;
            changed = best[0].at;
#pragma unroll
            for (int k = 0; k < V; ++k) {
                if (place(k) != changed) continue;
                const double before = beta_[k];
                beta_[k] = one_step(loss_, given_.y[changed], given_.C[changed], before,
                                    -double(minus_f_[k]), given_.diagonal[changed]);
                s_.change = beta_[k] - before;
                if (beta_[k] != before) {
                    moved(k);
                } else {  // the step is lost in rounding
                    right_[k] = T(kInfinity);
                    left_[k] = T(-kInfinity);
                }
            }
            __syncthreads();
            by = T(s_.change);
        }
    }

    // Two variables at a time, with their sum kept.
    __device__ long long swap() {
        T by = 0;
        T raised_row[V] = {};
        T lowered_row[V] = {};
        int turn = 0;
        int second_turn = 0;
        for (long long steps = 0;; ++steps) {
            Best<T> best[2 * kSides];  // for each side, up to raise, and minus the smallest low
#pragma unroll
            for (int k = 0; k < V; ++k) {
                const int i = place(k);
                minus_f_[k] = fma(-by, raised_row[k] - lowered_row[k], minus_f_[k]);
#pragma unroll
                for (int s = 0; s < kSides; ++s)
                    if (kSides == 1 || side_[k] == s) {
                        best[2 * s].see_next(minus_f_[k] - right_[k], i);
                        best[2 * s + 1].see_next(left_[k] - minus_f_[k], i);
                    }
            }
            decide(s_.first, best, turn);
            int side = 0;
            if (kSides == 2 && best[2 * kSides - 2].value + best[2 * kSides - 1].value >
                                   best[0].value + best[1].value)
                side = 1;
            const Best<T> raise = side ? best[2 * kSides - 2] : best[0];
            const T violation = raise.value + (side ? best[2 * kSides - 1] : best[1]).value;
            if (steps >= most_ || !(violation > tolerance_)) return steps;
            const int raised = raise.at;
            load_row(raised, raised_row);
            const T curvature = given_.curvature[raised];
            Best<T> gain[1];
#pragma unroll
            for (int k = 0; k < V; ++k) {
                const T violation = raise.value - (minus_f_[k] - left_[k]);
                const T rate = kSides == 2 && side_[k] != side ? T(0) : larger(violation, T(0));
                const T sum = curvature + curvature_[k];
                const T eta = fma(T(-2), raised_row[k], sum);
                const T least = fma(sum, T(kFlat), kTiny<T>);
                gain[0].see_next(ratio(rate * rate, larger(eta, least)), place(k));
            }
#pragma unroll
            for (int k = 0; k < V; ++k)  // for the thread that lowers, after the decision
                if (place(k) == raised) s_.raised = described(k, right_[k]);
            decide(s_.second, gain, second_turn);
            if (!(gain[0].value > 0)) return steps;
            const int lowered = gain[0].at;
            load_row(lowered, lowered_row);  // on its way while the step is computed
            move_pair(raised, lowered, raised_row);
            by = T(s_.change);
        }
    }

    // Writes the new variables, and which of them have changed.
    __device__ void finish(long long steps, const Changes<T>& changes) {
        int count = 0;
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const int i = place(k);
            const long long row = i < size_ ? p_.first + members_[i] : 0;
            const double change = i < size_ ? beta_[k] - v_.beta[row] : 0.0;
            const Rank rank = rank_of(change != 0, s_.counts);
            if (change != 0) {
                changes.rows[count + rank.before] = v_.row[row];
                changes.coef[count + rank.before] = T(change);
                v_.beta[row] = beta_[k];
            }
            count += rank.all;
        }
        if (threadIdx.x) return;
        *changes.count = count;
        p_.values += size_ * (long long)(size_);
        p_.steps += steps;
        p_.rounds += 1;
        if (count) return;
        // the worst violators are in the set and nothing has moved: solve more exactly, down to
        // the limits of the precision
        if (p_.inner_share < 1e-3)
            p_.status = kStalled;
        else
            p_.inner_share *= 0.1;
    }

  private:
    __device__ int place(int k) const { return threadIdx.x + k * blockDim.x; }
    __device__ T value(int row, int column) const {
        return kernel_[std::int64_t(row) * leading_ + column];
    }
    // The thread's kernel values with one of the set, all fetched at once.
    __device__ void load_row(int i, T (&row)[V]) const {
        const T* from = kernel_ + std::int64_t(i) * leading_ + threadIdx.x;
#pragma unroll
        for (int k = 0; k < V; ++k) row[k] = place(k) < size_ ? from[k * blockDim.x] : T(0);
    }
    // Updates the derivatives and the room of a variable that has a new value.
    __device__ void moved(int k) {
        const double y = given_.y[place(k)];
        const double C = given_.C[place(k)];
        const double lo = loss_.lo(y, C);
        const double hi = loss_.hi(y, C);
        right_[k] = beta_[k] < hi ? T(loss_.right_derivative(y, C, beta_[k])) : T(kInfinity);
        left_[k] = beta_[k] > lo ? T(loss_.left_derivative(y, C, beta_[k])) : T(-kInfinity);
        room_up_[k] = T(hi - beta_[k]);
        room_down_[k] = T(beta_[k] - lo);
    }

    enum Verdict { kMoves, kLost, kRaisedStays, kLoweredStays };

    // Raises i, which is described in shared memory, and lowers j by the exact minimiser; by zero if
    // they stay. The thread that has j decides.
    __device__ void move_pair(int i, int j, const T (&raised_row)[V]) {
        Moved lowered;
        T between = 0;
        bool is_mine = false;
#pragma unroll
        for (int k = 0; k < V; ++k)
            if (place(k) == j) {
                lowered = described(k, left_[k]);
                between = raised_row[k];
                is_mine = true;
            }
        if (is_mine) s_.verdict = decide_pair(s_.raised, lowered, double(between));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const bool is_i = place(k) == i;
            const bool is_j = place(k) == j;
            if (!is_i && !is_j) continue;
            if (s_.verdict == kMoves) {
                beta_[k] = is_i ? s_.raised.beta : lowered.beta;
                moved(k);
            } else {
                if (is_i && s_.verdict != kLoweredStays) right_[k] = T(kInfinity);
                if (is_j && s_.verdict != kRaisedStays) left_[k] = T(-kInfinity);
            }
        }
    }

    __device__ Moved described(int k, T derivative) const {
        const int i = place(k);
        const double y = given_.y[i];
        const double C = given_.C[i];
        return {y, C, beta_[k], loss_.lo(y, C), loss_.hi(y, C), double(given_.diagonal[i]),
                double(minus_f_[k]), double(derivative)};
    }

    // The step of a pair with this kernel value between them.
    __device__ Verdict decide_pair(Moved& i, Moved& j, double between) {
        const double sum = i.diagonal + j.diagonal;
        const double eta = fmax(sum - 2 * between, kFlat * sum + double(kTiny<T>));
        const double slope = (j.minus_f - j.derivative) - (i.minus_f - i.derivative);
        const double room_i = i.hi - i.beta;
        const double room_j = j.beta - j.lo;
        const Mover movers[] = {{i.y, i.C, i.beta, 1}, {j.y, j.C, j.beta, -1}};
        const double change =
            line_minimum(loss_, slope, eta, room_i < room_j ? room_i : room_j, movers);
        s_.change = 0;
        const bool lost = i.beta + change == i.beta && j.beta - change == j.beta;
        if (!(change > 0) || lost) return kLost;
        if constexpr (!L::quadratic) {
            // near a bound h is so steep that the step is negligible, and two such variables
            // would exchange it forever: the steeper one stays fixed
            if (-change * slope < p_.negligible)
                return loss_.steepness(i.C, i.y * i.beta) > loss_.steepness(j.C, j.y * j.beta)
                           ? kRaisedStays
                           : kLoweredStays;
        }
        s_.change = change;
        i.beta = change < room_i ? i.beta + change : i.hi;
        j.beta = change < room_j ? j.beta - change : j.lo;
        return kMoves;
    }

    const L& loss_;
    const Variables& v_;
    Part& p_;
    const int* members_;
    const T* kernel_;
    int leading_, size_;
    T tolerance_;
    long long most_;
    Shared& s_;
    const Given given_;
    double beta_[V];
    T minus_f_[V], right_[V], left_[V], curvature_[V], room_up_[V], room_down_[V];
    int side_[V];
};

template <class L, class T, int V>
__device__ void solve_set(const L& loss, const Variables& v, Part& p, const Members& set,
                          const T* kernel, int leading, const Changes<T>& changes,
                          bool has_free_intercept) {
    using Solver = SetSolver<L, T, V>;
    __shared__ typename Solver::Shared shared;
    extern __shared__ double given[];  // two numbers for each variable, and two of type T
    if (p.status != kRunning || *set.count == 0) {
        if (threadIdx.x == 0) {
            *changes.count = 0;
            if (p.status == kRunning) p.status = kStalled;
        }
        return;
    }
    __syncthreads();
    T* const rest = reinterpret_cast<T*>(given + 2 * leading);
    Solver solver(loss, v, p, set.own, kernel, leading, shared,
                  {given, given + leading, rest, rest + leading});
    const long long steps = has_free_intercept ? solver.swap() : solver.descend();
    __syncthreads();
    solver.finish(steps, changes);
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
