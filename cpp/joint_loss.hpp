// Losses of the scores f of all k classes, each with the dual's term h of a point p of the simplex:
//
// Crammer-Singer   loss = max_c ([c != y] + f_c) - f_y     h = p_y - 1
// softmax          loss = log sum_c exp(f_c) - f_y         h = sum_c p_c log p_c
//
// `gap` is loss + h - sum_c p_c (f_c - f_y) without cancellation, `step` the exact minimiser over
// p.
#pragma once
#include <algorithm>

#include "loss.hpp"

namespace margrave {

// The sum of the other classes: 1 - p_y without cancellation.
inline double others(const double* p, int y, int k) {
    double sum = 0;
    for (int c = 0; c < k; ++c)
        if (c != y) sum += p[c];
    return sum;
}

struct CrammerSinger {
    static constexpr const char* name = "crammer_singer";
    static double offset(int c, int y) { return c != y; }
    static double start(int c, int y, int) { return c == y; }
    static double value(const double* f, int y, int k) { return top(f, y, k) - f[y]; }
    static double h(const double* p, int y, int k) { return -others(p, y, k); }
    static double gap(const double* p, const double* f, int y, int k) {
        const double most = top(f, y, k);
        double sum = 0;
        for (int c = 0; c < k; ++c) sum += p[c] * (most - f[c] - offset(c, y));
        return sum;
    }
    // Minimises curvature/2 |p - p0|^2 - sum_c p_c (f_c + [c != y]) over the simplex: a projection.
    // p_y is often 1 up to rounding, so that the difference is taken from the other classes.
    static void step(double* p, const double* f, int y, int k, double curvature, double* z) {
        if (!(curvature > 0)) {
            int best = 0;
            for (int c = 1; c < k; ++c)
                if (f[c] + offset(c, y) > f[best] + offset(best, y)) best = c;
            for (int c = 0; c < k; ++c) p[c] = c == best;
            return;
        }
        const double own = f[y] / curvature - others(p, y, k);  // without the one
        for (int c = 0; c < k; ++c) z[c] = p[c] + (f[c] + offset(c, y)) / curvature;
        z[y] = own + 1;
        // sum_c max(0, z_c - level) = 1, by dropping classes below the level of those that are left
        double level = -kInfinity;
        for (;;) {
            double sum = z[y] > level ? own : -1;
            int count = 0;
            for (int c = 0; c < k; ++c) {
                if (!(z[c] > level)) continue;
                ++count;
                if (c != y) sum += z[c];
            }
            const double next = sum / count;
            if (!(next > level)) break;
            level = next;
        }
        for (int c = 0; c < k; ++c) p[c] = std::max(0.0, z[c] - level);
        p[y] = std::max(0.0, 1 - others(p, y, k));
    }

  private:
    static constexpr double kLargest = 1e15;  // steps above this have no digits for the simplex
    static double top(const double* f, int y, int k) {
        double most = -kInfinity;
        for (int c = 0; c < k; ++c) most = std::max(most, f[c] + offset(c, y));
        return most;
    }
};

struct Softmax {
    static constexpr const char* name = "softmax";
    static constexpr double least = 1e-300;  // stands for zero
    static double start(int, int, int k) { return 1.0 / k; }
    static double value(const double* f, int y, int k) { return log_sum(f, k) - f[y]; }
    static double h(const double* p, int, int k) {
        double sum = 0;
        for (int c = 0; c < k; ++c) sum += p[c] > 0 ? p[c] * std::log(p[c]) : 0.0;
        return sum;
    }
    // The Kullback-Leibler divergence from the softmax q of f,
    //     sum_c p_c log(p_c / q_c) + q_c - p_c,
    // in which no term is negative.
    static double gap(const double* p, const double* f, int, int k) {
        const double all = log_sum(f, k);
        double sum = 0;
        for (int c = 0; c < k; ++c) {
            const double log_q = f[c] - all;
            sum += divergence(p[c], p[c] > 0 ? std::log(p[c]) : 0.0, log_q, std::exp(log_q) - p[c]);
        }
        return sum;
    }
    // Minimises curvature/2 |p - p0|^2 - sum_c p_c f_c + sum_c p_c log p_c over the simplex. At the
    // minimum, curvature p_c + log p_c = curvature p0_c + f_c - mu; the left side increases with
    // p_c, so that sum_c p_c decreases with mu.
    static void step(double* p, const double* f, int, int k, double curvature, double* z) {
        double low = kInfinity;
        double high = -kInfinity;
        for (int c = 0; c < k; ++c) {
            z[c] = curvature * p[c] + f[c];
            high = std::max(high, z[c]);
        }
        low = high - curvature;       // the largest p_c would be at least one
        high += std::log(double(k));  // all p_c would be at most 1/k
        double mu = (low + high) / 2;
        for (int round = 0; round < 100; ++round) {
            double sum = 0;
            double slope = 0;
            for (int c = 0; c < k; ++c) {
                p[c] = root(curvature, z[c] - mu);
                sum += p[c];
                slope += p[c] / (1 + curvature * p[c]);
            }
            if (std::fabs(sum - 1) <= 1e-15 * k) break;
            (sum > 1 ? low : high) = mu;
            mu += (sum - 1) / slope;
            if (!(mu > low && mu < high)) mu = (low + high) / 2;
            if (!(high - low > 1e-16 * (std::fabs(low) + std::fabs(high)))) break;
        }
        double sum = 0;
        for (int c = 0; c < k; ++c) {
            p[c] = std::max(p[c], least);
            sum += p[c];
        }
        for (int c = 0; c < k; ++c) p[c] /= sum;
    }

  private:
    static double log_sum(const double* f, int k) {
        const double most = *std::max_element(f, f + k);
        double sum = 0;
        for (int c = 0; c < k; ++c) sum += std::exp(f[c] - most);
        return most + std::log(sum);
    }
    // The x > 0 with a x + log x = t: Newton in log x, where a exp(u) + u - t is convex and rises
    // at least as fast as u.
    static double root(double a, double t) {
        double u = a > 0 && t > 1 ? std::log(t / a) : t;
        // Newton from the right side of the root of a convex function stays there.
        if (a * std::exp(u) + u < t) u = std::min(t, u + 1);
        for (int step = 0; step < 60; ++step) {
            const double e = a * std::exp(u);
            const double by = (e + u - t) / (e + 1);
            u -= by;
            if (std::fabs(by) <= 1e-16 * std::max(1.0, std::fabs(u))) break;
        }
        return std::exp(u);
    }
};

}  // namespace margrave
