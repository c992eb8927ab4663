// A cache of kernel rows within a memory budget. A row is cached in pieces, one per block of
// columns: the two classes of a one-vs-one problem are two blocks, so that problems which share a
// class share its pieces. The least recently used piece is evicted first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "platform.hpp"

namespace margrave {

template <class T>
class RowCache {
  public:
    RowCache(const std::vector<std::int64_t>& widths, std::int64_t budget)
        : budget_(budget),
          pools_(widths.size()),
          uses_(std::accumulate(widths.begin(), widths.end(), std::int64_t(0))) {
        for (std::size_t b = 0; b < widths.size(); ++b)
            // A block may be empty.
            pools_[b].stride = std::max<std::int64_t>(64, (widths[b] + 63) / 64 * 64);
    }
    ~RowCache() {
        for (auto& pool : pools_) release(pool);
    }
    RowCache(const RowCache&) = delete;
    RowCache& operator=(const RowCache&) = delete;

    std::int64_t bytes() const { return bytes_; }

    // The blocks that the next problem uses; the others may be evicted. Restarts the counts of
    // uses.
    void use(const std::vector<int>& blocks) {
        std::fill(uses_.begin(), uses_.end(), 0);
        for (auto& pool : pools_) pool.in_use = false;
        for (int b : blocks) pools_[b].in_use = true;
    }

    // Pieces that are found or made from now on stay until the next call.
    void begin_round() { ++round_; }

    T* find(std::int64_t row, int block) {
        Pool& pool = pools_[block];
        const auto it = pool.at.find(row);
        if (it == pool.at.end()) return nullptr;
        touch(pool, it->second);
        return pool.slots[it->second].memory;
    }

    // Memory for a new piece, its values undefined; null if there is no room.
    T* make(std::int64_t row, int block) {
        Pool& pool = pools_[block];
        if (pool.free.empty() && !grow(pool)) {
            if (pool.order.empty()) return nullptr;
            const int oldest = pool.order.front();
            if (pool.slots[oldest].round == round_) return nullptr;
            forget(pool, oldest);
        }
        const int s = pool.free.back();
        pool.free.pop_back();
        pool.slots[s].row = row;
        pool.order.push_back(s);
        pool.slots[s].place = std::prev(pool.order.end());
        pool.slots[s].round = round_;
        pool.at[row] = s;
        return pool.slots[s].memory;
    }

    // How often a row's values were computed, this time included if it is to be counted.
    int uses(std::int64_t row, bool count) {
        unsigned char& uses = uses_[row];
        if (count && uses < 255) ++uses;
        return uses;
    }

    void drop(std::int64_t row, int block) {
        Pool& pool = pools_[block];
        const auto it = pool.at.find(row);
        if (it != pool.at.end()) forget(pool, it->second);
    }

  private:
    struct Slot {
        T* memory;
        std::int64_t row;
        std::uint64_t round;
        std::list<int>::iterator place;
    };
    struct Pool {
        std::int64_t stride = 0;
        bool in_use = true;
        std::vector<Slot> slots;
        std::vector<int> free;
        std::list<int> order;  // least recently used first
        std::unordered_map<std::int64_t, int> at;
        std::vector<std::pair<void*, std::size_t>> slabs;
    };

    void touch(Pool& pool, int s) {
        pool.slots[s].round = round_;
        pool.order.splice(pool.order.end(), pool.order, pool.slots[s].place);
    }
    void forget(Pool& pool, int s) {
        pool.at.erase(pool.slots[s].row);
        pool.order.erase(pool.slots[s].place);
        pool.free.push_back(s);
    }

    // A slab of rows, of whole huge pages while there is room.
    bool grow(Pool& pool) {
        constexpr std::int64_t huge = 2 << 20;
        const std::int64_t row_bytes = pool.stride * std::int64_t(sizeof(T));
        const std::int64_t rows = std::clamp<std::int64_t>(32 * huge / row_bytes, 8, 4096);
        const std::int64_t size = (rows * row_bytes + huge - 1) / huge * huge;
        if (bytes_ + size > budget_) {
            for (auto& other : pools_)
                if (!other.in_use) release(other);
            if (bytes_ + size > budget_) return small_slab(pool, row_bytes);
        }
        return slab(pool, row_bytes, rows, size);
    }
    // What is left of the budget.
    bool small_slab(Pool& pool, std::int64_t row_bytes) {
        const std::int64_t rows = (budget_ - bytes_) / row_bytes;
        return rows > 0 && slab(pool, row_bytes, rows, rows * row_bytes);
    }
    bool slab(Pool& pool, std::int64_t row_bytes, std::int64_t rows, std::int64_t size) {
        void* memory = take_pages(std::size_t(size));
        if (!memory) return false;
        bytes_ += size;
        pool.slabs.emplace_back(memory, size);
        for (std::int64_t r = rows - 1; r >= 0; --r) {
            pool.free.push_back(int(pool.slots.size()));
            pool.slots.push_back(
                {reinterpret_cast<T*>(static_cast<char*>(memory) + r * row_bytes), -1, 0, {}});
        }
        return true;
    }
    void release(Pool& pool) {
        for (auto& [memory, size] : pool.slabs) {
            return_pages(memory, size);
            bytes_ -= std::int64_t(size);
        }
        pool.slabs.clear();
        pool.slots.clear();
        pool.free.clear();
        pool.order.clear();
        pool.at.clear();
    }

    std::int64_t budget_;
    std::int64_t bytes_ = 0;
    std::uint64_t round_ = 0;
    std::vector<Pool> pools_;
    std::vector<unsigned char> uses_;
};

}  // namespace margrave
