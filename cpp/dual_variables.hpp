// The variables beta of a dual problem, inside their box and with the sums that a free intercept
// requires, and their scores f = K beta.
//
// With a free intercept the sum of beta is fixed: to zero, or to the sum that one-class models
// need. Losses with two `sides` fix the sum over the rows with y = +1 and that over the rows with
// y = -1.
#pragma once
#include <array>

#include "dual_problem.hpp"
#include "kernel_rows.hpp"

namespace margrave {

template <class T>
class DualVariables {
  public:
    std::vector<double> y, C, beta, scores;
    Watch watch;

    DualVariables(KernelRows<T> kernel, const DualProblem& problem)
        : y(problem.y),
          C(problem.C),
          beta(problem.start),
          kernel_(std::move(kernel)),
          blocks_(problem.blocks),
          fixed_(problem.fixed),
          loss_(problem.loss),
          has_free_intercept_(problem.has_free_intercept),
          sums_{problem.sum, -problem.sum} {
        for (int b : blocks_) {
            offsets_.push_back(std::int64_t(rows_.size()));
            for (std::int64_t i = kernel_.starts[b]; i < kernel_.starts[b + 1]; ++i)
                rows_.push_back(i);
        }
        offsets_.push_back(std::int64_t(y.size()));
        with_loss([&](const auto& loss) {
            enter_box(loss);
            fix_sums(loss);
            for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) moved(loss, i);
        });
        if (fixed_.scores.empty())
            scores.assign(y.size(), 0.0);
        else
            scores = fixed_.scores;
    }

    // f = K beta from scratch: once before the first round, and to remove drift.
    bool rebuild() {
        std::vector<std::int64_t> support;
        std::vector<double> coef;
        gather_support(support, coef);
        const bool nearly_all = 10 * support.size() > 9 * y.size();
        if (!(blocks_.size() == 1 && nearly_all ? multiply_symmetric() : multiply(support, coef)))
            return false;
        if (!fixed_.shift.empty())
            for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += fixed_.shift[i];
        return true;
    }

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
    double shift(std::int64_t i) const { return fixed_.shift.empty() ? 0.0 : fixed_.shift[i]; }

    // Updates the derivatives of h at a variable that has a new value.
    template <class L>
    void moved(const L& loss, std::int64_t i) {
        right_derivative_[i] =
            beta[i] < hi_[i] ? loss.right_derivative(y[i], C[i], beta[i]) : kInfinity;
        left_derivative_[i] =
            beta[i] > lo_[i] ? loss.left_derivative(y[i], C[i], beta[i]) : -kInfinity;
    }

    void gather_support(std::vector<std::int64_t>& support, std::vector<double>& coef) const {
        for (std::int64_t i = 0; i < std::int64_t(beta.size()); ++i)
            if (beta[i] != 0) {
                support.push_back(rows_[i]);
                coef.push_back(beta[i]);
            }
    }

    // sums = K[points, rows] coef
    bool sums_over(const std::vector<std::int64_t>& rows, const std::vector<double>& coef,
                   const std::vector<std::int64_t>& points, std::vector<double>& sums) {
        const Subset from = Subset::of(rows);
        const Subset to = Subset::of(points);
        sums.resize(points.size());
        return kernel_.counted(kernel_values_, [&] {
            return kernel_.source->apply(from, coef.data(), 1, to, sums.data(), &watch);
        });
    }

    KernelRows<T> kernel_;
    std::vector<int> blocks_;
    std::vector<std::int64_t> offsets_;  // where the rows of each block begin
    std::vector<std::int64_t> rows_;     // the data set's number of each row
    FixedPart fixed_;
    LossParams loss_;
    bool has_free_intercept_;
    std::array<double, 2> sums_;                              // of beta, of each side
    std::vector<double> lo_, hi_;                             // the box
    std::vector<double> right_derivative_, left_derivative_;  // of h, infinite at a bound
    double bound_ = 0;                                        // the primal value of the zero model
    std::int64_t kernel_values_ = 0;

  private:
    // The box, a start inside it, and the primal value of the zero model.
    template <class L>
    void enter_box(const L& loss) {
        const std::size_t n = y.size();
        const bool cold = beta.empty();
        beta.resize(n);
        lo_.resize(n);
        hi_.resize(n);
        right_derivative_.resize(n);
        left_derivative_.resize(n);
        for (std::size_t i = 0; i < n; ++i) {
            if (cold) beta[i] = loss.start(y[i], C[i]);
            lo_[i] = loss.lo(y[i], C[i]);
            hi_[i] = loss.hi(y[i], C[i]);
            beta[i] = std::clamp(beta[i], lo_[i], hi_[i]);
            bound_ += loss.value(y[i], C[i], 0.0);
        }
        if (!fixed_.shift.empty()) bound_ = fixed_.bound;
    }

    // A part of a larger problem keeps its sums; any other start is brought to the required sums.
    template <class L>
    void fix_sums(const L& loss) {
        if (!fixed_.scores.empty()) {
            sums_ = {0, 0};
            for (std::size_t i = 0; i < y.size(); ++i)
                sums_[side(loss, std::int64_t(i))] += beta[i];
        } else if (has_free_intercept_) {
            for (int s = 0; s <= loss.sides; ++s)
                balance(s, [&](std::int64_t i) { return side(loss, i) == s; });
        }
    }

    // The variables of the sign that is too heavy are scaled down; if that does not suffice, all
    // variables move by the same fraction of the distance to their bounds.
    template <class F>
    void balance(int s, F&& on_side) {
        const std::int64_t n = std::int64_t(beta.size());
        double positive = 0;
        double negative = 0;
        double room_up = 0;
        double room_down = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            if (!on_side(i)) continue;
            (beta[i] > 0 ? positive : negative) += std::fabs(beta[i]);
            room_up += hi_[i] - beta[i];
            room_down += beta[i] - lo_[i];
        }
        const double excess = positive - negative - sums_[s];
        if (std::fabs(excess) <= 1e-12 * std::max(positive, negative)) return;  // rounding
        const bool rise = excess < -negative;
        const bool fall = excess > positive;
        for (std::int64_t i = 0; i < n; ++i) {
            if (!on_side(i)) continue;
            if (rise)
                beta[i] += (hi_[i] - beta[i]) * std::min(1.0, -excess / room_up);
            else if (fall)
                beta[i] -= (beta[i] - lo_[i]) * std::min(1.0, excess / room_down);
            else if (excess > 0 && beta[i] > 0)
                beta[i] *= 1 - excess / positive;
            else if (excess < 0 && beta[i] < 0)
                beta[i] *= 1 + excess / negative;
        }
    }

    // scores = K beta block by block, from cached kernel rows where there are any.
    bool multiply(const std::vector<std::int64_t>& support, const std::vector<double>& coef) {
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            double* to = scores.data() + offsets_[b];
            std::fill(to, to + offsets_[b + 1] - offsets_[b], 0.0);
            const bool whole = kernel_.counted(kernel_values_, [&] {
                return kernel_.add(support, coef.data(), 1, blocks_[b], b == 0, to, &watch);
            });
            if (!whole) return false;
        }
        return true;
    }
    // The same for all rows with all rows, which takes half of the kernel values.
    bool multiply_symmetric() {
        return kernel_.counted(kernel_values_, [&] {
            return kernel_.source->apply_among(Subset::of(rows_), beta.data(), scores.data(),
                                               &watch);
        });
    }
};

}  // namespace margrave
