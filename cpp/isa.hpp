// What is compiled once per instruction set and chosen at run time: kernel tiles, the sums over cached rows, the inner solver,
// products with rows.
#pragma once
#include <cstdint>

#include "kernel.hpp"
#include "loss.hpp"
#include "row_view.hpp"

namespace margrave {

// Points are packed in panels of 128 bytes per feature: 32 floats or 16 doubles side by side. Query rows are packed in
// groups of 12. Both numbers are those of the largest register tile (AVX-512: 12 x 2 vectors) and fixed for every
// instruction set, so that packed data look alike everywhere.
constexpr int kGroup = 12;
template <class T>
constexpr int kLanes = 128 / sizeof(T);

// Rows of X that meet a panel: either dense groups or compressed sparse rows.
template <class T>
struct Queries {
    std::int64_t count = 0, features = 0;
    const T* dense = nullptr;  // group g, feature k, member r: dense[(g * features + k) * kGroup + r]
    const T* values = nullptr;
    const std::int32_t* columns = nullptr;
    const std::int64_t* starts = nullptr;
    const T* own = nullptr;  // the kernel's own terms of the rows
};

template <class T>
struct Panels {
    std::int64_t count = 0, features = 0;
    const T* values = nullptr;           // panel p, feature k, lane j: values[(p * features + k) * kLanes + j]
    const T* own = nullptr;              // own[p * kLanes + j]
    const std::int32_t* slot = nullptr;  // compact panel (count 1): feature k stands at slot[k], or nowhere (negative)
    const std::int64_t* columns = nullptr;  // compact panel: the feature at each place
};

// The problem on a working set of w rows; see inner.hpp.
template <class T>
struct Inner {
    int size = 0;
    std::int64_t leading = 0;  // of kernel
    const T* kernel = nullptr;
    const double *y = nullptr, *C = nullptr, *lo = nullptr, *hi = nullptr, *diagonal = nullptr;
    double* beta = nullptr;
    const double* scores = nullptr;
    double tolerance = 0;
    double negligible = 0;  // decrease of the objective that is not worth a step
    std::int64_t max_steps = 0;
    T* scratch = nullptr;  // 7 arrays of `leading`
};

template <class T>
struct Operations {
    // x'x in exactly the order of a tile's sums, so that a point's distance to itself or its double is exactly zero
    T (*square)(const T* values, std::int64_t count, bool sparse);
    // out[q][at + j] = k(query q, point j)
    void (*tile)(const KernelParams&, const Queries<T>&, const Panels<T>&, T* const* out, std::int64_t at);
    // sums[m][j] += sum over queries of coef[q * outputs + m] k(query q, point j); a panel's sums are outputs x kLanes.
    // With point_coef also the other way round: query_sums[q] += sum over points of point_coef[j] k(query q, point j)
    void (*apply)(const KernelParams&, const Queries<T>&, const Panels<T>&, const T* coef, int outputs, double* sums,
                  const T* point_coef, double* query_sums);
    // f[j] += sum over rows r of coef[r] rows[r][j], begin <= j < end
    void (*combine)(const T* const* rows, const double* coef, int count, std::int64_t begin, std::int64_t end, double* f);
    // Improves inner.beta; pairs keep its sum. Returns the number of steps.
    std::int64_t (*solve)(const LossParams&, bool pairs, Inner<T>&);
};

// Products with one row x of a linear model; which functions these are depends on how the rows lie in memory.
struct RowOperations {
    double (*dot)(const Rows&, std::int64_t row, const double* w);            // x'w
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
        if constexpr (sizeof(T) == 4) return f32;
        else return f64;
    }
};

// The instruction sets in this build that this processor has, worst first.
int usable_isas(const Isa* (&found)[4]);

}  // namespace margrave
