// Coordinate descent on the dual of a linear model, with w = X'beta kept instead of scores:
//
//     min over beta   1/2 |X'beta|^2 + sum_i h_i(beta_i)
//
//     for every row i, in a new random order each pass:
//         f = x_i'w + b;   beta_i = its exact minimiser;   w += change x_i
//
// A regularised intercept is b = sum beta, a constant feature. A free one asks for sum beta = 0:
// method of multipliers, where b = b0 + rho sum beta within a pass and b0 = b between passes.
//
// Shrinking: a row at a corner or bound that satisfies the KKT conditions by more than the largest
// violation of the last pass is left out, until the certificate checks all rows.
#pragma once
#include <chrono>
#include <numeric>

#include "dual_problem.hpp"
#include "exact_step.hpp"
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
    std::vector<double> beta, scores, weights;  // of the point last certified

    LinearDescent(const LinearRows& rows, const RowTerms& terms, Intercept intercept,
                  std::vector<double> start, std::uint64_t seed, double patience)
        : beta(std::move(start)),
          rows_(rows),
          terms_(terms),
          intercept_(intercept),
          random_(seed),
          patience_(patience) {
        const std::int64_t n = rows_.count();
        warm_ = !beta.empty();
        if (!warm_) {
            beta.resize(n);
            terms_.begin(beta.data());
        }
        terms_.make_feasible(beta.data(), false);
        items_.resize(n);
        for (std::int64_t i = 0; i < n; ++i)
            items_[i] = {terms_.y()[i], terms_.C()[i], beta[i], 0.0};
        active_.resize(n);
        std::iota(active_.begin(), active_.end(), std::int64_t(0));
    }

    Watch& watch() { return rows_.team().watch; }
    std::int64_t rounds() const { return rounds_; }
    std::int64_t steps() const { return steps_; }

    // Passes until the estimated gap is small enough. `seconds` may end one half-way: the next call
    // continues there.
    Status advance(std::int64_t max_rounds, double seconds, std::vector<Round>& records) {
        if (!begun_) {
            begin();
            if (warm_ && certify().gap <= target) return Status::converged;
        }
        const std::int64_t from = rounds_;
        const std::chrono::milliseconds limit(std::int64_t(1000 * std::min(seconds, 1e6)));
        const auto end = std::chrono::steady_clock::now() + limit;
        Status status = Status::running;
        terms_.visit([&](const auto& loss) {
            while (status == Status::running && rounds_ - from < max_rounds) {
                if (!pass(loss, end)) break;
                status = check_progress(records, rounds_ - from == max_rounds);
                // Short passes do not check the time themselves.
                if (std::chrono::steady_clock::now() > end) break;
            }
        });
        return status;
    }

    // The point as it is, feasible, with exact weights and scores and the best intercept.
    Round certify() {
        const std::int64_t n = rows_.count();
        const std::int64_t d = rows_.features();
        for (std::int64_t i = 0; i < n; ++i) beta[i] = items_[i].beta;
        terms_.make_feasible(beta.data(), intercept_ == Intercept::free);
        weights.assign(d, 0.0);
        scores.resize(n);
        rows_.transposed({beta.data(), 1, n}, {weights.data(), 1, d});
        rows_.multiply({weights.data(), 1, d}, {scores.data(), 1, n});
        passes_ += 2;
        const double sum = std::accumulate(beta.begin(), beta.end(), 0.0);
        const double conjugate = terms_.conjugate(beta.data());
        double b = intercept_ == Intercept::regularized ? sum : 0.0;
        if (intercept_ == Intercept::free) {
            b = terms_.best_intercept(scores.data(), b_);
        } else {  // removes the rounding errors of many steps
            w_ = weights;
            b_ = b;
            sum_ = sum;
            conjugate_ = conjugate;
        }
        const double gap = terms_.gap(beta.data(), scores.data(), b);
        Round record = figures(gap, 0.5 * squared_norm(weights, b) + conjugate);
        record.bias = b;
        record.support = std::count_if(beta.begin(), beta.end(), [](double x) { return x != 0; });
        if (intercept_ == Intercept::regularized)  // as of the linear kernel + 1
            for (double& f : scores) f += b;
        if (record.gap > target) {
            activate_all();
            trusting_ = false;
        }
        return record;
    }

  private:
    static constexpr std::int64_t kBlock = 2;
    static constexpr std::int64_t kLeftOut = -1;
    static constexpr int kStill = 50;    // passes without progress until all rows are active again
    static constexpr int kChances = 40;  // how often that may happen

    // One cache line holds what a step needs of two rows, besides the rows themselves.
    struct Item {
        double y, C, beta, square;
    };

    void begin() {
        scores.assign(rows_.count(), 0.0);
        const std::vector<double> squares = rows_.squares();
        const std::int64_t n = rows_.count();
        const std::int64_t d = rows_.features();
        w_.assign(d, 0.0);
        rows_.transposed({beta.data(), 1, n}, {w_.data(), 1, d});
        sum_ = std::accumulate(beta.begin(), beta.end(), 0.0);
        support_ = std::count_if(beta.begin(), beta.end(), [](double x) { return x != 0; });
        conjugate_ = terms_.conjugate(beta.data());
        for (std::int64_t i = 0; i < n; ++i) items_[i].square = squares[i];
        rho_ = intercept_ == Intercept::none          ? 0.0
               : intercept_ == Intercept::regularized ? 1.0
                                                      : multiplier_step(squares);
        b_ = intercept_ == Intercept::regularized ? sum_ : 0.0;
        passes_ += 2;
        if (intercept_ == Intercept::free && support_ > 0) {
            rows_.multiply({w_.data(), 1, d}, {scores.data(), 1, n});
            b_ = terms_.best_intercept(scores.data(), 0.0);
            passes_ += 1;
        }
        begun_ = true;
    }

    // A large rho moves the multiplier faster, but slows down the steps of short rows: a share of a
    // typical square, and at least what moves the intercept by one unit of the targets when all
    // rows ask for it.
    double multiplier_step(std::vector<double> squares) const {
        double weight = 0;
        double unit = 0;
        for (const Item& item : items_) {
            weight += item.C;
            unit += item.C * std::fabs(item.y);
        }
        std::nth_element(squares.begin(), squares.begin() + squares.size() / 2, squares.end());
        return std::max({0.3 * squares[squares.size() / 2], unit / weight / weight, 1e-300});
    }

    // Visits one row: takes the exact step in its variable or, if the row is to be left out, marks
    // its place.
    template <class L>
    void step(const L& loss, std::int64_t& place) {
        const std::int64_t i = place;
        Item& item = items_[i];
        const double y = item.y;
        const double C = item.C;
        const double now = item.beta;
        const double f = rows_.dot(i, w_.data()) + b_;
        ++visits_;
        gap_ += loss.gap(y, C, now, f);
        if constexpr (L::quadratic) {
            const double up =
                now < loss.hi(y, C) ? -f - loss.right_derivative(y, C, now) : -kInfinity;
            const double down =
                now > loss.lo(y, C) ? f + loss.left_derivative(y, C, now) : -kInfinity;
            const double rate = std::max(up, down);
            if (rate < -violation_) {
                place = kLeftOut;
                return;
            }
            largest_ = std::max(largest_, rate);
            if (rate <= 0) return;
        }
        const double value = one_step(loss, y, C, now, f, item.square + rho_);
        const double change = value - now;
        if (change == 0) return;
        if constexpr (!L::quadratic)
            largest_ = std::max(largest_, std::fabs(change) * (item.square + rho_));
        ++steps_;
        rows_.add(i, change, w_.data());
        b_ += rho_ * change;
        sum_ += change;
        conjugate_ += loss.h(y, C, value) - loss.h(y, C, now);
        support_ += (value != 0) - (now != 0);
        item.beta = value;
    }

    // The rest of a pass; false if the time is over before its end.
    template <class L>
    bool pass(const L& loss, std::chrono::steady_clock::time_point end) {
        if (next_ == 0) {
            shuffle();
            gap_ = 0;
            largest_ = 0;
        }
        for (std::int64_t turn = 1; next_ < std::int64_t(blocks_.size()); ++next_, ++turn) {
            if (turn % 64 == 0) {
                if (watch().check()) throw Stopped{};
                if (std::chrono::steady_clock::now() > end) return false;
            }
            const std::int64_t from = blocks_[next_] * kBlock;
            const std::int64_t to = std::min(from + kBlock, std::int64_t(active_.size()));
            if (next_ + 8 < std::int64_t(blocks_.size())) {
                const std::int64_t soon = active_[blocks_[next_ + 4] * kBlock];
                __builtin_prefetch(&items_[active_[blocks_[next_ + 8] * kBlock]]);
                rows_.prefetch(soon);
                rows_.prefetch(std::min(soon + 1, rows_.count() - 1));
            }
            for (std::int64_t t = from; t < to; ++t) step(loss, active_[t]);
        }
        std::erase(active_, kLeftOut);
        next_ = 0;
        ++rounds_;
        passes_ += double(visits_) / double(rows_.count());
        visits_ = 0;
        violation_ = largest_ > 0 ? largest_ : kInfinity;
        // The multiplier is updated once no row is further from optimal than the sum of beta.
        if (intercept_ == Intercept::free && largest_ <= rho_ * std::fabs(sum_)) b_ += rho_ * sum_;
        return true;
    }

    // Between two passes: the figures, in which the gap is the sum of the rows' gap terms when they
    // were visited, and whether to continue.
    Status check_progress(std::vector<Round>& records, bool last) {
        // About what it would cost to bring the sum of beta to zero.
        const double imbalance =
            intercept_ == Intercept::free ? std::fabs(sum_) * (1 + std::fabs(b_)) : 0.0;
        Round record = figures(gap_ + imbalance, 0.5 * squared_norm(w_, b_) + conjugate_);
        record.support = support_;
        record.bias = b_;
        Status status = decide(record);
        if (slow_.check(rounds_, record, best_dual_, best_gap_) && status == Status::running)
            status = Status::stalled;
        // Short passes come by the thousand: reporting some of them is enough.
        if (last || status != Status::running ||
            record.when - reported_ > std::chrono::milliseconds(2)) {
            records.push_back(record);
            reported_ = record.when;
        }
        return status;
    }

    // Whether to stop, and whether to make all rows active again.
    Status decide(const Round& record) {
        Status status = passes_ >= patience_ ? Status::stalled : Status::running;
        const bool all = active_.size() == items_.size();
        if (all) violation_of_all_ = largest_;
        if (record.gap < 0.99 * best_gap_)
            still_ = chances_ = 0;
        else if (record.dual < best_dual_ - 1e-15 * std::fabs(record.dual))
            still_ = 0;
        else
            ++still_;
        if ((all || trusting_) && record.gap <= target) {
            status = Status::converged;
        } else if (still_ >= kStill && ++chances_ > kChances) {
            status = Status::stalled;
        } else if (still_ >= kStill) {
            activate_all();
            still_ = 0;
        } else if (!all && (record.gap <= target || largest_ < 0.03 * violation_of_all_)) {
            activate_all();
        }
        best_gap_ = std::min(best_gap_, record.gap);
        best_dual_ = std::min(best_dual_, record.dual);
        return status;
    }

    // A new order: blocks of neighbouring rows, which are cheap to visit one after the other, in
    // random order.
    void shuffle() {
        blocks_.resize((active_.size() + kBlock - 1) / kBlock);
        std::iota(blocks_.begin(), blocks_.end(), std::int64_t(0));
        for (std::size_t t = blocks_.size(); t > 1; --t)
            std::swap(blocks_[t - 1], blocks_[(random_() >> 32) * t >> 32]);
    }

    void activate_all() {
        const std::int64_t n = rows_.count();
        if (next_ != 0 || std::int64_t(active_.size()) == n) return;
        active_.resize(n);
        std::iota(active_.begin(), active_.end(), std::int64_t(0));
        violation_ = kInfinity;
    }

    // |w|^2, with b as a weight where it is regularised.
    double squared_norm(const std::vector<double>& w, double b) const {
        const double own = intercept_ == Intercept::regularized ? b * b : 0.0;
        return std::inner_product(w.begin(), w.end(), w.begin(), own);
    }

    Round figures(double gap, double dual) const {
        Round record;
        record.round = rounds_;
        record.steps = steps_;
        record.passes = passes_;
        record.dual = dual;
        record.primal = gap - dual;
        record.gap = gap / std::max({std::fabs(record.primal), std::fabs(dual), 1e-300});
        record.violation = largest_;
        record.when = std::chrono::steady_clock::now();
        return record;
    }

    const LinearRows& rows_;
    const RowTerms& terms_;
    Intercept intercept_;
    SplitMix random_;
    double patience_;  // passes after which it has stalled
    std::vector<Item> items_;
    std::vector<double> w_;
    std::vector<std::int64_t> active_;  // rows, in ascending order
    std::vector<std::int64_t> blocks_;  // of active rows, in the order of the pass
    std::int64_t next_ = 0;             // place in that order
    bool begun_ = false;
    bool warm_;
    bool trusting_ = true;  // that the rows left out satisfy the KKT conditions
    double b_ = 0;
    double rho_ = 0;
    double sum_ = 0;                // of beta
    double conjugate_ = 0;          // sum of h
    double gap_ = 0;                // of this pass: the sum of the rows' gap terms
    double largest_ = 0;            // of this pass: violation
    double violation_ = kInfinity;  // the largest of the last pass
    double violation_of_all_ = 0;   // of the last pass over all rows
    double passes_ = 0;
    double best_gap_ = kInfinity;
    double best_dual_ = kInfinity;
    SlowProgress slow_{10000};
    std::int64_t rounds_ = 0;
    std::int64_t steps_ = 0;
    std::int64_t visits_ = 0;
    std::int64_t support_ = 0;
    int still_ = 0;  // passes without progress
    int chances_ = 0;
    std::chrono::steady_clock::time_point reported_{};
};

}  // namespace margrave
