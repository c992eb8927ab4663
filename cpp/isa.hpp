// What is compiled once per instruction set and chosen at run time: kernel tiles, the sums over
// cached rows, the inner solver, products with rows.
#pragma once
#include <cstdint>

#include "kernel.hpp"
#include "loss.hpp"
#include "row_view.hpp"

namespace margrave {

// Points are packed in panels of 128 bytes per feature: 32 floats or 16 doubles side by side. Query
// rows are packed in groups of 12. Both numbers are those of the largest register tile, which is
// AVX-512's of 12 x 2 vectors, and the same for every instruction set, as packed data then are.
constexpr int kGroup = 12;
template <class T>
constexpr int kLanes = 128 / sizeof(T);

// Boxes around groups of rows: box b holds the values of feature k from low[b * stride + k] to
// high[b * stride + k]. The stride is a whole number of cache lines; what is beyond the features is
// zero.
template <class T>
struct Boxes {
    const T* low = nullptr;
    const T* high = nullptr;
};
template <class T>
constexpr std::int64_t box_stride(std::int64_t features) {
    constexpr std::int64_t line = 64 / sizeof(T);
    return (features + line - 1) / line * line;
}
constexpr int kWide = 16;  // panels in a wide box, which is tested first

// Query rows, whose kernel values with the points are computed: dense groups, or compressed rows.
template <class T>
struct Queries {
    std::int64_t count = 0;
    std::int64_t features = 0;
    // Group g, feature k, member r: dense[(g * features + k) * kGroup + r]
    const T* dense = nullptr;
    const T* values = nullptr;
    const std::int32_t* columns = nullptr;
    const std::int64_t* starts = nullptr;
    const T* own = nullptr;  // the kernel's own terms of the rows
    Boxes<T> boxes;          // around groups, where distant ones are skipped
};

template <class T>
struct Panels {
    std::int64_t count = 0;
    std::int64_t features = 0;
    // Panel p, feature k, lane j: values[(p * features + k) * kLanes + j]
    const T* values = nullptr;
    const T* own = nullptr;  // own[p * kLanes + j]
    // A compact panel (count 1) has feature k at slot[k], or not at all if that is negative.
    const std::int32_t* slot = nullptr;
    const std::int64_t* columns = nullptr;  // compact panel: the feature at each place
    std::int64_t points = 0;                // without those that fill the last panel up
    // Where distant panels are skipped: panel p has box number first + p, and lies in wide box
    // number (first + p) / kWide. Kernel values of boxes further apart than `far` are negligible.
    std::int64_t first = 0;
    Boxes<T> boxes{}, wide{};
    T far = 0;
};

// The problem on a working set of w rows; see inner.hpp.
template <class T>
struct Inner {
    int size = 0;
    std::int64_t leading = 0;  // of kernel
    const T* kernel = nullptr;
    const double* y = nullptr;
    const double* C = nullptr;
    const double* lo = nullptr;
    const double* hi = nullptr;
    const double* diagonal = nullptr;
    double* beta = nullptr;
    const double* scores = nullptr;
    double tolerance = 0;
    double negligible = 0;  // decrease of the objective that is not worth a step
    std::int64_t max_steps = 0;
    T* scratch = nullptr;                    // 7 arrays of `leading`
    bool (*is_over)(void* watch) = nullptr;  // asked now and then; then the solution is unfinished
    void* watch = nullptr;
};

template <class T>
struct Operations {
    // x'x in exactly the order of a tile's sums, so that a point's distance to itself or to a copy
    // is exactly zero
    T (*square)(const T* values, std::int64_t count, bool sparse);
    // out[q][at + j] = k(query q, point j). Both this and `apply` return how many values they
    // computed; those that they skip are the kernel's offset.
    std::int64_t (*tile)(const KernelParams&, const Queries<T>&, const Panels<T>&, T* const* out,
                         std::int64_t at);
    // sums[m][j] += sum over queries of coef[q * outputs + m] k(query q, point j); a panel's sums
    // are outputs x kLanes. With point_coef also the other way round: query_sums[q] += sum over
    // points of point_coef[j] k(query q, point j)
    std::int64_t (*apply)(const KernelParams&, const Queries<T>&, const Panels<T>&, const T* coef,
                          int outputs, double* sums, const T* point_coef, double* query_sums);
    // sums[m][k][j] += sum over dense queries of coef[q * outputs + m] d k(query q, point j) / d
    // z_k for the feature z_k of point j; a panel's sums are outputs x features x kLanes. For
    // kernels of a distance.
    void (*gradients)(const KernelParams&, const Queries<T>&, const Panels<T>&, const T* coef,
                      int outputs, double* sums);
    // f[j] += sum over rows r of coef[r] rows[r][j], begin <= j < end
    void (*combine)(const T* const* rows, const double* coef, int count, std::int64_t begin,
                    std::int64_t end, double* f);
    // Improves inner.beta, with its sum kept if the intercept is free. Returns the number of steps.
    std::int64_t (*solve)(const LossParams&, bool has_free_intercept, Inner<T>&);
};

// Products with one row x of a linear model, chosen by the rows' layout in memory.
struct RowOperations {
    double (*dot)(const Rows&, std::int64_t row, const double* w);         // x'w
    void (*add)(const Rows&, std::int64_t row, double factor, double* w);  // w += factor x
    double (*square)(const Rows&, std::int64_t row);                       // x'x
};

struct Isa {
    const char* name;
    RowOperations (*row_operations)(const Rows&);
    Operations<float> f32;
    Operations<double> f64;
    template <class T>
    const Operations<T>& operations() const {
        if constexpr (sizeof(T) == 4)
            return f32;
        else
            return f64;
    }
};

// The instruction sets in this build that this processor has, worst first.
int usable_isas(const Isa* (&found)[4]);

}  // namespace margrave
