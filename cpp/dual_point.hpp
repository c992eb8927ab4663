// A point of the dual, and all that is computed from it:
//
//     D(beta) = 1/2 beta'K beta + sum_i h_i(beta_i)
//     P = 1/2 beta'K beta + sum_i C_i loss_i(f_i + b),   f = K beta
//
// With up_i = -f_i - h_i'(beta_i from the right) and low_i = -f_i - h_i'(beta_i from the left): how
// much each row violates the KKT conditions, which bias b is best, the duality gap P + D as a sum
// of non-negative terms, and the certificate with scores in double precision.
//
// With a free intercept the sum of beta is fixed: to zero, or to the sum that one-class models need
// (their P has the additional term b * sum beta). Losses with two `sides` fix the sum over the
// rows with y = +1 and that over the rows with y = -1, each with a bias of its own.
#pragma once
#include <array>

#include "dual_variables.hpp"
#include "root.hpp"

namespace margrave {

template <class T>
class DualPoint : public DualVariables<T> {
    using Base = DualVariables<T>;

  public:
    using Base::y, Base::C, Base::beta, Base::scores, Base::watch;
    double target = 1e-3;  // relative duality gap

    DualPoint(KernelRows<T> kernel, const DualProblem& problem)
        : Base(std::move(kernel), problem), scale_(problem.scale) {}

    // Back to zero, or as near to it as the box allows: for a start whose scores could not be
    // computed in time. Where zero has the wrong sum, the start stays, and its gap is unknown.
    void forget() {
        if (has_free_intercept_ && (sums_[0] != 0 || sums_[1] != 0)) {
            unknown_ = true;
            return;
        }
        scores = fixed_.shift.empty() ? std::vector<double>(y.size(), 0.0) : fixed_.shift;
        with_loss([&](const auto& loss) {
            for (std::size_t i = 0; i < y.size(); ++i) {
                beta[i] = std::clamp(0.0, lo_[i], hi_[i]);
                moved(loss, std::int64_t(i));
            }
        });
    }

    // How much each row violates the KKT conditions at the present bias: positive for violators,
    // and for satisfied rows minus their distance from becoming one.
    std::vector<double> kkt_violations() {
        std::vector<double> violations(y.size());
        with_loss([&](const auto& loss) {
            measure(loss);
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) {
                const double middle = middle_[side(loss, i)];
                const double up = -scores[i] - right_derivative_[i] - middle;
                const double down = middle + scores[i] + left_derivative_[i];
                violations[i] = std::max(up, down);
            }
        });
        return violations;
    }

    // What the rows outside `active` contribute to a problem on the active rows. The active rows'
    // scores from outside are summed over the smaller of the two sets of variables. False if
    // stopped.
    bool fixed_part(const std::vector<std::int64_t>& active, FixedPart& found) {
        std::vector<char> is_active(y.size(), 0);
        std::vector<std::int64_t> support[2];
        std::vector<double> coef[2];
        std::vector<std::int64_t> points;
        for (std::int64_t i : active) {
            is_active[i] = 1;
            points.push_back(rows_[i]);
        }
        for (std::size_t i = 0; i < y.size(); ++i)
            if (beta[i] != 0) {
                support[int(is_active[i])].push_back(rows_[i]);
                coef[int(is_active[i])].push_back(beta[i]);
            }
        const int within = support[1].size() < support[0].size();
        std::vector<double> sums;
        if (!sums_over(support[within], coef[within], points, sums)) return false;
        with_loss([&](const auto& loss) {
            sum_up(loss);
            found.dual = last_.dual;
            found.bound = bound_;
            for (std::size_t t = 0; t < active.size(); ++t) {
                const std::int64_t i = active[t];
                found.scores.push_back(scores[i]);
                found.shift.push_back(within ? scores[i] - sums[t] : sums[t] + shift(i));
                found.dual -=
                    0.5 * beta[i] * (scores[i] + found.shift[t]) + loss.h(y[i], C[i], beta[i]);
            }
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i)
                if (!is_active[i]) found.gap += gap_term(loss, i);
        });
        return true;
    }

    // Adopts new values of some variables with their rows' scores, and updates the other scores.
    bool adopt(const std::vector<std::int64_t>& active, const std::vector<double>& values,
               const std::vector<double>& active_scores) {
        std::vector<char> is_active(y.size(), 0);
        std::vector<std::int64_t> changed, others, other_rows;
        std::vector<double> change, delta;
        for (std::size_t t = 0; t < active.size(); ++t) {
            const std::int64_t i = active[t];
            is_active[i] = 1;
            if (values[t] == beta[i]) continue;
            changed.push_back(rows_[i]);
            change.push_back(values[t] - beta[i]);
        }
        for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i)
            if (!is_active[i]) {
                others.push_back(i);
                other_rows.push_back(rows_[i]);
            }
        if (!sums_over(changed, change, other_rows, delta)) return false;
        for (std::size_t t = 0; t < others.size(); ++t) scores[others[t]] += delta[t];
        with_loss([&](const auto& loss) {
            for (std::size_t t = 0; t < active.size(); ++t) {
                beta[active[t]] = values[t];
                scores[active[t]] = active_scores[t];
                moved(loss, active[t]);
            }
        });
        return true;
    }

    // The certificate in double precision: recomputes the scores of all rows whose gap term is not
    // certainly zero. False if the watch stopped it; the running figures then stand.
    bool certify(Round& record) {
        bool whole = true;
        with_loss([&](const auto& loss) {
            measure(loss);
            best_bias(loss);
            whole = refresh_scores(loss);
            if (!whole) return;
            measure(loss);
            best_bias(loss);
            sum_up(loss);
            record = last_;
        });
        return whole;
    }

    // Figures of the present point from the running scores, with the best bias.
    Round figures() {
        with_loss([&](const auto& loss) {
            measure(loss);
            best_bias(loss);
            sum_up(loss);
        });
        return last_;
    }

    // Weak duality: -D never exceeds the primal value of the zero model, unless the kernel is not
    // positive semidefinite. Then D may have no minimum where the loss does not bound beta.
    bool is_indefinite() const { return -last_.dual > 1.001 * bound_ + 1e-3 * scale_ + 1e-300; }

    std::int64_t steps() const { return steps_; }
    std::int64_t kernel_values() const { return kernel_values_; }

  protected:
    using Base::bound_, Base::fixed_, Base::has_free_intercept_, Base::hi_, Base::kernel_,
        Base::kernel_values_, Base::left_derivative_, Base::lo_, Base::right_derivative_,
        Base::rows_, Base::sums_;
    using Base::gather_support, Base::moved, Base::shift, Base::side, Base::sums_over,
        Base::with_loss;

    template <class L>
    double bias(const L& loss, std::int64_t i) const {
        return bias_[side(loss, i)];
    }
    template <class L>
    double gap_term(const L& loss, std::int64_t i) const {
        return loss.gap(y[i], C[i], beta[i], scores[i] + bias(loss, i));
    }

    // Sums over all rows in chunks of fixed size, to be added in order: the same for any number of
    // threads.
    template <class Part, class F>
    std::vector<Part> chunked(F&& f) {
        constexpr std::int64_t per = 16384;
        const std::int64_t n = std::int64_t(y.size());
        std::vector<Part> parts((n + per - 1) / per);
        kernel_.threads->run(std::int64_t(parts.size()), nullptr, [&](std::int64_t c, int) {
            parts[c] = f(c * per, std::min(n, (c + 1) * per));
        });
        return parts;
    }

    // Whether a row's violation is worth a step. Where h' is unbounded, a violation of any size may
    // be worth nothing.
    template <class L>
    bool counts(const L& loss, std::int64_t i) const {
        if constexpr (L::quadratic)
            return true;
        else
            return loss.gap(y[i], C[i], beta[i], scores[i] + middle_[0]) > negligible_;
    }

    // The largest up and the smallest low of each side, and from them the violation and the bias.
    template <class L>
    void measure(const L& loss) {
        const double objective = std::max(std::fabs(last_.primal), std::fabs(last_.dual));
        negligible_ = 1e-3 * target * objective / double(y.size());
        if (!L::quadratic && has_free_intercept_) {
            best_bias(loss);
            middle_ = bias_;
        }
        find_extremes(loss);
        if (!has_free_intercept_) {
            last_.violation = std::max({0.0, top_[0], -bottom_[0]});
            middle_ = bias_ = {0, 0};
            return;
        }
        last_.violation = top_[0] - bottom_[0];
        if (L::sides) last_.violation = std::max(last_.violation, top_[1] - bottom_[1]);
        if (!L::quadratic) return;
        for (int s = 0; s <= loss.sides; ++s) {
            if (top_[s] == -kInfinity)
                middle_[s] = bottom_[s];
            else if (bottom_[s] == kInfinity)
                middle_[s] = top_[s];
            else
                middle_[s] = (top_[s] + bottom_[s]) / 2;
        }
        bias_ = middle_;
    }

    // The bias that minimises b sum beta + sum C loss(f + b), for the certificate of a free
    // intercept. The slope increases with b: bracket its root and bisect, for a smooth slope in
    // turn with the false position. A piecewise linear loss has its corner between the last two
    // trials: the better end is taken.
    template <class L>
    void best_bias(const L& loss) {
        if (!has_free_intercept_ || unknown_) return;
        for (int s = 0; s <= loss.sides; ++s) {
            const auto slope = [&](double b) { return bias_slope(loss, s, b); };
            const double spread = std::fabs(top_[s] - bottom_[s]);
            const double width =
                L::quadratic && std::isfinite(spread) ? std::max(1e-3, spread) : 1.0;
            const double from = bias_[s];
            const auto [low, high] = root_bracket(slope, from, width, !L::quadratic);
            double best = kInfinity;
            double chosen = from;
            for (double b : {from, low, high}) {
                bias_[s] = b;
                sum_up(loss);
                if (gap_sum_ < best) {  // the primal but for a constant, and with more digits
                    best = gap_sum_;
                    chosen = b;
                }
            }
            bias_[s] = chosen;
        }
    }

    // Primal and dual at the present bias. Their sum is the sum of the rows' gap terms, none of
    // them negative, so that the gap is free of cancellation.
    template <class L>
    void sum_up(const L& loss) {
        struct Part {
            double gap = 0;
            double dual = 0;
            std::int64_t support = 0;
        };
        const auto parts = chunked<Part>([&](std::int64_t from, std::int64_t to) {
            Part p;
            for (std::int64_t i = from; i < to; ++i) {
                p.gap += gap_term(loss, i);
                p.dual += 0.5 * beta[i] * (scores[i] + shift(i)) + loss.h(y[i], C[i], beta[i]);
                p.support += beta[i] != 0;
            }
            return p;
        });
        double gap = 0;
        double dual = fixed_.dual;
        last_.support = 0;
        for (const Part& part : parts) {
            gap += part.gap;
            dual += part.dual;
            last_.support += part.support;
        }
        last_.dual = dual;
        last_.primal = gap + fixed_.gap - dual;
        const double scale = std::max({std::fabs(last_.primal), std::fabs(dual), scale_, 1e-300});
        gap_sum_ = gap;
        own_gap_ = unknown_ ? kInfinity : gap / scale;
        last_.gap = unknown_ ? kInfinity : (gap + fixed_.gap) / scale;
        last_.bias = L::sides ? (bias_[0] + bias_[1]) / 2 : bias_[0];
        last_.when = std::chrono::steady_clock::now();
        last_.steps = steps_;
        last_.kernel_values = kernel_values_;
    }

    double scale_;
    Round last_;
    // Of each side; of the first alone where there is one.
    std::array<double, 2> top_{}, bottom_{}, middle_{}, bias_{};
    double own_gap_ = 0;  // without the fixed part's share
    double negligible_ = 0;
    std::int64_t steps_ = 0;

  private:
    // Scores in double precision: first of the rows with a coefficient, then of those with a loss,
    // then of those that the drift seen so far could give one.
    template <class L>
    bool refresh_scores(const L& loss) {
        std::vector<std::int64_t> support;
        std::vector<double> coef;
        gather_support(support, coef);
        const Subset from = Subset::of(support);
        std::vector<char> fresh(y.size(), 0);
        double drift = 0;
        double skipped = 0;  // what negligible kernel values could add to a score
        for (double c : coef) skipped += kernel_.source->negligible() * std::fabs(c);
        for (int pass = 0; pass < 3; ++pass) {
            const double reach = pass == 2 ? 10 * (drift + skipped) : 0.0;
            std::vector<std::int64_t> local, rows;
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) {
                if (fresh[i] || !(pass == 0 ? beta[i] != 0 : may_lose(loss, i, reach))) continue;
                fresh[i] = 1;
                local.push_back(i);
                rows.push_back(rows_[i]);
            }
            const Subset to = Subset::of(rows);
            std::vector<double> f(rows.size());
            const bool whole = kernel_.counted(kernel_values_, [&] {
                return pass == 0 ? kernel_.exact->apply_among(from, coef.data(), f.data(), &watch)
                                 : kernel_.exact->apply(from, coef.data(), 1, to, f.data(), &watch);
            });
            if (!whole) return false;
            for (std::size_t t = 0; t < local.size(); ++t) {
                f[t] += shift(local[t]);
                drift = std::max(drift, std::fabs(scores[local[t]] - f[t]));
                scores[local[t]] = f[t];
            }
        }
        return true;
    }
    // Whether a row has a loss at a score that is off by `reach` at most.
    template <class L>
    bool may_lose(const L& loss, std::int64_t i, double reach) const {
        const double f = scores[i] + bias(loss, i);
        return loss.value(y[i], C[i], f - reach) > 0 || loss.value(y[i], C[i], f + reach) > 0;
    }

    template <class L>
    void find_extremes(const L& loss) {
        struct Part {
            std::array<double, 2> top{-kInfinity, -kInfinity};
            std::array<double, 2> bottom{kInfinity, kInfinity};
        };
        const auto parts = chunked<Part>([&](std::int64_t from, std::int64_t to) {
            Part p;
            for (std::int64_t i = from; i < to; ++i) {
                if (!counts(loss, i)) continue;
                const int s = side(loss, i);
                p.top[s] = std::max(p.top[s], -scores[i] - right_derivative_[i]);
                p.bottom[s] = std::min(p.bottom[s], -scores[i] - left_derivative_[i]);
            }
            return p;
        });
        const Part none;
        top_ = none.top;
        bottom_ = none.bottom;
        for (const Part& part : parts)
            for (int s = 0; s < 2; ++s) {
                top_[s] = std::max(top_[s], part.top[s]);
                bottom_[s] = std::min(bottom_[s], part.bottom[s]);
            }
    }

    // Derivative of b sum beta + sum C loss(f + b) with respect to the bias of one side.
    template <class L>
    double bias_slope(const L& loss, int s, double b) {
        const auto parts = chunked<double>([&](std::int64_t from, std::int64_t to) {
            double sum = 0;
            for (std::int64_t i = from; i < to; ++i)
                if (side(loss, i) == s) sum += loss.slope(y[i], C[i], scores[i] + b);
            return sum;
        });
        double total = sums_[s];
        for (double part : parts) total += part;
        return total;
    }

    bool unknown_ = false;  // the scores do not belong to beta
    double gap_sum_ = 0;
};

}  // namespace margrave
