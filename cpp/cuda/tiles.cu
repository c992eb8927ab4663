// Entry points: tiles of one kernel (KERNEL, its number, or -1 for given values) in one precision
// (REAL).
#include "cuda/tiles.cuh"

using namespace margrave;

template <int I>
struct Chosen : At<I, Kernels> {};
template <>
struct Chosen<-1> {
    using type = Given;
};
using K = Chosen<KERNEL>::type;

#define POINTS(name) const REAL *name, const REAL *name##_sizes, const int *name##_which
#define RANGES(name) const int *name##_first, const int *name##_count

extern "C" __global__ void __launch_bounds__(256)
    sum(const KernelParams* kernel, int width, POINTS(points), RANGES(points), POINTS(rows),
        RANGES(rows), int same, const REAL* coef, double* sums, long long stride) {
    sum_tiles<K, REAL>(*kernel, width, {points, points_sizes, points_which},
                       {points_first, points_count}, {rows, rows_sizes, rows_which},
                       {rows_first, rows_count}, same, coef, sums, stride);
}

extern "C" __global__ void __launch_bounds__(256)
    store(const KernelParams* kernel, int width, POINTS(points), RANGES(points), POINTS(rows),
          RANGES(rows), int same, REAL* values, long long stride, int leading) {
    store_tiles<K, REAL>(*kernel, width, {points, points_sizes, points_which},
                         {points_first, points_count}, {rows, rows_sizes, rows_which},
                         {rows_first, rows_count}, same, values, stride, leading);
}
