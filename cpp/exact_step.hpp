// Exact steps: the minimum of the dual along one variable, or along a line on which several move,
// for a loss of loss.hpp.
#pragma once
#include "loss.hpp"

namespace margrave {
inline namespace MARGRAVE_ISA {

// One variable that moves: beta + direction * s.
struct Mover {
    double y, C, beta;
    int direction;
};

// The minimiser over 0 <= s <= limit of
//     curvature/2 s^2 + slope s + sum over movers of h(beta + direction s) - h(beta) - s h'(beta)
// with the derivative h' in that direction, where `slope` already holds the movers' one-sided
// derivatives and is negative.
template <class L, int N>
MARGRAVE_INLINE double line_minimum(const L& loss, double slope, double curvature, double limit,
                                    const Mover (&movers)[N]) {
    if constexpr (L::quadratic) {
        double s = 0;
        bool crossed[N] = {};
        for (;;) {
            double end = limit;
            double total = curvature;
            int kink = -1;
            MARGRAVE_UNROLL
            for (int m = 0; m < N; ++m) {
                const Mover& v = movers[m];
                const bool towards_zero = !crossed[m] && v.beta * v.direction < 0;
                const bool positive = towards_zero ? v.beta > 0 : v.direction > 0;
                total += loss.curvature(v.y, v.C, positive);
                if (towards_zero && fabs(v.beta) < end) {
                    end = fabs(v.beta);
                    kink = m;
                }
            }
            const double root = total > 0 ? s - slope / total : kInfinity;
            if (root <= end) return root;
            slope += total * (end - s);
            s = end;
            if (kink < 0) return s;
            MARGRAVE_UNROLL
            for (int m = 0; m < N; ++m) {
                const Mover& v = movers[m];
                if (m != kink) continue;
                crossed[m] = true;
                slope += loss.right_derivative(v.y, v.C, 0.0) - loss.left_derivative(v.y, v.C, 0.0);
            }
            if (slope >= 0) return s;
        }
    } else {
        // The derivative is increasing, with logarithms that are steep near the bounds: Newton
        // steps where they shrink the bracket, in turn with bisections, geometric while the bracket
        // spans orders of magnitude.
        double before[N];
        for (int m = 0; m < N; ++m)
            before[m] = loss.right_derivative(movers[m].y, movers[m].C, movers[m].beta);
        const auto derivative = [&](double s, double& second) {
            double first = slope + curvature * s;
            second = curvature;
            for (int m = 0; m < N; ++m) {
                const Mover& v = movers[m];
                const double moved = v.beta + v.direction * s;
                const double a = loss.inside(v.y * moved, v.C);
                first += v.direction * (loss.right_derivative(v.y, v.C, moved) - before[m]);
                second += v.C / (a * (v.C - a));
            }
            return first;
        };
        double low = 0;
        double high = limit;
        double second;
        if (derivative(high, second) <= 0) return high;
        derivative(0, second);
        double s = -slope / second;
        for (int step = 0; step < 100; ++step) {
            const bool wide = low > 0 && high > 4 * low;
            if (!(s > low && s < high) || (wide && step % 2))
                s = wide ? sqrt(low) * sqrt(high) : (low + high) / 2;
            const double first = derivative(s, second);
            (first > 0 ? high : low) = s;
            if (fabs(first) <= 1e-14 * fabs(slope) || high - low <= 1e-15 * high) break;
            s -= first / second;
        }
        return s;
    }
}

// The exact minimiser over one variable with the score f and the kernel value k with itself, that
// is of
//
//     k/2 (b - beta)^2 + f (b - beta) + h(b)    over lo <= b <= hi.
//
// A parabola on each side of zero: its minimum on the side of beta if that is where it lies, else
// the one on the other side, else the corner between them.
template <class L>
MARGRAVE_INLINE double one_step(const L& loss, double y, double C, double beta, double f,
                                double k) {
    if constexpr (!L::quadratic) {
        return loss.step(y, C, beta, f, k);
    } else {
        const double lo = loss.lo(y, C);
        const double hi = loss.hi(y, C);
        const auto inside = [&](double b) { return b < lo ? lo : b > hi ? hi : b; };
        const auto step = [&](double slope, double from, bool positive) {
            return slope == 0 ? from : from - slope / (k + loss.curvature(y, C, positive));
        };
        if (beta != 0) {
            const double b = step(f + loss.right_derivative(y, C, beta), beta, beta > 0);
            if (b != 0 && (b > 0) == (beta > 0)) return inside(b);
        }
        const double at_zero = f - k * beta;
        const double right = at_zero + loss.right_derivative(y, C, 0.0);
        const double left = at_zero + loss.left_derivative(y, C, 0.0);
        return inside(right < 0 ? step(right, 0.0, true) : left > 0 ? step(left, 0.0, false) : 0.0);
    }
}

}  // namespace MARGRAVE_ISA
}  // namespace margrave
