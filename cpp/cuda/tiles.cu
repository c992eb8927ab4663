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

// Sums with one column of coefficients, or with two.
#define SUM(name, columns)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, sizeof(REAL) == 4 ? 2 : 1)                 \
        name(const KernelParams* kernel, int width, POINTS(points), RANGES(points),              \
             POINTS(rows), RANGES(rows), int same, const REAL* coef, long long apart,            \
             double* sums, long long stride, const REAL* boxes, double far,                      \
             unsigned long long* computed, int computed_apart) {                                 \
        sum_tiles<K, REAL, columns>(*kernel, width, {points, points_sizes, points_which},        \
                                    {points_first, points_count}, {rows, rows_sizes, rows_which}, \
                                    {rows_first, rows_count}, same, coef, apart, sums, stride,   \
                                    {boxes, REAL(far), computed, computed_apart});               \
    }
SUM(sum, 1)
SUM(sum_two, 2)

extern "C" __global__ void __launch_bounds__(256)
    store(const KernelParams* kernel, int width, POINTS(points), RANGES(points), POINTS(rows),
          RANGES(rows), int same, REAL* values, long long stride, int leading) {
    store_tiles<K, REAL>(*kernel, width, {points, points_sizes, points_which},
                         {points_first, points_count}, {rows, rows_sizes, rows_which},
                         {rows_first, rows_count}, same, values, stride, leading);
}

// Boxes around tiles of rows: the least and the largest value of each feature.
extern "C" __global__ void __launch_bounds__(64) surround_rows(int width, POINTS(rows), int count,
                                                               REAL* boxes) {
    const int first = blockIdx.x * Tile<REAL>::kRows;
    REAL* low = boxes + std::int64_t(blockIdx.x) * 2 * width;
    surround<REAL>({rows, rows_sizes, rows_which}, first, min(count, first + Tile<REAL>::kRows),
                   width, low, low + width);
}
