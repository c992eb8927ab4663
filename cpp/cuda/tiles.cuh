// Kernel tiles on a graphics card: values of points with rows, summed with coefficients or stored.
//
// A thread block computes the values of 128 points with as many rows at a time (64 in double
// precision), a thread those of 8 points with 8 (or 4) rows, in registers. Rows lie in memory one
// after the other, padded with zeros to a multiple of 8 features. Several problems are served at
// once: blockIdx.z is the problem, with its own points and rows.
#pragma once
#include "kernel.hpp"

namespace margrave {

template <int I, class List>
struct At;
template <int I, template <class...> class List, class First, class... Rest>
struct At<I, List<First, Rest...>> : At<I - 1, List<Rest...>> {};
template <template <class...> class List, class First, class... Rest>
struct At<0, List<First, Rest...>> {
    using type = First;
};

inline namespace MARGRAVE_ISA {

// The kernel of given values: rows are rows of the kernel matrix, and numbers its columns.
struct Given : Linear {};
template <class K>
constexpr bool is_given = false;
template <>
constexpr bool is_given<Given> = true;

// Some rows of a matrix: `which` of them, or all.
template <class T>
struct Points {
    const T* entries;
    const T* sizes;  // |x|^2
    const int* which;

    __device__ int row(int i) const { return which ? which[i] : i; }
};

// Boxes around tiles of rows (the range of each feature), and the distance from which on kernel
// values are negligible: tiles that are farther apart are skipped. `computed` counts the values of
// the others, of each problem, `apart` numbers from one to the next.
template <class T>
struct Boxes {
    const T* of_rows;  // null: nothing is skipped
    T far;
    unsigned long long* computed;
    int apart;
};

// Where each problem's points (or rows) begin in a list, and how many there are.
struct Ranges {
    const int* first;
    const int* count;
};

template <class T>
struct Tile {
    static constexpr int kThreads = 256;
    static constexpr int kDeep = 8;                 // features at a time
    static constexpr int kPack = 16 / sizeof(T);    // numbers in a load
    static constexpr int kHigh = 8;                 // points of a thread
    static constexpr int kWide = 32 / sizeof(T);    // and rows
    static constexpr int kPoints = 16 * kHigh;      // of a thread block
    static constexpr int kRows = 16 * kWide;
    static constexpr int kOutputs = 2;              // columns of coefficients, at most
    static constexpr int kBoxed = 256;              // features of boxes, at most
    static constexpr int kWarps = kThreads / 32;
    static constexpr int kPerRow = kDeep / kPack;   // loads
    static constexpr int kPointLoads = kPoints * kPerRow / kThreads;
    static constexpr int kRowLoads = kRows * kPerRow / kThreads;
    struct alignas(16) Pack {
        T at[kPack];
    };
    struct alignas(16) Shared {
        T points[2][kDeep][kPoints + 4];
        T rows[2][kDeep][kRows + 4];
        T point_size[kPoints], row_size[kRows], coef[kOutputs][kRows];
        int point_row[kPoints], row_row[kRows];
        T low[kBoxed], high[kBoxed];
        int near[kWarps];
    };
};

// The range of each feature over some rows, by the threads of a block.
template <class T>
__device__ void surround(const Points<T>& rows, int first, int last, int width, T* low, T* high) {
    for (int k = threadIdx.x; k < width; k += blockDim.x) {
        T least = T(HUGE_VAL);
        T most = -least;
        for (int i = first; i < last; ++i) {
            const T x = rows.entries[std::int64_t(rows.row(i)) * width + k];
            least = x < least ? x : least;
            most = x > most ? x : most;
        }
        low[k] = least;
        high[k] = most;
    }
}

// |x - z|^2 of close points, from differences: it keeps its digits.
template <class T>
__device__ __noinline__ T square_of_difference(const T* x, const T* z, int width) {
    T sum = 0;
    for (int k = 0; k < width; ++k) sum += (x[k] - z[k]) * (x[k] - z[k]);
    return sum;
}

// The values of one tile.
template <class K, class T>
class TileValues {
    using S = Tile<T>;

  public:
    __device__ TileValues(typename S::Shared& shared, const KernelParams& kernel, int width,
                          const Points<T>& points, const Points<T>& rows, bool same)
        : s_(shared),
          kernel_(kernel),
          width_(width),
          points_(points),
          rows_(rows),
          same_(same),
          low_(threadIdx.x / 16),
          left_(threadIdx.x % 16) {}

    // Chooses points `first` to `last`, of which there may be fewer than a tile has.
    __device__ void at_points(int first, int last) {
        for (int i = threadIdx.x; i < S::kPoints; i += S::kThreads) {
            const int row = points_.row(min(first + i, last - 1));
            s_.point_row[i] = row;
            s_.point_size[i] = points_.sizes[row];
        }
        for (int l = 0; l < S::kPointLoads; ++l) {
            const int load = threadIdx.x + l * S::kThreads;
            const int i = load / S::kPerRow;
            const std::int64_t row = points_.row(min(first + i, last - 1));
            point_from_[l] = points_.entries + row * width_ + load % S::kPerRow * S::kPack;
        }
    }

    // Computes the values with rows `first` to `last`; `coef`, with so many numbers from one column
    // to the next, is zero for rows that are not there.
    template <int N>
    __device__ void at_rows(int first, int last, const T* coef, std::int64_t apart) {
        __syncthreads();
        for (int j = threadIdx.x; j < S::kRows; j += S::kThreads) {
            const int row = rows_.row(min(first + j, last - 1));
            s_.row_row[j] = row;
            s_.row_size[j] = rows_.sizes[row];
            for (int n = 0; n < N; ++n)
                s_.coef[n][j] = first + j < last ? coef[n * apart + first + j] : T(0);
        }
        if constexpr (is_given<K>) {
            __syncthreads();
        } else {
            const T* row_from[S::kRowLoads];
            for (int l = 0; l < S::kRowLoads; ++l) {
                const int load = threadIdx.x + l * S::kThreads;
                const int j = load / S::kPerRow;
                const std::int64_t row = rows_.row(min(first + j, last - 1));
                row_from[l] = rows_.entries + row * width_ + load % S::kPerRow * S::kPack;
            }
            multiply(row_from);
        }
    }

    // The value of the thread's point i and row j.
    __device__ T value(int i, int j) const {
        const int point = point_of(i);
        const int row = row_of(j);
        const int point_row = s_.point_row[point];
        const int row_row = s_.row_row[row];
        if constexpr (is_given<K>)
            return points_.entries[std::int64_t(point_row) * width_ + row_row] + T(kernel_.offset);
        T number = sums_[i][j];
        if constexpr (K::pairing == Pairing::squares) {
            const T sizes = s_.point_size[point] + s_.row_size[row];
            number = sizes - 2 * number;
            if (K::steep && number * (kFar * kFar) < sizes)
                number = square_of_difference(points_.entries + std::int64_t(point_row) * width_,
                                              rows_.entries + std::int64_t(row_row) * width_,
                                              width_);
            if (same_ && point_row == row_row) number = 0;
        }
        return K::template map<T, T>(kernel_, number) + T(kernel_.offset);
    }
    // Surrounds the points, for `find_near`.
    __device__ void surround_points(int first, int last) {
        surround(points_, first, min(last, first + S::kPoints), width_, s_.low, s_.high);
        __syncthreads();
    }
    // Which of the next tiles of rows, one for each warp, are near the points.
    __device__ void find_near(const Boxes<T>& boxes, int tile) {
        const int warp = threadIdx.x / 32;
        const T* low = boxes.of_rows + std::int64_t(tile + warp) * 2 * width_;
        const T* high = low + width_;
        T distance = 0;
        for (int k = threadIdx.x % 32; k < width_; k += 32) {
            const T gap = fmax(T(0), fmax(s_.low[k] - high[k], low[k] - s_.high[k]));
            distance += K::pairing == Pairing::distance ? gap : gap * gap;
        }
        for (int lanes = 16; lanes; lanes /= 2)
            distance += __shfl_xor_sync(0xffffffffu, distance, lanes);
        __syncthreads();
        if (threadIdx.x % 32 == 0) s_.near[warp] = distance < boxes.far;
        __syncthreads();
    }
    __device__ bool is_near(int warp) const { return s_.near[warp]; }

    __device__ T coef(int n, int j) const { return s_.coef[n][row_of(j)]; }

    // Places in the tile of the thread's points and rows.
    __device__ int point_of(int i) const { return low_ * S::kHigh + i; }
    __device__ int row_of(int j) const {
        return j / S::kPack * (16 * S::kPack) + left_ * S::kPack + j % S::kPack;
    }

  private:
    using Pack = typename S::Pack;

    // Sums over all features, eight at a time: while these are used, the next are fetched.
    __device__ void multiply(const T* const (&row_from)[S::kRowLoads]) {
        for (int i = 0; i < S::kHigh; ++i)
            for (int j = 0; j < S::kWide; ++j) sums_[i][j] = 0;
        Pack points[S::kPointLoads], rows[S::kRowLoads];
        fetch(row_from, 0, points, rows);
        keep(0, points, rows);
        __syncthreads();
        int now = 0;
        for (int k = 0; k < width_; k += S::kDeep) {
            const bool more = k + S::kDeep < width_;
            if (more) fetch(row_from, k + S::kDeep, points, rows);
            add(now);
            if (more) keep(now ^ 1, points, rows);
            __syncthreads();
            now ^= 1;
        }
    }

    __device__ void fetch(const T* const (&row_from)[S::kRowLoads], int k,
                          Pack (&points)[S::kPointLoads], Pack (&rows)[S::kRowLoads]) const {
#pragma unroll
        for (int l = 0; l < S::kPointLoads; ++l)
            points[l] = *reinterpret_cast<const Pack*>(point_from_[l] + k);
#pragma unroll
        for (int l = 0; l < S::kRowLoads; ++l)
            rows[l] = *reinterpret_cast<const Pack*>(row_from[l] + k);
    }

    __device__ void keep(int half, const Pack (&points)[S::kPointLoads],
                         const Pack (&rows)[S::kRowLoads]) {
#pragma unroll
        for (int l = 0; l < S::kPointLoads; ++l) {
            const int load = threadIdx.x + l * S::kThreads;
#pragma unroll
            for (int e = 0; e < S::kPack; ++e)
                s_.points[half][load % S::kPerRow * S::kPack + e][load / S::kPerRow] =
                    points[l].at[e];
        }
#pragma unroll
        for (int l = 0; l < S::kRowLoads; ++l) {
            const int load = threadIdx.x + l * S::kThreads;
#pragma unroll
            for (int e = 0; e < S::kPack; ++e)
                s_.rows[half][load % S::kPerRow * S::kPack + e][load / S::kPerRow] = rows[l].at[e];
        }
    }

    __device__ void add(int half) {
#pragma unroll
        for (int k = 0; k < S::kDeep; ++k) {
            T a[S::kHigh], b[S::kWide];
#pragma unroll
            for (int i = 0; i < S::kHigh; i += S::kPack)
                *reinterpret_cast<Pack*>(a + i) =
                    *reinterpret_cast<const Pack*>(&s_.points[half][k][point_of(i)]);
#pragma unroll
            for (int j = 0; j < S::kWide; j += S::kPack)
                *reinterpret_cast<Pack*>(b + j) =
                    *reinterpret_cast<const Pack*>(&s_.rows[half][k][row_of(j)]);
#pragma unroll
            for (int i = 0; i < S::kHigh; ++i)
#pragma unroll
                for (int j = 0; j < S::kWide; ++j) {
                    if constexpr (K::pairing == Pairing::distance)
                        sums_[i][j] += fabs(a[i] - b[j]);
                    else
                        sums_[i][j] += a[i] * b[j];
                }
        }
    }

    typename S::Shared& s_;
    const KernelParams& kernel_;
    int width_;
    const Points<T>& points_;
    const Points<T>& rows_;
    bool same_;
    int low_, left_;
    const T* point_from_[S::kPointLoads];
    T sums_[S::kHigh][S::kWide];
};

// sums[point] = sum over rows of coef * value, for N columns of coefficients. Where there are few
// points, blockIdx.y shares the rows out, and `sums` has a part for each share.
template <class K, class T, int N>
__device__ void sum_tiles(const KernelParams& kernel, int width, const Points<T>& points,
                          Ranges point_ranges, const Points<T>& rows, Ranges row_ranges, bool same,
                          const T* coef, std::int64_t apart, double* sums, std::int64_t stride,
                          const Boxes<T>& boxes) {
    using S = Tile<T>;
    __shared__ typename S::Shared shared;
    const int problem = blockIdx.z;
    const int begin = point_ranges.first[problem];
    const int end = begin + point_ranges.count[problem];
    const int first = begin + blockIdx.x * S::kPoints;
    if (first >= end) return;
    const int row_begin = row_ranges.first[problem];
    const int row_end = row_begin + row_ranges.count[problem];
    const int tiles = (row_end - row_begin + S::kRows - 1) / S::kRows;
    const int share = (tiles + gridDim.y - 1) / gridDim.y;
    const int from = row_begin + blockIdx.y * share * S::kRows;
    const int to = min(row_end, from + share * S::kRows);
    double total[N][S::kHigh] = {};
    TileValues<K, T> tile(shared, kernel, width, points, rows, same);
    tile.at_points(first, end);
    if (boxes.of_rows) tile.surround_points(first, end);
    int computed = 0;
    for (int row = from, turn = 0; row < to; row += S::kRows, ++turn) {
        if (boxes.of_rows) {
            if (turn % S::kWarps == 0) tile.find_near(boxes, (row - row_begin) / S::kRows);
            if (!tile.is_near(turn % S::kWarps)) continue;
        }
        computed += min(S::kRows, to - row);
        tile.template at_rows<N>(row, to, coef, apart);
#pragma unroll
        for (int i = 0; i < S::kHigh; ++i) {
            T part[N] = {};
#pragma unroll
            for (int j = 0; j < S::kWide; ++j) {
                const T value = tile.value(i, j);
#pragma unroll
                for (int n = 0; n < N; ++n) part[n] += tile.coef(n, j) * value;
            }
#pragma unroll
            for (int n = 0; n < N; ++n) total[n][i] += part[n];
        }
    }
    if (threadIdx.x == 0)
        atomicAdd(boxes.computed + problem * boxes.apart,
                  (unsigned long long)(computed) * min(S::kPoints, end - first));
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < S::kHigh; ++i) {
            for (int lanes = 8; lanes; lanes /= 2)
                total[n][i] += __shfl_xor_sync(0xffffffffu, total[n][i], lanes, 16);
            const int point = first + tile.point_of(i);
            if (threadIdx.x % 16 == 0 && point < end)
                sums[(blockIdx.y * N + n) * stride + point] = total[n][i];
        }
}

// values[problem * stride + point * leading + row], numbered within each problem
template <class K, class T>
__device__ void store_tiles(const KernelParams& kernel, int width, const Points<T>& points,
                            Ranges point_ranges, const Points<T>& rows, Ranges row_ranges,
                            bool same, T* values, std::int64_t stride, int leading) {
    using S = Tile<T>;
    __shared__ typename S::Shared shared;
    const int problem = blockIdx.z;
    const int begin = point_ranges.first[problem];
    const int end = begin + point_ranges.count[problem];
    const int first = begin + blockIdx.x * S::kPoints;
    const int row_begin = row_ranges.first[problem];
    const int row_end = row_begin + row_ranges.count[problem];
    const int row_first = row_begin + blockIdx.y * S::kRows;
    if (first >= end || row_first >= row_end) return;
    TileValues<K, T> tile(shared, kernel, width, points, rows, same);
    tile.at_points(first, end);
    tile.template at_rows<0>(row_first, row_end, nullptr, 0);
#pragma unroll
    for (int i = 0; i < S::kHigh; ++i)
#pragma unroll
        for (int j = 0; j < S::kWide; ++j) {
            const int point = first + tile.point_of(i) - begin;
            const int row = row_first + tile.row_of(j) - row_begin;
            if (point < end - begin && row < row_end - row_begin)
                values[problem * stride + std::int64_t(point) * leading + row] = tile.value(i, j);
        }
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
