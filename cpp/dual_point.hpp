// A point of the dual and all that can be said of it:
//
//     D(beta) = 1/2 beta'K beta + sum_i h_i(beta_i),   P = 1/2 beta'K beta + sum_i C_i loss_i(f_i + b),   f = K beta
//
// With up_i = -f_i - h_i'(beta_i from the right) and low_i = -f_i - h_i'(from the left): how much each row violates optimality,
// which bias b is best, the duality gap P + D as a sum of non-negative terms, and the certificate with scores in double.
// With a free bias sum beta is kept: zero, or the sum that one-class machines ask for, whose P has a term b * sum beta more.
// Losses with two `sides` keep the sums of the rows with y = +1 and of those with y = -1, each with a bias of its own.
#pragma once
#include <array>

#include "kernel_rows.hpp"
#include "loss.hpp"
#include "root.hpp"

namespace margrave {

struct Round {
    std::int64_t round = 0, support = 0, steps = 0, kernel_values = 0;
    double primal = 0, dual = 0, gap = 0, violation = 0, bias = 0, passes = 0;
    std::chrono::steady_clock::time_point when{};
};

// What the rest of a larger problem does to the rows of this one: their scores from the other variables, and the other
// rows' part of the dual and of the gap. A shift without scores is a linear term of a problem that is whole.
struct Surroundings {
    std::vector<double> shift, scores;  // the part from outside, and all of it
    double dual = 0, gap = 0, bound = 0;
};

template <class T>
class DualPoint {
  public:
    std::vector<double> y, C, beta, scores;
    double target = 1e-3;  // relative duality gap
    Watch watch;

    // With `pairs` the bias is free and the sum of beta stays `sum`; a part of a larger problem keeps the sum that it has.
    // Gaps are relative to the objective, or to `scale` where that is more: the optimum may be zero.
    DualPoint(KernelRows<T> kernel, std::vector<int> blocks, LossParams loss, bool pairs, double sum, double scale, std::vector<double> targets,
              std::vector<double> weights, std::vector<double> start, Surroundings around)
        : y(std::move(targets)), C(std::move(weights)), beta(std::move(start)), kernel_(std::move(kernel)),
          blocks_(std::move(blocks)), around_(std::move(around)), loss_(loss), pairs_(pairs), sum_(sum), scale_(scale) {
        const std::int64_t n = std::int64_t(y.size());
        const bool cold = beta.empty();
        beta.resize(n);
        for (int b : blocks_) {
            offsets_.push_back(std::int64_t(rows_.size()));
            for (std::int64_t i = kernel_.starts[b]; i < kernel_.starts[b + 1]; ++i) rows_.push_back(i);
        }
        offsets_.push_back(n);
        lo_.resize(n), hi_.resize(n), right_.resize(n), left_.resize(n);
        with_loss([&](const auto& loss) {
            for (std::int64_t i = 0; i < n; ++i) {
                if (cold) beta[i] = loss.start(y[i], C[i]);
                lo_[i] = loss.lo(y[i], C[i]), hi_[i] = loss.hi(y[i], C[i]);
                beta[i] = std::clamp(beta[i], lo_[i], hi_[i]);
                bound_ += loss.value(y[i], C[i], 0.0);
            }
            if (!around_.shift.empty()) bound_ = around_.bound;
            sums_ = {sum_, -sum_};
            if (!around_.scores.empty()) {
                sums_ = {0, 0};
                for (std::int64_t i = 0; i < n; ++i) sums_[side(loss, i)] += beta[i];
            } else if (pairs_) {
                for (int s = 0; s <= loss.sides; ++s) balance(s, [&](std::int64_t i) { return side(loss, i) == s; });
            }
            for (std::int64_t i = 0; i < n; ++i) moved(loss, i);
        });
        scores = around_.scores.empty() ? std::vector<double>(n, 0.0) : around_.scores;
    }

    // f = K beta from scratch. To be called once before the first round, and to remove drift.
    bool rebuild() {
        std::vector<std::int64_t> support;
        std::vector<double> coef;
        gather_support(support, coef);
        if (blocks_.size() == 1 && 10 * support.size() > 9 * y.size()) {  // all with all: half of the values tell the others
            if (!kernel_.source->apply_among({rows_.data(), 0, std::int64_t(rows_.size())}, beta.data(), scores.data(), &watch)) return false;
            kernel_values_ += kernel_.source->price_among(std::int64_t(y.size()));
        } else for (std::size_t b = 0; b < blocks_.size(); ++b) {
            double* to = scores.data() + offsets_[b];
            std::fill(to, to + offsets_[b + 1] - offsets_[b], 0.0);
            const std::int64_t computed = kernel_.add(support, coef.data(), 1, blocks_[b], b == 0, to, &watch);
            if (computed < 0) return false;
            kernel_values_ += computed;
        }
        if (!around_.shift.empty())
            for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += around_.shift[i];
        return true;
    }

    // Back to zero, or as near to it as the box allows: for a start whose scores could not be computed in time. Where zero has
    // the wrong sum, the start stays, and nothing is known of it.
    void forget() {
        if (pairs_ && (sums_[0] != 0 || sums_[1] != 0)) {
            unknown_ = true;
            return;
        }
        scores = around_.shift.empty() ? std::vector<double>(y.size(), 0.0) : around_.shift;
        with_loss([&](const auto& loss) {
            for (std::size_t i = 0; i < y.size(); ++i) {
                beta[i] = std::clamp(0.0, lo_[i], hi_[i]);
                moved(loss, std::int64_t(i));
            }
        });
    }

    // How far each row is from being content at the present bias: positive for violators.
    std::vector<double> discontent() {
        std::vector<double> rates(y.size());
        with_loss([&](const auto& loss) {
            measure(loss);
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) {
                const double middle = middle_[side(loss, i)];
                rates[i] = std::max(-scores[i] - right_[i] - middle, middle + scores[i] + left_[i]);
            }
        });
        return rates;
    }

    // What the rows outside `active` are to a problem on the active ones alone. The scores that the active rows get from
    // outside are summed over the fewer of the two sides' variables.
    bool around(const std::vector<std::int64_t>& active, Surroundings& found) {
        std::vector<char> in(y.size(), 0);
        std::vector<std::int64_t> support[2], points;
        std::vector<double> coef[2];
        for (std::int64_t i : active) in[i] = 1, points.push_back(rows_[i]);
        for (std::size_t i = 0; i < y.size(); ++i)
            if (beta[i] != 0) support[int(in[i])].push_back(rows_[i]), coef[int(in[i])].push_back(beta[i]);
        const int within = support[1].size() < support[0].size();
        std::vector<double> sums(points.size());
        if (!kernel_.source->apply({support[within].data(), 0, std::int64_t(support[within].size())}, coef[within].data(), 1,
                                   {points.data(), 0, std::int64_t(points.size())}, sums.data(), &watch))
            return false;
        kernel_values_ += kernel_.source->price(std::int64_t(support[within].size()), std::int64_t(points.size()));
        with_loss([&](const auto& loss) {
            sum_up(loss);
            found.dual = last_.dual, found.bound = bound_;
            for (std::size_t t = 0; t < active.size(); ++t) {
                const std::int64_t i = active[t];
                found.scores.push_back(scores[i]);
                found.shift.push_back(within ? scores[i] - sums[t] : sums[t] + shift(i));
                found.dual -= 0.5 * beta[i] * (scores[i] + found.shift[t]) + loss.h(y[i], C[i], beta[i]);
            }
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i)
                if (!in[i]) found.gap += loss.gap(y[i], C[i], beta[i], scores[i] + bias(loss, i));
        });
        return true;
    }

    // Takes over new values for some of the variables, with the scores of their rows, and brings the other scores up to date.
    bool adopt(const std::vector<std::int64_t>& active, const std::vector<double>& values, const std::vector<double>& active_scores) {
        std::vector<std::int64_t> changed, others, other_rows;
        std::vector<double> change;
        std::vector<char> in(y.size(), 0);
        for (std::size_t t = 0; t < active.size(); ++t) {
            const std::int64_t i = active[t];
            in[i] = 1;
            if (values[t] != beta[i]) changed.push_back(rows_[i]), change.push_back(values[t] - beta[i]);
        }
        for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i)
            if (!in[i]) others.push_back(i), other_rows.push_back(rows_[i]);
        std::vector<double> delta(others.size());
        if (!kernel_.source->apply({changed.data(), 0, std::int64_t(changed.size())}, change.data(), 1,
                                   {other_rows.data(), 0, std::int64_t(other_rows.size())}, delta.data(), &watch))
            return false;
        kernel_values_ += kernel_.source->price(std::int64_t(changed.size()), std::int64_t(others.size()));
        for (std::size_t t = 0; t < others.size(); ++t) scores[others[t]] += delta[t];
        with_loss([&](const auto& loss) {
            for (std::size_t t = 0; t < active.size(); ++t) {
                beta[active[t]] = values[t], scores[active[t]] = active_scores[t];
                moved(loss, active[t]);
            }
        });
        return true;
    }
    // The certificate, in double: recomputes the scores of all rows whose gap term is not certainly zero.
    // False if the watch stopped it; the running figures then stand.
    bool certify(Round& record) {
        bool whole = true;
        with_loss([&](const auto& loss) {
            std::vector<std::int64_t> support, check, local;
            std::vector<double> coef;
            gather_support(support, coef);
            measure(loss);
            best_bias(loss);
            double drift = 0;
            std::vector<char> fresh(y.size(), 0);
            // First the rows that carry a coefficient, then those that carry a loss, then those that the drift seen so far could
            // move to one.
            for (int pass = 0; pass < 3 && whole; ++pass) {
                check.clear(), local.clear();
                for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) {
                    if (fresh[i]) continue;
                    const double f = scores[i] + bias(loss, i), d = pass == 2 ? 10 * drift : 0.0;
                    const bool needed = pass == 0 ? beta[i] != 0 : loss.value(y[i], C[i], f - d) > 0 || loss.value(y[i], C[i], f + d) > 0;
                    if (needed) check.push_back(rows_[i]), local.push_back(i), fresh[i] = 1;
                }
                std::vector<double> f(check.size());
                const Subset carriers{support.data(), 0, std::int64_t(support.size())}, rows{check.data(), 0, std::int64_t(check.size())};
                whole = pass == 0 ? kernel_.exact->apply_among(carriers, coef.data(), f.data(), &watch)
                                  : kernel_.exact->apply(carriers, coef.data(), 1, rows, f.data(), &watch);
                kernel_values_ += pass == 0 ? kernel_.exact->price_among(carriers.count) : kernel_.exact->price(carriers.count, rows.count);
                if (!whole) return;
                for (std::size_t t = 0; t < local.size(); ++t) {
                    f[t] += shift(local[t]);
                    drift = std::max(drift, std::fabs(scores[local[t]] - f[t]));
                    scores[local[t]] = f[t];
                }
            }
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

    // Weak duality: -D never exceeds the primal of the zero machine, unless the kernel is not positive semidefinite. Then
    // losses without bounds on beta would lead ever further down.
    bool is_indefinite() const { return -last_.dual > 1.001 * bound_ + 1e-3 * scale_ + 1e-300; }

    std::int64_t steps() const { return steps_; }
    std::int64_t kernel_values() const { return kernel_values_; }

  protected:
    template <class F>
    void with_loss(F&& f) {
        Losses::visit(loss_, std::forward<F>(f));
    }

    // Which of the sums a row belongs to.
    template <class L>
    int side(const L&, std::int64_t i) const {
        return L::sides && y[i] < 0;
    }
    template <class L>
    double bias(const L& loss, std::int64_t i) const {
        return bias_[side(loss, i)];
    }
    double shift(std::int64_t i) const { return around_.shift.empty() ? 0.0 : around_.shift[i]; }

    template <class L>
    void moved(const L& loss, std::int64_t i) {
        right_[i] = beta[i] < hi_[i] ? loss.right_derivative(y[i], C[i], beta[i]) : kInfinity;
        left_[i] = beta[i] > lo_[i] ? loss.left_derivative(y[i], C[i], beta[i]) : -kInfinity;
    }

    // Any start in the box becomes one of the right sum: what is on the side that is too heavy is scaled down; if that does not
    // suffice, all variables move by the same share of their room.
    template <class F>
    void balance(int s, F&& on_side) {
        const std::int64_t n = std::int64_t(beta.size());
        double positive = 0, negative = 0, up = 0, down = 0;
        for (std::int64_t i = 0; i < n; ++i)
            if (on_side(i)) (beta[i] > 0 ? positive : negative) += std::fabs(beta[i]), up += hi_[i] - beta[i], down += beta[i] - lo_[i];
        const double excess = positive - negative - sums_[s];
        if (std::fabs(excess) <= 1e-12 * std::max(positive, negative)) return;  // none but rounding
        const bool rise = excess < -negative, fall = excess > positive;
        for (std::int64_t i = 0; i < n; ++i) {
            if (!on_side(i)) continue;
            if (rise) beta[i] += (hi_[i] - beta[i]) * std::min(1.0, -excess / up);
            else if (fall) beta[i] -= (beta[i] - lo_[i]) * std::min(1.0, excess / down);
            else if (excess > 0 && beta[i] > 0) beta[i] *= 1 - excess / positive;
            else if (excess < 0 && beta[i] < 0) beta[i] *= 1 + excess / negative;
        }
    }

    void gather_support(std::vector<std::int64_t>& support, std::vector<double>& coef) const {
        for (std::int64_t i = 0; i < std::int64_t(beta.size()); ++i)
            if (beta[i] != 0) support.push_back(rows_[i]), coef.push_back(beta[i]);
    }

    // Sums over all rows in chunks of fixed size, added in order: the same for any number of threads.
    template <class Part, class F>
    std::vector<Part> chunked(F&& f) {
        constexpr std::int64_t per = 16384;
        const std::int64_t n = std::int64_t(y.size());
        std::vector<Part> parts((n + per - 1) / per);
        kernel_.threads->run(std::int64_t(parts.size()), nullptr,
                             [&](std::int64_t c, int) { parts[c] = f(c * per, std::min(n, (c + 1) * per)); });
        return parts;
    }

    // Whether a row's violation is worth a step. Where h' has no bounds, it may be any size and worth nothing.
    template <class L>
    bool counts(const L& loss, std::int64_t i) const {
        if constexpr (L::quadratic) return true;
        else return loss.gap(y[i], C[i], beta[i], scores[i] + middle_[0]) > negligible_;
    }

    // The rates' extremes and from them the violation and the bias, of each side.
    template <class L>
    void measure(const L& loss) {
        struct Part {
            std::array<double, 2> top{-kInfinity, -kInfinity}, bottom{kInfinity, kInfinity};
        };
        negligible_ = 1e-3 * target * std::max(std::fabs(last_.primal), std::fabs(last_.dual)) / double(y.size());
        if (!L::quadratic && pairs_) best_bias(loss), middle_ = bias_;
        Part all;
        for (const Part& part : chunked<Part>([&](std::int64_t from, std::int64_t to) {
                 Part p;
                 for (std::int64_t i = from; i < to; ++i) {
                     if (!counts(loss, i)) continue;
                     const int s = side(loss, i);
                     p.top[s] = std::max(p.top[s], -scores[i] - right_[i]);
                     p.bottom[s] = std::min(p.bottom[s], -scores[i] - left_[i]);
                 }
                 return p;
             }))
            for (int s = 0; s < 2; ++s) all.top[s] = std::max(all.top[s], part.top[s]), all.bottom[s] = std::min(all.bottom[s], part.bottom[s]);
        top_ = all.top, bottom_ = all.bottom;
        if (!pairs_) {
            last_.violation = std::max({0.0, top_[0], -bottom_[0]});
            middle_ = bias_ = {0, 0};
            return;
        }
        last_.violation = top_[0] - bottom_[0];
        if (L::sides) last_.violation = std::max(last_.violation, top_[1] - bottom_[1]);
        if (!L::quadratic) return;
        for (int s = 0; s <= loss.sides; ++s)
            middle_[s] = top_[s] == -kInfinity ? bottom_[s] : bottom_[s] == kInfinity ? top_[s] : (top_[s] + bottom_[s]) / 2;
        bias_ = middle_;
    }

    // The bias that minimises b sum beta + sum C loss(f + b), for the certificate of a free intercept: its slope is increasing in b, so
    // bracket and bisect (for a smooth slope, in turn with the false position). A piecewise linear loss has its corner
    // between the last two trials: the better end is taken.
    template <class L>
    void best_bias(const L& loss) {
        if (!pairs_ || unknown_) return;
        for (int s = 0; s <= loss.sides; ++s) {
            const auto slope = [&](double b) {
                double total = sums_[s];
                for (double part : chunked<double>([&](std::int64_t from, std::int64_t to) {
                         double t = 0;
                         for (std::int64_t i = from; i < to; ++i)
                             if (side(loss, i) == s) t += loss.slope(y[i], C[i], scores[i] + b);
                         return t;
                     }))
                    total += part;
                return total;
            };
            const double spread = std::fabs(top_[s] - bottom_[s]), from = bias_[s];
            const double width = L::quadratic && std::isfinite(spread) ? std::max(1e-3, spread) : 1.0;
            const auto [low, high] = root_bracket(slope, from, width, !L::quadratic);
            double best = kInfinity, chosen = from;
            for (double b : {from, low, high}) {
                bias_[s] = b;
                sum_up(loss);
                if (gap_sum_ < best) best = gap_sum_, chosen = b;  // the primal but for a constant, and with more digits
            }
            bias_[s] = chosen;
        }
    }

    // Primal and dual at the present bias. Their sum is the sum of the rows' gap terms, none of them negative, so the gap
    // is free of cancellation.
    template <class L>
    void sum_up(const L& loss) {
        struct Part {
            double gap = 0, dual = 0;
            std::int64_t support = 0;
        };
        double gap = 0, dual = around_.dual;
        last_.support = 0;
        for (const Part& part : chunked<Part>([&](std::int64_t from, std::int64_t to) {
                 Part p;
                 for (std::int64_t i = from; i < to; ++i) {
                     p.gap += loss.gap(y[i], C[i], beta[i], scores[i] + bias(loss, i));
                     p.dual += 0.5 * beta[i] * (scores[i] + shift(i)) + loss.h(y[i], C[i], beta[i]);
                     p.support += beta[i] != 0;
                 }
                 return p;
             }))
            gap += part.gap, dual += part.dual, last_.support += part.support;
        last_.dual = dual;
        last_.primal = gap + around_.gap - dual;
        const double scale = std::max({std::fabs(last_.primal), std::fabs(dual), scale_, 1e-300});
        gap_sum_ = gap;
        own_gap_ = unknown_ ? kInfinity : gap / scale;
        last_.gap = unknown_ ? kInfinity : (gap + around_.gap) / scale;
        last_.bias = L::sides ? (bias_[0] + bias_[1]) / 2 : bias_[0];
        last_.when = std::chrono::steady_clock::now();
        last_.steps = steps_;
        last_.kernel_values = kernel_values_;
    }

    KernelRows<T> kernel_;
    std::vector<int> blocks_;
    std::vector<std::int64_t> offsets_, rows_;  // of the problem's blocks; the data set's number of each row
    Surroundings around_;
    LossParams loss_;
    bool pairs_, unknown_ = false;
    double sum_, scale_, bound_ = 0;  // bound: the primal value of the zero machine
    std::vector<double> lo_, hi_, right_, left_;  // bounds; one-sided derivatives of h, infinite at a bound
    Round last_;
    double own_gap_ = 0, gap_sum_ = 0, negligible_ = 0;
    std::array<double, 2> sums_{}, top_{}, bottom_{}, middle_{}, bias_{};  // of each side; the first alone where there is one
    std::int64_t steps_ = 0, kernel_values_ = 0;
};

}  // namespace margrave
