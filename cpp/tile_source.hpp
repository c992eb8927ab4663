// Kernel values from native tiles over rows.
#pragma once
#include "careful_sums.hpp"
#include "source.hpp"

namespace margrave {

// Native kernels. Queries and points may be rows of two data sets (prediction) or of the same
// (training).
template <class T>
class TileSource final : public KernelSource<T> {
    static constexpr std::int64_t L = kLanes<T>;

  public:
    TileSource(const KernelParams& kernel, const Rows& queries, const Rows& points, const Isa& isa,
               Threads& threads, std::int64_t buffer = 32 << 20)
        : buffer_(buffer),
          kernel_(kernel),
          queries_(queries),
          points_(points),
          operations_(isa.operations<T>()),
          threads_(threads) {
        Kernels::visit(kernel.id, [&](auto k) {
            rule_.pairing = k.pairing;
            shift_invariant_ = is_shift_invariant<decltype(k)>;
            additive_ = k.additive;
        });
        rule_.square = operations_.square;
        rule_.sparse_queries = queries.sparse;
        if (!queries.sparse && !points.sparse) {
            Sketch sketch(queries);
            // Compressed queries are faster where most entries are zero; centring must then leave
            // those zeros.
            rule_.sparse_queries = rule_.pairing != Pairing::distance && sketch.density < kSparse;
            if (rule_.sparse_queries) {
                density_ = sketch.density;
                for (std::size_t k = 0; k < sketch.mean.size(); ++k)
                    sketch.mean[k] *= sketch.filled[k] > 0.5;
            }
            if (shift_invariant_) {
                centre_ = std::move(sketch.mean);
                rule_.centre = centre_.data();
            }
        }
        // A panel of wide sparse rows has its own numbering of features; narrow rows need none.
        compact_ = points.sparse && queries.sparse && points.features > 1024;
        buffers_.resize(threads.count());
        skip_distant({nullptr, 0, queries.count}, {nullptr, 0, points.count});
    }

    // Makes tiles skip distant groups of rows if that pays for queries and points in this order,
    // which a sample of them tells.
    void skip_distant(const Subset& queries, const Subset& points) {
        rule_.far = 0;
        if (!shift_invariant_ || queries_.sparse || points_.sparse) return;
        const double far = distance_below(kernel_, kNegligible<T> / 2);
        // The sum over the features is rounded.
        const double rounding =
            2 * double(points_.features + 8) * std::numeric_limits<T>::epsilon();
        if (far * (1 + rounding) > 1e30) return;
        rule_.far = T(far * (1 + rounding));
        if (share_of_distant(queries, points) < kWorthTesting) rule_.far = 0;
    }

    // Keeps all points packed, block by block: for training, where every round needs them all.
    void keep_packed(const std::vector<std::int64_t>& starts) {
        if (points_.sparse) return;
        for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
            Resident block{starts[b], starts[b + 1], {}};
            block.chunks.resize((block.end - block.begin + kChunk * L - 1) / (kChunk * L));
            threads_.run(std::int64_t(block.chunks.size()), nullptr, [&](std::int64_t c, int) {
                const std::int64_t from = block.begin + c * kChunk * L;
                block.chunks[c].pack(
                    points_, {nullptr, from, std::min(kChunk * L, block.end - from)}, rule_, false);
            });
            resident_.push_back(std::move(block));
        }
    }

    // Bytes of packed rows and the boxes around them.
    static std::int64_t packed_bytes(const Rows& rows) {
        const std::int64_t panels = (rows.count + L - 1) / L;
        const std::int64_t boxes = 2 * (panels + (panels + kWide - 1) / kWide);
        return std::int64_t(sizeof(T)) *
               (panels * L * rows.features + boxes * box_stride<T>(rows.features));
    }

    std::int64_t size() const override { return points_.count; }
    std::int64_t cost() const override {
        return points_.sparse
                   ? points_.starts[points_.count] / std::max<std::int64_t>(1, points_.count)
                   : std::int64_t(density_ * double(points_.features)) + 1;
    }

    double negligible() const override { return rule_.far > 0 ? kNegligible<T> : 0; }

    double diagonal(std::int64_t row) override { return diagonal_of(size_of(row)); }

    std::vector<double> centre() const override { return centre_; }

    Rounding rounding(std::int64_t row) override {
        const double size = size_of(row);
        Rounding found{};
        Kernels::visit(kernel_.id, [&](auto k) { found = k.rounding(kernel_, size); });
        if (kernel_.offset != 0) found.relative += 1;
        found.root = std::sqrt(std::fabs(diagonal_of(size)));
        return found;
    }

    bool tile(const Subset& queries, const Subset& points, T* const* out, Watch* watch) override {
        return sweep_tiles(query_buffer_.pack(queries_, queries, rule_), points, out, watch);
    }

    // The same for queries from another data set of the same kind, packed by the rule of this one.
    // Nothing is skipped: values must not depend on which queries come together.
    bool tile_foreign(const Rows& foreign, const Subset& queries, const Subset& points,
                      T* const* out, Watch* watch) {
        PackingRule<T> rule = rule_;
        rule.far = 0;
        return sweep_tiles(query_buffer_.pack(foreign, queries, rule), points, out, watch);
    }

    bool apply(const Subset& queries, const double* coef, int outputs, const Subset& points,
               double* sums, Watch* watch) override {
        std::fill(sums, sums + points.count * outputs, 0.0);
        if (additive_ && is_sum_cheaper(queries.count, outputs))
            return apply_sum(queries, coef, outputs, points, sums, watch);
        // Queries in batches, which bounds the size of their packed copy.
        const std::int64_t bytes = std::max<std::int64_t>(1, cost() * std::int64_t(sizeof(T)));
        const std::int64_t batch =
            std::max<std::int64_t>(kGroup * 8, buffer_ / bytes / kGroup * kGroup);
        for (std::int64_t from = 0; from < queries.count; from += batch) {
            const std::int64_t n = std::min(batch, queries.count - from);
            const Queries<T> packed = query_buffer_.pack(queries_, queries.part(from, n), rule_);
            if (!add_queries(summed(), packed, {coef + from * outputs, coef + (from + n) * outputs},
                             outputs, points, sums, watch))
                return false;
        }
        add_offset(queries.count, coef, outputs, points.count, sums);
        return true;
    }

    bool is_additive() const override { return additive_; }

    bool apply_carefully(const Subset& queries, const double* coef, const Subset& points,
                         double* sums, double* errors, Watch* watch) override {
        const CarefulSums careful(kernel_, queries_, points_);
        std::vector<std::vector<double>> buffers(threads_.count());
        constexpr std::int64_t per = 16;
        return threads_.run((points.count + per - 1) / per, watch, [&](std::int64_t t, int worker) {
            std::vector<double>& z = buffers[worker];
            z.resize(points_.features);
            for (std::int64_t j = t * per; j < std::min(points.count, (t + 1) * per); ++j) {
                if (watch && (worker == 0 ? watch->check() : watch->stopped())) return;
                careful.add(queries, coef, points[j], z, sums[j], errors[j]);
            }
        });
    }

    // The kernel is symmetric: a tile of rows a with later rows b serves both. Each task has its
    // own sums for later rows, and they are added in the order of tasks, so that results repeat.
    bool apply_among(const Subset& rows, const double* coef, double* sums, Watch* watch) override {
        constexpr std::int64_t whole_groups_and_panels = 96;
        constexpr std::int64_t tasks_wanted = 32;
        const std::int64_t n = rows.count;
        if (additive_ || compact_ || n < 4 * whole_groups_and_panels ||
            n * cost() * std::int64_t(sizeof(T)) > buffer_)
            return apply(rows, coef, 1, rows, sums, watch);
        const std::int64_t per =
            (n / tasks_wanted / whole_groups_and_panels + 1) * whole_groups_and_panels;
        const std::int64_t tasks = (n + per - 1) / per;
        const Queries<T> packed = query_buffer_.pack(queries_, rows, rule_);
        std::vector<T> c((n + L - 1) / L * L, T(0));
        std::copy(coef, coef + n, c.begin());
        std::vector<std::vector<double>> later(tasks);
        const KernelParams kernel = summed();
        const bool whole = threads_.run(tasks, watch, [&](std::int64_t t, int worker) {
            const std::int64_t a = t * per;
            const std::int64_t b = std::min(n, a + per);
            const Panels<T> panels =
                buffers_[worker].pack(points_, rows.part(a, b - a), rule_, false);
            Aligned<double> own(panels.count * L, 0.0);
            later[t].assign(n - b, 0.0);
            const auto add = [&](std::int64_t q, std::int64_t count, const T* point_coef,
                                 double* query_sums) {
                const std::int64_t computed =
                    operations_.apply(kernel, view(packed, q, count), panels, c.data() + q, 1,
                                      own.data(), point_coef, query_sums);
                this->count(computed, count * panels.points);
            };
            add(a, b - a, nullptr, nullptr);
            in_portions(n - b, worker, watch, [&](std::int64_t q, std::int64_t count) {
                add(b + q, count, c.data() + a, later[t].data() + q);
            });
            std::copy(own.begin(), own.begin() + (b - a), sums + a);
        });
        for (std::int64_t t = 0; whole && t < tasks; ++t)
            for (std::size_t j = 0; j < later[t].size(); ++j)
                sums[n - std::int64_t(later[t].size()) + std::int64_t(j)] += later[t][j];
        add_offset(n, coef, 1, n, sums);
        return whole;
    }

  private:
    // |x|^2 or |x|_1 of a point, around the centre.
    double size_of(std::int64_t row) const {
        double size = 0;
        points_.each(row, [&](std::int64_t k, double v) {
            const double x = v - (rule_.centre ? rule_.centre[k] : 0);
            size += rule_.pairing == Pairing::distance ? std::fabs(x) : x * x;
        });
        return size;
    }
    double diagonal_of(double size) const {
        return value_of(kernel_, shift_invariant_ ? 0.0 : size) + kernel_.offset;
    }

    bool sweep_tiles(const Queries<T>& packed, const Subset& points, T* const* out, Watch* watch) {
        return sweep(points, watch, [&](const Panels<T>& panels, std::int64_t at, int) {
            const std::int64_t computed = operations_.tile(kernel_, packed, panels, out, at);
            this->count(computed, packed.count * panels.points);
        });
    }

    // Sums have the offset of every query, including those whose values are skipped, or are not
    // computed because the kernel is additive: it is then left out of the tiles, and added to the
    // sums.
    bool adds_offset() const { return kernel_.offset != 0 && (rule_.far > 0 || additive_); }
    KernelParams summed() const {
        KernelParams kernel = kernel_;
        if (adds_offset()) kernel.offset = 0;
        return kernel;
    }
    void add_offset(std::int64_t queries, const double* coef, int outputs, std::int64_t points,
                    double* sums) const {
        if (!adds_offset()) return;
        for (int m = 0; m < outputs; ++m) {
            CompensatedSum offset;
            for (std::int64_t q = 0; q < queries; ++q)
                offset.add(kernel_.offset * coef[q * outputs + m]);
            for (std::int64_t j = 0; j < points; ++j) sums[j * outputs + m] += offset.value();
        }
    }

    // Groups of queries and panels of points with negligible kernel values, as a share of a sample
    // of pairs. A group is twelve of some four thousand queries, as of a working set, in order.
    double share_of_distant(const Subset& queries, const Subset& points) {
        // A quarter of all pairs at most.
        const std::int64_t groups = std::min<std::int64_t>(queries.count / kGroup / 4, 8);
        const std::int64_t panels = std::min<std::int64_t>(points.count / L, 16);
        if (groups < 1 || panels < 2) return 0;
        const std::int64_t step = std::clamp<std::int64_t>(queries.count / 4096, 1, 128);
        const std::int64_t last_group = queries.count - ((kGroup - 1) * step + 1);
        const std::int64_t last_panel = points.count / L - 1;
        std::vector<std::int64_t> some, others;
        for (std::int64_t g = 0; g < groups; ++g)
            for (std::int64_t r = 0; r < kGroup; ++r)
                some.push_back(
                    queries[last_group * g / std::max<std::int64_t>(1, groups - 1) + r * step]);
        for (std::int64_t p = 0; p < panels; ++p)
            for (std::int64_t j = 0; j < L; ++j)
                others.push_back(points[last_panel * p / (panels - 1) * L + j]);
        const Queries<T> asked = query_buffer_.pack(queries_, Subset::of(some), rule_);
        const Panels<T> packed = buffers_[0].pack(points_, Subset::of(others), rule_, false);
        const std::vector<T> coef(asked.count, T(0));
        std::vector<double> sums(packed.count * L);
        const std::int64_t computed = operations_.apply(kernel_, asked, packed, coef.data(), 1,
                                                        sums.data(), nullptr, nullptr);
        return 1 - double(computed) / double(asked.count * packed.points);
    }

    // sums += the packed queries' coefficients times kernel values, for each point
    bool add_queries(const KernelParams& kernel, const Queries<T>& packed,
                     const std::vector<T>& coef, int outputs, const Subset& points, double* sums,
                     Watch* watch) {
        std::vector<Aligned<double>> partial(threads_.count());
        return sweep(points, watch, [&](const Panels<T>& panels, std::int64_t at, int worker) {
            auto& p = partial[worker];
            p.assign(panels.count * L * outputs, 0.0);
            in_portions(packed.count, worker, watch, [&](std::int64_t q, std::int64_t count) {
                const std::int64_t computed = operations_.apply(
                    kernel, view(packed, q, count), panels, coef.data() + q * outputs, outputs,
                    p.data(), nullptr, nullptr);
                this->count(computed, count * panels.points);
            });
            const std::int64_t end = std::min(points.count, at + panels.count * L);
            for (std::int64_t j = at; j < end; ++j)
                for (int m = 0; m < outputs; ++m)
                    sums[j * outputs + m] += p[(((j - at) / L) * outputs + m) * L + (j - at) % L];
        });
    }

    // Sums for many outputs are as many queries again, and may be larger than the buffer.
    bool is_sum_cheaper(std::int64_t queries, std::int64_t outputs) const {
        if (outputs == 1) return true;
        const std::int64_t bytes =
            std::int64_t(sizeof(double)) * outputs * (queries_.features + outputs);
        return outputs < queries && bytes <= buffer_;
    }

    // `apply` for an additive kernel: the sum of the queries, one for each output, is a query
    // itself.
    bool apply_sum(const Subset& queries, const double* coef, int outputs, const Subset& points,
                   double* sums, Watch* watch) {
        std::vector<double> w;
        if (!sum_queries(queries, coef, outputs, w, watch)) return false;
        Rows weights;
        weights.count = outputs;
        weights.features = queries_.features;
        weights.values = w.data();
        weights.row_stride = weights.features;
        weights.column_stride = 1;
        std::vector<T> identity(outputs * outputs, T(0));
        for (int m = 0; m < outputs; ++m) identity[m * outputs + m] = 1;
        const Queries<T> packed = query_buffer_.pack(weights, {nullptr, 0, outputs}, rule_);
        if (!add_queries(summed(), packed, identity, outputs, points, sums, watch)) return false;
        this->count(queries.count * outputs, queries.count * outputs);
        add_offset(queries.count, coef, outputs, points.count, sums);
        return true;
    }

    // w[m] = sum over queries q of coef[q * outputs + m] x_q, in chunks of fixed size that are
    // added in order, so that results repeat for any number of threads.
    bool sum_queries(const Subset& queries, const double* coef, int outputs, std::vector<double>& w,
                     Watch* watch) {
        const std::int64_t d = queries_.features;
        const std::int64_t room = (4 << 20) / std::max<std::int64_t>(1, d * outputs);
        const std::int64_t tasks =
            std::clamp<std::int64_t>(std::min(queries.count / 512, room), 1, 16);
        const std::int64_t per = (queries.count + tasks - 1) / tasks;
        std::vector<std::vector<double>> chunks(tasks);
        const bool whole = threads_.run(tasks, watch, [&](std::int64_t t, int) {
            chunks[t].assign(d * outputs, 0.0);
            for (std::int64_t q = t * per; q < std::min(queries.count, (t + 1) * per); ++q)
                for (int m = 0; m < outputs; ++m) {
                    const double c = coef[q * outputs + m];
                    double* to = chunks[t].data() + m * d;
                    if (c == 0) continue;
                    queries_.each(queries[q], [&](std::int64_t k, double v) { to[k] += c * v; });
                }
        });
        if (!whole) return false;
        w = std::move(chunks[0]);
        for (std::int64_t t = 1; t < tasks; ++t)
            for (std::size_t k = 0; k < w.size(); ++k) w[k] += chunks[t][k];
        return true;
    }

    // use(first, count) for portions of n packed queries that take less than a tenth of a second,
    // until the watch stops it.
    template <class Use>
    static void in_portions(std::int64_t n, int worker, Watch* watch, Use&& use) {
        constexpr std::int64_t portion = kGroup * 256;
        for (std::int64_t q = 0; q < n; q += portion) {
            if (watch && q > 0 && (worker == 0 ? watch->check() : watch->stopped())) return;
            use(q, std::min(portion, n - q));
        }
    }

    // Some of the packed queries, from the first of a group on.
    static Queries<T> view(Queries<T> all, std::int64_t first, std::int64_t count) {
        all.count = count;
        all.own += first;
        if (all.boxes.low) {
            const std::int64_t boxes = first / kGroup * box_stride<T>(all.features);
            all.boxes = {all.boxes.low + boxes, all.boxes.high + boxes};
        }
        if (all.dense)
            all.dense += first * all.features;
        else
            all.starts += first;
        return all;
    }

    // use(panels, first point's place, worker) over all points, in chunks that fit into the
    // second-level cache.
    template <class Use>
    bool sweep(const Subset& points, Watch* watch, Use&& use) {
        const std::int64_t panel_bytes = 128 * std::max<std::int64_t>(1, points_.features);
        const std::int64_t all = (points.count + L - 1) / L;
        std::int64_t per =
            compact_ ? 1 : std::clamp<std::int64_t>((384 << 10) / panel_bytes, 1, 256);
        per = std::clamp<std::int64_t>(all / (4 * threads_.count()), 1, per);
        const Resident* kept = packed(points);
        return threads_.run((all + per - 1) / per, watch, [&](std::int64_t c, int worker) {
            const std::int64_t from = c * per;
            const std::int64_t to = std::min(all, from + per);
            if (!kept) {
                const std::int64_t n = std::min(points.count, to * L) - from * L;
                use(buffers_[worker].pack(points_, points.part(from * L, n), rule_, compact_),
                    from * L, worker);
                return;
            }
            for (std::int64_t p = from, n; p < to; p += n) {
                const std::int64_t at = (points.first - kept->begin) / L + p;
                n = std::min(to - p, kChunk - at % kChunk);
                use(kept->chunks[at / kChunk].view(at % kChunk, n), p * L, worker);
            }
        });
    }

    static constexpr double kWorthTesting = 0.1;  // share of distant pairs
    static constexpr double kSparse = 0.3;        // density below which compressed queries win
    static constexpr std::int64_t kChunk = 256;   // panels
    struct Resident {
        std::int64_t begin, end;
        std::vector<PanelBuffer<T>> chunks;
    };
    const Resident* packed(const Subset& points) const {
        if (points.list) return nullptr;
        for (const Resident& r : resident_)
            if (r.begin <= points.first && points.first + points.count <= r.end &&
                (points.first - r.begin) % L == 0)
                return &r;
        return nullptr;
    }

    std::int64_t buffer_;  // bytes of packed queries at a time
    KernelParams kernel_;
    Rows queries_, points_;
    const Operations<T>& operations_;
    Threads& threads_;
    PackingRule<T> rule_;
    std::vector<double> centre_;
    double density_ = 1;  // of dense queries that are packed as compressed rows
    bool compact_ = false;
    bool additive_ = false;
    bool shift_invariant_ = false;
    QueryBuffer<T> query_buffer_;
    std::vector<PanelBuffer<T>> buffers_;
    std::vector<Resident> resident_;
};

}  // namespace margrave
