// Several classes in one problem: row i has a score f_ic for each of k classes and a variable
// beta_ic = C_i ([c = y_i] - p_ic) for each, where p_i is a point of the simplex:
//
//     primal   1/2 sum_c |w_c|^2 + sum_i C_i loss(f_i + b, y_i)
//     dual     1/2 sum_c beta_c'K beta_c + sum_i C_i h(p_i, y_i)
//
// The bias b is given and fixed. Rows outside, whose variables stay fixed, shift the scores of a
// part of a larger problem. A round works on the rows of largest gap and half of those of the last
// round: exact steps for one row after the other on their kernel block. Then it updates the scores
// of all rows.
#pragma once
#include "joint_loss.hpp"
#include "moving_point.hpp"

namespace margrave {

template <class T>
class JointPoint {
  public:
    std::vector<double> beta, scores;  // row by row, k numbers each; scores without the bias
    double target = 1e-3;
    Watch watch;

    JointPoint(KernelRows<T> kernel, bool softmax, std::vector<std::int64_t> labels, int classes,
               std::vector<double> weights, std::vector<double> start, std::vector<double> bias,
               FixedPart fixed, int size)
        : kernel_(std::move(kernel)),
          softmax_(softmax),
          y_(labels.begin(), labels.end()),
          k_(classes),
          C_(std::move(weights)),
          bias_(std::move(bias)),
          fixed_(std::move(fixed)) {
        const std::int64_t n = std::int64_t(y_.size());
        p_.resize(n * k_);
        scores = fixed_.scores;
        scores.resize(n * k_);
        gaps_.resize(n);
        inside_.assign(n, 0);
        beta.assign(n * k_, 0.0);
        capacity_ = int(std::min<std::int64_t>(n, size));
        with_loss([&](auto loss) {
            for (std::int64_t i = 0; i < n; ++i) {
                for (int c = 0; c < k_ && start.empty(); ++c)
                    p_[i * k_ + c] = loss.start(c, y_[i], k_);
                if (start.empty())
                    set_beta(i);
                else
                    take(i, start.data() + i * k_);
            }
        });
    }

    std::int64_t rounds() const { return rounds_; }
    std::int64_t steps() const { return steps_; }
    std::int64_t kernel_values() const { return kernel_values_; }
    void set_bias(std::vector<double> bias) {
        bias_ = std::move(bias);
        best_gap_ = marked_gap_ = kInfinity;
        marked_round_ = rounds_;
    }

    // How far each row is from the optimum: its gap term.
    std::vector<double> kkt_violations() {
        figures();
        return gaps_;
    }
    // Takes new values of some rows with their scores, and updates the scores of the others; false
    // if the watch stopped it.
    bool adopt(const std::vector<std::int64_t>& rows, const std::vector<double>& values,
               const std::vector<double>& row_scores) {
        std::vector<char> is_given(y_.size(), 0);
        std::vector<std::int64_t> changed, places, others;
        std::vector<double> change;
        for (std::size_t t = 0; t < rows.size(); ++t) {
            const double* now = values.data() + t * k_;
            const double* then = beta.data() + rows[t] * k_;
            is_given[rows[t]] = 1;
            if (std::equal(now, now + k_, then)) continue;
            changed.push_back(rows[t]);
            places.push_back(std::int64_t(t));
            for (int c = 0; c < k_; ++c) change.push_back(now[c] - then[c]);
        }
        for (std::int64_t i = 0; i < std::int64_t(y_.size()); ++i)
            if (!is_given[i]) others.push_back(i);
        std::vector<double> sums(others.size() * k_);
        const bool whole = others.empty() || kernel_.counted(kernel_values_, [&] {
            return kernel_.source->apply(Subset::of(changed), change.data(), k_, Subset::of(others),
                                         sums.data(), &watch);
        });
        if (!whole) return false;
        for (std::size_t t = 0; t < others.size(); ++t)
            for (int c = 0; c < k_; ++c) scores[others[t] * k_ + c] += sums[t * k_ + c];
        for (std::size_t t = 0; t < rows.size(); ++t)
            std::copy_n(row_scores.data() + t * k_, k_, scores.data() + rows[t] * k_);
        for (std::size_t t = 0; t < changed.size(); ++t)
            take(changed[t], values.data() + places[t] * k_);
        return true;
    }

    // Back to zero, for a start whose scores could not be computed in time.
    void forget() {
        for (std::size_t i = 0; i < y_.size(); ++i)
            for (int c = 0; c < k_; ++c) {
                p_[i * k_ + c] = c == y_[i];
                beta[i * k_ + c] = 0;
            }
    }
    // f = K beta from scratch.
    bool rebuild() { return multiply(*kernel_.source); }
    // The same in double precision, and the figures from it.
    bool certify(Round& record) {
        if (!multiply(*kernel_.exact)) return false;
        record = figures();
        return true;
    }
    Round figures() {
        with_loss([&](auto loss) { measure(loss); });
        return last_;
    }

    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        const auto begin = std::chrono::steady_clock::now();
        Status status = Status::running;
        with_loss([&](auto loss) {
            for (std::int64_t r = 0; status == Status::running; ++r) {
                if (watch.check())
                    status = Status::stopped;
                else if (r >= max_rounds || seconds_since(begin) > seconds)
                    break;
                else
                    status = round(loss, records);
            }
        });
        return status;
    }

  private:
    template <class F>
    void with_loss(F&& f) {
        if (softmax_)
            f(Softmax{});
        else
            f(CrammerSinger{});
    }

    // The point of the simplex of given variables.
    void take(std::int64_t i, const double* values) {
        double* p = p_.data() + i * k_;
        double sum = 0;
        for (int c = 0; c < k_; ++c) {
            p[c] = std::max(0.0, double(c == y_[i]) - values[c] / C_[i]);
            sum += p[c];
        }
        if (std::fabs(sum - 1) <= 1e-15 * k_) {
            std::copy_n(values, k_, beta.data() + i * k_);
            return;
        }
        for (int c = 0; c < k_; ++c) p[c] /= sum;
        set_beta(i);
    }
    void set_beta(std::int64_t i) {
        const double* p = p_.data() + i * k_;
        for (int c = 0; c < k_; ++c)
            beta[i * k_ + c] = C_[i] * (c == y_[i] ? others(p, y_[i], k_) : -p[c]);
    }

    // What a step from p = `old` to `now` changes in beta; its sum is zero, as that of beta.
    void change_of(std::int64_t i, const double* old, const double* now, double* by) const {
        for (int c = 0; c < k_; ++c) by[c] = old[c] - now[c];
        by[y_[i]] = -others(by, y_[i], k_);
        for (int c = 0; c < k_; ++c) by[c] *= C_[i];
    }

    double shift(std::size_t j) const { return fixed_.shift.empty() ? 0 : fixed_.shift[j]; }

    // A row's scores with the bias.
    const double* with_bias(const double* f, double* out) const {
        for (int c = 0; c < k_; ++c) out[c] = f[c] + bias_[c];
        return out;
    }

    struct Sums {
        double gap = 0;
        double dual = 0;
        std::int64_t support = 0;
    };

    // The gap terms of some rows, with their sum and what the rows add to the dual.
    template <class L>
    Sums sum_rows(const L& loss, std::int64_t from, std::int64_t to) {
        std::vector<double> f(k_);
        Sums sums;
        for (std::int64_t i = from; i < to; ++i) {
            const double* p = p_.data() + i * k_;
            const double* b = beta.data() + i * k_;
            const double* s = scores.data() + i * k_;
            gaps_[i] = C_[i] * loss.gap(p, with_bias(s, f.data()), y_[i], k_);
            sums.gap += gaps_[i];
            sums.dual += C_[i] * loss.h(p, y_[i], k_);
            bool any = false;
            for (int c = 0; c < k_; ++c) {
                sums.dual += 0.5 * b[c] * (s[c] + shift(i * k_ + c));
                any |= b[c] != 0;
            }
            sums.support += any;
        }
        return sums;
    }

    template <class L>
    void measure(const L& loss) {
        const std::int64_t n = std::int64_t(y_.size());
        constexpr std::int64_t per = 4096;
        std::vector<Sums> parts((n + per - 1) / per);
        kernel_.threads->run(std::int64_t(parts.size()), nullptr, [&](std::int64_t t, int) {
            parts[t] = sum_rows(loss, t * per, std::min(n, (t + 1) * per));
        });
        Sums all;
        all.dual = fixed_.dual;
        for (const Sums& part : parts) {
            all.gap += part.gap;
            all.dual += part.dual;
            all.support += part.support;
        }
        // The bias is a given number here: its share of the primal is b . sum beta.
        for (int c = 0; c < k_; ++c) {
            double sum = 0;
            for (std::int64_t i = 0; i < n; ++i) sum += beta[i * k_ + c];
            all.dual += bias_[c] * sum;
        }
        last_.support = all.support;
        last_.dual = all.dual;
        last_.primal = all.gap - all.dual;
        last_.gap = all.gap / std::max({std::fabs(all.dual), std::fabs(last_.primal), 1e-300});
        last_.violation = *std::max_element(gaps_.begin(), gaps_.end());
        last_.when = std::chrono::steady_clock::now();
        last_.round = rounds_;
        last_.steps = steps_;
        last_.kernel_values = kernel_values_;
    }

    template <class L>
    Status round(const L& loss, std::vector<Round>& records) {
        measure(loss);
        records.push_back(last_);
        if (last_.gap <= target) return Status::converged;
        best_gap_ = std::min(best_gap_, last_.gap);
        if (rounds_ >= marked_round_ + 100 + 8 * std::int64_t(y_.size()) / capacity_) {
            const bool still = rounds_ > 0 && best_gap_ > 0.99 * marked_gap_;
            marked_round_ = rounds_;
            marked_gap_ = best_gap_;
            if (still) return Status::stalled;
        }
        choose();
        if (!solve(loss)) return Status::stopped;
        ++rounds_;
        return Status::running;
    }

    // The newer half of the last rows, and the rows of largest gap among the others.
    void choose() {
        const std::int64_t n = std::int64_t(y_.size());
        if (std::int64_t(members_.size()) == n) return;
        const std::int64_t keep = members_.empty() ? 0 : capacity_ / 2;
        for (std::size_t s = 0; s + keep < members_.size(); ++s) inside_[members_[s]] = 0;
        const std::int64_t kept = std::min<std::int64_t>(keep, std::int64_t(members_.size()));
        members_.erase(members_.begin(), members_.end() - kept);
        std::vector<std::pair<double, std::int64_t>> others;
        for (std::int64_t i = 0; i < n; ++i)
            if (!inside_[i] && gaps_[i] > 0) others.emplace_back(-gaps_[i], i);
        const std::size_t room = std::min<std::size_t>(others.size(), capacity_ - members_.size());
        if (room < others.size())
            std::nth_element(others.begin(), others.begin() + room, others.end());
        std::sort(others.begin(), others.begin() + room);
        for (std::size_t t = 0; t < room; ++t) {
            members_.push_back(others[t].second);
            inside_[others[t].second] = 1;
        }
    }

    // Improves the variables of the chosen rows and updates all scores; false if the watch stopped
    // it.
    template <class L>
    bool solve(const L& loss) {
        std::vector<T*> kernel;
        if (!fill_block(kernel)) return false;
        const std::size_t w = members_.size();
        // Scores class by class, so that a step is k sums of vectors.
        std::vector<std::vector<double>> f(k_, std::vector<double>(w));
        std::vector<double> before(w * k_);
        double worst = 0;
        for (std::size_t s = 0; s < w; ++s) {
            for (int c = 0; c < k_; ++c) {
                f[c][s] = scores[members_[s] * k_ + c] + bias_[c];
                before[s * k_ + c] = p_[members_[s] * k_ + c];
            }
            worst = std::max(worst, gaps_[members_[s]]);
        }
        for (int pass = 0; pass < kPasses; ++pass) {
            const double left = sweep(loss, kernel, 1e-3 * worst, f);
            if (left <= 0.05 * worst || (pass % 4 == 3 && watch.check())) break;
        }
        if (update_scores(before)) return true;
        for (std::size_t s = 0; s < w; ++s)  // undo
            std::copy_n(before.data() + s * k_, k_, p_.data() + members_[s] * k_);
        return false;
    }

    // The kernel rows of the members over the members.
    bool fill_block(std::vector<T*>& rows) {
        const std::int64_t w = std::int64_t(members_.size());
        const std::int64_t leading = (w + 63) / 64 * 64;
        block_.resize(w * leading);
        for (std::int64_t s = 0; s < w; ++s) rows.push_back(block_.data() + s * leading);
        const Subset all = Subset::of(members_);
        return kernel_.counted(kernel_values_,
                               [&] { return kernel_.source->tile(all, all, rows.data(), &watch); });
    }

    // An exact step for each member whose gap term is larger than `negligible`, in order. Returns
    // the largest gap term that it met.
    template <class L>
    double sweep(const L& loss, const std::vector<T*>& kernel, double negligible,
                 std::vector<std::vector<double>>& f) {
        std::vector<double> row(k_);
        std::vector<double> old(k_);
        std::vector<double> z(k_);
        double largest = 0;
        for (std::size_t s = 0; s < members_.size(); ++s) {
            const std::int64_t i = members_[s];
            for (int c = 0; c < k_; ++c) row[c] = f[c][s];
            double* p = p_.data() + i * k_;
            const double gap = C_[i] * loss.gap(p, row.data(), y_[i], k_);
            largest = std::max(largest, gap);
            if (gap <= negligible) continue;
            std::copy(p, p + k_, old.begin());
            loss.step(p, row.data(), y_[i], k_, C_[i] * double(kernel[s][s]), z.data());
            ++steps_;
            change_of(i, old.data(), p, z.data());
            for (int c = 0; c < k_; ++c) {
                const double by = z[c];
                if (by == 0) continue;
                double* to = f[c].data();
                const T* from = kernel[s];
                for (std::size_t t = 0; t < members_.size(); ++t) to[t] += by * double(from[t]);
            }
        }
        return largest;
    }

    // Brings beta and the scores of all rows up to date; `before` are the members' old p.
    bool update_scores(const std::vector<double>& before) {
        std::vector<std::int64_t> changed;
        std::vector<double> change;
        // In the order of rows: neighbours may be close to each other, and are skipped together.
        std::vector<std::size_t> places(members_.size());
        std::iota(places.begin(), places.end(), std::size_t(0));
        std::sort(places.begin(), places.end(),
                  [&](std::size_t a, std::size_t b) { return members_[a] < members_[b]; });
        for (std::size_t s : places) {
            const std::int64_t i = members_[s];
            const double* now = p_.data() + i * k_;
            const double* then = before.data() + s * k_;
            if (std::equal(now, now + k_, then)) continue;
            changed.push_back(i);
            change.resize(changed.size() * k_);
            change_of(i, then, now, change.data() + (changed.size() - 1) * k_);
        }
        const Subset from = Subset::of(changed);
        const Subset all{nullptr, 0, std::int64_t(y_.size())};
        std::vector<double> delta(scores.size());
        const bool whole = kernel_.counted(kernel_values_, [&] {
            return kernel_.source->apply(from, change.data(), k_, all, delta.data(), &watch);
        });
        if (!whole) return false;
        for (std::size_t j = 0; j < scores.size(); ++j) scores[j] += delta[j];
        for (std::int64_t i : changed) set_beta(i);
        return true;
    }

    // scores = K beta
    template <class S>
    bool multiply(S& source) {
        std::vector<std::int64_t> support;
        std::vector<double> coef;
        std::vector<double> sums(scores.size());
        for (std::int64_t i = 0; i < std::int64_t(y_.size()); ++i) {
            const double* b = beta.data() + i * k_;
            if (std::all_of(b, b + k_, [](double v) { return v == 0; })) continue;
            support.push_back(i);
            coef.insert(coef.end(), b, b + k_);
        }
        const Subset from = Subset::of(support);
        const Subset all{nullptr, 0, std::int64_t(y_.size())};
        const bool whole = kernel_.counted(kernel_values_, [&] {
            return source.apply(from, coef.data(), k_, all, sums.data(), &watch);
        });
        if (!whole) return false;
        for (std::size_t j = 0; j < sums.size(); ++j) scores[j] = sums[j] + shift(j);
        return true;
    }

    static constexpr int kPasses = 50;
    KernelRows<T> kernel_;
    bool softmax_;
    std::vector<int> y_;
    int k_, capacity_;
    std::vector<double> C_, bias_, p_, gaps_;
    FixedPart fixed_;  // what rows outside of this part add
    std::vector<char> inside_;
    std::vector<std::int64_t> members_;  // of the working set, the newest last
    Aligned<T> block_;
    Round last_;
    std::int64_t rounds_ = 0;
    std::int64_t steps_ = 0;
    std::int64_t kernel_values_ = 0;
    std::int64_t marked_round_ = 0;
    double best_gap_ = kInfinity;
    double marked_gap_ = kInfinity;
};

}  // namespace margrave
