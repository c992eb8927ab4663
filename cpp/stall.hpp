// When a descent has stalled: one rule for all solvers that improve a dual point.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "dual_problem.hpp"

namespace margrave {

// Rows that are almost linearly dependent make steps tiny, and a solve would never end. Checks
// every `window` rounds whether the dual value or the gap has improved.
class SlowProgress {
  public:
    explicit SlowProgress(std::int64_t window) : window_(window) {}

    bool check(std::int64_t rounds, const Round& last, double best_dual, double best_gap) {
        if (rounds < round + window_) return false;
        const bool slow =
            dual - best_dual <= 1e-9 * (last.primal + last.dual) && best_gap > 0.99 * gap;
        round = rounds;
        dual = best_dual;
        gap = best_gap;
        return slow;
    }

    std::int64_t round = 0;
    double dual = kInfinity;
    double gap = kInfinity;

  private:
    std::int64_t window_;
};

// A precision is exhausted when `window` rounds, about one sweep over the rows, gain next to
// nothing. In single precision, after which double can continue: a dual gain below a hundredth of
// the gap, and a gap that is hardly smaller. In double: no gain beyond rounding, and no smaller gap
// (near the optimum the gap falls like the square root of the dual's error).
class StallRule {
  public:
    StallRule(std::int64_t window, bool is_single, bool is_hull)
        : window_(window), is_single_(is_single), is_hull_(is_hull) {}

    // `size` is that of the terms behind the dual value, on which its rounding depends.
    bool check(std::int64_t rounds, const Round& last, double size) {
        best_gap_ = std::min(best_gap_, last.gap);
        best_dual_ = std::min(best_dual_, last.dual);
        if (is_hull_ && hulls_overlap(rounds, last, size)) return true;
        if (slow_.check(rounds, last, best_dual_, best_gap_)) return true;
        if (rounds < marked_round_ + window_) return false;
        // rounding lets the dual rise and fall again
        const double gain = marked_dual_ - best_dual_;
        const bool still =
            is_single_ ? gain <= 0.01 * (last.primal + last.dual) && best_gap_ > 0.9 * marked_gap_
                       : gain <= 2e-16 * size && best_gap_ > 0.99 * marked_gap_;
        const bool first = marked_round_ == 0;
        marked_round_ = rounds;
        marked_dual_ = best_dual_;
        marked_gap_ = best_gap_;
        return still && !first;
    }

    // Its whole state, for checkpoints.
    static constexpr std::size_t kNumbers = 11;
    std::array<double, kNumbers> state() const {
        return {best_gap_,
                best_dual_,
                marked_gap_,
                marked_dual_,
                fallen_dual_,
                slow_.dual,
                slow_.gap,
                double(marked_round_),
                double(fallen_round_),
                double(slow_.round),
                double(are_apart_)};
    }
    void restore(const std::array<double, kNumbers>& kept) {
        best_gap_ = kept[0];
        best_dual_ = kept[1];
        marked_gap_ = kept[2];
        marked_dual_ = kept[3];
        fallen_dual_ = kept[4];
        slow_.dual = kept[5];
        slow_.gap = kept[6];
        marked_round_ = std::int64_t(kept[7]);
        fallen_round_ = std::int64_t(kept[8]);
        slow_.round = std::int64_t(kept[9]);
        are_apart_ = kept[10] != 0;
    }

  private:
    // Hulls that overlap have the distance zero, which takes long to reach. No direction separates
    // them, and the distance is zero but for rounding, or small and no longer falling. In double
    // precision a direction that once separated them shows that a small distance is one.
    bool hulls_overlap(std::int64_t rounds, const Round& last, double size) {
        if (!(last.dual > 0 && last.primal >= last.dual)) {
            are_apart_ = true;
            return false;
        }
        if (last.dual <= (is_single_ ? 1e-6 : 1e-12) * size) return true;
        if (rounds < fallen_round_ + 30 || (are_apart_ && !is_single_)) return false;
        const bool slow = last.dual > 0.9 * fallen_dual_;
        fallen_round_ = rounds;
        fallen_dual_ = last.dual;
        return slow && last.dual <= 1e-6 * size;
    }

    std::int64_t window_;
    bool is_single_;
    bool is_hull_;
    double best_gap_ = kInfinity;
    double best_dual_ = kInfinity;
    SlowProgress slow_{1000};
    // The state when progress was last checked: of this precision, and of hulls.
    std::int64_t marked_round_ = 0;
    double marked_dual_ = 0;
    double marked_gap_ = kInfinity;
    std::int64_t fallen_round_ = 0;
    double fallen_dual_ = kInfinity;
    bool are_apart_ = false;  // whether a direction has separated them
};

}  // namespace margrave
