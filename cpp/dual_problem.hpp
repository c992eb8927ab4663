// A dual problem on some of the rows, and the figures of a round of its solver.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "loss.hpp"

namespace margrave {

struct Round {
    std::int64_t round = 0;
    std::int64_t support = 0;
    std::int64_t steps = 0;
    std::int64_t kernel_values = 0;
    double primal = 0;
    double dual = 0;
    double gap = 0;
    double violation = 0;
    double bias = 0;
    double passes = 0;
    std::chrono::steady_clock::time_point when{};
};

// The contribution of the rows outside, whose variables are fixed, to a problem on some of the
// rows. A shift without scores is the linear term of a problem that is not part of a larger one.
struct FixedPart {
    std::vector<double> shift;   // of each row's score, by the variables outside
    std::vector<double> scores;  // of each row, by all variables
    double dual = 0;             // the outside rows' share of D
    double gap = 0;              // and of the gap
    double bound = 0;            // the primal value of the zero model
};

// The problem to solve. With a free intercept the sum of beta is `sum`; a part of a larger
// problem keeps the sum that it has. Gaps are relative to the objective or, if larger, to `scale`:
// the optimum may be zero.
struct DualProblem {
    std::vector<int> blocks;  // of rows of the data set
    LossParams loss;
    std::vector<double> y;
    std::vector<double> C;
    std::vector<double> start;  // values of beta, or none
    bool has_free_intercept = false;
    double sum = 0;
    double scale = 0;
    FixedPart fixed;
};

}  // namespace margrave
