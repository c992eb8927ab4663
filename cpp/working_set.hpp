// The working-set solver for
//
//     min over beta   1/2 beta'K beta + sum_i h_i(beta_i)      lo_i <= beta_i <= hi_i
//
// where a free intercept fixes the sum of beta, or that of each side if there are two. A round:
//
//     1. measure every row's KKT violation, and the duality gap;
//     2. replace the older half of the working set W by the worst violators;
//     3. update the kernel block of W;
//     4. solve on W;
//     5. fetch the kernel rows of the changed variables, from the cache or by tiles;
//     6. add them to the scores f = K beta.
//
// Keeping half of W is essential: without it the solver forgets what it has just balanced and may
// never finish.
#pragma once
#include <functional>

#include "moving_point.hpp"

namespace margrave {

template <class T>
class WorkingSet : public MovingPoint<T> {
    using Base = MovingPoint<T>;
    using Base::add_rows, Base::best_bias, Base::counts, Base::find, Base::measure, Base::moved,
        Base::sum_up;
    using Base::has_free_intercept_, Base::hi_, Base::kernel_, Base::left_derivative_, Base::lo_,
        Base::loss_, Base::offsets_, Base::right_derivative_, Base::rows_;
    using Base::kernel_values_, Base::last_, Base::middle_, Base::negligible_, Base::own_gap_,
        Base::rounds_, Base::steps_, Base::sums_;

  public:
    using Base::y, Base::C, Base::beta, Base::scores, Base::target, Base::watch;

    // What changes of some variables add to all scores, where others compute it; false if stopped.
    using Spread = std::function<bool(std::vector<std::int64_t>&& rows,
                                      std::vector<double>&& change, std::vector<double>& sums)>;
    Spread spread;

    WorkingSet(KernelRows<T> kernel, const DualProblem& problem, int size)
        : Base(std::move(kernel), problem) {
        const std::int64_t n = std::int64_t(y.size());
        capacity_ = int(std::min<std::int64_t>(n, size));
        // Not a power of two, so that columns spread over the cache.
        leading_ = (capacity_ + 63) / 64 * 64 + 16;
        block_.resize(std::size_t(capacity_) * leading_);
        scratch_.resize(7 * leading_);
        inside_.assign(n, 0);
        Losses::visit(loss_, [&](const auto& loss) {
            stall_ = StallRule(10 + 8 * n / capacity_, sizeof(T) == 4, loss.sides);
        });
    }

    // Runs rounds until the gap is reached, nothing moves, the watch stops it, or `max_rounds` or
    // `seconds` are used up.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        std::int64_t done = 0;
        return this->repeat(
            seconds, [&] { return done++ >= max_rounds; },
            [&](const auto& loss) { return round(loss, records); });
    }

  private:
    template <class L>
    Status round(const L& loss, std::vector<Round>& records) {
        // 1. KKT violations, and the gap
        measure(loss);
        sum_up(loss);
        // The best bias takes some sixty passes: worth it near the end, and now and then to see
        // whether the end is near.
        if (own_gap_ > target && (own_gap_ < 3 * target || rounds_ % 8 == 0)) {
            best_bias(loss);
            sum_up(loss);
        }
        last_.round = rounds_;
        if (own_gap_ <= target || !(last_.violation > 0)) {
            records.push_back(last_);
            return own_gap_ <= target ? Status::converged : Status::stalled;
        }
        if (stall_.check(rounds_, last_, dual_size()) || this->is_indefinite()) {
            records.push_back(last_);
            return Status::stalled;
        }
        const Status status = improve(loss);
        if (status == Status::running) {
            ++rounds_;
            records.push_back(last_);
        }
        return status;
    }

    // The size of the terms behind the dual value, on which its rounding depends: variables whose
    // sum is not zero may cancel each other.
    double dual_size() {
        double largest = 0;
        for (std::int64_t i : members_) largest = std::max(largest, std::fabs(this->diagonal(i)));
        return std::max(std::fabs(last_.dual), sums_[0] * sums_[0] * largest);
    }

    // Steps 2 to 6 of a round.
    template <class L>
    Status improve(const L& loss) {
        kernel_.cache->begin_round();
        // 2. the worst violators
        const std::vector<int> fresh = choose(loss);
        // 3. the kernel block
        if (!refresh_block(fresh)) return Status::stopped;
        // 4. the solution on W
        const std::vector<double> after = solve();
        if (watch.stopped()) return Status::stopped;

        std::vector<std::pair<std::int64_t, double>> changes;
        for (std::size_t s = 0; s < members_.size(); ++s) {
            const std::int64_t i = members_[s];
            if (after[s] != beta[i]) changes.emplace_back(i, after[s] - beta[i]);
        }
        if (changes.empty()) {
            // The worst violators are in W and nothing has moved: solve more exactly, down to the
            // limits of the precision.
            if (inner_share_ < 1e-3) return Status::stalled;
            inner_share_ *= 0.1;
            return Status::running;
        }
        // 5. and 6. the kernel rows of the changed variables, added to the scores
        if (members_.size() == y.size())
            add_from_block(after);
        else if (!(spread ? add_spread(std::move(changes)) : add_rows(std::move(changes))))
            return Status::stopped;
        for (std::size_t s = 0; s < members_.size(); ++s) {
            const std::int64_t i = members_[s];
            if (after[s] == beta[i]) continue;
            beta[i] = after[s];
            moved(loss, i);
        }
        return Status::running;
    }

    // The inner solver on W: the new values of its variables.
    std::vector<double> solve() {
        const int w = int(members_.size());
        const auto gather = [&](const std::vector<double>& from) {
            std::vector<double> values(w);
            for (int s = 0; s < w; ++s) values[s] = from[members_[s]];
            return values;
        };
        const std::vector<double> own_y = gather(y);
        const std::vector<double> own_C = gather(C);
        const std::vector<double> lo = gather(lo_);
        const std::vector<double> hi = gather(hi_);
        const std::vector<double> f = gather(scores);
        std::vector<double> diagonal(w);
        for (int s = 0; s < w; ++s) diagonal[s] = this->diagonal(members_[s]);
        std::vector<double> values = gather(beta);
        Inner<T> inner;
        inner.size = w;
        inner.leading = leading_;
        inner.kernel = block_.data();
        inner.y = own_y.data();
        inner.C = own_C.data();
        inner.lo = lo.data();
        inner.hi = hi.data();
        inner.diagonal = diagonal.data();
        inner.beta = values.data();
        inner.scores = f.data();
        inner.tolerance = inner_share_ * last_.violation;
        inner.negligible = negligible_;
        inner.max_steps = std::int64_t(100) * w;
        inner.scratch = scratch_.data();
        inner.is_over = [](void* of) { return static_cast<Watch*>(of)->check(); };
        inner.watch = &watch;
        steps_ += kernel_.isa->template operations<T>().solve(loss_, has_free_intercept_, inner);
        return values;
    }

    using Candidate = std::pair<double, std::int64_t>;  // minus the violation, and the row
    struct Violators {
        std::vector<Candidate> up, down;
    };

    // Chooses the worst violators outside W, with a free intercept as many to raise as to lower,
    // and returns their places in W.
    template <class L>
    std::vector<int> choose(const L& loss) {
        if (capacity_ < 8) {  // too few to balance old against new: take the worst of all
            for (std::int64_t i : members_) inside_[i] = 0;
            members_.clear();
            age_.clear();
        }
        auto [up, down] = violators(loss);
        const std::size_t half = members_.empty() ? capacity_ : std::max(1, capacity_ / 2);
        const std::size_t share = has_free_intercept_ ? (half + 1) / 2 : half;
        const std::size_t ups =
            std::min(up.size(), std::max(share, half - std::min(half, down.size())));
        const std::size_t downs =
            has_free_intercept_ ? std::min(down.size(), half - std::min(half, ups)) : 0;
        const auto keep_worst = [](std::vector<Candidate>& c, std::size_t n) {
            if (n < c.size()) std::nth_element(c.begin(), c.begin() + n, c.end());
            c.resize(n);
        };
        keep_worst(up, ups);
        keep_worst(down, downs);
        up.insert(up.end(), down.begin(), down.end());
        return take_in(up);
    }

    // The rows outside W that violate the KKT conditions; without a free intercept all in `up`.
    template <class L>
    Violators violators(const L& loss) {
        const auto parts =
            this->template chunked<Violators>([&](std::int64_t from, std::int64_t to) {
                Violators found;
                for (std::int64_t i = from; i < to; ++i) {
                    if (inside_[i] || !counts(loss, i)) continue;
                    const double middle = middle_[this->side(loss, i)];
                    const double rise = -scores[i] - right_derivative_[i] - middle;
                    const double fall = middle + scores[i] + left_derivative_[i];
                    if (rise > 0 && rise >= fall)
                        found.up.emplace_back(-rise, i);
                    else if (fall > 0)
                        (has_free_intercept_ ? found.down : found.up).emplace_back(-fall, i);
                }
                return found;
            });
        Violators all;
        for (const Violators& part : parts) {
            all.up.insert(all.up.end(), part.up.begin(), part.up.end());
            all.down.insert(all.down.end(), part.down.begin(), part.down.end());
        }
        return all;
    }

    // Puts new members in free places, and in those of the oldest members; returns these places.
    std::vector<int> take_in(const std::vector<Candidate>& fresh) {
        std::vector<int> places;
        const int room = capacity_ - int(members_.size());
        const int leave = std::max(0, int(fresh.size()) - room);
        for (int t = 0; t < leave; ++t) {
            const int s = age_[t];
            inside_[members_[s]] = 0;
            places.push_back(s);
        }
        age_.erase(age_.begin(), age_.begin() + leave);
        for (std::size_t t = 0; t < fresh.size(); ++t) {
            const std::int64_t i = fresh[t].second;
            if (t < std::size_t(leave)) {
                members_[places[t]] = i;
            } else {
                places.push_back(int(members_.size()));
                members_.push_back(i);
            }
            inside_[i] = 1;
            age_.push_back(places[t]);
        }
        return places;
    }

    // Kernel values of the new members with all of W: from cached rows where a value is expensive,
    // else by a tile.
    bool refresh_block(const std::vector<int>& fresh) {
        const int w = int(members_.size());
        std::vector<std::int64_t> all(w);
        for (int s = 0; s < w; ++s) all[s] = rows_[members_[s]];
        std::vector<std::int64_t> missing;
        std::vector<T*> out;
        std::vector<int> gathered;
        std::vector<std::vector<const T*>> pieces;
        for (int s : fresh) {
            std::vector<const T*> row;
            if (kernel_.source->cost() > 128) row = find(members_[s]);
            if (row.empty()) {
                missing.push_back(all[s]);
                out.push_back(block_.data() + s * leading_);
            } else {
                gathered.push_back(s);
                pieces.push_back(std::move(row));
            }
        }
        kernel_.threads->run(std::int64_t(gathered.size()), nullptr, [&](std::int64_t g, int) {
            gather_row(pieces[g], block_.data() + gathered[g] * leading_);
        });
        const bool whole = missing.empty() || kernel_.counted(kernel_values_, [&] {
            return kernel_.source->tile(Subset::of(missing), Subset::of(all), out.data(), &watch);
        });
        if (!whole) {
            members_.clear();
            age_.clear();
            std::fill(inside_.begin(), inside_.end(), 0);
            return false;
        }
        mirror(fresh);
        return true;
    }

    // The columns of W from a cached kernel row, which is in one piece per block.
    void gather_row(const std::vector<const T*>& pieces, T* to) const {
        for (std::size_t t = 0; t < members_.size(); ++t) {
            const std::int64_t j = members_[t];
            int b = 0;
            while (j >= offsets_[b + 1]) ++b;
            to[t] = pieces[b][j - offsets_[b]];
        }
    }

    // Copies the fresh rows of the symmetric block into its columns, 16 rows at a time so that
    // whole cache lines are written.
    void mirror(const std::vector<int>& fresh) {
        const int w = int(members_.size());
        const int per = 64;
        std::vector<char> is_fresh(w, 0);
        for (int s : fresh) is_fresh[s] = 1;
        kernel_.threads->run((w + per - 1) / per, nullptr, [&](std::int64_t chunk, int) {
            const int from = int(chunk) * per;
            const int to = std::min(w, from + per);
            for (std::size_t f = 0; f < fresh.size(); f += 16)
                for (int t = from; t < to; ++t) {
                    if (is_fresh[t]) continue;
                    T* row = block_.data() + t * leading_;
                    for (std::size_t k = f; k < std::min(f + 16, fresh.size()); ++k)
                        row[fresh[k]] = block_[fresh[k] * leading_ + t];
                }
        });
    }

    // Steps 5 and 6 by `spread`.
    bool add_spread(std::vector<std::pair<std::int64_t, double>> changes) {
        std::sort(changes.begin(), changes.end());
        std::vector<std::int64_t> rows;
        std::vector<double> change;
        for (const auto& [i, by] : changes) {
            rows.push_back(i);
            change.push_back(by);
        }
        std::vector<double> sums(y.size());
        if (!spread(std::move(rows), std::move(change), sums)) return false;
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += sums[i];
        return true;
    }

    // Adds the changes to the scores where W is the whole problem: its block has all kernel rows.
    void add_from_block(const std::vector<double>& after) {
        const int w = int(members_.size());
        std::vector<const T*> rows;
        std::vector<double> change;
        std::vector<double> delta(w, 0.0);
        for (int s = 0; s < w; ++s) {
            if (after[s] == beta[members_[s]]) continue;
            rows.push_back(block_.data() + s * leading_);
            change.push_back(after[s] - beta[members_[s]]);
        }
        kernel_.isa->template operations<T>().combine(rows.data(), change.data(), int(rows.size()),
                                                      0, w, delta.data());
        for (int s = 0; s < w; ++s) scores[members_[s]] += delta[s];
    }

    double inner_share_ = 0.1;  // tolerance on W, as a fraction of the violation
    StallRule stall_{0, false, false};
    int capacity_;
    std::int64_t leading_;
    std::vector<std::int64_t> members_;  // of W, by place
    std::vector<int> age_;               // places, oldest first
    std::vector<char> inside_;
    Aligned<T> block_, scratch_;
};

}  // namespace margrave
