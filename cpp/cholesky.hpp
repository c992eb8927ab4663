// The solution of a small positive definite system. Large ones are better left to a library, but its threads get in the way of
// ours when called for a tenth of a millisecond at a time.
#pragma once
#include <cmath>
#include <cstdint>

namespace margrave {

inline double product(const double* a, const double* b, std::int64_t n) {
    double sum[4] = {0, 0, 0, 0};
    std::int64_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int j = 0; j < 4; ++j) sum[j] += a[k + j] * b[k + j];
    for (; k < n; ++k) sum[0] += a[k] * b[k];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Solves A x = b in place of b, by A = LL' in place of A (n x n, by rows); false if A is not positive definite.
inline bool solve_positive(double* A, double* b, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        double* row = A + i * n;
        for (std::int64_t j = 0; j < i; ++j) row[j] = (row[j] - product(row, A + j * n, j)) / A[j * n + j];
        const double pivot = row[i] - product(row, row, i);
        if (!(pivot > 1e-16 * row[i]) || !std::isfinite(pivot)) return false;
        row[i] = std::sqrt(pivot);
        b[i] = (b[i] - product(row, b, i)) / row[i];
    }
    for (std::int64_t i = n - 1; i >= 0; --i) {
        b[i] /= A[i * n + i];
        for (std::int64_t j = 0; j < i; ++j) b[j] -= A[i * n + j] * b[i];
    }
    return true;
}

}  // namespace margrave
