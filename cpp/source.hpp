// Where kernel values come from: native tiles over rows (tile_source.hpp), or a table of values (a
// precomputed matrix, a Python function).
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>

#include "rows.hpp"
#include "threads.hpp"

namespace margrave {

// Kernel values among the rows of one data set. Every method returns false if the watch stopped it
// half-way.
template <class T>
class KernelSource {
  public:
    virtual ~KernelSource() = default;
    virtual std::int64_t size() const = 0;
    virtual std::int64_t cost() const = 0;  // of one value, in multiplications
    // Values up to this may be skipped.
    virtual double negligible() const { return 0; }
    virtual double diagonal(std::int64_t row) = 0;
    // Of this row's kernel values, where they are computed here.
    virtual Rounding rounding(std::int64_t) { return {}; }
    // Subtracted from all rows before anything is computed; empty for none.
    virtual std::vector<double> centre() const { return {}; }
    // out[q][j] = k(query q, point j); rows of `out` have room for whole panels
    virtual bool tile(const Subset& queries, const Subset& points, T* const* out, Watch* watch) = 0;
    // sums[j * outputs + m] = sum over queries of coef[q * outputs + m] k(query q, point j)
    virtual bool apply(const Subset& queries, const double* coef, int outputs, const Subset& points,
                       double* sums, Watch* watch) = 0;
    // sums = K coef among the rows of one set
    virtual bool apply_among(const Subset& rows, const double* coef, double* sums, Watch* watch) {
        return apply(rows, coef, 1, rows, sums, watch);
    }
    // The same for one output with compensated sums, and bounds on the errors that remain; slow.
    // False where a source cannot.
    virtual bool apply_carefully(const Subset&, const double*, const Subset&, double*, double*,
                                 Watch*) {
        return false;
    }
    // Whether `apply` adds all queries up to one: then nothing is gained by caching values.
    virtual bool is_additive() const { return false; }
    // How many kernel values were computed so far, or products that cost as much as one.
    std::int64_t values_computed() const { return computed_.load(std::memory_order_relaxed); }

    // The share of the values that were computed, and not skipped.
    double share_computed() const {
        const std::int64_t asked = asked_.load(std::memory_order_relaxed);
        return asked > 0 ? double(values_computed()) / double(asked) : 1.0;
    }

  protected:
    void count(std::int64_t values, std::int64_t asked) {
        computed_.fetch_add(values, std::memory_order_relaxed);
        asked_.fetch_add(asked, std::memory_order_relaxed);
    }

  private:
    std::atomic<std::int64_t> computed_{0};
    std::atomic<std::int64_t> asked_{0};
};

// Values from a function of (queries, points, out): out is queries x points, row by row.
template <class T>
class TableSource final : public KernelSource<T> {
  public:
    using Fetch = std::function<void(const Subset& queries, const Subset& points, double* out)>;
    TableSource(std::int64_t size, double offset, Fetch fetch)
        : size_(size), offset_(offset), fetch_(std::move(fetch)) {}

    std::int64_t size() const override { return size_; }
    std::int64_t cost() const override { return 1 << 20; }
    double diagonal(std::int64_t row) override {
        double value;
        fetch_({nullptr, row, 1}, {nullptr, row, 1}, &value);
        return value + offset_;
    }
    bool tile(const Subset& queries, const Subset& points, T* const* out, Watch* watch) override {
        return blocks(queries, points, watch, [&](std::int64_t q, const double* values) {
            for (std::int64_t j = 0; j < points.count; ++j) out[q][j] = T(values[j] + offset_);
        });
    }
    bool apply(const Subset& queries, const double* coef, int outputs, const Subset& points,
               double* sums, Watch* watch) override {
        std::fill(sums, sums + points.count * outputs, 0.0);
        return blocks(queries, points, watch, [&](std::int64_t q, const double* values) {
            for (std::int64_t j = 0; j < points.count; ++j)
                for (int m = 0; m < outputs; ++m)
                    sums[j * outputs + m] += coef[q * outputs + m] * (values[j] + offset_);
        });
    }

  private:
    template <class Use>
    bool blocks(const Subset& queries, const Subset& points, Watch* watch, Use&& use) {
        const std::int64_t per =
            std::clamp<std::int64_t>((4 << 20) / std::max<std::int64_t>(1, points.count), 1, 1024);
        for (std::int64_t from = 0; from < queries.count; from += per) {
            if (watch && watch->check()) return false;
            const std::int64_t n = std::min(per, queries.count - from);
            values_.resize(n * points.count);
            fetch_(queries.part(from, n), points, values_.data());
            this->count(n * points.count, n * points.count);
            for (std::int64_t q = 0; q < n; ++q) use(from + q, values_.data() + q * points.count);
        }
        return true;
    }
    std::int64_t size_;
    double offset_;
    Fetch fetch_;
    std::vector<double> values_;
};

}  // namespace margrave
