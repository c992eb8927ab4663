// Products of one row with a dense vector in double precision, for every layout of rows in memory.
#pragma once
#include "isa.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

MARGRAVE_INLINE Vec<double> load_wide(const double* p) { return load(p); }
MARGRAVE_INLINE Vec<double> load_wide(const float* p) {
    typedef float Half __attribute__((vector_size(kVectorBytes / 2), aligned(4), may_alias));
    return __builtin_convertvector(*reinterpret_cast<const Half*>(p), Vec<double>);
}

template <class U>
struct DenseRow {
    static constexpr int W = Simd<double>::width;
    static double dot(const Rows& rows, std::int64_t row, const double* w) {
        return product(at(rows, row), w, rows.features);
    }
    static double square(const Rows& rows, std::int64_t row) {
        return product(at(rows, row), at(rows, row), rows.features);
    }
    static const U* at(const Rows& rows, std::int64_t row) {
        return static_cast<const U*>(rows.values) + row * rows.row_stride;
    }
    template <class V>
    MARGRAVE_INLINE static double product(const U* x, const V* w, std::int64_t d) {
        Vec<double> sum[4] = {};
        std::int64_t k = 0;
        for (; k + 4 * W <= d; k += 4 * W)
            for (int v = 0; v < 4; ++v)
                sum[v] += load_wide(x + k + v * W) * load_wide(w + k + v * W);
        for (; k + W <= d; k += W) sum[0] += load_wide(x + k) * load_wide(w + k);
        double last[2] = {0, 0};
        for (; k < d; ++k) last[k % 2] += double(x[k]) * double(w[k]);
        const Vec<double> all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        double total = last[0] + last[1];
        for (int j = 0; j < W; ++j) total += all[j];
        return total;
    }
    static void add(const Rows& rows, std::int64_t row, double factor, double* w) {
        const U* x = static_cast<const U*>(rows.values) + row * rows.row_stride;
        const std::int64_t d = rows.features;
        std::int64_t k = 0;
        for (; k + W <= d; k += W) store(w + k, load(w + k) + load_wide(x + k) * factor);
        for (; k < d; ++k) w[k] += factor * double(x[k]);
    }
};

// The same for rows of any layout.
inline double square_of_entries(const Rows& rows, std::int64_t row) {
    double total = 0;
    rows.each(row, [&](std::int64_t, double x) { total += x * x; });
    return total;
}

template <class U>
struct StridedRow {
    static double dot(const Rows& rows, std::int64_t row, const double* w) {
        const U* x = static_cast<const U*>(rows.values) + row * rows.row_stride;
        double sum = 0;
        for (std::int64_t k = 0; k < rows.features; ++k)
            sum += double(x[k * rows.column_stride]) * w[k];
        return sum;
    }
    static void add(const Rows& rows, std::int64_t row, double factor, double* w) {
        const U* x = static_cast<const U*>(rows.values) + row * rows.row_stride;
        for (std::int64_t k = 0; k < rows.features; ++k)
            w[k] += factor * double(x[k * rows.column_stride]);
    }
};

template <class U, class I>
struct CompressedRow {
    static double dot(const Rows& rows, std::int64_t row, const double* w) {
        const U* x = static_cast<const U*>(rows.values);
        const I* at = static_cast<const I*>(rows.indices);
        const std::int64_t end = rows.starts[row + 1];
        std::int64_t t = rows.starts[row];
        double sum[4] = {0, 0, 0, 0};
        for (; t + 4 <= end; t += 4)
            for (int j = 0; j < 4; ++j) sum[j] += double(x[t + j]) * w[at[t + j]];
        for (; t < end; ++t) sum[0] += double(x[t]) * w[at[t]];
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    static void add(const Rows& rows, std::int64_t row, double factor, double* w) {
        const U* x = static_cast<const U*>(rows.values);
        const I* at = static_cast<const I*>(rows.indices);
        for (std::int64_t t = rows.starts[row]; t < rows.starts[row + 1]; ++t)
            w[at[t]] += factor * double(x[t]);
    }
};

template <class I>
struct RowOfOnes {
    static double dot(const Rows& rows, std::int64_t row, const double* w) {
        const I* at = static_cast<const I*>(rows.indices);
        const std::int64_t end = rows.starts[row + 1];
        std::int64_t t = rows.starts[row];
        double sum[4] = {0, 0, 0, 0};
        for (; t + 4 <= end; t += 4)
            for (int j = 0; j < 4; ++j) sum[j] += w[at[t + j]];
        for (; t < end; ++t) sum[0] += w[at[t]];
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    static void add(const Rows& rows, std::int64_t row, double factor, double* w) {
        const I* at = static_cast<const I*>(rows.indices);
        for (std::int64_t t = rows.starts[row]; t < rows.starts[row + 1]; ++t) w[at[t]] += factor;
    }
};

template <class Row>
constexpr RowOperations operations_of() {
    if constexpr (requires { Row::square; })
        return {Row::dot, Row::add, Row::square};
    else
        return {Row::dot, Row::add, square_of_entries};
}

template <class U>
RowOperations operations_for(const Rows& rows) {
    if (rows.sparse)
        return rows.wide_indices ? operations_of<CompressedRow<U, std::int64_t>>()
                                 : operations_of<CompressedRow<U, std::int32_t>>();
    return rows.column_stride == 1 ? operations_of<DenseRow<U>>() : operations_of<StridedRow<U>>();
}

inline RowOperations row_operations(const Rows& rows) {
    if (rows.ones)
        return rows.wide_indices ? operations_of<RowOfOnes<std::int64_t>>()
                                 : operations_of<RowOfOnes<std::int32_t>>();
    return rows.is_double ? operations_for<double>(rows) : operations_for<float>(rows);
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
