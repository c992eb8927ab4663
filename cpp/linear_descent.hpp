// Coordinate descent on the dual of a linear machine, with w = X'beta kept instead of scores:
//
//     min over beta   1/2 |X'beta|^2 + sum_i h_i(beta_i)
//     for every row i, in a new random order each pass:   f = x_i'w + b;   beta_i = its exact minimiser;   w += change x_i
//
// A regularised intercept is b = sum beta, a constant feature. A free one asks for sum beta = 0: method of multipliers, where
// b = b0 + rho sum beta within a pass and b0 = b between passes. Rows that rest at a corner or bound, by more than any row was
// discontent in the last pass, are left out until the certificate looks at all of them.
#pragma once
#include <chrono>
#include <numeric>

#include "dual_point.hpp"
#include "linear_rows.hpp"
#include "moving_point.hpp"
#include "row_terms.hpp"

namespace margrave {

// A fast generator: the order of rows needs no more.
struct SplitMix {
    std::uint64_t state;
    explicit SplitMix(std::uint64_t seed) : state(seed) {}
    std::uint64_t operator()() {
        std::uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
};

enum class Intercept { none, regularized, free };

class LinearDescent {
  public:
    double target = 1e-3;
    std::vector<double> beta, scores, weights;  // of the point last told of

    LinearDescent(const LinearRows& rows, const RowTerms& terms, Intercept intercept, std::vector<double> start, std::uint64_t seed, double patience)
        : beta(std::move(start)), rows_(rows), terms_(terms), intercept_(intercept), random_(seed), patience_(patience) {
        const std::int64_t n = rows_.count();
        warm_ = !beta.empty();
        if (!warm_) {
            beta.resize(n);
            terms_.begin(beta.data());
        }
        terms_.make_feasible(beta.data(), false);
        items_.resize(n);
        for (std::int64_t i = 0; i < n; ++i) items_[i] = {terms_.y()[i], terms_.C()[i], beta[i], 0.0};
        active_.resize(n);
        std::iota(active_.begin(), active_.end(), std::int64_t(0));
    }

    Watch& watch() { return rows_.team().watch; }
    std::int64_t rounds() const { return rounds_; }
    std::int64_t steps() const { return steps_; }

    // Passes until the gap seen on the way is small enough. `seconds` may end one half-way, and the next call goes on there.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        if (!begun_) {
            begin();
            if (warm_ && tell().gap <= target) return Status::converged;
        }
        const std::int64_t from = rounds_;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::int64_t(1000 * std::min(seconds, 1e6)));
        Status status = Status::running;
        terms_.visit([&](const auto& loss) {
            while (status == Status::running && rounds_ - from < max_rounds) {
                if (!pass(loss, end)) break;
                status = look(records, rounds_ - from == max_rounds);
                if (std::chrono::steady_clock::now() > end) break;  // short passes never look at the clock
            }
        });
        return status;
    }

    // The point as it is, feasible, with exact weights and scores and the best intercept.
    Round tell() {
        const std::int64_t n = rows_.count(), d = rows_.features();
        for (std::int64_t i = 0; i < n; ++i) beta[i] = items_[i].beta;
        terms_.make_feasible(beta.data(), intercept_ == Intercept::free);
        weights.assign(d, 0.0), scores.resize(n);
        rows_.transposed({beta.data(), 1, n}, {weights.data(), 1, d});
        rows_.multiply({weights.data(), 1, d}, {scores.data(), 1, n});
        passes_ += 2;
        const double sum = std::accumulate(beta.begin(), beta.end(), 0.0);
        double b = intercept_ == Intercept::regularized ? sum : 0.0;
        if (intercept_ == Intercept::free) b = terms_.best_intercept(scores.data(), b_);
        else w_ = weights, b_ = b, sum_ = sum;  // without the rounding of many steps
        Round record;
        const double gap = terms_.gap(beta.data(), scores.data(), b);
        const double norm = std::inner_product(weights.begin(), weights.end(), weights.begin(), intercept_ == Intercept::regularized ? b * b : 0.0);
        const double conjugate = terms_.conjugate(beta.data());
        if (intercept_ != Intercept::free) conjugate_ = conjugate;
        fill(record, gap, 0.5 * norm + conjugate);
        record.bias = b;
        record.support = std::count_if(beta.begin(), beta.end(), [](double x) { return x != 0; });
        if (intercept_ == Intercept::regularized)  // as of the kernel + 1
            for (double& f : scores) f += b;
        if (record.gap > target) everyone(), trusting_ = false;
        return record;
    }

  private:
    static constexpr std::int64_t kBlock = 2, kLeftOut = -1;
    static constexpr int kStill = 50, kChances = 40;  // passes that bring nothing before it looks at all rows again, and how often

    // One cache line holds what a step has to know of two rows, besides the rows themselves.
    struct Item {
        double y, C, beta, square;
    };

    void begin() {
        scores.assign(rows_.count(), 0.0);
        const std::vector<double> squares = rows_.squares();
        const std::int64_t n = rows_.count(), d = rows_.features();
        w_.assign(d, 0.0);
        rows_.transposed({beta.data(), 1, n}, {w_.data(), 1, d});
        sum_ = std::accumulate(beta.begin(), beta.end(), 0.0);
        support_ = std::count_if(beta.begin(), beta.end(), [](double x) { return x != 0; });
        conjugate_ = terms_.conjugate(beta.data());
        for (std::int64_t i = 0; i < n; ++i) items_[i].square = squares[i];
        rho_ = intercept_ == Intercept::none ? 0.0 : intercept_ == Intercept::regularized ? 1.0 : multiplier_step(squares);
        b_ = intercept_ == Intercept::regularized ? sum_ : 0.0;
        passes_ += 2;
        if (intercept_ == Intercept::free && support_ > 0) {
            rows_.multiply({w_.data(), 1, d}, {scores.data(), 1, n});
            b_ = terms_.best_intercept(scores.data(), 0.0);
            passes_ += 1;
        }
        begun_ = true;
    }

    // A large rho moves the multiplier faster, but slows down the steps of short rows: a share of a typical square, and at
    // least what moves the intercept by one unit of the targets when all rows ask for it.
    double multiplier_step(std::vector<double> squares) const {
        double weight = 0, unit = 0;
        for (const Item& item : items_) weight += item.C, unit += item.C * std::fabs(item.y);
        std::nth_element(squares.begin(), squares.begin() + squares.size() / 2, squares.end());
        return std::max({0.3 * squares[squares.size() / 2], unit / weight / weight, 1e-300});
    }

    // Visits one row: the exact step in its variable, or, where it rests at a corner or bound, the mark to leave it out (a
    // number below zero in its place).
    template <class L>
    void step(const L& loss, std::int64_t& place) {
        const std::int64_t i = place;
        Item& item = items_[i];
        const double y = item.y, C = item.C, now = item.beta, f = rows_.dot(i, w_.data()) + b_;
        ++visits_;
        gap_ += loss.gap(y, C, now, f);
        if constexpr (L::quadratic) {
            const double up = now < loss.hi(y, C) ? -f - loss.right_derivative(y, C, now) : -kInfinity;
            const double down = now > loss.lo(y, C) ? f + loss.left_derivative(y, C, now) : -kInfinity;
            const double rate = std::max(up, down);
            if (rate < -discontent_) {
                place = kLeftOut;
                return;
            }
            largest_ = std::max(largest_, rate);
            if (rate <= 0) return;
        }
        const double value = one_step(loss, y, C, now, f, item.square + rho_), change = value - now;
        if (change == 0) return;
        if constexpr (!L::quadratic) largest_ = std::max(largest_, std::fabs(change) * (item.square + rho_));
        ++steps_;
        rows_.add(i, change, w_.data());
        b_ += rho_ * change, sum_ += change;
        conjugate_ += loss.h(y, C, value) - loss.h(y, C, now);
        support_ += (value != 0) - (now != 0);
        item.beta = value;
    }

    // The rest of a pass; false if the time is over before its end.
    template <class L>
    bool pass(const L& loss, std::chrono::steady_clock::time_point end) {
        if (next_ == 0) {
            shuffle();
            gap_ = 0, largest_ = 0;
        }
        for (std::int64_t look = 1; next_ < std::int64_t(blocks_.size()); ++next_, ++look) {
            if (look % 64 == 0) {
                if (watch().check()) throw Stopped{};
                if (std::chrono::steady_clock::now() > end) return false;
            }
            const std::int64_t from = blocks_[next_] * kBlock, to = std::min(from + kBlock, std::int64_t(active_.size()));
            if (next_ + 8 < std::int64_t(blocks_.size())) {
                const std::int64_t soon = active_[blocks_[next_ + 4] * kBlock];
                __builtin_prefetch(&items_[active_[blocks_[next_ + 8] * kBlock]]);
                rows_.prefetch(soon), rows_.prefetch(std::min(soon + 1, rows_.count() - 1));
            }
            for (std::int64_t t = from; t < to; ++t) step(loss, active_[t]);
        }
        std::erase(active_, kLeftOut);
        next_ = 0, ++rounds_;
        passes_ += double(visits_) / double(rows_.count()), visits_ = 0;
        discontent_ = largest_ > 0 ? largest_ : kInfinity;
        // The multiplier moves on as soon as the sum is what is furthest from right.
        if (intercept_ == Intercept::free && largest_ <= rho_ * std::fabs(sum_)) b_ += rho_ * sum_;
        return true;
    }

    // Between two passes: the figures, of which the gap is what the rows paid when they were visited, and whether to go on.
    Status look(std::vector<Round>& records, bool last) {
        Round record;
        const double norm = std::inner_product(w_.begin(), w_.end(), w_.begin(), intercept_ == Intercept::regularized ? b_ * b_ : 0.0);
        // A sum that is not zero yet would cost about as much as it takes to make it so.
        const double imbalance = intercept_ == Intercept::free ? std::fabs(sum_) * (1 + std::fabs(b_)) : 0.0;
        fill(record, gap_ + imbalance, 0.5 * norm + conjugate_);
        record.support = support_;
        record.bias = b_;
        Status status = passes_ >= patience_ ? Status::stalled : Status::running;
        const bool all = active_.size() == items_.size();
        if (all) discontent_of_all_ = largest_;
        if (record.gap < 0.99 * best_gap_) still_ = chances_ = 0;
        else if (record.dual < best_dual_ - 1e-15 * std::fabs(record.dual)) still_ = 0;
        else ++still_;
        if ((all || trusting_) && record.gap <= target) status = Status::converged;
        else if (still_ >= kStill && ++chances_ > kChances) status = Status::stalled;
        else if (still_ >= kStill) everyone(), still_ = 0;
        else if (!all && (record.gap <= target || largest_ < 0.03 * discontent_of_all_)) everyone();
        best_gap_ = std::min(best_gap_, record.gap), best_dual_ = std::min(best_dual_, record.dual);
        // Rows that depend on each other almost entirely let steps creep: at this pace it would take for ever.
        if (rounds_ >= slow_round_ + kSlow) {
            const bool slow = slow_dual_ - best_dual_ <= 1e-9 * (record.primal + record.dual) && best_gap_ > 0.99 * slow_gap_;
            slow_round_ = rounds_, slow_dual_ = best_dual_, slow_gap_ = best_gap_;
            if (slow && status == Status::running) status = Status::stalled;
        }
        // Passes over few rows come by the thousand: some of them are enough to tell of.
        if (last || status != Status::running || record.when - told_ > std::chrono::milliseconds(2)) records.push_back(record), told_ = record.when;
        return status;
    }

    // A new order: blocks of neighbours, which are cheap to visit one after the other, are taken at random.
    void shuffle() {
        blocks_.resize((active_.size() + kBlock - 1) / kBlock);
        std::iota(blocks_.begin(), blocks_.end(), std::int64_t(0));
        for (std::size_t t = blocks_.size(); t > 1; --t) std::swap(blocks_[t - 1], blocks_[(random_() >> 32) * t >> 32]);
    }

    void everyone() {
        const std::int64_t n = rows_.count();
        if (next_ != 0 || std::int64_t(active_.size()) == n) return;
        active_.resize(n);
        std::iota(active_.begin(), active_.end(), std::int64_t(0));
        discontent_ = kInfinity;
    }

    void fill(Round& record, double gap, double dual) const {
        record.round = rounds_, record.steps = steps_, record.passes = passes_;
        record.dual = dual, record.primal = gap - dual;
        record.gap = gap / std::max({std::fabs(record.primal), std::fabs(dual), 1e-300});
        record.violation = largest_;
        record.when = std::chrono::steady_clock::now();
    }

    const LinearRows& rows_;
    const RowTerms& terms_;
    Intercept intercept_;
    SplitMix random_;
    double patience_;  // passes after which it gives up
    std::vector<Item> items_;
    std::vector<double> w_;
    std::vector<std::int64_t> active_, blocks_;  // in ascending order; the order of a pass
    bool begun_ = false, warm_, trusting_ = true;  // that the rows left out are content
    std::chrono::steady_clock::time_point told_{};
    double b_ = 0, rho_ = 0, sum_ = 0, gap_ = 0, largest_ = 0, discontent_ = kInfinity, discontent_of_all_ = 0, passes_ = 0, conjugate_ = 0;
    double best_gap_ = kInfinity, best_dual_ = kInfinity;
    static constexpr std::int64_t kSlow = 10000;  // passes
    std::int64_t slow_round_ = 0;
    double slow_dual_ = kInfinity, slow_gap_ = kInfinity;
    std::int64_t next_ = 0, rounds_ = 0, steps_ = 0, visits_ = 0, support_ = 0;
    int still_ = 0, chances_ = 0;
};

}  // namespace margrave
