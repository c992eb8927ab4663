// Losses, each with its conjugate, in one signed dual variable beta per row:
//
//     primal   1/2 |w|^2 + sum_i value(y_i, C_i, f_i)        f_i the score, C_i the row's weight
//     dual     1/2 beta'K beta + sum_i h(y_i, C_i, beta_i)   lo <= beta_i <= hi
//
// h is convex, smooth but for a possible kink at zero, and (where `quadratic`) a parabola on each
// side of it: then its one-sided derivatives and its curvature on either side are all that the
// exact steps need. A new loss is a struct here, and a name in the list at the end.
#pragma once
#include <cmath>

#include "named.hpp"
#include "simd.hpp"

namespace margrave {

struct LossParams {
    int id = 0;
    double epsilon = 0.0;
    double theta = 0.0;
    double upsilon = 0.0;
    double quantile = 0.5;
    double floor = 0.0;  // logistic: the smallest fraction of C that counts as nonzero
};

// The names by which Python passes them.
constexpr Named<LossParams> kLossParameters[] = {
    {"epsilon", &LossParams::epsilon}, {"theta", &LossParams::theta},
    {"upsilon", &LossParams::upsilon}, {"quantile", &LossParams::quantile},
    {"floor", &LossParams::floor},
};

inline namespace MARGRAVE_ISA {

constexpr double kInfinity = HUGE_VAL;

// p log(p / q) + q - p >= 0, a term of Kullback-Leibler divergences, without cancellation where
// d = q - p is small.
inline double divergence(double p, double log_p, double log_q, double d) {
    if (!(fabs(d) < 0.02 * p)) return fmax(0.0, d + (p > 0 ? p * (log_p - log_q) : 0.0));
    const double x = d / p;
    double sum = 0;  // x - log(1 + x) = x^2/2 - x^3/3 + ...
    for (int k = 10; k >= 2; --k) sum = (k % 2 ? -1.0 : 1.0) / k + x * sum;
    return p * x * x * sum;
}

struct LossBase {
    static constexpr bool quadratic = true;
    static constexpr bool labels = true;  // targets are +-1, else any numbers
    static constexpr const char* parameters = "";
    // The value has a derivative everywhere.
    static constexpr bool smooth = false;
    // With a free intercept, rows with y = +1 and y = -1 keep a sum each.
    static constexpr bool sides = false;
    explicit LossBase(const LossParams&) {}
    double second_derivative(double, double, double) const { return 0.0; }
    double start(double, double) const { return 0.0; }  // a feasible beta for a cold start
};

// C max(0, 1 - y f);  h = -alpha with alpha = y beta in [0, C]
struct Hinge : LossBase {
    static constexpr const char* name = "hinge";
    using LossBase::LossBase;
    double value(double y, double C, double f) const { return C * fmax(0.0, 1 - y * f); }
    double slope(double y, double C, double f) const { return y * f < 1 ? -y * C : 0.0; }
    double h(double y, double, double beta) const { return -y * beta; }
    double lo(double y, double C) const { return y > 0 ? 0.0 : -C; }
    double hi(double y, double C) const { return y > 0 ? C : 0.0; }
    double right_derivative(double y, double, double) const { return -y; }
    double left_derivative(double y, double, double) const { return -y; }
    double curvature(double, double, bool) const { return 0.0; }
    double gap(double y, double C, double beta, double f) const {
        const double slack = 1 - y * f;
        const double alpha = y * beta;
        return slack > 0 ? (C - alpha) * slack : -alpha * slack;
    }
};

// C max(0, 1 - y f)^2;  h = -alpha + alpha^2/(4C), alpha >= 0
struct SquaredHinge : LossBase {
    static constexpr const char* name = "squared_hinge";
    static constexpr bool smooth = true;
    using LossBase::LossBase;
    double value(double y, double C, double f) const {
        const double slack = fmax(0.0, 1 - y * f);
        return C * slack * slack;
    }
    double slope(double y, double C, double f) const { return -2 * y * C * fmax(0.0, 1 - y * f); }
    double second_derivative(double y, double C, double f) const { return y * f < 1 ? 2 * C : 0.0; }
    double h(double y, double C, double beta) const { return -y * beta + beta * beta / (4 * C); }
    double lo(double y, double) const { return y > 0 ? 0.0 : -kInfinity; }
    double hi(double y, double) const { return y > 0 ? kInfinity : 0.0; }
    double right_derivative(double y, double C, double beta) const { return -y + beta / (2 * C); }
    double left_derivative(double y, double C, double beta) const { return -y + beta / (2 * C); }
    double curvature(double, double C, bool) const { return 1 / (2 * C); }
    double gap(double y, double C, double beta, double f) const {
        const double slack = 1 - y * f;
        const double alpha = y * beta;
        if (slack <= 0) return -alpha * slack + alpha * alpha / (4 * C);
        const double root = C * slack - alpha / 2;
        return root * root / C;
    }
};

// C max(0, |y - f| - epsilon);  h = -y beta + epsilon |beta|, |beta| <= C
struct EpsilonInsensitive : LossBase {
    static constexpr const char *name = "epsilon_insensitive", *parameters = "epsilon";
    static constexpr bool labels = false;
    double epsilon;
    explicit EpsilonInsensitive(const LossParams& p) : LossBase(p), epsilon(p.epsilon) {}
    double value(double y, double C, double f) const {
        return C * fmax(0.0, fabs(y - f) - epsilon);
    }
    double slope(double y, double C, double f) const {
        return f - y >= epsilon ? C : y - f > epsilon ? -C : 0.0;
    }
    double h(double y, double, double beta) const { return -y * beta + epsilon * fabs(beta); }
    double lo(double, double C) const { return -C; }
    double hi(double, double C) const { return C; }
    double right_derivative(double y, double, double beta) const {
        return -y + (beta >= 0 ? epsilon : -epsilon);
    }
    double left_derivative(double y, double, double beta) const {
        return -y + (beta > 0 ? epsilon : -epsilon);
    }
    double curvature(double, double, bool) const { return 0.0; }
    double gap(double y, double C, double beta, double f) const {
        const double r = y - f;
        const double excess = fabs(r) - epsilon;
        const double along = r > 0 ? beta : -beta;
        if (excess > 0) return (C - along) * excess + epsilon * (fabs(beta) - along);
        return fabs(beta) * epsilon - beta * r;
    }
};

// C max(0, |y - f| - epsilon)^2;  h = -y beta + epsilon |beta| + beta^2/(4C)
struct SquaredEpsilonInsensitive : LossBase {
    static constexpr const char *name = "squared_epsilon_insensitive", *parameters = "epsilon";
    static constexpr bool smooth = true;
    static constexpr bool labels = false;
    double epsilon;
    explicit SquaredEpsilonInsensitive(const LossParams& p) : LossBase(p), epsilon(p.epsilon) {}
    double value(double y, double C, double f) const {
        const double excess = fmax(0.0, fabs(y - f) - epsilon);
        return C * excess * excess;
    }
    double slope(double y, double C, double f) const {
        const double excess = fmax(0.0, fabs(y - f) - epsilon);
        return f > y ? 2 * C * excess : -2 * C * excess;
    }
    double second_derivative(double y, double C, double f) const {
        return fabs(y - f) > epsilon ? 2 * C : 0.0;
    }
    double h(double y, double C, double beta) const {
        return -y * beta + epsilon * fabs(beta) + beta * beta / (4 * C);
    }
    double lo(double, double) const { return -kInfinity; }
    double hi(double, double) const { return kInfinity; }
    double right_derivative(double y, double C, double beta) const {
        return -y + (beta >= 0 ? epsilon : -epsilon) + beta / (2 * C);
    }
    double left_derivative(double y, double C, double beta) const {
        return -y + (beta > 0 ? epsilon : -epsilon) + beta / (2 * C);
    }
    double curvature(double, double C, bool) const { return 1 / (2 * C); }
    double gap(double y, double C, double beta, double f) const {
        const double r = y - f;
        const double excess = fabs(r) - epsilon;
        const double along = r > 0 ? beta : -beta;
        if (excess <= 0) return fabs(beta) * epsilon - beta * r + beta * beta / (4 * C);
        const double root = C * excess - along / 2;
        return root * root / C + epsilon * (fabs(beta) - along);
    }
};

// C log(1 + exp(-y f));  h = a log a + (C-a) log(C-a) - C log C, a = y beta strictly in (0, C)
//
// Near its bounds h' is unbounded, and a variable there can have a huge KKT violation
// without being worth a step. So a solver works in the box floor <= a/C <= 1 - floor, with a floor
// far below its tolerance.
struct Logistic : LossBase {
    static constexpr const char* name = "logistic";
    static constexpr bool smooth = true;
    static constexpr bool quadratic = false;
    double floor;
    explicit Logistic(const LossParams& p) : LossBase(p), floor(p.floor) {}
    static double softplus(double t) { return t > 0 ? t + log1p(exp(-t)) : log1p(exp(t)); }
    double least(double C) const { return fmax(1e-300, floor * C); }
    double most(double C) const { return C * (1 - fmax(2.3e-16, floor)); }
    double inside(double a, double C) const { return fmin(fmax(a, least(C)), most(C)); }
    double start(double y, double C) const { return y * C / 2; }
    double value(double y, double C, double f) const { return C * softplus(-y * f); }
    double slope(double y, double C, double f) const { return -y * C / (1 + exp(y * f)); }
    double second_derivative(double, double C, double f) const {
        const double e = exp(-fabs(f));
        return C * e / ((1 + e) * (1 + e));
    }
    double h(double y, double C, double beta) const {
        const double a = inside(y * beta, C);
        return a * log(a / C) + (C - a) * log1p(-a / C);
    }
    double lo(double y, double C) const { return y > 0 ? least(C) : -most(C); }
    double hi(double y, double C) const { return y > 0 ? most(C) : -least(C); }
    double right_derivative(double y, double C, double beta) const {
        const double a = inside(y * beta, C);
        return y * (log(a) - log(C - a));
    }
    double left_derivative(double y, double C, double beta) const {
        return right_derivative(y, C, beta);
    }
    double curvature(double, double C, bool) const { return 4 / C; }  // the least: at a = C/2
    // The real curvature at a.
    double steepness(double C, double a) const { return 1 / inside(a, C) + 1 / (C - inside(a, C)); }
    // Minimises k/2 (a - a0)^2 + g (a - a0) + h(a), g = y f, in the log-odds t = log(a / (C - a)),
    // where the derivative r(t) = k (C s(t) - a0) + g + t has a slope of at least one: Newton,
    // bisecting where it leaves the bracket.
    double step(double y, double C, double beta, double f, double k) const {
        const double a0 = inside(y * beta, C);
        const double g = y * f;
        double low = -g - k * (C - a0);
        double high = -g + k * a0;
        double t = log(a0) - log(C - a0);
        if (!(t > low && t < high)) t = (low + high) / 2;
        for (int step = 0; step < 100; ++step) {
            const double e = exp(-fabs(t));
            const double share = (t > 0 ? 1 : e) / (1 + e);
            const double r = k * (C * share - a0) + g + t;
            (r > 0 ? high : low) = t;
            if (fabs(r) <= 4e-16 * (fabs(t) + fabs(g) + k * (C * share + a0))) break;
            t -= r / (1 + k * C * e / ((1 + e) * (1 + e)));
            if (!(t > low && t < high)) t = (low + high) / 2;
        }
        const double e = exp(-fabs(t));
        return y * inside(C * (t > 0 ? 1 : e) / (1 + e), C);
    }
    // C times a Kullback-Leibler divergence.
    double gap(double y, double C, double beta, double f) const {
        const double a = inside(y * beta, C);
        const double p = a / C;
        const double rest = (C - a) / C;
        const double m = y * f;
        const double e = exp(-fabs(m));
        // From q = 1 / (1 + exp(m)), by way of the smaller of q and 1 - q.
        const double small = e / (1 + e);
        const double d = m > 0 ? small - p : rest - small;
        return C * (divergence(p, log(p), -softplus(m), d) +
                    divergence(rest, log1p(-p), -softplus(-m), -d));
    }
};

// C/2 [ (1-theta-u)_+^2 + upsilon (u-1-theta)_+^2 ], u = y f;
// h = a/2 g_+^2 + b/2 g_-^2 - g + theta |g| with g = y beta, a = 1/C, b = 1/(C upsilon)
// (upsilon = 0: g >= 0)
struct MarginDistribution : LossBase {
    static constexpr const char *name = "margin_distribution", *parameters = "theta upsilon";
    static constexpr bool smooth = true;
    double theta, upsilon;
    explicit MarginDistribution(const LossParams& p)
        : LossBase(p), theta(p.theta), upsilon(p.upsilon) {}
    double value(double y, double C, double f) const {
        const double u = y * f;
        const double low = fmax(0.0, 1 - theta - u);
        const double high = fmax(0.0, u - 1 - theta);
        return C / 2 * (low * low + upsilon * high * high);
    }
    double slope(double y, double C, double f) const {
        const double u = y * f;
        return y * C * (upsilon * fmax(0.0, u - 1 - theta) - fmax(0.0, 1 - theta - u));
    }
    double second_derivative(double y, double C, double f) const {
        const double u = y * f;
        return u < 1 - theta ? C : u > 1 + theta ? C * upsilon : 0.0;
    }
    double stiffness(double C, bool positive) const { return positive ? 1 / C : 1 / (C * upsilon); }
    double h(double y, double C, double beta) const {
        const double g = y * beta;
        return (g == 0 ? 0.0 : stiffness(C, g > 0) / 2 * g * g) - g + theta * fabs(g);
    }
    double lo(double y, double) const { return y < 0 || upsilon > 0 ? -kInfinity : 0.0; }
    double hi(double y, double) const { return y > 0 || upsilon > 0 ? kInfinity : 0.0; }
    double derivative(double C, double g, bool positive) const {
        return (g == 0 ? 0.0 : stiffness(C, positive) * g) - 1 + (positive ? theta : -theta);
    }
    double right_derivative(double y, double C, double beta) const {
        return y > 0 ? derivative(C, beta, beta >= 0) : -derivative(C, -beta, beta < 0);
    }
    double left_derivative(double y, double C, double beta) const {
        return y > 0 ? derivative(C, beta, beta > 0) : -derivative(C, -beta, beta <= 0);
    }
    double curvature(double y, double C, bool positive) const {
        return stiffness(C, (y > 0) == positive);
    }
    double gap(double y, double C, double beta, double f) const {
        const double u = y * f;
        const double s = 1 - theta - u;
        const double t = u - 1 - theta;
        const double g = y * beta;
        const double a = 1 / C;
        if (g >= 0) {
            if (s > 0) return (s - a * g) * (s - a * g) / (2 * a);
            return upsilon * C / 2 * fmax(0.0, t) * fmax(0.0, t) + a / 2 * g * g - s * g;
        }
        const double b = 1 / (C * upsilon);
        const double m = -g;
        if (t > 0) return (t - b * m) * (t - b * m) / (2 * b);
        return fmax(0.0, s) * fmax(0.0, s) / (2 * a) + b / 2 * m * m - t * m;
    }
};

// C max(0, |r| - epsilon/2), rounded to C r^2/(2 epsilon) where |r| < epsilon, r = y - f;
// h = -y beta + epsilon beta^2/(2C), |beta| <= C
struct Huber : LossBase {
    static constexpr const char *name = "huber", *parameters = "epsilon";
    static constexpr bool smooth = true;
    static constexpr bool labels = false;
    double epsilon;
    explicit Huber(const LossParams& p) : LossBase(p), epsilon(p.epsilon) {}
    double value(double y, double C, double f) const {
        const double r = fabs(y - f);
        return r < epsilon ? C * r * r / (2 * epsilon) : C * (r - epsilon / 2);
    }
    double slope(double y, double C, double f) const {
        return f - y >= epsilon ? C : y - f >= epsilon ? -C : C * (f - y) / epsilon;
    }
    double second_derivative(double y, double C, double f) const {
        return fabs(y - f) < epsilon ? C / epsilon : 0.0;
    }
    double h(double y, double C, double beta) const {
        return -y * beta + epsilon * beta * beta / (2 * C);
    }
    double lo(double, double C) const { return -C; }
    double hi(double, double C) const { return C; }
    double right_derivative(double y, double C, double beta) const {
        return -y + epsilon * beta / C;
    }
    double left_derivative(double y, double C, double beta) const {
        return -y + epsilon * beta / C;
    }
    double curvature(double, double C, bool) const { return epsilon / C; }
    double gap(double y, double C, double beta, double f) const {
        const double r = y - f;
        const double along = r > 0 ? beta : -beta;
        const double rest = C - along;
        if (fabs(r) >= epsilon) return rest * (fabs(r) - epsilon) + epsilon * rest * rest / (2 * C);
        const double root = r - epsilon * beta / C;
        return C * root * root / (2 * epsilon);
    }
};

// C quantile r where r = y - f > 0, else -C (1 - quantile) r;
// h = -y beta, -C (1 - quantile) <= beta <= C quantile
// Both bounds are rounded, and lowered by as much as that can be, so that no variable exceeds them.
struct Pinball : LossBase {
    static constexpr const char *name = "pinball", *parameters = "quantile";
    static constexpr bool labels = false;
    double quantile;
    explicit Pinball(const LossParams& p) : LossBase(p), quantile(p.quantile) {}
    double value(double y, double C, double f) const {
        return f < y ? C * quantile * (y - f) : C * (1 - quantile) * (f - y);
    }
    double slope(double y, double C, double f) const { return f < y ? -hi(y, C) : -lo(y, C); }
    double h(double y, double, double beta) const { return -y * beta; }
    double lo(double, double C) const { return -C * (1 - quantile) * kInside; }
    double hi(double, double C) const { return C * quantile * kInside; }
    double right_derivative(double y, double, double) const { return -y; }
    double left_derivative(double y, double, double) const { return -y; }
    double curvature(double, double, bool) const { return 0.0; }
    double gap(double y, double C, double beta, double f) const {
        return f < y ? (C * quantile - beta) * (y - f) : (beta + C * (1 - quantile)) * (f - y);
    }

  private:
    static constexpr double kInside = 1 - 0x1p-50;
};

// C max(0, -f): rows below the plane f = 0;  h = 0 on 0 <= beta <= C. It requires a sum of
// beta that is not zero.
struct OneClass : LossBase {
    static constexpr const char* name = "one_class";
    using LossBase::LossBase;
    double value(double, double C, double f) const { return C * fmax(0.0, -f); }
    double slope(double, double C, double f) const { return f < 0 ? -C : 0.0; }
    double h(double, double, double) const { return 0.0; }
    double lo(double, double) const { return 0.0; }
    double hi(double, double C) const { return C; }
    double right_derivative(double, double, double) const { return 0.0; }
    double left_derivative(double, double, double) const { return 0.0; }
    double curvature(double, double, bool) const { return 0.0; }
    double gap(double, double C, double beta, double f) const {
        return f < 0 ? (beta - C) * f : beta * f;
    }
};

// C max(0, -y f): rows beyond the plane of their side, f + b = 0 with a b for each sign of y;
// h = 0 on 0 <= y beta <= C. Points of the dual whose sides sum to one and minus one are pairs of
// points, one in the (reduced) hull of each side.
struct Hull : LossBase {
    static constexpr const char* name = "hull";
    static constexpr bool sides = true;
    using LossBase::LossBase;
    double value(double y, double C, double f) const { return C * fmax(0.0, -y * f); }
    double slope(double y, double C, double f) const { return y * f < 0 ? -y * C : 0.0; }
    double h(double, double, double) const { return 0.0; }
    double lo(double y, double C) const { return y > 0 ? 0.0 : -C; }
    double hi(double y, double C) const { return y > 0 ? C : 0.0; }
    double right_derivative(double, double, double) const { return 0.0; }
    double left_derivative(double, double, double) const { return 0.0; }
    double curvature(double, double, bool) const { return 0.0; }
    double gap(double y, double C, double beta, double f) const {
        return y * f < 0 ? (beta - y * C) * f : beta * f;
    }
};

template <class... L>
struct LossList {
    static constexpr int size = sizeof...(L);
    template <class F>
    static void visit(const LossParams& p, F&& f) {
        int at = 0;
        ((at++ == p.id ? (f(L(p)), 0) : 0), ...);
    }
    template <class F>
    static void each(F&& f) {
        (f(L(LossParams{})), ...);
    }
};

using Losses = LossList<Hinge, SquaredHinge, EpsilonInsensitive, SquaredEpsilonInsensitive,
                        Logistic, MarginDistribution, Huber, Pinball, OneClass, Hull>;

}  // namespace MARGRAVE_ISA
}  // namespace margrave
