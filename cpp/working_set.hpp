// The working-set solver for
//
//     min over beta   1/2 beta'K beta + sum_i h_i(beta_i)      lo_i <= beta_i <= hi_i, and sum beta kept if `pairs`
//
// A round: (1) measure every row's rates up and low, the violation and the duality gap; (2) replace the older half of the
// working set W by the worst violators; (3) bring the kernel block of W up to date; (4) solve on W; (5) fetch the kernel rows
// of what changed, from the cache or by tiles; (6) add them to the scores f = K beta.
// Keeping half of W is essential: without it the solver forgets what it has just balanced and may never finish.
#pragma once
#include <numeric>

#include "cache.hpp"
#include "loss.hpp"
#include "source.hpp"

namespace margrave {

struct Round {
    std::int64_t round = 0, support = 0, steps = 0, kernel_values = 0;
    double primal = 0, dual = 0, gap = 0, violation = 0, bias = 0;
};

enum class Status { running, converged, stalled, stopped };

// Rows, kernel and cache shared by the problems on one data set.
template <class T>
struct KernelRows {
    KernelSource<T>* source;
    KernelSource<double>* exact;  // for the certificate
    RowCache<T>* cache;
    Threads* threads;
    const Isa* isa;
    std::vector<std::int64_t> starts;  // blocks of rows
};

// What the rest of a larger problem does to the rows of this one: their scores from the other variables, and the other
// rows' part of the dual and of the gap.
struct Surroundings {
    std::vector<double> shift, scores;  // the part from outside, and all of it
    double dual = 0, gap = 0;
};

template <class T>
class WorkingSet {
  public:
    std::vector<double> y, C, beta, scores;
    double target = 1e-3;  // relative duality gap
    Watch watch;

    WorkingSet(KernelRows<T> kernel, std::vector<int> blocks, LossParams loss, bool pairs, std::vector<double> targets,
               std::vector<double> weights, std::vector<double> start, Surroundings around, int size)
        : y(std::move(targets)), C(std::move(weights)), beta(std::move(start)), kernel_(std::move(kernel)),
          blocks_(std::move(blocks)), around_(std::move(around)), loss_(loss), pairs_(pairs) {
        const std::int64_t n = std::int64_t(y.size());
        const bool cold = beta.empty();
        beta.resize(n);
        for (int b : blocks_) {
            offsets_.push_back(std::int64_t(rows_.size()));
            for (std::int64_t i = kernel_.starts[b]; i < kernel_.starts[b + 1]; ++i) rows_.push_back(i);
        }
        offsets_.push_back(n);
        kernel_.cache->use(blocks_);
        capacity_ = int(std::min<std::int64_t>(n, size));
        leading_ = (capacity_ + 63) / 64 * 64 + 16;  // not a power of two: columns then spread over the cache
        block_.resize(std::size_t(capacity_) * leading_);
        scratch_.resize(6 * leading_);
        inside_.assign(n, 0), uses_.assign(n, 0);
        lo_.resize(n), hi_.resize(n), right_.resize(n), left_.resize(n), diagonal_.assign(n, NAN);
        with_loss([&](const auto& loss) {
            for (std::int64_t i = 0; i < n; ++i) {
                if (cold) beta[i] = loss.start(y[i], C[i]);
                lo_[i] = loss.lo(y[i], C[i]), hi_[i] = loss.hi(y[i], C[i]);
                beta[i] = std::clamp(beta[i], lo_[i], hi_[i]);
            }
            if (pairs_ && around_.shift.empty()) balance();
            for (std::int64_t i = 0; i < n; ++i) moved(loss, i);
        });
        scores = around_.scores.empty() ? std::vector<double>(n, 0.0) : around_.scores;
    }

    // f = K beta from scratch. To be called once before the first round, and to remove drift.
    bool rebuild() {
        std::vector<std::int64_t> support;
        std::vector<double> coef;
        gather_support(support, coef);
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            const std::int64_t first = kernel_.starts[blocks_[b]], width = offsets_[b + 1] - offsets_[b];
            if (!kernel_.source->apply({support.data(), 0, std::int64_t(support.size())}, coef.data(), 1, {nullptr, first, width},
                                       scores.data() + offsets_[b], &watch))
                return false;
        }
        kernel_values_ += std::int64_t(support.size() * y.size());
        if (!around_.shift.empty())
            for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += around_.shift[i];
        return true;
    }

    // How far each row is from being content at the present bias: positive for violators.
    std::vector<double> discontent() {
        std::vector<double> rates(y.size());
        with_loss([&](const auto& loss) { measure(loss); });
        for (std::size_t i = 0; i < y.size(); ++i)
            rates[i] = std::max(-scores[i] - right_[i] - middle_, middle_ + scores[i] + left_[i]);
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
        const int side = support[1].size() < support[0].size();
        std::vector<double> sums(points.size());
        if (!kernel_.source->apply({support[side].data(), 0, std::int64_t(support[side].size())}, coef[side].data(), 1,
                                   {points.data(), 0, std::int64_t(points.size())}, sums.data(), &watch))
            return false;
        kernel_values_ += std::int64_t(support[side].size() * points.size());
        with_loss([&](const auto& loss) {
            sum_up(loss);
            found.dual = last_.dual;
            for (std::size_t t = 0; t < active.size(); ++t) {
                const std::int64_t i = active[t];
                found.scores.push_back(scores[i]);
                found.shift.push_back(side ? scores[i] - sums[t] : sums[t]);
                found.dual -= 0.5 * beta[i] * (scores[i] + found.shift[t]) + loss.h(y[i], C[i], beta[i]);
            }
            for (std::size_t i = 0; i < y.size(); ++i)
                if (!in[i]) found.gap += loss.gap(y[i], C[i], beta[i], scores[i] + bias_);
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
        kernel_values_ += std::int64_t(changed.size() * others.size());
        for (std::size_t t = 0; t < others.size(); ++t) scores[others[t]] += delta[t];
        with_loss([&](const auto& loss) {
            for (std::size_t t = 0; t < active.size(); ++t) {
                beta[active[t]] = values[t], scores[active[t]] = active_scores[t];
                moved(loss, active[t]);
            }
        });
        return true;
    }

    // Runs rounds until the gap is reached, nothing moves, the watch stops it, or `max_rounds` or `seconds` are over.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        const auto begin = std::chrono::steady_clock::now();
        Status status = Status::running;
        with_loss([&](const auto& loss) {
            for (std::int64_t r = 0; status == Status::running; ++r) {
                if (watch.check()) status = Status::stopped;
                else if (r >= max_rounds || std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds) break;
                else status = round(loss, records);
            }
        });
        return status;
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
            // First the rows that carry a coefficient or a loss; then those that the drift seen there could move to one.
            for (int pass = 0; pass < 2 && whole; ++pass) {
                check.clear(), local.clear();
                for (std::int64_t i = 0; i < std::int64_t(y.size()); ++i) {
                    if (fresh[i]) continue;
                    const double f = scores[i] + bias_, d = 10 * drift;
                    const bool needed = beta[i] != 0 || loss.value(y[i], C[i], f) > 0 ||
                                        (pass && (loss.value(y[i], C[i], f - d) > 0 || loss.value(y[i], C[i], f + d) > 0));
                    if (needed) check.push_back(rows_[i]), local.push_back(i), fresh[i] = 1;
                }
                std::vector<double> f(check.size());
                whole = kernel_.exact->apply({support.data(), 0, std::int64_t(support.size())}, coef.data(), 1,
                                             {check.data(), 0, std::int64_t(check.size())}, f.data(), &watch);
                kernel_values_ += std::int64_t(support.size() * check.size());
                if (!whole) return;
                for (std::size_t t = 0; t < local.size(); ++t) {
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

    std::int64_t rounds() const { return rounds_; }
    std::int64_t steps() const { return steps_; }
    std::int64_t kernel_values() const { return kernel_values_; }

    // Figures of the present point from the running scores, with the best bias.
    Round figures() {
        with_loss([&](const auto& loss) {
            measure(loss);
            best_bias(loss);
            sum_up(loss);
        });
        return last_;
    }

  private:
    template <class F>
    void with_loss(F&& f) {
        Losses::visit(loss_, std::forward<F>(f));
    }

    template <class L>
    void moved(const L& loss, std::int64_t i) {
        right_[i] = beta[i] < hi_[i] ? loss.right(y[i], C[i], beta[i]) : kInfinity;
        left_[i] = beta[i] > lo_[i] ? loss.left(y[i], C[i], beta[i]) : -kInfinity;
    }

    // Scales the larger side so that the sum is zero: any box-feasible start becomes feasible.
    void balance() {
        double positive = 0, negative = 0;
        for (double b : beta) (b > 0 ? positive : negative) += std::fabs(b);
        const double larger = std::max(positive, negative), ratio = larger > 0 ? std::min(positive, negative) / larger : 1;
        if (ratio > 1 - 1e-12) return;  // zero but for rounding
        for (double& b : beta)
            if ((b > 0) == (positive > negative)) b *= ratio;
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
        else return loss.gap(y[i], C[i], beta[i], scores[i] + middle_) > negligible_;
    }

    // The rates' extremes and from them the violation and the bias.
    template <class L>
    void measure(const L& loss) {
        struct Part {
            double top = -kInfinity, bottom = kInfinity;
        };
        negligible_ = 1e-3 * target * std::max(std::fabs(last_.primal), std::fabs(last_.dual)) / double(y.size());
        if (!L::quadratic && pairs_) best_bias(loss), middle_ = bias_;
        top_ = -kInfinity, bottom_ = kInfinity;
        for (const Part& part : chunked<Part>([&](std::int64_t from, std::int64_t to) {
                 Part p;
                 for (std::int64_t i = from; i < to; ++i) {
                     if (!counts(loss, i)) continue;
                     p.top = std::max(p.top, -scores[i] - right_[i]);
                     p.bottom = std::min(p.bottom, -scores[i] - left_[i]);
                 }
                 return p;
             }))
            top_ = std::max(top_, part.top), bottom_ = std::min(bottom_, part.bottom);
        if (!pairs_) {
            last_.violation = std::max({0.0, top_, -bottom_});
            middle_ = bias_ = 0;
            return;
        }
        last_.violation = top_ - bottom_;
        if (!L::quadratic) return;
        middle_ = top_ == -kInfinity ? bottom_ : bottom_ == kInfinity ? top_ : (top_ + bottom_) / 2;
        bias_ = middle_;
    }

    // The bias that minimises sum C loss(f + b), for the certificate of a free intercept: its slope is increasing in b, so
    // bracket and bisect (for a smooth slope, in turn with the false position). A piecewise linear loss has its corner
    // between the last two trials: the better end is taken.
    template <class L>
    void best_bias(const L& loss) {
        if (!pairs_) return;
        const auto slope = [&](double b) {
            double total = 0;
            for (double part : chunked<double>([&](std::int64_t from, std::int64_t to) {
                     double s = 0;
                     for (std::int64_t i = from; i < to; ++i) s += loss.slope(y[i], C[i], scores[i] + b);
                     return s;
                 }))
                total += part;
            return total;
        };
        const double spread = std::fabs(top_ - bottom_), from = bias_;
        double width = L::quadratic && std::isfinite(spread) ? std::max(1e-3, spread) : 1.0;
        double low = from - width, high = from + width, at_low = slope(low), at_high = slope(high);
        for (int t = 0; t < 60 && at_low > 0; ++t) low -= width *= 2, at_low = slope(low);
        for (int t = 0; t < 60 && at_high < 0; ++t) high += width *= 2, at_high = slope(high);
        for (int t = 0; t < 100 && high - low > 1e-15 * std::max(std::fabs(high), std::fabs(low)); ++t) {
            double b = (low + high) / 2;
            if (!L::quadratic && t % 2 == 0 && at_high > at_low) b = std::clamp(low - at_low * (high - low) / (at_high - at_low), low, high);
            const double at = slope(b);
            if (at == 0) low = high = b;
            else if (at > 0) high = b, at_high = at;
            else low = b, at_low = at;
        }
        double best = kInfinity, chosen = from;
        for (double b : {from, low, high}) {
            bias_ = b;
            sum_up(loss);
            if (last_.primal < best) best = last_.primal, chosen = b;
        }
        bias_ = chosen;
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
                     p.gap += loss.gap(y[i], C[i], beta[i], scores[i] + bias_);
                     const double shift = around_.shift.empty() ? 0.0 : around_.shift[i];
                     p.dual += 0.5 * beta[i] * (scores[i] + shift) + loss.h(y[i], C[i], beta[i]);
                     p.support += beta[i] != 0;
                 }
                 return p;
             }))
            gap += part.gap, dual += part.dual, last_.support += part.support;
        last_.dual = dual;
        last_.primal = gap + around_.gap - dual;
        const double scale = std::max({std::fabs(last_.primal), std::fabs(dual), 1e-300});
        own_gap_ = gap / scale;
        last_.gap = (gap + around_.gap) / scale;
        last_.bias = bias_;
        last_.steps = steps_;
        last_.kernel_values = kernel_values_;
    }

    template <class L>
    Status round(const L& loss, std::vector<Round>& records) {
        measure(loss);
        sum_up(loss);
        // The best bias takes some sixty passes: worth it near the end, and now and then to notice that this is the end.
        if (own_gap_ > target && (own_gap_ < 3 * target || rounds_ % 8 == 0)) best_bias(loss), sum_up(loss);
        last_.round = rounds_;
        if (own_gap_ <= target || !(last_.violation > 0)) {
            records.push_back(last_);
            return own_gap_ <= target ? Status::converged : Status::stalled;
        }
        if (exhausted()) {
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

    // A precision has done what it can when a sweep's worth of rounds brings next to nothing: in single, where double is there
    // to go on, a dual gain below a hundredth of the gap; in double, no gain beyond rounding and no better gap either (near
    // the optimum the gap falls like the square root of the dual's error).
    bool exhausted() {
        best_gap_ = std::min(best_gap_, last_.gap);
        const std::int64_t window = 10 + 8 * std::int64_t(y.size()) / capacity_;
        if (rounds_ < marked_round_ + window) return false;
        const double gain = marked_dual_ - last_.dual;
        const bool still = sizeof(T) == 4 ? gain <= 0.01 * (last_.primal + last_.dual)
                                          : gain <= 2e-16 * std::fabs(last_.dual) && best_gap_ > 0.99 * marked_gap_;
        const bool first = marked_round_ == 0;
        marked_round_ = rounds_, marked_dual_ = last_.dual, marked_gap_ = best_gap_;
        return still && !first;
    }

    template <class L>
    Status improve(const L& loss) {
        kernel_.cache->begin_round();
        const std::vector<int> fresh = choose(loss);
        if (!refresh_block(fresh)) return Status::stopped;
        const int w = int(members_.size());
        // Local copies of the working set's variables.
        std::vector<double> wy(w), wC(w), wlo(w), whi(w), wbeta(w), before(w), wf(w), wd(w);
        for (int s = 0; s < w; ++s) {
            const std::int64_t i = members_[s];
            wy[s] = y[i], wC[s] = C[i], wlo[s] = lo_[i], whi[s] = hi_[i], wbeta[s] = before[s] = beta[i];
            wf[s] = scores[i], wd[s] = diagonal_[i];
        }
        Inner<T> inner{w, leading_, block_.data(), wy.data(), wC.data(), wlo.data(), whi.data(), wd.data(), wbeta.data(), wf.data(),
                       inner_share_ * last_.violation, negligible_, std::int64_t(100) * w, scratch_.data()};
        const std::int64_t steps = kernel_.isa->template operations<T>().solve(loss_, pairs_, inner);
        steps_ += steps;

        std::vector<std::int64_t> changed;
        std::vector<double> change;
        for (int s = 0; s < w; ++s)
            if (wbeta[s] != before[s]) changed.push_back(members_[s]), change.push_back(wbeta[s] - before[s]);
        if (changed.empty()) {
            // The worst violators were at hand and nothing moved: solve more exactly; then precision is reached.
            if (inner_share_ < 1e-3) return Status::stalled;
            inner_share_ *= 0.1;
            return Status::running;
        }
        if (members_.size() == y.size()) add_from_block(wbeta, before);
        else if (!add_rows(changed, change)) return Status::stopped;
        for (int s = 0; s < w; ++s)
            if (wbeta[s] != before[s]) beta[members_[s]] = wbeta[s], moved(loss, members_[s]);
        return Status::running;
    }

    // The new members' places in W. Violators outside W: with pairs, the largest up and the smallest low in equal number.
    template <class L>
    std::vector<int> choose(const L& loss) {
        if (capacity_ < 8) {  // too few to balance old against new: take the worst of all
            for (std::int64_t i : members_) inside_[i] = 0;
            members_.clear(), age_.clear();
        }
        using Candidate = std::pair<double, std::int64_t>;
        struct Part {
            std::vector<Candidate> up, down;
        };
        std::vector<Candidate> up, down;
        for (const Part& part : chunked<Part>([&](std::int64_t from, std::int64_t to) {
                 Part p;
                 for (std::int64_t i = from; i < to; ++i) {
                     if (inside_[i] || !counts(loss, i)) continue;
                     const double rise = -scores[i] - right_[i] - middle_, fall = middle_ + scores[i] + left_[i];
                     if (rise > 0 && rise >= fall) p.up.emplace_back(-rise, i);
                     else if (fall > 0) (pairs_ ? p.down : p.up).emplace_back(-fall, i);
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
            if (t < std::size_t(leave)) members_[places[t]] = i;
            else places.push_back(int(members_.size())), members_.push_back(i);
            inside_[i] = 1;
            age_.push_back(places[t]);
            if (std::isnan(diagonal_[i])) diagonal_[i] = kernel_.source->diagonal(rows_[i]);
        }
        return places;
    }

    // Kernel values of the new members with all of W: from cached rows where a value is dear, else by a tile.
    bool refresh_block(const std::vector<int>& fresh) {
        const int w = int(members_.size());
        std::vector<std::int64_t> all(w), missing;
        for (int s = 0; s < w; ++s) all[s] = rows_[members_[s]];
        std::vector<T*> out;
        std::vector<int> gathered;
        std::vector<std::vector<const T*>> pieces;
        for (int s : fresh) {
            std::vector<const T*> row;
            if (kernel_.source->cost() > 128) row = find(members_[s]);
            if (row.empty()) missing.push_back(all[s]), out.push_back(block_.data() + s * leading_);
            else gathered.push_back(s), pieces.push_back(std::move(row));
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
        if (!missing.empty() && !kernel_.source->tile({missing.data(), 0, std::int64_t(missing.size())}, {all.data(), 0, w}, out.data(), &watch)) {
            members_.clear(), age_.clear();
            std::fill(inside_.begin(), inside_.end(), 0);
            return false;
        }
        kernel_values_ += std::int64_t(missing.size()) * w;
        mirror(fresh);
        return true;
    }

    // Copies the fresh rows of the symmetric block into its columns, 16 rows at a time so that whole cache lines are written.
    void mirror(const std::vector<int>& fresh) {
        const int w = int(members_.size()), per = 64;
        std::vector<char> is_fresh(w, 0);
        for (int s : fresh) is_fresh[s] = 1;
        kernel_.threads->run((w + per - 1) / per, nullptr, [&](std::int64_t chunk, int) {
            const int from = int(chunk) * per, to = std::min(w, from + per);
            for (std::size_t f = 0; f < fresh.size(); f += 16)
                for (int t = from; t < to; ++t) {
                    if (is_fresh[t]) continue;
                    T* row = block_.data() + t * leading_;
                    for (std::size_t k = f; k < std::min(f + 16, fresh.size()); ++k) row[fresh[k]] = block_[fresh[k] * leading_ + t];
                }
        });
    }

    std::vector<const T*> find(std::int64_t i) {
        std::vector<const T*> row;
        for (int b : blocks_) {
            const T* piece = kernel_.cache->find(rows_[i], b);
            if (!piece) return {};
            row.push_back(piece);
        }
        return row;
    }

    // The same where the working set is the whole problem: its block holds all kernel rows.
    void add_from_block(const std::vector<double>& after, const std::vector<double>& before) {
        const int w = int(members_.size());
        std::vector<const T*> rows;
        std::vector<double> change, delta(w, 0.0);
        for (int s = 0; s < w; ++s)
            if (after[s] != before[s]) rows.push_back(block_.data() + s * leading_), change.push_back(after[s] - before[s]);
        kernel_.isa->template operations<T>().combine(rows.data(), change.data(), int(rows.size()), 0, w, delta.data());
        for (int s = 0; s < w; ++s) scores[members_[s]] += delta[s];
    }

    // Fresh memory for a value costs nearly a nanosecond; a value of few features costs less than that to compute again. As
    // with renting and buying: keep a row once it has been computed as often as the memory would have cost.
    bool worth_keeping(std::int64_t i, std::size_t block) {
        if (block == 0 && uses_[i] < 255) ++uses_[i];
        const double value = 0.2 + 0.012 * double(kernel_.source->cost());  // nanoseconds
        return uses_[i] * value >= 0.8;
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

    KernelRows<T> kernel_;
    std::vector<int> blocks_;
    std::vector<std::int64_t> offsets_, rows_;  // of the problem's blocks; the data set's number of each row
    Surroundings around_;
    LossParams loss_;
    bool pairs_;
    std::vector<double> lo_, hi_, right_, left_, diagonal_;
    Round last_;
    double own_gap_ = 0, top_ = 0, bottom_ = 0, middle_ = 0, bias_ = 0, negligible_ = 0, inner_share_ = 0.1;
    std::int64_t rounds_ = 0, steps_ = 0, kernel_values_ = 0, marked_round_ = 0;
    double marked_dual_ = 0, marked_gap_ = kInfinity, best_gap_ = kInfinity;
    int capacity_;
    std::int64_t leading_;
    std::vector<std::int64_t> members_;  // of W, by place
    std::vector<int> age_;               // places, oldest first
    std::vector<char> inside_;
    std::vector<unsigned char> uses_;    // how often a row's kernel values were computed
    Aligned<T> block_, scratch_;
};

}  // namespace margrave
