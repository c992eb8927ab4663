// Vectors of one register's width, by the compiler's vector extension: the same source serves SSE,
// AVX2, AVX-512 and NEON.
//
// Everything that is compiled once per instruction set lives in the inline namespace MARGRAVE_ISA,
// so that the linker can never replace the plain version of an inline function by one with
// instructions that this processor lacks.
#pragma once
#ifdef __CUDACC__
#include "cuda/scalar.hpp"
#else
#include <cstdint>

#ifndef MARGRAVE_ISA
#define MARGRAVE_ISA base
#endif

#define MARGRAVE_INLINE inline __attribute__((always_inline))
#define MARGRAVE_UNROLL  // a short loop, which a compiler of graphics cards has to be asked to
                         // unroll
#define MARGRAVE_LAMBDA __attribute__((always_inline))
#ifdef __clang__
#define MARGRAVE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define MARGRAVE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace margrave {
inline namespace MARGRAVE_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Simd;

template <>
struct Simd<float> {
    typedef float V __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
    typedef std::int32_t I __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
    using Int = std::int32_t;
    static constexpr int width = kVectorBytes / 4;
};

template <>
struct Simd<double> {
    typedef double V __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
    typedef std::int64_t I __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
    using Int = std::int64_t;
    static constexpr int width = kVectorBytes / 8;
};

template <class T>
using Vec = typename Simd<T>::V;
template <class T>
using IVec = typename Simd<T>::I;

template <class T>
MARGRAVE_INLINE Vec<T> load(const T* p) {
    return *reinterpret_cast<const Vec<T>*>(p);
}
template <class T>
MARGRAVE_INLINE void store(T* p, Vec<T> v) {
    *reinterpret_cast<Vec<T>*>(p) = v;
}
template <class T>
MARGRAVE_INLINE Vec<T> splat(T x) {
    return x - Vec<T>{};
}

MARGRAVE_INLINE float absolute(float x) { return __builtin_fabsf(x); }
MARGRAVE_INLINE double absolute(double x) { return __builtin_fabs(x); }
MARGRAVE_INLINE Vec<float> absolute(Vec<float> x) {
    return (Vec<float>)((IVec<float>)x & 0x7fffffff);
}
MARGRAVE_INLINE Vec<double> absolute(Vec<double> x) {
    return (Vec<double>)((IVec<double>)x & std::int64_t{0x7fffffffffffffff});
}

// 2^x for x <= 0: x = n + r with n an integer and |r| <= 1/2, a polynomial in r, and n straight
// into the exponent bits. What would be below the smallest normal number is zero. Relative error
// below 2 units in the last place.
MARGRAVE_INLINE Vec<float> power_of_two(Vec<float> x) {
    // 1.5 * 2^23: adding it rounds to an integer in the low bits.
    const Vec<float> magic = splat(12582912.0f);
    const Vec<float> smallest = splat(-126.0f);
    const auto vanishes = x < smallest;
    x = x > 0 ? Vec<float>{} : x;
    x = vanishes ? smallest : x;
    const Vec<float> shifted = x + magic;
    const Vec<float> r = x - (shifted - magic);
    Vec<float> p = splat(1.54614449e-4f);
    p = p * r + 1.34004280e-3f;
    p = p * r + 9.61805694e-3f;
    p = p * r + 5.55032715e-2f;
    p = p * r + 2.40226507e-1f;
    p = p * r + 6.93147182e-1f;
    p = p * r + 1.0f;
    const Vec<float> value = (Vec<float>)((IVec<float>)p + ((IVec<float>)shifted << 23));
    return vanishes ? Vec<float>{} : value;
}

MARGRAVE_INLINE Vec<double> power_of_two(Vec<double> x) {
    const Vec<double> magic = splat(6755399441055744.0);  // 1.5 * 2^52
    const Vec<double> smallest = splat(-1022.0);
    const auto vanishes = x < smallest;
    x = x > 0 ? Vec<double>{} : x;
    x = vanishes ? smallest : x;
    const Vec<double> shifted = x + magic;
    const Vec<double> r = (x - (shifted - magic)) * 0.69314718055994530942;
    Vec<double> p = splat(1.0 / 479001600.0);
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const Vec<double> value = (Vec<double>)((IVec<double>)p + ((IVec<double>)shifted << 52));
    return vanishes ? Vec<double>{} : value;
}

constexpr double kLog2E = 1.44269504088896340736;

template <class V>
MARGRAVE_INLINE V hyperbolic_tangent(V x) {
    // In (0, 1]: no overflow.
    const V e = power_of_two(absolute(x) * (-2 * decltype(x[0] + x[0])(kLog2E)));
    const V t = (1 - e) / (1 + e);
    return x < 0 ? -t : t;
}

// Roots of negative numbers, which come from rounding, are zero. The compiler makes one instruction
// of the loop.
template <class V>
MARGRAVE_INLINE V square_root(V x) {
    x = x > 0 ? x : V{};
    V root;
    for (unsigned j = 0; j < sizeof(V) / sizeof(x[0]); ++j) {
        if constexpr (sizeof(x[0]) == 4) {
            root[j] = __builtin_sqrtf(x[j]);
        } else {
            root[j] = __builtin_sqrt(x[j]);
        }
    }
    return root;
}

// log2 x of positive normal numbers x = m 2^e with m between the roots of 1/2 and 2: the series of
// the area hyperbolic tangent of (m - 1) / (m + 1).
template <class T>
MARGRAVE_INLINE Vec<T> binary_logarithm(Vec<T> x) {
    using Int = typename Simd<T>::Int;
    constexpr bool single = sizeof(T) == 4;
    constexpr int bits = single ? 23 : 52;
    constexpr int terms = single ? 5 : 11;
    constexpr Int root_of_half = single ? Int(0x3f3504f3) : Int(0x3fe6a09e667f3bcd);
    constexpr T magic = single ? T(12582912) : T(6755399441055744);
    const IVec<T> e = ((IVec<T>)x - root_of_half) >> bits;
    const Vec<T> m = (Vec<T>)((IVec<T>)x - (e << bits));
    const Vec<T> exponent = (Vec<T>)((IVec<T>)splat(magic) + e) - magic;
    const Vec<T> z = (m - 1) / (m + 1);
    const Vec<T> square = z * z;
    Vec<T> sum = splat(T(1) / (2 * terms - 1));
    for (int k = terms - 2; k >= 0; --k) sum = sum * square + T(1) / (2 * k + 1);
    return exponent + sum * z * T(2 * kLog2E);
}

// x^p for 0 < p <= 1; zero where x is not positive.
template <class V, class T>
MARGRAVE_INLINE V fraction_power(V x, T p) {
    if (p == 1) return x;
    if (p == T(0.5)) return square_root(x);
    const V t = binary_logarithm<T>(x) * p;
    const V inverse = power_of_two(-absolute(t));
    return x > 0 ? (t > 0 ? 1 / inverse : inverse) : V{};
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
#endif
