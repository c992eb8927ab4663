// What simd.hpp offers, for a thread of a graphics card: vectors of one number.
//
// Errors are those that simd.hpp promises: 2 units in the last place of powers of two and tangents,
// some more of fractional powers.
#pragma once

#define MARGRAVE_ISA device
#define MARGRAVE_INLINE __forceinline__
#define MARGRAVE_UNROLL _Pragma("unroll")

namespace margrave {
inline namespace MARGRAVE_ISA {

template <class T>
using Vec = T;

constexpr double kLog2E = 1.44269504088896340736;

// 2^x for x <= 0; what would be below the smallest normal number is zero.
MARGRAVE_INLINE float power_of_two(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x > 0 ? 0.0f : x));
    return value;
}
MARGRAVE_INLINE double power_of_two(double x) {
    return x < -1022.0 ? 0.0 : exp2(x > 0 ? 0.0 : x);
}

MARGRAVE_INLINE float hyperbolic_tangent(float x) { return tanhf(x); }
MARGRAVE_INLINE double hyperbolic_tangent(double x) { return tanh(x); }

// Roots of negative numbers, which come from rounding, are zero.
MARGRAVE_INLINE float square_root(float x) { return x > 0 ? sqrtf(x) : 0.0f; }
MARGRAVE_INLINE double square_root(double x) { return x > 0 ? sqrt(x) : 0.0; }

// A call: inlined, it would make tiles slow to compile.
template <class T>
__noinline__ T any_power(T x, T p) {
    return x > 0 ? T(pow(x, p)) : T(0);
}

// x^p for 0 < p <= 1; zero where x is not positive.
template <class T>
MARGRAVE_INLINE T fraction_power(T x, T p) {
    if (p == T(1)) return x;
    if (p == T(0.5)) return square_root(x);
    return any_power(x, p);
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
