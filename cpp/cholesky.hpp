// The solution of a small positive definite system. For large ones a library is faster; in calls of
// a tenth of a millisecond its threads compete with ours.
#pragma once
#include <cmath>

#include "isa.hpp"

namespace margrave {

// Solves A x = b in place of b, by A = LL' in place of A (n x n, by rows); false if A is not
// positive definite.
inline bool solve_positive(double* A, double* b, std::int64_t n, const Isa& isa) {
    Rows rows;  // of A
    rows.count = n;
    rows.values = A;
    rows.row_stride = n;
    rows.column_stride = 1;
    const RowOperations operations = isa.row_operations(rows);
    const auto product = [&](std::int64_t row, const double* x, std::int64_t length) {
        rows.features = length;
        return operations.dot(rows, row, x);
    };
    for (std::int64_t i = 0; i < n; ++i) {
        double* row = A + i * n;
        for (std::int64_t j = 0; j < i; ++j) row[j] = (row[j] - product(j, row, j)) / A[j * n + j];
        const double pivot = row[i] - product(i, row, i);
        if (!(pivot > 1e-16 * row[i]) || !std::isfinite(pivot)) return false;
        row[i] = std::sqrt(pivot);
        b[i] = (b[i] - product(i, b, i)) / row[i];
    }
    for (std::int64_t i = n - 1; i >= 0; --i) {
        b[i] /= A[i * n + i];
        for (std::int64_t j = 0; j < i; ++j) b[j] -= A[i * n + j] * b[i];
    }
    return true;
}

}  // namespace margrave
