// Sums of kernel values in compensated arithmetic, one pair of points at a time, with bounds on the
// errors that remain; slow.
#pragma once
#include <type_traits>
#include <utility>

#include "compensated.hpp"
#include "kernel_value.hpp"
#include "row_view.hpp"

namespace margrave {

class CarefulSums {
  public:
    CarefulSums(const KernelParams& kernel, const Rows& queries, const Rows& points)
        : kernel_(kernel), queries_(queries), points_(points) {
        Kernels::visit(kernel.id, [&](auto k) {
            dot_ = k.pairing != Pairing::distance;
            shift_invariant_ = is_shift_invariant<decltype(k)>;
            polynomial_ = std::is_same_v<decltype(k), Polynomial>;
        });
    }

    // One point's sum of coefficients times kernel values, and a bound on its error. `z` has room
    // for the point's features; it is zero before and after.
    void add(const Subset& queries, const double* coef, std::int64_t point, std::vector<double>& z,
             double& sum, double& error) const {
        const double units = (kernel_.power == 1 ? 2 : 64) * kUnit;  // powers go by logarithms
        const double terms = 3 * double(points_.features) + 2;
        const double second_order = terms * terms * kUnit * kUnit;
        CompensatedSum own_z, total;
        points_.each(point, [&](std::int64_t k, double v) {
            z[k] = v;
            dot_ ? own_z.add_product(v, v) : own_z.add(std::fabs(v));
        });
        const double lost = double(queries.count + 2) * double(queries.count + 2) * kUnit * kUnit;
        double errors = 0;
        for (std::int64_t q = 0; q < queries.count; ++q) {
            double size = 0;
            const CompensatedSum number = pair(queries[q], z, own_z, size);
            if (polynomial_) {
                const auto [k, off] = power(number, second_order * size);
                total.add_product(coef[q], k.high);
                total.add_product(coef[q], k.low + kernel_.offset);
                errors += std::fabs(coef[q]) * (off + lost * std::fabs(k.high));
                continue;
            }
            const double s = number.value();
            const double off = units * std::fabs(s) + second_order * size;
            const double k = value_of(kernel_, s);
            const double above = std::fabs(value_of(kernel_, s + off) - k);
            const double below = std::fabs(value_of(kernel_, s - off) - k);
            const double rounding = (8 + kernel_.degree) * kUnit * std::fabs(k);
            total.add_product(coef[q], k + kernel_.offset);
            errors += std::fabs(coef[q]) * (std::max(above, below) + rounding);
        }
        sum = total.value();
        error = errors + kUnit * std::fabs(sum);
        points_.each(point, [&](std::int64_t k, double) { z[k] = 0; });
    }

  private:
    // (gamma s + coef0)^degree, and a bound on its error if s is off by `off` at most.
    std::pair<CompensatedSum, double> power(const CompensatedSum& s, double off) const {
        constexpr double few = 16 * kUnit * kUnit;
        CompensatedSum base = product({kernel_.gamma, 0}, s);
        off = kernel_.gamma * off + few * (std::fabs(base.high) + std::fabs(kernel_.coef0));
        base.add(kernel_.coef0);
        CompensatedSum value{1, 0};
        for (int i = 0; i < int(kernel_.degree); ++i) value = product(value, base);
        const double slope = kernel_.degree * std::pow(std::fabs(base.high) * (1 + 2 * kUnit) + off,
                                                       kernel_.degree - 1);
        return {value, 1.001 * slope * off + few * kernel_.degree * std::fabs(value.high)};
    }
    // The number that the kernel maps, of a query and the point spread out in z.
    CompensatedSum pair(std::int64_t query, const std::vector<double>& z, CompensatedSum own_z,
                        double& size) const {
        CompensatedSum sum;
        size = own_z.high;
        if (!dot_) {
            sum = own_z;
            queries_.each(query, [&](std::int64_t k, double x) {
                CompensatedSum apart{x, 0};
                apart.add(-z[k]);
                const double sign = apart.high < 0 ? -1 : 1;
                sum.add(sign * apart.high);
                sum.low += sign * apart.low;
                sum.add(-std::fabs(z[k]));
                size += std::fabs(apart.high) + std::fabs(z[k]);
            });
            return sum;
        }
        if (!shift_invariant_) {
            queries_.each(query, [&](std::int64_t k, double x) {
                sum.add_product(x, z[k]);
                size += 2 * std::fabs(x * z[k]);
            });
            return sum;
        }
        // Squares of differences: small ones keep their digits. The features that a sparse query
        // lacks are added at the end.
        CompensatedSum rest = own_z;
        queries_.each(query, [&](std::int64_t k, double x) {
            CompensatedSum apart{x, 0};
            apart.add(-z[k]);
            sum.add_product(apart.high, apart.high);
            sum.low += 2 * apart.high * apart.low;
            if (queries_.sparse) rest.add_product(-z[k], z[k]);
        });
        size = sum.high;
        if (!queries_.sparse) return sum;
        size += 2 * own_z.high;
        sum.add(rest.high);
        sum.low += rest.low;
        return sum;
    }

    const KernelParams& kernel_;
    const Rows& queries_;
    const Rows& points_;
    bool dot_ = false;
    bool shift_invariant_ = false;
    bool polynomial_ = false;
};

}  // namespace margrave
