// Kernel rows of one data set in one precision: their source, their cache and the threads.
#pragma once
#include "cache.hpp"
#include "tile_source.hpp"

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

    std::int64_t width(int block) const { return starts[block + 1] - starts[block]; }

    // Adds the number of kernel values that `work` has computed to a count, and returns its result.
    template <class F>
    bool counted(std::int64_t& values, F&& work) const {
        values -= values_computed();
        const bool whole = work();
        values += values_computed();
        return whole;
    }
    std::int64_t values_computed() const {
        const bool shared = static_cast<const void*>(source) == exact;
        return source->values_computed() + (shared ? 0 : exact->values_computed());
    }

    // to[m * width + j] += sum over q of coef[q * outputs + m] k(row q, column j of the block).
    // Rows that the cache has no room for are used as they are computed. A row is counted as used
    // at the `first` of several blocks. False if the watch stopped it.
    bool add(const std::vector<std::int64_t>& rows, const double* coef, int outputs, int block,
             bool first, double* to, Watch* watch) const {
        const Subset columns{nullptr, starts[block], width(block)};
        std::vector<const T*> kept;
        std::vector<std::int64_t> kept_at, missing, loose;
        std::vector<double> loose_coef;
        std::vector<T*> out;
        for (std::size_t q = 0; q < rows.size(); ++q) {
            T* piece = cache->find(rows[q], block);
            if (!piece && worth_keeping(rows[q], first)) {
                piece = cache->make(rows[q], block);
                if (piece) {
                    missing.push_back(rows[q]);
                    out.push_back(piece);
                }
            }
            if (piece) {
                kept.push_back(piece);
                kept_at.push_back(std::int64_t(q));
            } else {
                loose.push_back(rows[q]);
                const double* own = coef + q * outputs;
                loose_coef.insert(loose_coef.end(), own, own + outputs);
            }
        }
        if (!(missing.empty() || source->tile(Subset::of(missing), columns, out.data(), watch)) ||
            !add_loose(loose, loose_coef, outputs, columns, to, watch)) {
            for (std::int64_t row : missing) cache->drop(row, block);
            return false;
        }
        add_kept(kept, kept_at, coef, outputs, columns.count, to);
        return true;
    }

  private:
    // Rows without a place in the cache.
    bool add_loose(const std::vector<std::int64_t>& rows, const std::vector<double>& coef,
                   int outputs, const Subset& columns, double* to, Watch* watch) const {
        if (rows.empty()) return true;
        std::vector<double> sums(columns.count * outputs);
        if (!source->apply(Subset::of(rows), coef.data(), outputs, columns, sums.data(), watch))
            return false;
        for (std::int64_t j = 0; j < columns.count; ++j)
            for (int m = 0; m < outputs; ++m) to[m * columns.count + j] += sums[j * outputs + m];
        return true;
    }

    // Rows in the cache, row r with the coefficients of number at[r].
    void add_kept(const std::vector<const T*>& rows, const std::vector<std::int64_t>& at,
                  const double* coef, int outputs, std::int64_t columns, double* to) const {
        if (rows.empty()) return;
        constexpr std::int64_t per = 4096;
        std::vector<double> own;
        for (int m = 0; m < outputs; ++m) {
            own.clear();
            for (std::int64_t q : at) own.push_back(coef[q * outputs + m]);
            threads->run((columns + per - 1) / per, nullptr, [&](std::int64_t t, int) {
                isa->template operations<T>().combine(rows.data(), own.data(), int(rows.size()),
                                                      t * per, std::min(columns, (t + 1) * per),
                                                      to + m * columns);
            });
        }
    }

    // Fresh memory for a value costs a quarter of a nanosecond, and up to five on a virtual machine
    // whose host has to find it first; computing a value of few features again costs less. As with
    // renting and buying: cache a row once computing it has cost as much as the memory would have.
    bool worth_keeping(std::int64_t row, bool first) const {
        if (source->is_additive()) return false;
        // In nanoseconds; distant values are skipped.
        const double value = (0.2 + 0.012 * double(source->cost())) * source->share_computed();
        const int uses = cache->uses(row, first);
        return value > 0.2 && uses * value >= 1.9;  // to read a cached value takes 0.2, too
    }
};

using Fetch = std::function<void(const Subset& queries, const Subset& points, double* out)>;

// A precomputed kernel: the rows are the kernel values.
inline Fetch values_of(const Rows& matrix) {
    return [matrix](const Subset& queries, const Subset& points, double* out) {
        const auto copy = [&](const auto* values) {
            for (std::int64_t i = 0; i < queries.count; ++i, out += points.count)
                for (std::int64_t j = 0; j < points.count; ++j)
                    out[j] =
                        values[queries[i] * matrix.row_stride + points[j] * matrix.column_stride];
        };
        if (matrix.is_double)
            copy(static_cast<const double*>(matrix.values));
        else
            copy(static_cast<const float*>(matrix.values));
    };
}

struct StoreSettings {
    bool is_double = false;
    bool cache = true;
    std::int64_t memory = 0;  // bytes for packed and cached rows
    std::int64_t buffer = 0;  // bytes of packed queries at a time
    int threads = 1;
};

class KernelStore {
  public:
    // A native kernel over the rows or, without one, values from `fetch`, to which `offset` is
    // added.
    KernelStore(const Rows& rows, const KernelParams* kernel, Fetch fetch, double offset,
                std::vector<std::int64_t> starts, const StoreSettings& settings, const Isa& isa)
        : rows_(rows),
          fetch_(std::move(fetch)),
          offset_(offset),
          starts_(std::move(starts)),
          settings_(settings),
          threads_(settings.threads),
          isa_(&isa) {
        if (settings.is_double)
            build<double>(kernel, exact_, double_cache_);
        else {
            build<float>(kernel, float_, float_cache_);
            exact_ = source<double>(kernel, false);
        }
    }

    template <class T>
    KernelRows<T> view() {
        if constexpr (sizeof(T) == 4)
            return {float_.get(), exact_.get(), float_cache_.get(), &threads_, isa_, starts_};
        else
            return {exact_.get(), exact_.get(), double_cache_.get(), &threads_, isa_, starts_};
    }
    bool is_double() const { return settings_.is_double; }
    const std::vector<std::int64_t>& starts() const { return starts_; }
    std::int64_t cached_bytes() const {
        return float_cache_ ? float_cache_->bytes() : double_cache_->bytes();
    }

  private:
    template <class T>
    std::unique_ptr<KernelSource<T>> source(const KernelParams* kernel, bool pack) {
        if (!kernel) return std::make_unique<TableSource<T>>(rows_.count, offset_, fetch_);
        auto tiles = std::make_unique<TileSource<T>>(*kernel, rows_, rows_, *isa_, threads_,
                                                     settings_.buffer);
        if (pack) tiles->keep_packed(starts_);
        return tiles;
    }

    template <class T>
    void build(const KernelParams* kernel, std::unique_ptr<KernelSource<T>>& values,
               std::unique_ptr<RowCache<T>>& cache) {
        const std::int64_t packed = TileSource<T>::packed_bytes(rows_);
        // Never a double copy of float data.
        const bool pack = kernel && !rows_.sparse && packed <= settings_.memory / 4 &&
                          (sizeof(T) == 4 || rows_.is_double);
        std::vector<std::int64_t> widths;
        for (std::size_t b = 0; b + 1 < starts_.size(); ++b)
            widths.push_back(starts_[b + 1] - starts_[b]);
        values = source<T>(kernel, pack);
        const std::int64_t left = settings_.memory - (pack ? packed : 0);
        cache = std::make_unique<RowCache<T>>(
            widths, settings_.cache ? std::max<std::int64_t>(0, left) : 0);
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
