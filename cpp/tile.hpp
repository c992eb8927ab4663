// Fused kernel tiles: dot products in registers, the kernel's map applied there, the value used at
// once.
#pragma once
#include "isa.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 12;  // 24 accumulators of 32 registers
#else
constexpr int kTileRows = 6;  // 12 accumulators of 16 registers
#endif
constexpr int kSubtiles = 128 / (2 * kVectorBytes);  // pairs of vectors in a panel

template <class T, Pairing pairing>
MARGRAVE_INLINE Vec<T> pair_up(Vec<T> sum, T x, Vec<T> z) {
    if constexpr (pairing == Pairing::distance)
        return sum + absolute(x - z);
    else
        return sum + x * z;
}

// The number that a kernel maps, of a sum over the features and both points' own terms.
template <class T, Pairing pairing>
MARGRAVE_INLINE Vec<T> number(Vec<T> sum, T own_x, Vec<T> own_z) {
    if constexpr (pairing == Pairing::squares) return own_x + own_z - 2 * sum;
    if constexpr (pairing == Pairing::distance) return sum + own_z;
    return sum;
}

// Where a squared distance has lost too many digits for a kernel that is steep at zero.
template <class T>
MARGRAVE_INLINE IVec<T> is_close(Vec<T> square, T own_x, Vec<T> own_z) {
    return square * T(kFar * kFar) < own_x + own_z;
}

template <class T>
MARGRAVE_INLINE bool any(IVec<T> lanes) {
    typename Simd<T>::Int found = 0;
    for (int j = 0; j < Simd<T>::width; ++j) found |= lanes[j];
    return found != 0;
}

// |x - z|^2 of a compressed row from all features of the panel: slow, for close points.
template <class T>
Vec<T> sparse_squares(const Queries<T>& queries, std::int64_t query, const T* panel,
                      const Panels<T>& panels) {
    const std::int64_t begin = queries.starts[query];
    const std::int64_t end = queries.starts[query + 1];
    Vec<T> sum = {};
    std::int64_t at = begin;
    std::int64_t last = -1;
    for (std::int64_t k = 0; k < panels.features; ++k) {
        const std::int64_t column = panels.columns ? panels.columns[k] : k;
        // Columns of a compact panel ascend, but for a step back per point.
        if (column < last) at = begin;
        last = column;
        while (at < end && queries.columns[at] < column) ++at;
        const T x = at < end && queries.columns[at] == column ? queries.values[at] : T(0);
        const Vec<T> apart = x - load(panel + k * kLanes<T>);
        sum += apart * apart;
    }
    if (!panels.slot) return sum;
    for (at = begin; at < end; ++at)
        if (panels.slot[queries.columns[at]] < 0) sum += queries.values[at] * queries.values[at];
    return sum;
}

// use(query, member, v0, v1): kernel values of one query with the two vectors of points at `lane`.
template <class T, class K, class Use>
MARGRAVE_INLINE void dense_tile(const KernelParams& params, const Queries<T>& queries,
                                std::int64_t group, int first, const T* panel, const T* own,
                                Use&& use) {
    constexpr int W = Simd<T>::width;
    constexpr int L = kLanes<T>;
    const T* x = queries.dense + group * queries.features * kGroup + first;
    Vec<T> sum[kTileRows][2] = {};
    for (std::int64_t k = 0; k < queries.features; ++k) {
        const Vec<T> z0 = load(panel + k * L);
        const Vec<T> z1 = load(panel + k * L + W);
#pragma GCC unroll 12
        for (int r = 0; r < kTileRows; ++r) {
            sum[r][0] = pair_up<T, K::pairing>(sum[r][0], x[k * kGroup + r], z0);
            sum[r][1] = pair_up<T, K::pairing>(sum[r][1], x[k * kGroup + r], z1);
        }
    }
    const T offset = T(params.offset);
    const T* own_x = queries.own + group * kGroup + first;
    const Vec<T> own_z[2] = {load(own), load(own + W)};
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r)
        for (int v = 0; v < 2; ++v)
            sum[r][v] = number<T, K::pairing>(sum[r][v], own_x[r], own_z[v]);
    if constexpr (K::steep) {
        IVec<T> found = {};
        for (int r = 0; r < kTileRows; ++r)
            for (int v = 0; v < 2; ++v) found |= is_close<T>(sum[r][v], own_x[r], own_z[v]);
        for (int r = 0; r < kTileRows && any<T>(found); ++r)
            for (int v = 0; v < 2; ++v) {
                const IVec<T> close = is_close<T>(sum[r][v], own_x[r], own_z[v]);
                if (!any<T>(close)) continue;
                Vec<T> square = {};
                for (std::int64_t k = 0; k < queries.features; ++k) {
                    const Vec<T> apart = x[k * kGroup + r] - load(panel + k * L + v * W);
                    square += apart * apart;
                }
                sum[r][v] = close ? square : sum[r][v];
            }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r)
        use(first + r, K::template map<Vec<T>, T>(params, sum[r][0]) + offset,
            K::template map<Vec<T>, T>(params, sum[r][1]) + offset);
}

// The same for one compressed row. Two features at a time, in separate sums, to hide the latency of
// the additions.
template <class T, class K, class Use>
MARGRAVE_INLINE void sparse_tile(const KernelParams& params, const Queries<T>& queries,
                                 std::int64_t query, const T* panel, const T* own,
                                 const Panels<T>& panels, Use&& use) {
    constexpr int W = Simd<T>::width;
    constexpr int L = kLanes<T>;
    const std::int32_t* slot = panels.slot;
    Vec<T> sum[2][2] = {};
    T absent = 0;
    const auto add = [&](std::int64_t at, int way) {
        const T x = queries.values[at];
        std::int64_t k = queries.columns[at];
        if (slot && (k = slot[k]) < 0) {
            if constexpr (K::pairing == Pairing::distance) absent += absolute(x);
            return;
        }
        for (int v = 0; v < 2; ++v) {
            const Vec<T> z = load(panel + k * L + v * W);
            sum[way][v] = pair_up<T, K::pairing>(sum[way][v], x, z);
            if constexpr (K::pairing == Pairing::distance)
                sum[way][v] -= absolute(z);  // own holds sum |z_k|
        }
    };
    std::int64_t at = queries.starts[query];
    const std::int64_t end = queries.starts[query + 1];
    for (; at + 1 < end; at += 2) {
        add(at, 0);
        add(at + 1, 1);
    }
    if (at < end) add(at, 0);
    const T offset = T(params.offset);
    const T own_x = queries.own[query];
    for (int v = 0; v < 2; ++v) {
        const Vec<T> own_z = load(own + v * W);
        const Vec<T> found = number<T, K::pairing>(sum[0][v] + sum[1][v] + absent, own_x, own_z);
        sum[0][v] = found;
        if constexpr (K::steep) {
            const IVec<T> close = is_close<T>(found, own_x, own_z);
            if (any<T>(close))
                sum[0][v] = close ? sparse_squares(queries, query, panel + v * W, panels) : found;
        }
    }
    use(K::template map<Vec<T>, T>(params, sum[0][0]) + offset,
        K::template map<Vec<T>, T>(params, sum[0][1]) + offset);
}

// Whether two boxes are further apart than `far`. Rounding keeps the order: of two boxes one of
// which contains the other, the larger one is not further away. So results do not depend on where
// wide boxes begin.
template <class T, Pairing pairing>
MARGRAVE_INLINE bool is_far(const Boxes<T>& a, std::int64_t i, const Boxes<T>& b, std::int64_t j,
                            std::int64_t features, T far) {
    constexpr int W = Simd<T>::width;
    const std::int64_t stride = box_stride<T>(features);
    const T* a_low = a.low + i * stride;
    const T* a_high = a.high + i * stride;
    const T* b_low = b.low + j * stride;
    const T* b_high = b.high + j * stride;
    Vec<T> sums{};
    for (std::int64_t k = 0; k < stride; k += W) {
        const Vec<T> below = load(a_low + k) - load(b_high + k);
        const Vec<T> above = load(b_low + k) - load(a_high + k);
        Vec<T> apart = below > above ? below : above;
        apart = apart > 0 ? apart : Vec<T>{};
        sums += pairing == Pairing::squares ? apart * apart : apart;
    }
    for (int half = W / 2; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0] > far;
}

// Calls use(query, panel, lane, v0, v1) for all kernel values, and done(group, panel, lane) after
// each group of queries; skipped(group, panel) where all of them are negligible. Returns the number
// of values that were computed.
template <class T, class K, class Use, class Done, class Skipped>
MARGRAVE_INLINE std::int64_t each_value(const KernelParams& params, const Queries<T>& queries,
                                        const Panels<T>& panels, Use&& use, Done&& done,
                                        Skipped&& skipped) {
    constexpr int L = kLanes<T>;
    constexpr int step = 2 * Simd<T>::width;
    const std::int64_t groups = (queries.count + kGroup - 1) / kGroup;
    const bool tests = K::pairing != Pairing::product && panels.far > 0 && queries.boxes.low;
    std::int64_t computed = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t members =
            g * kGroup + kGroup < queries.count ? kGroup : queries.count - g * kGroup;
        bool distant = false;  // the wide box
        for (std::int64_t p = 0; p < panels.count; ++p) {
            if (tests) {
                const std::int64_t box = panels.first + p;
                const auto is_far_from = [&](const Boxes<T>& boxes,
                                             std::int64_t which) MARGRAVE_LAMBDA {
                    return is_far<T, K::pairing>(queries.boxes, g, boxes, which, panels.features,
                                                 panels.far);
                };
                if (p == 0 || box % kWide == 0) distant = is_far_from(panels.wide, box / kWide);
                if (distant || is_far_from(panels.boxes, box)) {
                    skipped(g, p);
                    continue;
                }
            }
            computed += members * (panels.points - p * L < L ? panels.points - p * L : L);
            for (int lane = 0; lane < L; lane += step) {
                const T* panel = panels.values + p * panels.features * L + lane;
                const T* own = panels.own + p * L + lane;
                if (queries.dense) {
                    for (int first = 0; first < kGroup; first += kTileRows)
                        dense_tile<T, K>(params, queries, g, first, panel, own,
                                         [&](int r, Vec<T> v0, Vec<T> v1) MARGRAVE_LAMBDA {
                                             if (g * kGroup + r < queries.count)
                                                 use(g * kGroup + r, p, lane, v0, v1);
                                         });
                } else {
                    for (std::int64_t q = g * kGroup; q < g * kGroup + members; ++q)
                        sparse_tile<T, K>(params, queries, q, panel, own, panels,
                                          [&](Vec<T> v0, Vec<T> v1)
                                              MARGRAVE_LAMBDA { use(q, p, lane, v0, v1); });
                }
                done(g, p, lane);
            }
        }
    }
    return computed;
}

template <class T>
T square(const T* x, std::int64_t count, bool sparse) {
    T sum[2] = {0, 0};
    for (std::int64_t k = 0; k < count; ++k) sum[sparse ? k % 2 : 0] += x[k] * x[k];
    return sum[0] + sum[1];
}

template <class T>
std::int64_t tile(const KernelParams& params, const Queries<T>& queries, const Panels<T>& panels,
                  T* const* out, std::int64_t at) {
    constexpr int W = Simd<T>::width;
    constexpr int L = kLanes<T>;
    std::int64_t computed = 0;
    Kernels::visit(params.id, [&](auto kernel) {
        computed = each_value<T, decltype(kernel)>(
            params, queries, panels,
            [&](std::int64_t q, std::int64_t p, int lane, Vec<T> v0, Vec<T> v1) MARGRAVE_LAMBDA {
                T* row = out[q] + at + p * kLanes<T> + lane;
                store(row, v0);
                store(row + W, v1);
            },
            [](std::int64_t, std::int64_t, int) MARGRAVE_LAMBDA {},
            [&](std::int64_t g, std::int64_t p) {
                for (std::int64_t q = g * kGroup; q < g * kGroup + kGroup && q < queries.count; ++q)
                    for (int j = 0; j < L; ++j) out[q][at + p * L + j] = T(params.offset);
            });
    });
    return computed;
}

// A group's tile is kept in the first-level cache and then summed; float sums run over its 12
// queries only, longer ones are kept in double.
template <class T>
std::int64_t apply(const KernelParams& params, const Queries<T>& queries, const Panels<T>& panels,
                   const T* coef, int outputs, double* sums, const T* point_coef,
                   double* query_sums) {
    constexpr int W = Simd<T>::width;
    constexpr int L = kLanes<T>;
    typedef double Wide __attribute__((vector_size(W * 8), aligned(8), may_alias));
    std::int64_t computed = 0;
    Kernels::visit(params.id, [&](auto kernel) {
        Vec<T> group[kGroup][2];
        computed = each_value<T, decltype(kernel)>(
            params, queries, panels,
            [&](std::int64_t q, std::int64_t, int, Vec<T> v0, Vec<T> v1) MARGRAVE_LAMBDA {
                group[q % kGroup][0] = v0;
                group[q % kGroup][1] = v1;
            },
            [&](std::int64_t g, std::int64_t p, int lane) MARGRAVE_LAMBDA {
                const int members =
                    g * kGroup + kGroup <= queries.count ? kGroup : int(queries.count - g * kGroup);
                for (int m = 0; m < outputs; ++m) {
                    Vec<T> s0{};
                    Vec<T> s1{};
                    for (int r = 0; r < members; ++r) {
                        const T c = coef[(g * kGroup + r) * outputs + m];
                        s0 += c * group[r][0];
                        s1 += c * group[r][1];
                    }
                    Wide* to = reinterpret_cast<Wide*>(sums + (p * outputs + m) * L + lane);
                    to[0] += __builtin_convertvector(s0, Wide);
                    to[1] += __builtin_convertvector(s1, Wide);
                }
                if (!point_coef) return;
                const Vec<T> c0 = load(point_coef + p * L + lane);
                const Vec<T> c1 = load(point_coef + p * L + lane + W);
                for (int r = 0; r < members; ++r) {
                    const Vec<T> products = group[r][0] * c0 + group[r][1] * c1;
                    double sum = 0;
                    for (int j = 0; j < W; ++j) sum += products[j];
                    query_sums[g * kGroup + r] += sum;
                }
            },
            [](std::int64_t, std::int64_t) MARGRAVE_LAMBDA {});
    });
    return computed;
}

// A kernel's slopes in the place of its values.
template <class K>
struct Slopes : K {
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& params, V number) {
        return K::template slope<V, T>(params, number);
    }
};

// The derivative by z of what a feature adds to the number that the kernel maps.
template <class T, Pairing pairing>
MARGRAVE_INLINE Vec<T> direction(T x, Vec<T> z) {
    if constexpr (pairing == Pairing::squares) return 2 * (z - x);
    const Vec<T> above = z > x ? splat(T(1)) : Vec<T>{};
    return z < x ? splat(T(-1)) : above;
}

// From differences of the features, which has none of the cancellation of x (W beta) - W (beta x)
// between close points.
template <class T>
void gradients(const KernelParams& params, const Queries<T>& queries, const Panels<T>& panels,
               const T* coef, int outputs, double* sums) {
    constexpr int W = Simd<T>::width;
    constexpr int L = kLanes<T>;
    typedef double Wide __attribute__((vector_size(W * 8), aligned(8), may_alias));
    Kernels::visit(params.id, [&](auto kernel) {
        using K = decltype(kernel);
        if constexpr (is_shift_invariant<K>) {
            Vec<T> group[kGroup][2];
            each_value<T, Slopes<K>>(
                params, queries, panels,
                [&](std::int64_t q, std::int64_t, int, Vec<T> v0, Vec<T> v1) MARGRAVE_LAMBDA {
                    group[q % kGroup][0] = v0;
                    group[q % kGroup][1] = v1;
                },
                [&](std::int64_t g, std::int64_t p, int lane) MARGRAVE_LAMBDA {
                    const std::int64_t features = panels.features;
                    const int members = g * kGroup + kGroup <= queries.count
                                            ? kGroup
                                            : int(queries.count - g * kGroup);
                    for (int m = 0; m < outputs; ++m) {
                        Vec<T> weight[kGroup][2] = {};
                        for (int r = 0; r < members; ++r) {
                            const T c = coef[(g * kGroup + r) * outputs + m];
                            weight[r][0] = c * group[r][0];
                            weight[r][1] = c * group[r][1];
                        }
                        const T* x = queries.dense + g * features * kGroup;
                        const T* z = panels.values + p * features * L + lane;
                        double* to = sums + (p * outputs + m) * features * L + lane;
                        for (std::int64_t k = 0; k < features; ++k, x += kGroup, z += L, to += L) {
                            const Vec<T> z0 = load(z);
                            const Vec<T> z1 = load(z + W);
                            Vec<T> s0{};
                            Vec<T> s1{};
#pragma GCC unroll 12
                            for (int r = 0; r < kGroup; ++r) {
                                s0 += weight[r][0] * direction<T, K::pairing>(x[r], z0);
                                s1 += weight[r][1] * direction<T, K::pairing>(x[r], z1);
                            }
                            Wide* wide = reinterpret_cast<Wide*>(to);
                            wide[0] += __builtin_convertvector(s0, Wide);
                            *reinterpret_cast<Wide*>(to + W) += __builtin_convertvector(s1, Wide);
                        }
                    }
                },
                [](std::int64_t, std::int64_t) MARGRAVE_LAMBDA {});
        }
    });
}

// A memory-bound sum: eight rows at a time over a chunk of f that stays in the first-level cache.
template <class T>
void combine(const T* const* rows, const double* coef, int count, std::int64_t begin,
             std::int64_t end, double* f) {
    constexpr int chunk = 1024;
    constexpr int together = 8;
    for (std::int64_t from = begin; from < end; from += chunk) {
        const std::int64_t to = from + chunk < end ? from + chunk : end;
        for (int r = 0; r < count; r += together) {
            if (r + together <= count) {
                const T* a = rows[r];
                const T* b = rows[r + 1];
                const T* c = rows[r + 2];
                const T* d = rows[r + 3];
                const T* e = rows[r + 4];
                const T* g = rows[r + 5];
                const T* h = rows[r + 6];
                const T* i = rows[r + 7];
                const double* w = coef + r;
                MARGRAVE_INDEPENDENT
                for (std::int64_t j = from; j < to; ++j)
                    f[j] += ((w[0] * a[j] + w[1] * b[j]) + (w[2] * c[j] + w[3] * d[j])) +
                            ((w[4] * e[j] + w[5] * g[j]) + (w[6] * h[j] + w[7] * i[j]));
            } else {
                for (int s = r; s < count; ++s) {
                    const T* a = rows[s];
                    MARGRAVE_INDEPENDENT
                    for (std::int64_t j = from; j < to; ++j) f[j] += coef[s] * a[j];
                }
            }
        }
    }
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
