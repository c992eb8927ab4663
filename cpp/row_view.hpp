// Rows of a data matrix in the caller's memory.
#pragma once
#include <cstdint>
#include <vector>

namespace margrave {

// A borrowed view: dense with any strides, or compressed sparse rows; values float or double; never
// a copy.
struct Rows {
    std::int64_t count = 0;
    std::int64_t features = 0;
    bool sparse = false;
    bool is_double = true;
    bool wide_indices = false;
    bool ones = false;  // sparse, and every stored value is one, as in one-hot rows
    const void* values = nullptr;
    // In elements.
    std::int64_t row_stride = 0;
    std::int64_t column_stride = 0;
    const void* indices = nullptr;
    const std::int64_t* starts = nullptr;

    // An entry of a dense row.
    double at(std::int64_t row, std::int64_t column) const {
        const std::int64_t place = row * row_stride + column * column_stride;
        return is_double ? static_cast<const double*>(values)[place]
                         : static_cast<const float*>(values)[place];
    }

    // Calls f(column, value) for the stored entries of a row.
    template <class F>
    void each(std::int64_t row, F&& f) const {
        if (is_double)
            each_of(static_cast<const double*>(values), row, f);
        else
            each_of(static_cast<const float*>(values), row, f);
    }

  private:
    template <class U, class F>
    void each_of(const U* v, std::int64_t row, F&& f) const {
        if (!sparse) {
            const U* x = v + row * row_stride;
            if (column_stride == 1)
                for (std::int64_t k = 0; k < features; ++k) f(k, x[k]);
            else
                for (std::int64_t k = 0; k < features; ++k) f(k, x[k * column_stride]);
        } else if (wide_indices) {
            const auto* c = static_cast<const std::int64_t*>(indices);
            for (std::int64_t t = starts[row]; t < starts[row + 1]; ++t) f(c[t], v[t]);
        } else {
            const auto* c = static_cast<const std::int32_t*>(indices);
            for (std::int64_t t = starts[row]; t < starts[row + 1]; ++t)
                f(std::int64_t(c[t]), v[t]);
        }
    }
};

// Some of the rows: those in a list, or `count` from `first` on.
struct Subset {
    const std::int64_t* list = nullptr;
    std::int64_t first = 0;
    std::int64_t count = 0;

    static Subset of(const std::vector<std::int64_t>& rows) {
        return {rows.data(), 0, std::int64_t(rows.size())};
    }
    std::int64_t operator[](std::int64_t i) const { return list ? list[i] : first + i; }
    Subset part(std::int64_t from, std::int64_t n) const {
        return list ? Subset{list + from, 0, n} : Subset{nullptr, first + from, n};
    }
};

}  // namespace margrave
