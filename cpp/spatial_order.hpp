// An order of dense rows in which neighbours are close to each other, so that groups of consecutive
// rows have small boxes: the leaves of a k-d tree, from left to right.
#pragma once
#include <algorithm>
#include <vector>

#include "row_view.hpp"
#include "threads.hpp"

namespace margrave {

class SpatialOrder {
  public:
    SpatialOrder(const Rows& rows, Subset which, std::int64_t leaf)
        : rows_(rows), leaf_(leaf), order_(which.count) {
        for (std::int64_t i = 0; i < which.count; ++i) order_[i] = which[i];
    }

    // Splits level by level, the nodes of a level in parallel; the result does not depend on the
    // threads. False if the watch stopped it.
    bool run(Threads& threads, Watch* watch) {
        std::vector<std::vector<Place>> buffers(threads.count());
        std::vector<Node> level{{0, std::int64_t(order_.size())}};
        while (!level.empty()) {
            std::vector<std::int64_t> halves(level.size());
            const bool whole = threads.run(
                std::int64_t(level.size()), watch,
                [&](std::int64_t t, int worker) { halves[t] = split(level[t], buffers[worker]); });
            if (!whole) return false;
            std::vector<Node> next;
            for (std::size_t t = 0; t < level.size(); ++t) {
                const auto [begin, end] = level[t];
                if (halves[t] == 0) continue;
                next.push_back({begin, begin + halves[t]});
                next.push_back({begin + halves[t], end});
            }
            level = std::move(next);
        }
        return true;
    }

    std::vector<std::int64_t> take() { return std::move(order_); }

  private:
    struct Node {
        std::int64_t begin, end;
    };
    using Place = std::pair<double, std::int64_t>;  // a feature of a row, and the row

    // Puts the rows with the smaller values of the feature that varies most into the first half, a
    // whole number of leaves, and returns its size; zero for a leaf, whose rows ascend.
    std::int64_t split(const Node& node, std::vector<Place>& places) {
        const std::int64_t size = node.end - node.begin;
        std::int64_t* rows = order_.data() + node.begin;
        const std::int64_t feature = size > leaf_ ? widest(rows, size) : -1;
        if (feature < 0) {
            std::sort(rows, rows + size);
            return 0;
        }
        const std::int64_t half = (size / 2 + leaf_ - 1) / leaf_ * leaf_;
        places.clear();
        for (std::int64_t i = 0; i < size; ++i)
            places.emplace_back(rows_.at(rows[i], feature), rows[i]);
        std::nth_element(places.begin(), places.begin() + half, places.end());
        for (std::int64_t i = 0; i < size; ++i) rows[i] = places[i].second;
        return half;
    }

    // The feature of the largest variance among some of the rows; -1 if these are all equal.
    std::int64_t widest(const std::int64_t* rows, std::int64_t size) const {
        constexpr std::int64_t enough = 256;
        const std::int64_t step = std::max<std::int64_t>(1, size / enough);
        std::vector<double> sums(rows_.features), squares(rows_.features);
        double count = 0;
        for (std::int64_t i = 0; i < size; i += step, ++count)
            rows_.each(rows[i], [&](std::int64_t k, double v) {
                const double x = v - rows_.at(rows[0], k);
                sums[k] += x;
                squares[k] += x * x;
            });
        std::int64_t best = -1;
        double most = 0;
        for (std::int64_t k = 0; k < rows_.features; ++k) {
            const double spread = squares[k] - sums[k] * sums[k] / count;
            if (spread <= most) continue;
            most = spread;
            best = k;
        }
        return best;
    }

    Rows rows_;
    std::int64_t leaf_;
    std::vector<std::int64_t> order_;
};

// The order of all of these rows.
inline std::vector<std::int64_t> spatial_order(const Rows& rows, std::int64_t leaf,
                                               Threads& threads, Watch* watch) {
    SpatialOrder order(rows, {nullptr, 0, rows.count}, leaf);
    order.run(threads, watch);
    return order.take();
}

}  // namespace margrave
