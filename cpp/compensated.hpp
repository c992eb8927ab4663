// Sums that carry their own rounding errors along: about twice the digits of double precision.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace margrave {

constexpr double kUnit = 0x1p-53;  // largest relative error of one operation

// An unevaluated sum high + low, low being the rounding error of high.
struct CompensatedSum {
    double high = 0;
    double low = 0;
    void add(double x) {
        const double sum = high + x;
        const double part = sum - high;
        low += (high - (sum - part)) + (x - part);
        high = sum;
    }
    void add(const CompensatedSum& other) {
        add(other.high);
        low += other.low;
    }
    void add_product(double a, double b) {
        const double product = a * b;
        add(product);
        low += std::fma(a, b, -product);
    }
    double value() const { return high + low; }
};

// Off by a few units of rounding, squared.
inline CompensatedSum product(const CompensatedSum& a, const CompensatedSum& b) {
    CompensatedSum found;
    found.add_product(a.high, b.high);
    found.low += a.high * b.low + a.low * b.high;
    CompensatedSum tidy;
    tidy.add(found.high);
    tidy.add(found.low);
    return tidy;
}

}  // namespace margrave
