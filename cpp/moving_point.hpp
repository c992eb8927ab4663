// A dual point whose variables move: its scores f = K beta follow, by kernel rows from the cache or
// by tiles.
#pragma once
#include <utility>

#include "dual_point.hpp"
#include "stall.hpp"

namespace margrave {

enum class Status { running, converged, stalled, stopped };

template <class T>
class MovingPoint : public DualPoint<T> {
    using Base = DualPoint<T>;

  public:
    using Base::y, Base::scores, Base::watch;

    MovingPoint(KernelRows<T> kernel, const DualProblem& problem)
        : Base(std::move(kernel), problem) {
        kernel_.cache->use(blocks_);
        diagonal_.assign(y.size(), NAN);
    }

    std::int64_t rounds() const { return rounds_; }

  protected:
    using Base::blocks_, Base::kernel_, Base::kernel_values_, Base::offsets_, Base::rows_;

    // Runs rounds until one ends the solve, the watch stops them, there are `enough` or they have
    // taken `seconds`.
    template <class E, class F>
    Status repeat(double seconds, E&& enough, F&& round) {
        const auto begin = std::chrono::steady_clock::now();
        Status status = Status::running;
        this->with_loss([&](const auto& loss) {
            while (status == Status::running) {
                if (watch.check())
                    status = Status::stopped;
                else if (enough() || seconds_since(begin) > seconds)
                    break;
                else
                    status = round(loss);
            }
        });
        return status;
    }

    // The kernel value of a row with itself, computed once.
    double diagonal(std::int64_t i) {
        if (std::isnan(diagonal_[i])) diagonal_[i] = kernel_.source->diagonal(rows_[i]);
        return diagonal_[i];
    }

    // The pieces of a cached kernel row; none if one is missing.
    std::vector<const T*> find(std::int64_t i) {
        std::vector<const T*> row;
        for (int b : blocks_) {
            const T* piece = kernel_.cache->find(rows_[i], b);
            if (!piece) return {};
            row.push_back(piece);
        }
        return row;
    }

    // scores += sum of change * kernel row, of (row, change) in any order
    bool add_rows(std::vector<std::pair<std::int64_t, double>> changes) {
        // In order, as neighbours may be close to each other: distant ones are skipped together.
        std::sort(changes.begin(), changes.end());
        std::vector<double> delta(y.size(), 0.0);
        std::vector<std::int64_t> rows;
        std::vector<double> change;
        for (const auto& [i, by] : changes) {
            rows.push_back(rows_[i]);
            change.push_back(by);
        }
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            const bool whole = kernel_.counted(kernel_values_, [&] {
                return kernel_.add(rows, change.data(), 1, blocks_[b], b == 0,
                                   delta.data() + offsets_[b], &watch);
            });
            if (!whole) return false;
        }
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += delta[i];
        return true;
    }

    std::int64_t rounds_ = 0;

  private:
    std::vector<double> diagonal_;  // of the kernel, as far as needed; else NaN
};

}  // namespace margrave
