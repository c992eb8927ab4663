// Passes over the rows of a linear model: X w, X'b, X'DX, and stochastic steps.
#pragma once
#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "compensated.hpp"
#include "rows.hpp"
#include "team.hpp"

namespace margrave {

// One or several columns that lie a stride apart: column c, entry i at values[c * stride + i].
template <class T>
struct Columns {
    T* values;
    std::int64_t count, stride;
    T* operator[](std::int64_t c) const { return values + c * stride; }
};

class LinearRows {
  public:
    // The rows of a problem are ranges [first, last) of the data set's rows.
    LinearRows(const Rows& rows, const std::vector<std::int64_t>& firsts,
               const std::vector<std::int64_t>& lasts, Team& team)
        : rows_(rows), firsts_(firsts), team_(&team), operations_(team.isa->row_operations(rows)) {
        for (std::size_t s = 0; s < firsts.size(); ++s) {
            starts_.push_back(count_);
            count_ += lasts[s] - firsts[s];
        }
        chunk_ = std::clamp<std::int64_t>(
            (std::int64_t(1) << 18) / std::max<std::int64_t>(1, entries_per_row()), 64, 1 << 14);
    }

    std::int64_t count() const { return count_; }
    std::int64_t features() const { return rows_.features; }
    Team& team() const { return *team_; }

    double dot(std::int64_t i, const double* w) const { return operations_.dot(rows_, row(i), w); }
    void add(std::int64_t i, double factor, double* w) const {
        operations_.add(rows_, row(i), factor, w);
    }
    // Row i will be needed soon.
    void prefetch(std::int64_t i) const {
        const std::int64_t at = rows_.sparse ? rows_.starts[row(i)] : row(i) * rows_.row_stride;
        const std::int64_t size = rows_.is_double ? 8 : 4;
        if (rows_.sparse)
            __builtin_prefetch(static_cast<const char*>(rows_.indices) +
                               at * (rows_.wide_indices ? 8 : 4));
        if (rows_.ones) return;
        const char* x = static_cast<const char*>(rows_.values) + at * size;
        for (int line = 0; line < 4; ++line) __builtin_prefetch(x + 64 * line);
    }

    std::vector<double> squares() const {
        std::vector<double> found(count_);
        team_->parts(count_, chunk_, [&](std::int64_t, std::int64_t from, std::int64_t to) {
            for (std::int64_t i = from; i < to; ++i) {
                double sum = 0;
                rows_.each(row(i), [&](std::int64_t, double x) { sum += x * x; });
                found[i] = sum;
            }
        });
        return found;
    }

    // out[c][i] = x_i' w[c]; the first time it also finds the longest row.
    void multiply(Columns<const double> w, Columns<double> out) const {
        const bool measure = longest_ < 0;
        std::vector<double> largest(team_->part_count(count_, chunk_), 0.0);
        team_->parts(count_, chunk_, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            double square = 0;
            for (std::int64_t i = from; i < to; ++i) {
                for (std::int64_t c = 0; c < w.count; ++c) out[c][i] = dot(i, w[c]);
                if (measure) square = std::max(square, operations_.square(rows_, row(i)));
            }
            largest[part] = std::max(largest[part], square);
        });
        if (measure)
            longest_ = std::sqrt(*std::max_element(largest.begin(), largest.end())) *
                       (1 + (2 + double(features())) * kUnit);
    }
    // Bound on |x_i| over all rows, once `multiply` has seen them; infinite before.
    double longest() const { return longest_ < 0 ? kInfinity : longest_; }

    // out[c] += sum_i b[c][i] x_i
    void transposed(Columns<const double> b, Columns<double> out) const {
        const std::int64_t d = features();
        const std::int64_t parts = team_->part_count(count_, chunk_);
        std::vector<double> sums(parts * b.count * d, 0.0);
        team_->parts(count_, chunk_, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            for (std::int64_t i = from; i < to; ++i)
                for (std::int64_t c = 0; c < b.count; ++c)
                    if (b[c][i] != 0) add(i, b[c][i], sums.data() + (part * b.count + c) * d);
        });
        for (std::int64_t part = 0; part < parts; ++part)
            for (std::int64_t c = 0; c < b.count; ++c)
                for (std::int64_t k = 0; k < d; ++k)
                    out[c][k] += sums[(part * b.count + c) * d + k];
    }

    // f_i = x_i'w with bounds on the rounding errors, and v += X'b. With `compensated` sums scores
    // and bounds are off by little more than a unit in the last place at most; that takes several
    // times as long. Returns sum_i |b_i| |x_i|, the size of the terms behind v.
    double audit(bool compensated, const double* w, const double* b, double* f, double* f_error,
                 CompensatedSum* v) const {
        const std::int64_t d = features();
        const std::int64_t parts = team_->part_count(count_, chunk_);
        double length = 0;
        for (std::int64_t k = 0; k < d; ++k) length += w[k] * w[k];
        length = std::sqrt(length) * (1 + double(d) * kUnit);
        std::vector<CompensatedSum> sums(compensated ? parts * d : 0);
        std::vector<double> plain(compensated ? 0 : parts * d, 0.0);
        std::vector<double> sizes(parts, 0.0);
        team_->parts(count_, chunk_, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            double size = 0;  // each thread's own: sums side by side in memory would be slow
            for (std::int64_t i = from; i < to; ++i) {
                const double terms = 2 + double(entries(i));
                const double norm =
                    std::sqrt(operations_.square(rows_, row(i))) * (1 + terms * kUnit);
                size += std::fabs(b[i]) * norm;
                if (compensated) {
                    f[i] = score_carefully(i, w, b[i], sums.data() + part * d);
                    f_error[i] = kUnit * (std::fabs(f[i]) + terms * terms * kUnit * norm * length);
                } else {
                    f[i] = dot(i, w);
                    f_error[i] = kUnit * terms * norm * length;
                    if (b[i] != 0) add(i, b[i], plain.data() + part * d);
                }
            }
            sizes[part] += size;
        });
        for (std::int64_t part = 0; part < parts; ++part)
            for (std::int64_t k = 0; k < d; ++k) {
                if (compensated)
                    v[k].add(sums[part * d + k]);
                else
                    v[k].add(plain[part * d + k]);
            }
        return std::accumulate(sizes.begin(), sizes.end(), 0.0);
    }

    // out += sum_i D_i x_i x_i, feature by feature
    void diagonal(const double* D, double* out) const {
        const std::int64_t d = features();
        const std::int64_t parts = team_->part_count(count_, chunk_);
        std::vector<double> sums(parts * d, 0.0);
        team_->parts(count_, chunk_, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            double* to_part = sums.data() + part * d;
            for (std::int64_t i = from; i < to; ++i)
                if (D[i] != 0)
                    rows_.each(row(i),
                               [&](std::int64_t k, double x) { to_part[k] += D[i] * x * x; });
        });
        for (std::int64_t part = 0; part < parts; ++part)
            for (std::int64_t k = 0; k < d; ++k) out[k] += sums[part * d + k];
    }

    // matrix += sum_i D_i x_i x_i' (d x d, symmetric), border += sum_i D_i x_i. Rows with D_i = 0
    // cost nothing. T is the precision of the products, of which some hundred are summed before
    // double precision takes over.
    template <class T>
    void gram(const double* D, double* matrix, double* border) const {
        const std::int64_t d = features();
        const std::int64_t parts = team_->part_count(count_, chunk_);
        const std::int64_t filled = entries_per_row();
        std::vector<Gram<T>> sums;
        for (std::int64_t part = 0; part < parts; ++part) sums.emplace_back(d);
        // Scattered products cost about twenty times as much as those of dense tiles.
        const bool scattered = rows_.sparse && 20 * filled * filled < d * d;
        team_->parts(count_, chunk_, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            for (std::int64_t i = from; i < to; ++i) {
                if (D[i] == 0) continue;
                add(i, D[i], sums[part].border.data());
                if (scattered)
                    sums[part].scatter(rows_, row(i), D[i]);
                else
                    sums[part].take(rows_, row(i), D[i], *team_->isa);
            }
        });
        for (Gram<T>& part : sums) {
            part.flush(*team_->isa);
            for (std::int64_t k = 0; k < d; ++k) {
                border[k] += part.border[k];
                for (std::int64_t l = 0; l <= k; ++l) {
                    const double sum = part.at(l, k) + (scattered && l != k ? part.at(k, l) : 0.0);
                    matrix[k * d + l] += sum;
                    if (l != k) matrix[l * d + k] += sum;
                }
            }
        }
    }

    // Stochastic steps with reduced variance on w = centre + factor u, one for each row in `order`:
    //
    //     w <- w - eta (gradient_i(w) - gradient_i(w0) + h)
    //     gradient_i(w) = w + n slope_i(x_i'w) x_i,   centre = w0 - h
    //
    // A step scales w - centre and adds a multiple of x_i: sparse rows stay cheap. `f` holds the
    // centre's scores and `slopes` those at w0. The last entry of u belongs to a constant feature,
    // whose value is `constant` (0 or 1). Returns the factor.
    template <class L>
    double stochastic_steps(const L& loss, const double* y, const double* C,
                            const std::int64_t* order, std::int64_t count, double eta,
                            const double* f, const double* slopes, double constant, double factor,
                            double* u) const {
        const double n = double(count_);
        for (std::int64_t t = 0; t < count; ++t) {
            if (t % 4096 == 0 && team_->watch.check()) throw Stopped{};
            if (t + 4 < count) prefetch(order[t + 4]);
            const std::int64_t i = order[t];
            const double score = f[i] + factor * (dot(i, u) + constant * u[features()]);
            const double change = n * (loss.slope(y[i], C[i], score) - slopes[i]);
            factor *= 1 - eta;
            if (!(factor > 1e-100)) {
                for (std::int64_t k = 0; k <= features(); ++k) u[k] *= factor;
                factor = 1;
            }
            if (change == 0) continue;
            add(i, -eta * change / factor, u);
            u[features()] -= constant * eta * change / factor;
        }
        return factor;
    }

  private:
    // Sums of products of features. Dense rows go in blocks through the tiles of kernel values,
    // with the roles of rows and features exchanged, and only l <= k is summed. Sparse rows go one
    // product at a time.
    template <class T>
    struct Gram {
        static constexpr std::int64_t L = kLanes<T>;
        static constexpr std::int64_t kBlock = 256;
        std::int64_t d;
        std::int64_t stride;
        std::int64_t rows = 0;
        Aligned<double> sums;
        Aligned<T> block, left, right, values, zeros;
        std::vector<T*> out;
        std::vector<double> border;

        explicit Gram(std::int64_t features)
            : d(features),
              stride((features + L - 1) / L * L),
              sums(d * stride, 0.0),
              border(d, 0.0) {}
        double at(std::int64_t l, std::int64_t k) const { return sums[l * stride + k]; }

        void scatter(const Rows& rows, std::int64_t row, double factor) {
            rows.each(row, [&](std::int64_t k, double x) {
                double* to = sums.data() + k * stride;
                const double fx = factor * x;
                rows.each(row, [&](std::int64_t l, double z) {
                    if (l <= k) to[l] += fx * z;
                });
            });
        }
        void take(const Rows& data, std::int64_t row, double factor, const Isa& isa) {
            const std::int64_t groups = (d + kGroup - 1) / kGroup;
            const std::int64_t panels = stride / L;
            if (block.empty()) {
                block.resize(d * stride);
                left.assign(groups * kGroup * kBlock, T(0));
                right.assign(stride * kBlock, T(0));
                values.assign(std::max(stride, groups * kGroup), T(0));
                zeros = values;
                for (std::int64_t k = 0; k < d; ++k) out.push_back(block.data() + k * stride);
            }
            T* x = values.data();
            if (data.sparse) std::fill(values.begin(), values.end(), T(0));
            data.each(row, [&](std::int64_t k, double v) { x[k] = T(v); });
            const T weight = T(factor);
            T* to_left = left.data() + rows * kGroup;
            T* to_right = right.data() + rows * L;
            for (std::int64_t g = 0; g < groups; ++g)
                for (int r = 0; r < kGroup; ++r)
                    to_left[g * kBlock * kGroup + r] = weight * x[g * kGroup + r];
            for (std::int64_t p = 0; p < panels; ++p)
                for (int l = 0; l < L; ++l) to_right[p * kBlock * L + l] = x[p * L + l];
            if (++rows == kBlock) flush(isa);
        }
        void flush(const Isa& isa) {
            if (rows == 0) return;
            // Clears what the last block has left behind.
            for (std::int64_t g = 0; g * kGroup < d; ++g)
                std::fill(&left[(g * kBlock + rows) * kGroup],
                          &left[g * kBlock * kGroup] + kBlock * kGroup, T(0));
            for (std::int64_t p = 0; p * L < d; ++p) {
                const Panels<T> panel{1, kBlock, right.data() + p * kBlock * L, zeros.data(),
                                      nullptr};
                Queries<T> queries;
                queries.count = std::min(d, (p + 1) * L);
                queries.features = kBlock;
                queries.dense = left.data();
                queries.own = zeros.data();
                isa.operations<T>().tile(products(), queries, panel, out.data(), p * L);
                for (std::int64_t l = 0; l < queries.count; ++l)
                    for (std::int64_t k = p * L; k < (p + 1) * L; ++k)
                        sums[l * stride + k] += double(block[l * stride + k]);
            }
            rows = 0;
        }
        static KernelParams products() {
            KernelParams params;
            int at = 0;
            Kernels::each([&](auto k) {
                if (std::string_view(decltype(k)::name) == "linear") params.id = at;
                ++at;
            });
            return params;
        }
    };

    // x_i'w by a compensated sum; v += factor x_i.
    double score_carefully(std::int64_t i, const double* w, double factor,
                           CompensatedSum* v) const {
        CompensatedSum score;
        rows_.each(row(i), [&](std::int64_t k, double x) {
            score.add_product(x, w[k]);
            if (factor != 0) v[k].add_product(factor, x);
        });
        return score.value();
    }

    std::int64_t row(std::int64_t i) const {
        if (starts_.size() == 1) return firsts_[0] + i;
        std::size_t s = starts_.size() - 1;
        while (i < starts_[s]) --s;
        return firsts_[s] + (i - starts_[s]);
    }
    std::int64_t entries(std::int64_t i) const {
        return rows_.sparse ? rows_.starts[row(i) + 1] - rows_.starts[row(i)] : features();
    }
    std::int64_t entries_per_row() const {
        if (!rows_.sparse) return rows_.features;
        return rows_.count ? (rows_.starts[rows_.count] - rows_.starts[0]) / rows_.count + 1 : 1;
    }

    Rows rows_;
    std::vector<std::int64_t> firsts_, starts_;
    std::int64_t count_ = 0;
    std::int64_t chunk_ = 1;
    mutable double longest_ = -1;  // not known yet
    Team* team_;
    RowOperations operations_;
};

}  // namespace margrave
