// Kernels. One struct each; the list at the end is all that has to know of a new one.
//
// A kernel combines the features of two points by a sum (Pairing::dot: x_k z_k, Pairing::distance: |x_k - z_k|) and maps
// the sum to a value, given both points' own terms (squared lengths for dot; for distance whatever the sum left out).
// `additive`: the value of a sum of points is the sum of their values, as with no other than the linear kernel.
#pragma once
#include <cmath>

#include "simd.hpp"

namespace margrave {

struct KernelParams {
    int id = 0;
    double gamma = 1.0, coef0 = 0.0;
    int degree = 3;
    double offset = 0.0;  // rho of the regularised intercept, added to every value
};

enum class Pairing { dot, distance };

// What rounding does to a kernel value k(x, z), in units of kUnit times a modest factor that grows with the number of features:
// at most product(x) product(z) + (relative(x) + relative(z)) |k(x, z)|. `rounding` of a kernel tells both from a point's size,
// |x|^2 (dot) or |x|_1. Where all products are zero the kernel is never negative. `root` is the square root of |k(x, x)|.
struct Rounding {
    double product, relative, root = 0;
};

inline namespace MARGRAVE_ISA {

struct Linear {
    static constexpr const char *name = "linear", *parameters = "";
    static constexpr Pairing pairing = Pairing::dot;
    static constexpr bool shift_invariant = false;
    static constexpr bool additive = true;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams&, V sum, T, V) {
        return sum;
    }
    static Rounding rounding(const KernelParams&, double size) {
        return {std::sqrt(size), 0};
    }
};

struct Rbf {  // exp(-gamma |x - z|^2)
    static constexpr const char *name = "rbf", *parameters = "gamma";
    static constexpr Pairing pairing = Pairing::dot;
    static constexpr bool shift_invariant = true;
    static constexpr bool additive = false;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V sum, T own_x, V own_z) {
        return power_of_two((own_x + own_z - 2 * sum) * T(-p.gamma * kLog2E));  // rounding below zero is cut off there
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 2 + 2 * p.gamma * size};
    }
};

struct Polynomial {  // (gamma x'z + coef0)^degree
    static constexpr const char *name = "poly", *parameters = "gamma degree coef0";
    static constexpr Pairing pairing = Pairing::dot;
    static constexpr bool shift_invariant = false;
    static constexpr bool additive = false;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V sum, T, V) {
        return integer_power(sum * T(p.gamma) + T(p.coef0), p.degree);
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {std::sqrt(p.degree + 1.0) * std::pow(p.gamma * size + std::fabs(p.coef0), p.degree / 2.0), 0};
    }
};

struct Sigmoid {  // tanh(gamma x'z + coef0)
    static constexpr const char *name = "sigmoid", *parameters = "gamma coef0";
    static constexpr Pairing pairing = Pairing::dot;
    static constexpr bool shift_invariant = false;
    static constexpr bool additive = false;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V sum, T, V) {
        return hyperbolic_tangent(sum * T(p.gamma) + T(p.coef0));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {std::sqrt(p.gamma * size + std::fabs(p.coef0)), 1};
    }
};

struct Laplacian {  // exp(-gamma |x - z|_1)
    static constexpr const char *name = "laplacian", *parameters = "gamma";
    static constexpr Pairing pairing = Pairing::distance;
    static constexpr bool shift_invariant = true;
    static constexpr bool additive = false;
    template <class V, class T>
    static MARGRAVE_INLINE V map(const KernelParams& p, V sum, T, V own_z) {
        return power_of_two((sum + own_z) * T(-p.gamma * kLog2E));
    }
    static Rounding rounding(const KernelParams& p, double size) {
        return {0, 2 + 2 * p.gamma * size};
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

using Kernels = KernelList<Linear, Rbf, Polynomial, Sigmoid, Laplacian>;

}  // namespace MARGRAVE_ISA
}  // namespace margrave
