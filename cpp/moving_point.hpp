// A dual point whose variables move: its scores f = K beta follow, by kernel rows from the cache or by tiles.
#pragma once
#include <utility>

#include "dual_point.hpp"

namespace margrave {

enum class Status { running, converged, stalled, stopped };

template <class T>
class MovingPoint : public DualPoint<T> {
    using Base = DualPoint<T>;

  public:
    using Base::y, Base::scores, Base::watch;

    template <class... A>
    explicit MovingPoint(std::in_place_t, A&&... arguments) : Base(std::forward<A>(arguments)...) {
        kernel_.cache->use(blocks_);
        uses_.assign(y.size(), 0), diagonal_.assign(y.size(), NAN);
    }

    std::int64_t rounds() const { return rounds_; }

  protected:
    using Base::blocks_, Base::kernel_, Base::kernel_values_, Base::offsets_, Base::rows_;

    // Rounds until one says that it was the last, the watch stops them, or they are `enough` or take too long.
    template <class E, class F>
    Status repeat(double seconds, E&& enough, F&& round) {
        const auto begin = std::chrono::steady_clock::now();
        Status status = Status::running;
        this->with_loss([&](const auto& loss) {
            while (status == Status::running) {
                if (watch.check()) status = Status::stopped;
                else if (enough() || std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds) break;
                else status = round(loss);
            }
        });
        return status;
    }

    // The kernel's value of a row with itself, asked for once.
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

    // Fresh memory for a value costs a quarter of a nanosecond, and up to five where a host has to find it first; a value of
    // few features costs less than that to compute again. As with renting and buying: keep a row once it has been computed
    // as often as the memory would have cost.
    bool worth_keeping(std::int64_t i, std::size_t block) {
        if (block == 0 && uses_[i] < 255) ++uses_[i];
        const double value = 0.2 + 0.012 * double(kernel_.source->cost());  // nanoseconds
        return uses_[i] * value >= 1.9;
    }

    // scores += sum of change * kernel row; rows that the cache has no room for are used as they are computed.
    bool add_rows(const std::vector<std::int64_t>& changed, const std::vector<double>& change) {
        std::vector<double> delta(y.size(), 0.0);
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            const int block = blocks_[b];
            const std::int64_t first = kernel_.starts[block], width = offsets_[b + 1] - offsets_[b];
            std::vector<const T*> kept;
            std::vector<double> kept_change, loose_change;
            std::vector<std::int64_t> missing, loose;
            std::vector<T*> out;
            for (std::size_t c = 0; c < changed.size(); ++c) {
                const std::int64_t row = rows_[changed[c]];
                T* piece = kernel_.cache->find(row, block);
                if (!piece && worth_keeping(changed[c], b) && (piece = kernel_.cache->make(row, block))) missing.push_back(row), out.push_back(piece);
                if (piece) kept.push_back(piece), kept_change.push_back(change[c]);
                else loose.push_back(row), loose_change.push_back(change[c]);
            }
            double* to = delta.data() + offsets_[b];
            bool whole = missing.empty() ||
                         kernel_.source->tile({missing.data(), 0, std::int64_t(missing.size())}, {nullptr, first, width}, out.data(), &watch);
            if (whole && !loose.empty())
                whole = kernel_.source->apply({loose.data(), 0, std::int64_t(loose.size())}, loose_change.data(), 1, {nullptr, first, width}, to, &watch);
            if (!whole) {
                for (std::int64_t row : missing) kernel_.cache->drop(row, block);
                return false;
            }
            kernel_values_ += std::int64_t(missing.size() + loose.size()) * width;
            constexpr std::int64_t per = 4096;
            kernel_.threads->run((width + per - 1) / per, nullptr, [&](std::int64_t t, int) {
                kernel_.isa->template operations<T>().combine(kept.data(), kept_change.data(), int(kept.size()), t * per, std::min(width, (t + 1) * per), to);
            });
        }
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += delta[i];
        return true;
    }

    std::int64_t rounds_ = 0;

  private:
    std::vector<double> diagonal_;     // of the kernel, as far as it was needed
    std::vector<unsigned char> uses_;  // how often a row's kernel values were computed
};

}  // namespace margrave
