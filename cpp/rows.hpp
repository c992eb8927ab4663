// Packing of rows into panels and groups for the tiles.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "isa.hpp"

namespace margrave {

template <class T>
struct CacheLineAllocator {
    using value_type = T;
    CacheLineAllocator() = default;
    template <class U>
    CacheLineAllocator(const CacheLineAllocator<U>&) {}
    T* allocate(std::size_t n) {
        return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
    }
    void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
    bool operator==(const CacheLineAllocator&) const { return true; }
};
template <class T>
using Aligned = std::vector<T, CacheLineAllocator<T>>;

// How rows are packed for a kernel.
template <class T>
struct PackingRule {
    Pairing pairing = Pairing::product;
    bool sparse_queries = false;  // queries are packed as compressed rows, whatever the data are
    const double* centre =
        nullptr;  // subtracted from dense rows where the kernel allows: less cancellation
    T (*square)(const T* values, std::int64_t count, bool sparse) = nullptr;
    T far = 0;  // distance of boxes from which on kernel values are negligible; 0: no boxes

    bool counts(T x) const { return !sparse_queries || x != 0; }
    T query_term(const std::vector<T>& row) const {
        return pairing == Pairing::distance
                   ? T(0)
                   : square(row.data(), std::int64_t(row.size()), sparse_queries);
    }
    // A sparse query leaves out the features that only the point has: a distance needs sum |z_k|
    // for them, in the order of a tile's sums, so that equal points are at a distance of exactly
    // zero.
    T point_term(const std::vector<T>& row) const {
        if (pairing != Pairing::distance || !sparse_queries) return query_term(row);
        T sum[2] = {0, 0};
        for (std::size_t k = 0; k < row.size(); ++k) sum[k % 2] += std::fabs(row[k]);
        return sum[0] + sum[1];
    }
};

// Boxes around groups of packed rows: exactly around what the tiles compute with.
template <class T>
class BoxBuffer {
  public:
    void reset(std::int64_t count, std::int64_t features) {
        features_ = features;
        stride_ = box_stride<T>(features);
        low_.assign(count * stride_, T(0));
        high_.assign(count * stride_, T(0));
        for (std::int64_t b = 0; b < count; ++b) {
            std::fill_n(low_.data() + b * stride_, features, std::numeric_limits<T>::max());
            std::fill_n(high_.data() + b * stride_, features, std::numeric_limits<T>::lowest());
        }
    }
    void include(std::int64_t box, std::int64_t k, T x) { include(box, k, x, x); }
    void include(std::int64_t box, std::int64_t k, T low, T high) {
        T& a = low_[box * stride_ + k];
        T& b = high_[box * stride_ + k];
        a = std::min(a, low);
        b = std::max(b, high);
    }
    void include(std::int64_t box, const BoxBuffer& other, std::int64_t which) {
        for (std::int64_t k = 0; k < features_; ++k)
            include(box, k, other.low_[which * stride_ + k], other.high_[which * stride_ + k]);
    }
    Boxes<T> view() const { return {low_.data(), high_.data()}; }

  private:
    std::int64_t features_ = 0;
    std::int64_t stride_ = 0;
    Aligned<T> low_, high_;
};

// The entries of a dense row, around the centre if there is one.
template <class T>
void read_dense(const Rows& rows, std::int64_t row, const double* centre, std::vector<T>& to) {
    to.resize(std::size_t(rows.features));
    const auto convert = [&, out = to.data(), n = rows.features](const auto* x) {
        x += row * rows.row_stride;
        if (rows.column_stride != 1)
            for (std::int64_t k = 0; k < n; ++k)
                out[k] = T(double(x[k * rows.column_stride]) - (centre ? centre[k] : 0.0));
        else if (centre)
            for (std::int64_t k = 0; k < n; ++k) out[k] = T(double(x[k]) - centre[k]);
        else
            std::copy_n(x, n, out);
    };
    if (rows.is_double)
        convert(static_cast<const double*>(rows.values));
    else
        convert(static_cast<const float*>(rows.values));
}

// Panels of points. With `compact`, for wide sparse rows, one panel that numbers its features in
// order of appearance.
template <class T>
class PanelBuffer {
  public:
    static constexpr std::int64_t L = kLanes<T>;

    Panels<T> pack(const Rows& rows, const Subset& points, const PackingRule<T>& rule,
                   bool compact) {
        const std::int64_t panels = (points.count + L - 1) / L;
        own_.assign(panels * L, T(0));
        if (compact) return pack_compact(rows, points, rule);
        values_.resize(panels * rows.features * L);
        if (rows.sparse || points.count % L) std::fill(values_.begin(), values_.end(), T(0));
        for (std::int64_t i = 0; i < points.count; ++i) {
            T* to = values_.data() + (i / L) * rows.features * L + i % L;
            if (rows.sparse) {  // which have no centre
                row_.clear();
                rows.each(points[i], [&](std::int64_t k, double v) {
                    to[k * L] = T(v);
                    if (rule.counts(T(v))) row_.push_back(T(v));
                });
            } else {
                read_dense(rows, points[i], rule.centre, row_);
                for (std::int64_t k = 0; k < rows.features; ++k) to[k * L] = row_[k];
                if (rule.sparse_queries) std::erase(row_, T(0));
            }
            own_[i] = rule.point_term(row_);
        }
        features_ = rows.features;
        points_ = points.count;
        far_ = rule.far;
        if (far_ > 0) surround(panels);
        return view(0, panels);
    }

    // Some of the packed panels.
    Panels<T> view(std::int64_t first, std::int64_t count) const {
        Panels<T> panels;
        panels.count = count;
        panels.features = features_;
        panels.values = values_.data() + first * features_ * L;
        panels.own = own_.data() + first * L;
        panels.points = std::min(count * L, points_ - first * L);
        if (far_ > 0) {
            panels.first = first;
            panels.boxes = boxes_.view();
            panels.wide = wide_.view();
            panels.far = far_;
        }
        return panels;
    }

  private:
    void surround(std::int64_t panels) {
        boxes_.reset(panels, features_);
        wide_.reset((panels + kWide - 1) / kWide, features_);
        for (std::int64_t p = 0; p < panels; ++p) {
            const std::int64_t n = std::min(L, points_ - p * L);
            for (std::int64_t k = 0; k < features_; ++k) {
                const T* x = values_.data() + (p * features_ + k) * L;
                const auto [low, high] = std::minmax_element(x, x + n);
                boxes_.include(p, k, *low, *high);
            }
            wide_.include(p / kWide, boxes_, p);
        }
    }

    Panels<T> pack_compact(const Rows& rows, const Subset& points, const PackingRule<T>& rule) {
        slot_.resize(rows.features, -1);
        for (std::int64_t k : touched_) slot_[k] = -1;
        touched_.clear();
        values_.clear();
        for (std::int64_t i = 0; i < points.count; ++i) {
            row_.clear();
            rows.each(points[i], [&](std::int64_t k, double v) {
                if (slot_[k] < 0) {
                    slot_[k] = std::int32_t(touched_.size());
                    touched_.push_back(k);
                    values_.resize(values_.size() + L, T(0));
                }
                values_[slot_[k] * L + i] = T(v);
                if (rule.counts(T(v))) row_.push_back(T(v));
            });
            own_[i] = rule.point_term(row_);
        }
        Panels<T> panel;
        panel.count = 1;
        panel.features = std::int64_t(touched_.size());
        panel.values = values_.data();
        panel.own = own_.data();
        panel.slot = slot_.data();
        panel.columns = touched_.data();
        panel.points = points.count;
        return panel;
    }

    std::int64_t features_ = 0;
    std::int64_t points_ = 0;
    T far_ = 0;
    BoxBuffer<T> boxes_, wide_;
    Aligned<T> values_, own_;
    std::vector<T> row_;
    std::vector<std::int32_t> slot_;
    std::vector<std::int64_t> touched_;
};

// Query rows, dense in groups or as compressed rows.
template <class T>
class QueryBuffer {
  public:
    Queries<T> pack(const Rows& rows, const Subset& queries, const PackingRule<T>& rule) {
        const std::int64_t groups = (queries.count + kGroup - 1) / kGroup;
        own_.assign(groups * kGroup, T(0));
        Queries<T> packed;
        packed.count = queries.count;
        packed.features = rows.features;
        packed.own = own_.data();
        if (rule.far > 0) boxes_.reset(groups, rows.features);
        if (rule.sparse_queries) {
            pack_sparse(rows, queries, rule);
            packed.values = values_.data();
            packed.columns = columns_.data();
            packed.starts = starts_.data();
        } else {
            pack_dense(rows, queries, rule);
            packed.dense = values_.data();
        }
        if (rule.far > 0) packed.boxes = boxes_.view();
        return packed;
    }

  private:
    void pack_sparse(const Rows& rows, const Subset& queries, const PackingRule<T>& rule) {
        const double* centre = rule.centre;
        values_.clear();
        columns_.clear();
        starts_.assign(1, 0);
        for (std::int64_t i = 0; i < queries.count; ++i) {
            row_.clear();
            rows.each(queries[i], [&](std::int64_t k, double v) {
                const T x = T(centre ? v - centre[k] : v);
                if (rule.far > 0) boxes_.include(i / kGroup, k, x);
                if (x != 0) {
                    row_.push_back(x);
                    columns_.push_back(std::int32_t(k));
                }
            });
            values_.insert(values_.end(), row_.begin(), row_.end());
            starts_.push_back(std::int64_t(values_.size()));
            own_[i] = rule.query_term(row_);
        }
    }

    void pack_dense(const Rows& rows, const Subset& queries, const PackingRule<T>& rule) {
        const std::int64_t groups = (queries.count + kGroup - 1) / kGroup;
        values_.resize(groups * rows.features * kGroup);
        for (std::int64_t i = groups * kGroup - 1; i >= 0; --i) {
            T* to = values_.data() + (i / kGroup) * rows.features * kGroup + i % kGroup;
            if (i >= queries.count) {
                for (std::int64_t k = 0; k < rows.features; ++k) to[k * kGroup] = T(0);
                continue;
            }
            read_dense(rows, queries[i], rule.centre, row_);
            for (std::int64_t k = 0; k < rows.features; ++k) to[k * kGroup] = row_[k];
            if (rule.far > 0)
                for (std::int64_t k = 0; k < rows.features; ++k)
                    boxes_.include(i / kGroup, k, row_[k]);
            own_[i] = rule.query_term(row_);
        }
    }

    BoxBuffer<T> boxes_;
    Aligned<T> values_, own_;
    std::vector<T> row_;
    std::vector<std::int32_t> columns_;
    std::vector<std::int64_t> starts_;
};

// Statistics of up to a thousand rows, evenly spaced.
struct Sketch {
    std::vector<double> mean, filled;  // by feature: mean, and share of entries that are not zero
    double density = 0;                // share of all entries that are not zero

    explicit Sketch(const Rows& rows) : mean(rows.features, 0.0), filled(rows.features, 0.0) {
        const std::int64_t step = rows.count / 1000 + 1;
        const double share =
            1.0 / double(std::max<std::int64_t>(1, (rows.count + step - 1) / step));
        for (std::int64_t i = 0; i < rows.count; i += step)
            rows.each(i, [&](std::int64_t k, double v) {
                mean[k] += v * share;
                filled[k] += v != 0 ? share : 0;
            });
        for (double f : filled) density += f / double(rows.features);
    }
};

}  // namespace margrave
