// Entry points: the working-set solver for one loss (LOSS, its number) in one precision (REAL), with
// so many VARIABLES for each of at most so many THREADS.
// `parts` are problems that are solved side by side; see working_set.hpp for a round.
#include "cuda/inner.cuh"
#include "cuda/tiles.cuh"

using namespace margrave;
using L = At<LOSS, Losses>::type;

extern "C" __global__ void extremes(const LossParams* loss, const Variables* v, const Part* parts,
                                    double* found, int chunks) {
    const Part& p = parts[blockIdx.y];
    if (blockIdx.x * kChunk >= p.count) return;
    find_extremes(Point<L>{L(*loss), *v, p}, found, chunks);
}

extern "C" __global__ void middle(Part* parts, const double* found, int chunks, int has_free) {
    settle<L>(parts[blockIdx.x], found, chunks, has_free);
}

extern "C" __global__ void sums(const LossParams* loss, const Variables* v, const Part* parts,
                                double* found, int chunks) {
    const Part& p = parts[blockIdx.y];
    if (blockIdx.x * kChunk >= p.count) return;
    sum_up(Point<L>{L(*loss), *v, p}, found, chunks);
}

extern "C" __global__ void figures(Part* parts, const double* found, int chunks) {
    conclude(parts[blockIdx.x], found, chunks);
}

extern "C" __global__ void __launch_bounds__(1024)
    best_bias(const LossParams* loss, const Variables* v, Part* parts) {
    Part& p = parts[blockIdx.x];
    find_best_bias(Point<L>{L(*loss), *v, p}, p);
}

extern "C" __global__ void violations(const LossParams* loss, const Variables* v, const Part* parts,
                                      double* found) {
    const Part& p = parts[blockIdx.y];
    const Point<L> at{L(*loss), *v, p};
    const long long i = blockIdx.x * (long long)(blockDim.x) + threadIdx.x;
    if (i < p.count) found[p.first + i] = fmax(at.rise(p.first + i), at.fall(p.first + i));
}

// Working sets of at most `size` rows: their numbers, those in the data, and how many.
extern "C" __global__ void __launch_bounds__(1024)
    choose_set(const Variables* v, Part* parts, int* members, int* rows, int* count, int size,
               int has_free) {
    const std::int64_t at = std::int64_t(blockIdx.x) * size;
    choose(*v, parts[blockIdx.x], {members + at, rows + at, count + blockIdx.x}, has_free);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    solve(const LossParams* loss, const Variables* v, Part* parts, int* members, int* rows,
          int* count, int size, const REAL* kernel, long long stride, int leading,
          int* changed_rows, REAL* changed_coef, int* changed_count, int has_free) {
    const std::int64_t at = std::int64_t(blockIdx.x) * size;
    const Members set{members + at, rows + at, count + blockIdx.x};
    const Changes<REAL> changes{changed_rows + at, changed_coef + at, changed_count + blockIdx.x};
    solve_set<L, REAL, VARIABLES>(L(*loss), *v, parts[blockIdx.x], set,
                                  kernel + blockIdx.x * stride, leading, changes, has_free);
}

// scores += the sums that `shares` thread blocks have found for each row of a problem with changes
extern "C" __global__ void add(const Variables* v, const Part* parts, const int* changed,
                               const double* sums, long long stride, int shares) {
    const Part& p = parts[blockIdx.y];
    const long long i = blockIdx.x * (long long)(blockDim.x) + threadIdx.x;
    if (i >= p.count || changed[blockIdx.y] == 0) return;
    double sum = 0;
    for (int s = 0; s < shares; ++s) sum += sums[s * stride + p.first + i];
    v->scores[p.first + i] += sum;
}
