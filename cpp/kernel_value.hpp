// Values of a kernel at a number, and the distance from which on they are small.
#pragma once
#include "kernel.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

// The kernel's value, without the offset, at what its pairing makes of two points.
inline double value_of(const KernelParams& kernel, double number) {
    double value = 0;
    Kernels::visit(kernel.id, [&](auto k) {
        value = decltype(k)::template map<Vec<double>, double>(kernel, splat(number))[0];
    });
    return value;
}

// A distance (or its square, as the pairing has it) from which on the values of a shift-invariant
// kernel are below `value`, without the offset; infinite if there is none.
inline double distance_below(const KernelParams& kernel, double value) {
    double near = 0;
    double far = 1e-30;
    while (value_of(kernel, far) >= value) {
        near = far;
        far *= 16;
        if (far > 1e30) return HUGE_VAL;
    }
    for (int i = 0; i < 60; ++i) {
        const double middle = near + (far - near) / 2;
        (value_of(kernel, middle) >= value ? near : far) = middle;
    }
    return far;
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
