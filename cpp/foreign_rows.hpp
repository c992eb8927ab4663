// Kernel rows of points from elsewhere over the rows at hand, kept within a memory budget under the
// points' numbers.
#pragma once
#include <unordered_map>

#include "cache.hpp"
#include "tile_source.hpp"

namespace margrave {

template <class T>
class ForeignRows {
  public:
    ForeignRows(const KernelParams& kernel, const Rows& own, std::int64_t memory, const Isa& isa,
                int threads)
        : own_(own), threads_(threads), isa_(&isa), source_(kernel, own_, own_, isa, threads_) {
        const std::int64_t packed = TileSource<T>::packed_bytes(own);
        room_ = std::clamp<std::int64_t>(memory / 4, 1 << 20, 32 << 20);
        pack_ = !own.sparse && packed <= memory / 4 && (sizeof(T) == 4 || own.is_double);
        if (pack_) source_.keep_packed({0, own.count});
        const std::int64_t left = std::max<std::int64_t>(0, memory - (pack_ ? packed : 0));
        cache_ = std::make_unique<RowCache<T>>(std::vector<std::int64_t>{own.count}, left);
    }

    // sums[j] += sum over q of change[q] k(foreign row which[q], own row j), in batches of fixed
    // size and in order, so that the result does not depend on what is cached. False if the watch
    // stopped it: the sums are then not to be used.
    bool add(const Rows& foreign, const Subset& which, const std::int64_t* numbers,
             const double* change, double* sums, Watch* watch) {
        const std::int64_t width = own_.count;
        // Rows that are not kept should stay in the second-level cache; but own rows that have to
        // be packed for every batch favour large batches.
        const std::int64_t row_bytes = stride() * std::int64_t(sizeof(T));
        const std::int64_t per =
            std::clamp<std::int64_t>((pack_ ? 1 << 20 : room_) / row_bytes, 12, 1024);
        std::vector<const T*> rows;
        for (std::int64_t from = 0; from < which.count; from += per) {
            const std::int64_t n = std::min(per, which.count - from);
            if (!fetch(foreign, which.part(from, n), numbers + from, per, rows, watch))
                return false;
            constexpr std::int64_t columns = 4096;
            threads_.run((width + columns - 1) / columns, nullptr, [&](std::int64_t t, int) {
                const std::int64_t end = std::min(width, (t + 1) * columns);
                isa_->template operations<T>().combine(rows.data(), change + from, int(n),
                                                       t * columns, end, sums);
            });
        }
        return true;
    }

    std::int64_t kernel_values() const { return source_.values_computed(); }
    std::int64_t size() const { return own_.count; }

  private:
    std::int64_t stride() const { return (own_.count + 63) / 64 * 64; }

    // The kernel rows of a batch of at most `per` foreign rows: from the cache, or computed into it
    // or into a buffer.
    bool fetch(const Rows& foreign, const Subset& which, const std::int64_t* numbers,
               std::int64_t per, std::vector<const T*>& rows, Watch* watch) {
        std::vector<std::int64_t> missing, fresh;
        std::vector<T*> out;
        std::int64_t loose = 0;
        rows.assign(which.count, nullptr);
        cache_->begin_round();
        for (std::int64_t q = 0; q < which.count; ++q) {
            T* row = cache_->find(numbers[q], 0);
            rows[q] = row;
            if (row) continue;
            if (worth_keeping(numbers[q])) row = cache_->make(numbers[q], 0);
            if (row) {
                fresh.push_back(numbers[q]);
            } else {
                if (scratch_.size() < std::size_t(per * stride())) scratch_.resize(per * stride());
                row = scratch_.data() + stride() * loose++;
            }
            missing.push_back(which[q]);
            out.push_back(row);
            rows[q] = row;
        }
        const Subset all{nullptr, 0, own_.count};
        if (!missing.empty() &&
            !source_.tile_foreign(foreign, Subset::of(missing), all, out.data(), watch)) {
            for (std::int64_t number : fresh) cache_->drop(number, 0);
            return false;
        }
        return true;
    }

    // From the second use on: members of a working set are used about ten times.
    bool worth_keeping(std::int64_t number) {
        unsigned char& uses = uses_[number];
        if (uses < 255) ++uses;
        return uses >= 2;
    }

    Rows own_;
    Threads threads_;
    const Isa* isa_;
    bool pack_;
    std::int64_t room_;  // bytes of a batch
    TileSource<T> source_;
    std::unique_ptr<RowCache<T>> cache_;
    std::unordered_map<std::int64_t, unsigned char> uses_;
    Aligned<T> scratch_;
};

}  // namespace margrave
