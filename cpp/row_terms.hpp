// What the rows of one problem add to its primal and dual, by score or by dual variable, summed
// over threads.
#pragma once
#include <array>

#include "compensated.hpp"
#include "exact_step.hpp"
#include "root.hpp"
#include "team.hpp"

namespace margrave {

class RowTerms {
  public:
    RowTerms(const LossParams& loss, const double* y, const double* C, std::int64_t count,
             Team& team)
        : loss_(loss), y_(y), C_(C), n_(count), team_(&team) {}

    std::int64_t count() const { return n_; }

    // The loss and, where it has corners, its envelope of width delta around a dual point `centre`:
    //
    //     envelope_i(f) = max over beta of  -beta f - h_i(beta) - delta/(2 C_i) (beta - centre_i)^2
    //
    // Its derivative is -beta(f), where beta(f) is the maximiser, which `respond` finds together
    // with the second derivative -beta'(f). Without delta (smooth losses) it is the loss itself.
    void respond(const double* centre, double delta, const double* f, double* beta,
                 double* second) const {
        visit([&](const auto& loss) {
            team_->parts(n_, kChunk, [&](std::int64_t, std::int64_t from, std::int64_t to) {
                for (std::int64_t i = from; i < to; ++i)
                    beta[i] = response(loss, i, centre, delta, f[i], second + i);
            });
        });
    }

    // A step t >= 0 near the minimum of the convex function
    //
    //     start t + t^2 square/2 + sum_i envelope_i(f_i + t df_i)
    //
    // where `start` is the slope of the part without rows. The slope at the step is at most a fifth
    // of that at zero.
    double line_search(const double* centre, double delta, const double* f, const double* df,
                       double start, double square) const {
        double found = 1;
        visit([&](const auto& loss) {
            found = nearly_flat([&](double t) {
                const auto term = [&](std::int64_t i) {
                    return response(loss, i, centre, delta, f[i] + t * df[i], nullptr) * df[i];
                };
                return start + t * square - sum(term);
            });
        });
        return found;
    }

    // sum_i of the gap terms  C_i loss_i(f_i) + h_i(beta_i) + beta_i f_i >= 0
    double gap(const double* beta, const double* f, double b) const {
        double total = 0;
        visit([&](const auto& loss) {
            total = sum([&](std::int64_t i) { return loss.gap(y_[i], C_[i], beta[i], f[i] + b); });
        });
        return total;
    }
    double value(const double* f, double b) const {
        double total = 0;
        visit([&](const auto& loss) {
            total = sum([&](std::int64_t i) { return loss.value(y_[i], C_[i], f[i] + b); });
        });
        return total;
    }
    // Bound on the error of `value` if no score is off by more than `error`.
    double value_error(const double* f, double b, double error) const {
        double total = 0;
        visit([&](const auto& loss) {
            total = sum([&](std::int64_t i) {
                const double e =
                    error + 4 * kUnit * (std::fabs(f[i]) + std::fabs(b) + std::fabs(y_[i]));
                return e * steepest(loss, i, 0.0, f[i] + b, e);
            });
        });
        return total * (1 + double(n_) * kUnit);
    }
    // sum_i beta_i, and sum_i |beta_i|
    std::pair<double, double> total(const double* beta) const {
        std::vector<std::pair<CompensatedSum, double>> parts(team_->part_count(n_, kChunk));
        team_->parts(n_, kChunk, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            CompensatedSum sum;
            double size = 0;
            for (std::int64_t i = from; i < to; ++i) {
                sum.add(beta[i]);
                size += std::fabs(beta[i]);
            }
            parts[part].first.add(sum);
            parts[part].second += size;
        });
        CompensatedSum all;
        double size = 0;
        for (const auto& [sum, part] : parts) {
            all.add(sum);
            size += part;
        }
        return {all.value(), size};
    }
    double conjugate(const double* beta) const {
        double total = 0;
        visit([&](const auto& loss) {
            total = sum([&](std::int64_t i) { return loss.h(y_[i], C_[i], beta[i]); });
        });
        return total;
    }

    // Sums over the rows of a point whose scores have known errors. A gap term is convex in the
    // score, so that it is bounded by the larger of its values at the two ends of an interval.
    struct Audit {
        double gap = 0;            // sum of the gap terms as computed
        double upper = 0;          // sum of bounds on them
        double conjugate = 0;      // sum of h
        double product = 0;        // sum_i beta_i f_i
        double product_error = 0;  // bound on its error, by those of the scores
        double size = 0;           // sum of absolute values behind conjugate and product
        CompensatedSum sum;        // of beta
        double sum_size = 0;       // sum_i |beta_i|
        void add(const Audit& other) {
            gap += other.gap;
            upper += other.upper;
            conjugate += other.conjugate;
            product += other.product;
            product_error += other.product_error;
            size += other.size;
            sum.add(other.sum);
            sum_size += other.sum_size;
        }
    };
    // If `closely`, gap terms are bounded at the ends of the interval; else by their largest slope
    // in it.
    Audit audit(const double* beta, const double* f, const double* error, double b,
                bool closely) const {
        std::vector<Audit> parts(team_->part_count(n_, kChunk));
        visit([&](const auto& loss) {
            team_->parts(n_, kChunk, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
                Audit found;
                for (std::int64_t i = from; i < to; ++i) {
                    const double y = y_[i];
                    const double C = C_[i];
                    const double h = loss.h(y, C, beta[i]);
                    const double product = beta[i] * f[i];
                    found.conjugate += h;
                    if (closely) {
                        const Interval at = around(loss, i, f[i], error[i], b);
                        found.gap += loss.gap(at.y, C, beta[i], at.middle);
                        found.upper += worst(loss, i, beta[i], at);
                    } else {
                        const double gap = loss.gap(y, C, beta[i], f[i] + b);
                        found.gap += gap;
                        found.upper += gap + slope_bound(loss, i, beta[i], f[i], error[i], b);
                    }
                    found.product += product;
                    found.product_error += std::fabs(beta[i]) * error[i];
                    found.size += std::fabs(product) + std::fabs(h) + std::fabs(y * beta[i]);
                    found.sum.add(beta[i]);
                    found.sum_size += std::fabs(beta[i]);
                }
                parts[part].add(found);
            });
        });
        Audit all;
        for (const Audit& part : parts) all.add(part);
        return all;
    }

    // A row whose variable can absorb a `change` of the sum of beta at little cost in its gap term,
    // and that cost; -1 and infinity if no box has room for it. Tries some thousand rows, and all
    // of them only if none of those has room.
    std::pair<std::int64_t, double> absorb(const double* beta, const double* f, const double* error,
                                           std::int64_t stride, double b, double change) const {
        std::pair<double, std::int64_t> best{kInfinity, -1};
        visit([&](const auto& loss) {
            for (std::int64_t step : {std::max<std::int64_t>(1, n_ / 4096), std::int64_t(1)}) {
                for (std::int64_t i = 0; i < n_; i += step) {
                    const double moved = beta[i] + change;
                    if (!(change >= loss.lo(y_[i], C_[i]) - beta[i] &&
                          change <= loss.hi(y_[i], C_[i]) - beta[i]))
                        continue;
                    const Interval at = around(loss, i, f[i], error[i * stride], b);
                    const double cost = worst(loss, i, moved, at) - worst(loss, i, beta[i], at);
                    best = std::min(best, {cost, i});
                }
                if (best.second >= 0) return;
            }
        });
        return {best.second, best.first};
    }

    // The b that minimises sum_i C_i loss_i(f_i + b), or an end of the shortest known bracket of
    // it.
    double best_intercept(const double* f, double from) const {
        double best = from;
        visit([&](const auto& loss) {
            const auto slope = [&](double b) {
                return sum([&](std::int64_t i) { return loss.slope(y_[i], C_[i], f[i] + b); });
            };
            const auto [low, high] =
                root_bracket(slope, from, 0.1 * (1 + std::fabs(from)), loss.smooth);
            double least = value(f, from);
            for (double b : {low, high})
                if (const double v = value(f, b); v < least) {
                    least = v;
                    best = b;
                }
        });
        return best;
    }

    // Brings beta into the box and, if asked, its sum to zero: the heavier side is scaled down.
    void make_feasible(double* beta, bool balanced) const {
        std::vector<std::array<double, 2>> sides(team_->part_count(n_, kChunk), {0, 0});
        visit([&](const auto& loss) {
            team_->parts(n_, kChunk, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
                double above = 0;
                double below = 0;
                for (std::int64_t i = from; i < to; ++i) {
                    beta[i] = std::clamp(beta[i], loss.lo(y_[i], C_[i]), loss.hi(y_[i], C_[i]));
                    (beta[i] > 0 ? above : below) += std::fabs(beta[i]);
                }
                sides[part][0] += below;
                sides[part][1] += above;
            });
        });
        double side[2] = {0, 0};
        for (const auto& s : sides) {
            side[0] += s[0];
            side[1] += s[1];
        }
        const double most = std::max(side[0], side[1]);
        if (!balanced || most == 0 || side[0] == side[1]) return;
        const bool heavier = side[1] > side[0];
        const double ratio = side[!heavier] / most;
        team_->parts(n_, kChunk, [&](std::int64_t, std::int64_t from, std::int64_t to) {
            for (std::int64_t i = from; i < to; ++i)
                if (beta[i] != 0 && (beta[i] > 0) == heavier) beta[i] *= ratio;
        });
    }

    // A cold start: zero, or the nearest to it that the box allows.
    void begin(double* beta) const {
        visit([&](const auto& loss) {
            for (std::int64_t i = 0; i < n_; ++i) beta[i] = loss.start(y_[i], C_[i]);
        });
    }

    template <class F>
    void visit(F&& f) const {
        Losses::visit(loss_, f);
    }
    const double* y() const { return y_; }
    const double* C() const { return C_; }

  private:
    static constexpr std::int64_t kChunk = 16384;

    // Where an increasing slope is at most a fifth of its size at zero: by false position, with
    // the value at an end that stays halved each time (Illinois). Zero if the slope is not negative
    // there.
    template <class F>
    static double nearly_flat(F&& slope) {
        double low = 0;
        double at_low = slope(0);
        double high = 1;
        double at_high = slope(1);
        const double enough = 0.2 * std::fabs(at_low);
        if (!(at_low < 0)) return 0;  // not a descent direction: rounding
        for (int t = 0; t < 20 && at_high < -enough; ++t) {
            low = high;
            at_low = at_high;
            high *= 2;
            at_high = slope(high);
        }
        double found = high;
        double at = at_high;
        int stayed = 0;  // the end that has stayed: -1 the lower, 1 the upper
        for (int t = 0; t < 60 && std::fabs(at) > enough && high - low > 1e-12 * high; ++t) {
            found = std::clamp(low - at_low * (high - low) / (at_high - at_low),
                               low + 0.01 * (high - low), high - 0.01 * (high - low));
            at = slope(found);
            if (at > 0) {
                high = found;
                at_high = at;
                if (stayed == -1) at_low /= 2;
                stayed = -1;
            } else {
                low = found;
                at_low = at;
                if (stayed == 1) at_high /= 2;
                stayed = 1;
            }
        }
        return found;
    }

    // The maximiser beta(f) of the envelope, and its second derivative if asked.
    template <class L>
    double response(const L& loss, std::int64_t i, const double* centre, double delta, double f,
                    double* second) const {
        const double y = y_[i];
        const double C = C_[i];
        if (delta == 0) {
            if (second) *second = loss.second_derivative(y, C, f);
            return -loss.slope(y, C, f);
        }
        const double k = delta / C;
        const double lo = loss.lo(y, C);
        const double hi = loss.hi(y, C);
        const double beta = one_step(loss, y, C, centre ? centre[i] : 0.0, f, k);
        if (second) {
            const bool corner =
                beta == 0 && loss.right_derivative(y, C, 0.0) != loss.left_derivative(y, C, 0.0);
            const bool free = beta > lo && beta < hi && !corner;
            *second = free ? 1 / (k + loss.curvature(y, C, beta > 0)) : 0.0;
        }
        return beta;
    }

    // Bound on the slope of a row's gap term, C loss'(f) + beta, within `error` of f: -C loss'
    // stays in the box, or grows with the second derivative.
    template <class L>
    double steepest(const L& loss, std::int64_t i, double beta, double f, double error) const {
        const double y = y_[i];
        const double C = C_[i];
        const double room = std::max(loss.hi(y, C) - beta, beta - loss.lo(y, C));
        if (std::isfinite(room)) return room;
        return std::fabs(loss.slope(y, C, f) + beta) +
               2 * C * std::max(1.0, loss_.upsilon) *
                   (error + kUnit * (std::fabs(f) + std::fabs(y)));
    }

    // Bound on how much a row's gap term can grow by the error of its score, from its largest
    // slope.
    template <class L>
    double slope_bound(const L& loss, std::int64_t i, double beta, double f, double error,
                       double b) const {
        const double off = error + kUnit * (std::fabs(f) + std::fabs(b) + std::fabs(y_[i]));
        return off * 2 * steepest(loss, i, beta, f + b, error);
    }

    // A target, and an interval of scores around a middle.
    struct Interval {
        double y, middle, radius;
    };
    // The interval in which the score f + b of a row is. The rounding error of f + b is known, and
    // counts too. A target and a score that are large and close to each other are shifted to zero
    // first: the interval may be narrower than their last digit.
    template <class L>
    Interval around(const L&, std::int64_t i, double f, double error, double b) const {
        CompensatedSum at{f, 0};
        at.add(b);
        if constexpr (L::labels)
            return {y_[i], at.high, error + std::fabs(at.low) + 2 * kUnit * std::fabs(at.high)};
        const double y = (y_[i] - at.high) - at.low;
        return {y, 0, error + 2 * kUnit * std::fabs(y)};
    }
    // The largest that a row's gap term can be in an interval.
    template <class L>
    double worst(const L& loss, std::int64_t i, double beta, const Interval& at) const {
        const double low = loss.gap(at.y, C_[i], beta, at.middle - at.radius);
        const double high = loss.gap(at.y, C_[i], beta, at.middle + at.radius);
        return (low > high ? low : high) * (1 + 8 * kUnit);
    }

    template <class F>
    double sum(F&& term) const {
        std::vector<double> sums(team_->part_count(n_, kChunk), 0.0);
        team_->parts(n_, kChunk, [&](std::int64_t part, std::int64_t from, std::int64_t to) {
            double s = 0;
            for (std::int64_t i = from; i < to; ++i) s += term(i);
            sums[part] += s;
        });
        double total = 0;
        for (double s : sums) total += s;
        return total;
    }

    LossParams loss_;
    const double *y_, *C_;
    std::int64_t n_;
    Team* team_;
};

}  // namespace margrave
