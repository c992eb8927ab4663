// Kernels. A new one is a struct here, and a name in the list at the end.
//
// A kernel is a function `map` of one number, its `pairing` of two points:
//
//     Pairing::product    x'z
//     Pairing::distance   |x - z|_1
//     Pairing::squares    |x - z|^2, as |x|^2 + |z|^2 - 2 x'z, which rounding may make negative
//
// Kernels of a distance are shift invariant and decrease with it from k(x, x) = 1. They also have
// the derivative of `map`, their `slope`, for gradients: zero at a distance of zero where it is
// infinite.
#pragma once
#include <cmath>

#include "compensated.hpp"
#include "named.hpp"
#include "simd.hpp"

namespace margrave {

struct KernelParams {
    int id = 0;
    double gamma = 1.0;
    double degree = 3;
    double coef0 = 0.0;
    double power = 1.0;
    double offset = 0.0;  // rho of the regularised intercept, added to every value
};

// The names by which Python passes them.
constexpr Named<KernelParams> kKernelParameters[] = {
    {"gamma", &KernelParams::gamma},   {"degree", &KernelParams::degree},
    {"coef0", &KernelParams::coef0},   {"power", &KernelParams::power},
    {"offset", &KernelParams::offset},
};

// Kernel values up to this need not be computed: far below what rounding does to a sum in which a
// value of one occurs, in double precision even if a hundred thousand of them are left out. The
// certificate adds them to the error of the scores.
template <class T>
constexpr double kNegligible = sizeof(T) == 4 ? 0x1p-36 : 0x1p-70;

enum class Pairing { product, distance, squares };

// A bound on the rounding error of a kernel value k(x, z), in units of kUnit times a modest factor
// that grows with the number of features:
//
//     product(x) product(z) + (relative(x) + relative(z)) |k(x, z)|
//
// A kernel's `rounding` computes both from a point's size, |x|^2 or (Pairing::distance) |x|_1. A
// kernel whose products are all zero is never negative. `root` is the square root of |k(x, x)|.
struct Rounding {
    double product;
    double relative;
    double root = 0;
};

inline namespace MARGRAVE_ISA {

// An error of `size` units in a number, after the number was raised to a power of at most one:
// |a^p - b^p| <= |a - b|^p. Units are those of rounding, and a power costs some itself.
inline double error_of_power(double size, double power) {
    return power == 1 ? size : 16 * std::pow(size, power) * std::pow(kUnit, power - 1);
}

template <class V>
MARGRAVE_INLINE V integer_power(V x, int n) {
    V result = V{} + 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1) result *= x;
    return result;
}

// The derivative of exp(-(gamma x)^power) by x.
template <class V, class T>
MARGRAVE_INLINE V slope_of_power(V x, T gamma, T power) {
    const V exponent = fraction_power(x * gamma, power);
    const V slope = power_of_two(exponent * T(-kLog2E)) * exponent * -power / x;
    return x > 0 ? slope : V{};
}

struct KernelBase {
    static constexpr const char* parameters = "";
    // k(x + y, z) = k(x, z) + k(y, z)
    static constexpr bool additive = false;
    // The slope at zero is infinite: squares of close points are summed from differences.
    static constexpr bool steep = false;
};
// Points are close if |x - z| is below (|x|^2 + |z|^2)^(1/2) / kFar.
constexpr int kFar = 16;

template <class K>
constexpr bool is_shift_invariant = K::pairing != Pairing::product;

struct Linear : KernelBase {
    static constexpr const char* name = "linear";
    static constexpr Pairing pairing = Pairing::product;
    static constexpr bool additive = true;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams&, V product) {
        return product;
    }
    static Rounding rounding(const KernelParams&, double size) { return {std::sqrt(size), 0}; }
};

struct Rbf : KernelBase {  // exp(-gamma |x - z|^2)
    static constexpr const char *name = "rbf", *parameters = "gamma";
    static constexpr Pairing pairing = Pairing::squares;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V square) {
        return power_of_two(square * T(-p.gamma * kLog2E));  // rounding below zero is cut off there
    }
    template <class V, class T>
    static MARGRAVE_INLINE V slope(const KernelParams& p, V square) {
        return map<V, T>(p, square) * T(-p.gamma);
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 2 + 2 * p.gamma * size};
    }
};

struct Polynomial : KernelBase {  // (gamma x'z + coef0)^degree
    static constexpr const char *name = "poly", *parameters = "gamma degree coef0";
    static constexpr Pairing pairing = Pairing::product;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V product) {
        return integer_power(product * T(p.gamma) + T(p.coef0), int(p.degree));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        const double largest = std::pow(p.gamma * size + std::fabs(p.coef0), p.degree / 2.0);
        return {std::sqrt(p.degree + 1.0) * largest, 0};
    }
};

struct Sigmoid : KernelBase {  // tanh(gamma x'z + coef0)
    static constexpr const char *name = "sigmoid", *parameters = "gamma coef0";
    static constexpr Pairing pairing = Pairing::product;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V product) {
        return hyperbolic_tangent(product * T(p.gamma) + T(p.coef0));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {std::sqrt(p.gamma * size + std::fabs(p.coef0)), 1};
    }
};

struct Laplacian : KernelBase {  // exp(-(gamma |x - z|_1)^power)
    static constexpr const char *name = "laplacian", *parameters = "gamma power";
    static constexpr Pairing pairing = Pairing::distance;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V distance) {
        return power_of_two(fraction_power(distance * T(p.gamma), T(p.power)) * T(-kLog2E));
    }
    template <class V, class T>
    static MARGRAVE_INLINE V slope(const KernelParams& p, V distance) {
        return slope_of_power<V, T>(distance, T(p.gamma), T(p.power));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 2 + 2 * error_of_power(p.gamma * size, p.power)};
    }
};

struct Exponential : KernelBase {  // exp(-a^power), a = gamma^(1/2) |x - z|
    static constexpr const char *name = "exponential", *parameters = "gamma power";
    static constexpr Pairing pairing = Pairing::squares;
    static constexpr bool steep = true;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V square) {
        const V exponent = fraction_power(square * T(p.gamma), T(p.power / 2));
        return power_of_two(exponent * T(-kLog2E));
    }
    template <class V, class T>
    static MARGRAVE_INLINE V slope(const KernelParams& p, V square) {
        return slope_of_power<V, T>(square, T(p.gamma), T(p.power / 2));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 2 + 2 * error_of_power(kFar * std::sqrt(p.gamma * size), p.power)};
    }
};

struct Matern32 : KernelBase {  // (1 + a) exp(-a), a = (3 gamma)^(1/2) |x - z|
    static constexpr const char *name = "matern32", *parameters = "gamma";
    static constexpr Pairing pairing = Pairing::squares;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V square) {
        const V a = square_root(square * T(3 * p.gamma));
        return (1 + a) * power_of_two(a * T(-kLog2E));
    }
    template <class V, class T>
    static MARGRAVE_INLINE V slope(const KernelParams& p, V square) {
        const V a = square_root(square * T(3 * p.gamma));
        return power_of_two(a * T(-kLog2E)) * T(-1.5 * p.gamma);
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 4 + 6 * p.gamma * size};
    }
};

struct Matern52 : KernelBase {  // (1 + a + a^2/3) exp(-a), a = (5 gamma)^(1/2) |x - z|
    static constexpr const char *name = "matern52", *parameters = "gamma";
    static constexpr Pairing pairing = Pairing::squares;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V square) {
        const V a = square_root(square * T(5 * p.gamma));
        return (1 + a + a * a / 3) * power_of_two(a * T(-kLog2E));
    }
    template <class V, class T>
    static MARGRAVE_INLINE V slope(const KernelParams& p, V square) {
        const V a = square_root(square * T(5 * p.gamma));
        return (1 + a) * power_of_two(a * T(-kLog2E)) * T(-5.0 / 6 * p.gamma);
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 4 + 6 * p.gamma * size};
    }
};

template <class... K>
struct KernelList {
    static constexpr int size = sizeof...(K);
    // Calls f(K{}) for the kernel with this number.
    template <class F>
    static void visit(int id, F&& f) {
        int at = 0;
        ((at++ == id ? (f(K{}), 0) : 0), ...);
    }
    template <class F>
    static void each(F&& f) {
        (f(K{}), ...);
    }
};

using Kernels =
    KernelList<Linear, Rbf, Polynomial, Sigmoid, Laplacian, Exponential, Matern32, Matern52>;

}  // namespace MARGRAVE_ISA
}  // namespace margrave
