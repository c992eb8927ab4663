// Kernel rows of one data set in one precision: where the values come from, what is kept of them, who computes.
#pragma once
#include "cache.hpp"
#include "source.hpp"

namespace margrave {

// What the problems on one data set share.
template <class T>
struct KernelRows {
    KernelSource<T>* source;
    KernelSource<double>* exact;  // for the certificate
    RowCache<T>* cache;
    Threads* threads;
    const Isa* isa;
    std::vector<std::int64_t> starts;  // blocks of rows
};

using Fetch = std::function<void(const Subset& queries, const Subset& points, double* out)>;

// A precomputed kernel: the rows are the kernel values.
inline Fetch values_of(const Rows& matrix) {
    return [matrix](const Subset& queries, const Subset& points, double* out) {
        const auto copy = [&](const auto* values) {
            for (std::int64_t i = 0; i < queries.count; ++i, out += points.count)
                for (std::int64_t j = 0; j < points.count; ++j)
                    out[j] = values[queries[i] * matrix.row_stride + points[j] * matrix.column_stride];
        };
        if (matrix.is_double) copy(static_cast<const double*>(matrix.values));
        else copy(static_cast<const float*>(matrix.values));
    };
}

struct StoreSettings {
    bool is_double = false, cache = true;
    std::int64_t memory = 0;  // bytes for packed and cached rows
    std::int64_t buffer = 0;  // bytes for rows on their way
    int threads = 1;
};

class KernelStore {
  public:
    // A native kernel over the rows or, without one, values from `fetch`, to which `offset` is added.
    KernelStore(const Rows& rows, const KernelParams* kernel, Fetch fetch, double offset, std::vector<std::int64_t> starts,
                const StoreSettings& settings, const Isa& isa)
        : rows_(rows), fetch_(std::move(fetch)), offset_(offset), starts_(std::move(starts)), settings_(settings),
          threads_(settings.threads), isa_(&isa) {
        if (settings.is_double) build<double>(kernel, exact_, double_cache_);
        else build<float>(kernel, float_, float_cache_), exact_ = source<double>(kernel, false);
    }

    template <class T>
    KernelRows<T> view() {
        if constexpr (sizeof(T) == 4) return {float_.get(), exact_.get(), float_cache_.get(), &threads_, isa_, starts_};
        else return {exact_.get(), exact_.get(), double_cache_.get(), &threads_, isa_, starts_};
    }
    bool is_double() const { return settings_.is_double; }
    const std::vector<std::int64_t>& starts() const { return starts_; }
    std::int64_t cached_bytes() const { return float_cache_ ? float_cache_->bytes() : double_cache_->bytes(); }

  private:
    template <class T>
    std::unique_ptr<KernelSource<T>> source(const KernelParams* kernel, bool pack) {
        if (!kernel) return std::make_unique<TableSource<T>>(rows_.count, offset_, fetch_);
        auto tiles = std::make_unique<TileSource<T>>(*kernel, rows_, rows_, *isa_, threads_, settings_.buffer);
        if (pack) tiles->keep_packed(starts_);
        return tiles;
    }

    template <class T>
    void build(const KernelParams* kernel, std::unique_ptr<KernelSource<T>>& values, std::unique_ptr<RowCache<T>>& cache) {
        const std::int64_t packed = rows_.count * rows_.features * std::int64_t(sizeof(T));
        // Never a double copy of float data.
        const bool pack = kernel && !rows_.sparse && packed <= settings_.memory / 4 && (sizeof(T) == 4 || rows_.is_double);
        std::vector<std::int64_t> widths;
        for (std::size_t b = 0; b + 1 < starts_.size(); ++b) widths.push_back(starts_[b + 1] - starts_[b]);
        values = source<T>(kernel, pack);
        const std::int64_t left = settings_.memory - (pack ? packed : 0);
        cache = std::make_unique<RowCache<T>>(widths, settings_.cache ? std::max<std::int64_t>(0, left) : 0);
    }

    Rows rows_;
    Fetch fetch_;
    double offset_;
    std::vector<std::int64_t> starts_;
    StoreSettings settings_;
    Threads threads_;
    const Isa* isa_;
    std::unique_ptr<KernelSource<float>> float_;
    std::unique_ptr<KernelSource<double>> exact_;
    std::unique_ptr<RowCache<float>> float_cache_;
    std::unique_ptr<RowCache<double>> double_cache_;
};

}  // namespace margrave
