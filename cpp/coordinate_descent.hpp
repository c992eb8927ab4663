// Plain coordinate descent for
//
//     min over beta   1/2 beta'K beta + sum_i h_i(beta_i)      lo_i <= beta_i <= hi_i
//
// A round is one pass over all rows in a new random order, with an exact step for each. Rows are
// visited in batches of a few hundred: within a batch the scores are updated from its kernel block
// after every step, and those of all other rows at its end. The steps are the same as with an
// update of all scores after each.
#pragma once
#include <random>

#include "exact_step.hpp"
#include "moving_point.hpp"

namespace margrave {

template <class T>
class CoordinateDescent : public MovingPoint<T> {
    using Base = MovingPoint<T>;
    using Base::hi_, Base::kernel_, Base::kernel_values_, Base::last_, Base::own_gap_,
        Base::rounds_, Base::rows_, Base::steps_;

  public:
    using Base::y, Base::C, Base::beta, Base::scores, Base::target, Base::watch;

    CoordinateDescent(KernelRows<T> kernel, const DualProblem& problem, std::uint64_t seed)
        : Base(std::move(kernel), problem), random_(seed), order_(y.size()) {
        std::iota(order_.begin(), order_.end(), std::int64_t(0));
    }

    // `max_rounds` counts passes; `seconds` may end one half-way: the next call continues there.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        const std::int64_t from = rounds_;
        return this->repeat(
            seconds, [&] { return rounds_ - from >= max_rounds; },
            [&](const auto& loss) {
                if (next_ == 0) {
                    const Status status = check_progress(loss, records);
                    if (status != Status::running) return status;
                    std::shuffle(order_.begin(), order_.end(), random_);
                }
                return batch(loss);
            });
    }

  private:
    static constexpr std::int64_t kBatch = 384;

    // Between two passes: the figures, and whether to continue.
    template <class L>
    Status check_progress(const L& loss, std::vector<Round>& records) {
        this->measure(loss);
        this->sum_up(loss);
        last_.round = rounds_;
        records.push_back(last_);
        if (own_gap_ <= target) return Status::converged;
        if (this->is_indefinite()) return Status::stalled;
        // Near the optimum the gap falls like the square root of the dual's error: the dual's
        // progress is the first to be lost in rounding.
        if (last_.gap < 0.99 * best_gap_ || last_.dual < best_dual_ - 1e-15 * std::fabs(last_.dual))
            still_ = 0;
        else if (++still_ >= 20)
            return Status::stalled;
        best_gap_ = std::min(best_gap_, last_.gap);
        best_dual_ = std::min(best_dual_, last_.dual);
        return Status::running;
    }

    // An exact step for each row of the batch, in order, then the scores of all other rows.
    template <class L>
    Status batch(const L& loss) {
        kernel_.cache->begin_round();
        const std::int64_t n = std::int64_t(y.size());
        const std::int64_t w = std::min(kBatch, n - next_);
        const std::int64_t* members = order_.data() + next_;
        std::vector<double> f(w);
        for (std::int64_t s = 0; s < w; ++s) f[s] = scores[members[s]];
        std::vector<T*> kernel;
        if (!fill_block(members, w, kernel)) return Status::stopped;

        std::vector<std::pair<std::int64_t, double>> changes;
        std::vector<double> after;
        for (std::int64_t s = 0; s < w; ++s) {
            const std::int64_t i = members[s];
            const double value = one_step(loss, y[i], C[i], beta[i], f[s], this->diagonal(i));
            const double by = value - beta[i];
            ++steps_;
            if (by == 0) continue;
            changes.emplace_back(i, by);
            after.push_back(value);
            for (std::int64_t t = s + 1; t < w; ++t) f[t] += by * double(kernel[s][t]);
        }
        if (!changes.empty() && !this->add_rows(changes)) return Status::stopped;
        for (std::size_t c = 0; c < changes.size(); ++c) {
            beta[changes[c].first] = after[c];
            this->moved(loss, changes[c].first);
        }
        next_ += w;
        if (next_ == n) {
            next_ = 0;
            ++rounds_;
        }
        return Status::running;
    }

    // The kernel rows of the members over the members.
    bool fill_block(const std::int64_t* members, std::int64_t w, std::vector<T*>& rows) {
        const std::int64_t leading = (w + 63) / 64 * 64;
        block_.resize(w * leading);
        std::vector<std::int64_t> numbers;
        for (std::int64_t s = 0; s < w; ++s) {
            numbers.push_back(rows_[members[s]]);
            rows.push_back(block_.data() + s * leading);
        }
        const Subset all = Subset::of(numbers);
        return kernel_.counted(kernel_values_,
                               [&] { return kernel_.source->tile(all, all, rows.data(), &watch); });
    }

    std::mt19937_64 random_;
    std::vector<std::int64_t> order_;
    std::int64_t next_ = 0;  // position of the pass in the order
    double best_gap_ = kInfinity;
    double best_dual_ = kInfinity;
    int still_ = 0;  // passes without progress
    Aligned<T> block_;
};

}  // namespace margrave
