// Gradients of sums of kernel values, for kernels of a distance between dense rows.
#pragma once
#include "rows.hpp"
#include "threads.hpp"

namespace margrave {

// gradients[j][m] = d / d z  sum over rows i of coef[i][m] k(row i, z)   at every point z = point j
//
// Returns whether the watch let it finish.
template <class T>
bool compute_gradients(const KernelParams& kernel, const Rows& rows, const double* coef,
                       int outputs, const Rows& points, double* gradients, const Isa& isa,
                       Threads& threads, Watch& watch) {
    constexpr std::int64_t L = kLanes<T>;
    constexpr std::int64_t portion = kGroup * 64;  // of rows, between two looks at the watch
    const Operations<T>& operations = isa.operations<T>();
    const Sketch sketch(rows);
    PackingRule<T> rule;
    rule.centre = sketch.mean.data();
    rule.square = operations.square;
    Kernels::visit(kernel.id, [&](auto k) { rule.pairing = k.pairing; });
    const std::int64_t d = points.features;
    const std::int64_t panels = (points.count + L - 1) / L;
    const std::int64_t portions = (rows.count + portion - 1) / portion;
    const std::vector<T> c(coef, coef + rows.count * outputs);
    std::vector<QueryBuffer<T>> packed(portions);
    std::vector<Queries<T>> queries(portions);
    const bool is_packed = threads.run(portions, &watch, [&](std::int64_t q, int) {
        const std::int64_t from = q * portion;
        const std::int64_t n = std::min(portion, rows.count - from);
        queries[q] = packed[q].pack(rows, {nullptr, from, n}, rule);
    });
    return is_packed && threads.run(panels, &watch, [&](std::int64_t p, int worker) {
        const std::int64_t n = std::min(L, points.count - p * L);
        PanelBuffer<T> buffer;
        const Panels<T> panel = buffer.pack(points, {nullptr, p * L, n}, rule, false);
        Aligned<double> sums(L * outputs * d, 0.0);
        for (std::int64_t q = 0; q < portions; ++q) {
            if (worker == 0 ? watch.check() : watch.stopped()) return;
            operations.gradients(kernel, queries[q], panel, c.data() + q * portion * outputs,
                                 outputs, sums.data());
        }
        for (std::int64_t j = 0; j < n; ++j)
            for (std::int64_t k = 0; k < outputs * d; ++k)
                gradients[(p * L + j) * outputs * d + k] = sums[k * L + j];
    });
}

}  // namespace margrave
