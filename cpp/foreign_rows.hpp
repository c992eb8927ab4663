// Kernel rows of points from elsewhere over the rows at hand, kept within a memory budget under the
// points' numbers.
#pragma once
#include <unordered_map>

#include "cache.hpp"
#include "source.hpp"

namespace margrave {

template <class T>
class ForeignRows {
  public:
    ForeignRows(const KernelParams& kernel, const Rows& own, std::int64_t memory, const Isa& isa,
                int threads)
        : own_(own), threads_(threads), isa_(&isa), source_(kernel, own_, own_, isa, threads_) {
        const std::int64_t packed = own.count * own.features * std::int64_t(sizeof(T));
        pack_ = !own.sparse && packed <= memory / 4 && (sizeof(T) == 4 || own.is_double);
        if (pack_) source_.keep_packed({0, own.count});
        cache_ =
            std::make_unique<RowCache<T>>(std::vector<std::int64_t>{own.count},
                                          std::max<std::int64_t>(0, memory - (pack_ ? packed : 0)));
    }

    // sums[j] += sum over q of change[q] k(foreign row which[q], own row j), in batches of fixed
    // size and in their order, so that it comes out the same whatever is kept. False if the watch
    // stopped it: the sums are then not to be used.
    bool add(const Rows& foreign, const Subset& which, const std::int64_t* numbers,
             const double* change, double* sums, Watch* watch) {
        const std::int64_t width = own_.count;
        const std::int64_t stride = (width + 63) / 64 * 64;
        // Rows that are not kept had better stay in the second-level cache; but own rows that have
        // to be packed anew for every batch ask for large ones.
        const std::int64_t per = std::clamp<std::int64_t>(
            (pack_ ? 1 << 20 : 32 << 20) / (stride * std::int64_t(sizeof(T))), 12, 1024);
        std::vector<const T*> rows;
        std::vector<T*> out;
        std::vector<std::int64_t> missing, fresh;
        for (std::int64_t from = 0; from < which.count; from += per) {
            const std::int64_t n = std::min(per, which.count - from);
            cache_->begin_round();
            rows.assign(n, nullptr);
            out.clear();
            missing.clear();
            fresh.clear();
            std::int64_t loose = 0;
            for (std::int64_t q = 0; q < n; ++q) {
                const std::int64_t number = numbers[from + q];
                T* row = cache_->find(number, 0);
                if (!row) {
                    if (worth_keeping(number) && (row = cache_->make(number, 0)))
                        fresh.push_back(number);
                    if (!row) {
                        if (scratch_.size() < std::size_t(per * stride))
                            scratch_.resize(per * stride);
                        row = scratch_.data() + stride * loose++;
                    }
                    missing.push_back(which[from + q]);
                    out.push_back(row);
                }
                rows[q] = row;
            }
            if (!missing.empty() &&
                !source_.tile_foreign(foreign, {missing.data(), 0, std::int64_t(missing.size())},
                                      {nullptr, 0, width}, out.data(), watch)) {
                for (std::int64_t number : fresh) cache_->drop(number, 0);
                return false;
            }
            kernel_values_ += std::int64_t(missing.size()) * width;
            constexpr std::int64_t columns = 4096;
            threads_.run((width + columns - 1) / columns, nullptr, [&](std::int64_t t, int) {
                isa_->template operations<T>().combine(rows.data(), change + from, int(n),
                                                       t * columns,
                                                       std::min(width, (t + 1) * columns), sums);
            });
        }
        return true;
    }

    std::int64_t kernel_values() const { return kernel_values_; }
    std::int64_t size() const { return own_.count; }

  private:
    // What comes a second time will come again: members of a working set return about ten times.
    bool worth_keeping(std::int64_t number) {
        unsigned char& uses = uses_[number];
        if (uses < 255) ++uses;
        return uses >= 2;
    }

    Rows own_;
    Threads threads_;
    const Isa* isa_;
    bool pack_;
    TileSource<T> source_;
    std::unique_ptr<RowCache<T>> cache_;
    std::unordered_map<std::int64_t, unsigned char> uses_;
    Aligned<T> scratch_;
    std::int64_t kernel_values_ = 0;
};

}  // namespace margrave
