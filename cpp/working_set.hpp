// The working-set solver for
//
//     min over beta   1/2 beta'K beta + sum_i h_i(beta_i)      lo_i <= beta_i <= hi_i, and sum beta
//     kept if `pairs`, of each side if there are two
//
// A round: (1) measure every row's rates up and low, the violation and the duality gap; (2) replace
// the older half of the working set W by the worst violators; (3) bring the kernel block of W up to
// date; (4) solve on W; (5) fetch the kernel rows of what changed, from the cache or by tiles; (6)
// add them to the scores f = K beta. Keeping half of W is essential: without it the solver forgets
// what it has just balanced and may never finish.
#pragma once
#include "moving_point.hpp"

namespace margrave {

template <class T>
class WorkingSet : public MovingPoint<T> {
    using Base = MovingPoint<T>;
    using Base::add_rows, Base::best_bias, Base::counts, Base::find, Base::measure, Base::moved,
        Base::sum_up, Base::with_loss;
    using Base::blocks_, Base::kernel_, Base::offsets_, Base::rows_, Base::loss_, Base::pairs_,
        Base::lo_, Base::hi_, Base::right_, Base::left_;
    using Base::last_, Base::own_gap_, Base::middle_, Base::sums_, Base::rounds_, Base::negligible_,
        Base::steps_, Base::kernel_values_;

  public:
    using Base::y, Base::C, Base::beta, Base::scores, Base::target, Base::watch;

    WorkingSet(KernelRows<T> kernel, std::vector<int> blocks, LossParams loss, bool pairs,
               double sum, double scale, std::vector<double> targets, std::vector<double> weights,
               std::vector<double> start, Surroundings around, int size)
        : Base(std::in_place, std::move(kernel), std::move(blocks), loss, pairs, sum, scale,
               std::move(targets), std::move(weights), std::move(start), std::move(around)) {
        const std::int64_t n = std::int64_t(y.size());
        capacity_ = int(std::min<std::int64_t>(n, size));
        leading_ = (capacity_ + 63) / 64 * 64 +
                   16;  // not a power of two: columns then spread over the cache
        block_.resize(std::size_t(capacity_) * leading_);
        scratch_.resize(7 * leading_);
        inside_.assign(n, 0);
    }

    // Runs rounds until the gap is reached, nothing moves, the watch stops it, or `max_rounds` or
    // `seconds` are over.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        std::int64_t done = 0;
        return this->repeat(
            seconds, [&] { return done++ >= max_rounds; },
            [&](const auto& loss) { return round(loss, records); });
    }

  private:
    template <class L>
    Status round(const L& loss, std::vector<Round>& records) {
        measure(loss);
        sum_up(loss);
        // The best bias takes some sixty passes: worth it near the end, and now and then to notice
        // that this is the end.
        if (own_gap_ > target && (own_gap_ < 3 * target || rounds_ % 8 == 0)) {
            best_bias(loss);
            sum_up(loss);
        }
        last_.round = rounds_;
        if (own_gap_ <= target || !(last_.violation > 0)) {
            records.push_back(last_);
            return own_gap_ <= target ? Status::converged : Status::stalled;
        }
        if (exhausted(loss) || this->is_indefinite()) {
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

    // A precision has done what it can when a sweep's worth of rounds brings next to nothing: in
    // single, where double is there to go on, a dual gain below a hundredth of the gap and a gap
    // that is hardly better; in double, no gain beyond rounding and no better gap either (near the
    // optimum the gap falls like the square root of the dual's error). Variables with a sum that is
    // not zero may cancel each other: then rounding is that of their size. Hulls may overlap, and
    // their distance be long on its way to zero: nothing is there, or nothing to be found if it is
    // small, falls no more and no direction separates them.
    template <class L>
    bool exhausted(const L&) {
        best_gap_ = std::min(best_gap_, last_.gap);
        best_dual_ = std::min(best_dual_, last_.dual);
        double size = std::fabs(last_.dual);
        double largest = 0;
        for (std::int64_t i : members_) largest = std::max(largest, std::fabs(this->diagonal(i)));
        size = std::max(size, sums_[0] * sums_[0] * largest);
        if (L::sides && last_.dual > 0 && last_.primal >= last_.dual) {
            if (last_.dual <= (sizeof(T) == 4 ? 1e-6 : 1e-12) * size) return true;
            if (rounds_ >= fallen_round_ + 30) {
                const bool slow = last_.dual > 0.9 * fallen_dual_;
                fallen_round_ = rounds_;
                fallen_dual_ = last_.dual;
                if (slow && last_.dual <= 1e-6 * size) return true;
            }
        }
        // Rows that are almost linearly dependent make steps creep: at this pace it would take
        // forever.
        if (rounds_ >= slow_round_ + kSlow) {
            const bool slow = slow_dual_ - best_dual_ <= 1e-9 * (last_.primal + last_.dual) &&
                              best_gap_ > 0.99 * slow_gap_;
            slow_round_ = rounds_;
            slow_dual_ = best_dual_;
            slow_gap_ = best_gap_;
            if (slow) return true;
        }
        const std::int64_t window = 10 + 8 * std::int64_t(y.size()) / capacity_;
        if (rounds_ < marked_round_ + window) return false;
        const double gain =
            marked_dual_ - best_dual_;  // rounding lets the dual rise and fall again
        const bool still = sizeof(T) == 4 ? gain <= 0.01 * (last_.primal + last_.dual) &&
                                                best_gap_ > 0.9 * marked_gap_
                                          : gain <= 2e-16 * size && best_gap_ > 0.99 * marked_gap_;
        const bool first = marked_round_ == 0;
        marked_round_ = rounds_;
        marked_dual_ = best_dual_;
        marked_gap_ = best_gap_;
        return still && !first;
    }

    template <class L>
    Status improve(const L& loss) {
        kernel_.cache->begin_round();
        const std::vector<int> fresh = choose(loss);
        if (!refresh_block(fresh)) return Status::stopped;
        const int w = int(members_.size());
        // Local copies of the working set's variables.
        std::vector<double> wy(w);
        std::vector<double> wC(w);
        std::vector<double> wlo(w);
        std::vector<double> whi(w);
        std::vector<double> wbeta(w);
        std::vector<double> before(w);
        std::vector<double> wf(w);
        std::vector<double> wd(w);
        for (int s = 0; s < w; ++s) {
            const std::int64_t i = members_[s];
            wy[s] = y[i];
            wC[s] = C[i];
            wlo[s] = lo_[i];
            whi[s] = hi_[i];
            wbeta[s] = before[s] = beta[i];
            wf[s] = scores[i];
            wd[s] = this->diagonal(i);
        }
        Inner<T> inner{w,
                       leading_,
                       block_.data(),
                       wy.data(),
                       wC.data(),
                       wlo.data(),
                       whi.data(),
                       wd.data(),
                       wbeta.data(),
                       wf.data(),
                       inner_share_ * last_.violation,
                       negligible_,
                       std::int64_t(100) * w,
                       scratch_.data()};
        const std::int64_t steps =
            kernel_.isa->template operations<T>().solve(loss_, pairs_, inner);
        steps_ += steps;

        std::vector<std::int64_t> changed;
        std::vector<double> change;
        for (int s = 0; s < w; ++s)
            if (wbeta[s] != before[s]) {
                changed.push_back(members_[s]);
                change.push_back(wbeta[s] - before[s]);
            }
        if (changed.empty()) {
            // The worst violators were at hand and nothing moved: solve more exactly; then
            // precision is reached.
            if (inner_share_ < 1e-3) return Status::stalled;
            inner_share_ *= 0.1;
            return Status::running;
        }
        if (members_.size() == y.size())
            add_from_block(wbeta, before);
        else if (!add_rows(changed, change))
            return Status::stopped;
        for (int s = 0; s < w; ++s)
            if (wbeta[s] != before[s]) {
                beta[members_[s]] = wbeta[s];
                moved(loss, members_[s]);
            }
        return Status::running;
    }

    // The new members' places in W. Violators outside W: with pairs, the largest up and the
    // smallest low in equal number.
    template <class L>
    std::vector<int> choose(const L& loss) {
        if (capacity_ < 8) {  // too few to balance old against new: take the worst of all
            for (std::int64_t i : members_) inside_[i] = 0;
            members_.clear();
            age_.clear();
        }
        using Candidate = std::pair<double, std::int64_t>;
        struct Part {
            std::vector<Candidate> up, down;
        };
        std::vector<Candidate> up, down;
        for (const Part& part :
             this->template chunked<Part>([&](std::int64_t from, std::int64_t to) {
                 Part p;
                 for (std::int64_t i = from; i < to; ++i) {
                     if (inside_[i] || !counts(loss, i)) continue;
                     const double middle = middle_[this->side(loss, i)];
                     const double rise = -scores[i] - right_[i] - middle;
                     const double fall = middle + scores[i] + left_[i];
                     if (rise > 0 && rise >= fall)
                         p.up.emplace_back(-rise, i);
                     else if (fall > 0)
                         (pairs_ ? p.down : p.up).emplace_back(-fall, i);
                 }
                 return p;
             })) {
            up.insert(up.end(), part.up.begin(), part.up.end());
            down.insert(down.end(), part.down.begin(), part.down.end());
        }
        const std::size_t half = members_.empty() ? capacity_ : std::max(1, capacity_ / 2);
        const std::size_t share = pairs_ ? (half + 1) / 2 : half;
        std::size_t ups = std::min(up.size(), std::max(share, half - std::min(half, down.size())));
        std::size_t downs = std::min(down.size(), half - std::min(half, ups));
        if (!pairs_) downs = 0;
        const auto front = [](std::vector<Candidate>& c, std::size_t n) {
            if (n < c.size()) std::nth_element(c.begin(), c.begin() + n, c.end());
            c.resize(n);
        };
        front(up, ups);
        front(down, downs);
        up.insert(up.end(), down.begin(), down.end());

        std::vector<int> places;
        const int room = capacity_ - int(members_.size());
        const int leave = std::max(0, int(up.size()) - room);
        for (int t = 0; t < leave; ++t) {  // the oldest leave
            const int s = age_[t];
            inside_[members_[s]] = 0;
            places.push_back(s);
        }
        age_.erase(age_.begin(), age_.begin() + leave);
        for (std::size_t t = 0; t < up.size(); ++t) {
            const std::int64_t i = up[t].second;
            if (t < std::size_t(leave))
                members_[places[t]] = i;
            else {
                places.push_back(int(members_.size()));
                members_.push_back(i);
            }
            inside_[i] = 1;
            age_.push_back(places[t]);
        }
        return places;
    }

    // Kernel values of the new members with all of W: from cached rows where a value is dear, else
    // by a tile.
    bool refresh_block(const std::vector<int>& fresh) {
        const int w = int(members_.size());
        std::vector<std::int64_t> all(w);
        std::vector<std::int64_t> missing;
        for (int s = 0; s < w; ++s) all[s] = rows_[members_[s]];
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
            T* to = block_.data() + gathered[g] * leading_;
            for (int t = 0; t < w; ++t) {
                const std::int64_t j = members_[t];
                int b = 0;
                while (j >= offsets_[b + 1]) ++b;
                to[t] = pieces[g][b][j - offsets_[b]];
            }
        });
        if (!missing.empty() &&
            !kernel_.source->tile({missing.data(), 0, std::int64_t(missing.size())},
                                  {all.data(), 0, w}, out.data(), &watch)) {
            members_.clear();
            age_.clear();
            std::fill(inside_.begin(), inside_.end(), 0);
            return false;
        }
        kernel_values_ += std::int64_t(missing.size()) * w;
        mirror(fresh);
        return true;
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

    // The same where the working set is the whole problem: its block holds all kernel rows.
    void add_from_block(const std::vector<double>& after, const std::vector<double>& before) {
        const int w = int(members_.size());
        std::vector<const T*> rows;
        std::vector<double> change;
        std::vector<double> delta(w, 0.0);
        for (int s = 0; s < w; ++s)
            if (after[s] != before[s]) {
                rows.push_back(block_.data() + s * leading_);
                change.push_back(after[s] - before[s]);
            }
        kernel_.isa->template operations<T>().combine(rows.data(), change.data(), int(rows.size()),
                                                      0, w, delta.data());
        for (int s = 0; s < w; ++s) scores[members_[s]] += delta[s];
    }

    double inner_share_ = 0.1;  // of the violation: the tolerance on W
    std::int64_t marked_round_ = 0;
    double marked_dual_ = 0;
    double marked_gap_ = kInfinity;
    double best_gap_ = kInfinity;
    double best_dual_ = kInfinity;
    static constexpr std::int64_t kSlow = 1000;  // rounds
    std::int64_t slow_round_ = 0;
    double slow_dual_ = kInfinity;
    double slow_gap_ = kInfinity;
    std::int64_t fallen_round_ = 0;
    double fallen_dual_ = kInfinity;
    int capacity_;
    std::int64_t leading_;
    std::vector<std::int64_t> members_;  // of W, by place
    std::vector<int> age_;               // places, oldest first
    std::vector<char> inside_;
    Aligned<T> block_, scratch_;
};

}  // namespace margrave
