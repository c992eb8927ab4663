// The root of an increasing function of one variable.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>

namespace margrave {

// A bracket around the root of an increasing function, as narrow as double precision allows: grown
// from `from` +- `width`, then halved, in turn with the false position if the function is `smooth`.
// A function with jumps has one between the ends.
template <class F>
std::pair<double, double> root_bracket(F&& function, double from, double width, bool smooth) {
    double low = from - width;
    double high = from + width;
    double at_low = function(low);
    double at_high = function(high);
    for (int t = 0; t < 60 && at_low > 0; ++t) {
        low -= width *= 2;
        at_low = function(low);
    }
    for (int t = 0; t < 60 && at_high < 0; ++t) {
        high += width *= 2;
        at_high = function(high);
    }
    for (int t = 0; t < 100 && high - low > 1e-15 * std::max(std::fabs(high), std::fabs(low));
         ++t) {
        double b = (low + high) / 2;
        if (smooth && t % 2 == 0 && at_high > at_low)
            b = std::clamp(low - at_low * (high - low) / (at_high - at_low), low, high);
        const double at = function(b);
        if (at == 0)
            low = high = b;
        else if (at > 0) {
            high = b;
            at_high = at;
        } else {
            low = b;
            at_low = at;
        }
    }
    return {low, high};
}

}  // namespace margrave
