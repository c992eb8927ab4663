// Sums that carry their own rounding errors along: about twice the digits of double precision.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace margrave {

constexpr double kUnit = 0x1p-53;  // largest relative error of one operation

// What rounding can do to a sum of n terms, in units of kUnit times the sum of their absolute values: n at most. Where errors
// have no preferred sign, twice the square root of n is six standard deviations for a sum that grows steadily, and more for others.
inline double growth(double n) { return std::min(n, 2 * std::sqrt(n)); }

// An unevaluated sum high + low, low being what rounding has taken from high.
struct CompensatedSum {
    double high = 0, low = 0;
    void add(double x) {
        const double sum = high + x, part = sum - high;
        low += (high - (sum - part)) + (x - part);
        high = sum;
    }
    void add_product(double a, double b) {
        const double product = a * b;
        add(product);
        low += std::fma(a, b, -product);
    }
    double value() const { return high + low; }
};

}  // namespace margrave
