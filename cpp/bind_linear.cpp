// Linear models for Python: threads, passes over rows, terms of rows, coordinate descent.
#include "bind_descent.hpp"
#include "cholesky.hpp"
#include "linear_descent.hpp"

using namespace margrave;

namespace {

using Matrix = nb::ndarray<double, nb::ndim<2>, nb::device::cpu>;
using ConstMatrix = nb::ndarray<const double, nb::ndim<2>, nb::device::cpu>;
using Vector = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct PyTeam : Team {
    PyTeam(int threads, const std::string& isa) : Team(threads, choose_isa(isa)) {
        watch.interrupted = ctrl_c;
    }
};

// The rows of a matrix, each of them contiguous.
template <class T, class M>
Columns<T> columns(const M& m, std::int64_t length) {
    if (std::int64_t(m.shape(1)) != length || (length > 1 && m.stride(1) != 1))
        throw nb::value_error("a matrix of a wrong shape or layout");
    return {m.data(), std::int64_t(m.shape(0)), m.stride(0)};
}

struct PyLinearRows {
    PyRows borrowed;
    LinearRows rows;
    PyLinearRows(PyRows r, const std::vector<std::int64_t>& firsts,
                 const std::vector<std::int64_t>& lasts, PyTeam& team)
        : borrowed(std::move(r)),
          rows(borrowed.rows, checked(borrowed.rows, firsts, lasts), lasts, team) {}
    static const std::vector<std::int64_t>& checked(const Rows& rows,
                                                    const std::vector<std::int64_t>& firsts,
                                                    const std::vector<std::int64_t>& lasts) {
        bool good = firsts.size() == lasts.size() && !firsts.empty();
        for (std::size_t s = 0; good && s < firsts.size(); ++s)
            good = 0 <= firsts[s] && firsts[s] <= lasts[s] && lasts[s] <= rows.count;
        if (!good) throw nb::value_error("no such range of rows");
        return firsts;
    }
    void multiply(const ConstMatrix& W, const Matrix& out) {
        const auto w = columns<const double>(W, rows.features());
        const auto f = columns<double>(out, rows.count());
        if (w.count != f.count) throw nb::value_error("as many columns out as in are needed");
        nb::gil_scoped_release free;
        rows.multiply(w, f);
    }
    void transposed(const ConstMatrix& B, const Matrix& out) {
        const auto b = columns<const double>(B, rows.count());
        const auto w = columns<double>(out, rows.features());
        if (b.count != w.count) throw nb::value_error("as many columns out as in are needed");
        nb::gil_scoped_release free;
        rows.transposed(b, w);
    }
    void gram(const Doubles& D,
              const nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>& matrix,
              const Vector& border, bool single) {
        const std::size_t d = std::size_t(rows.features());
        if (std::int64_t(D.size()) != rows.count() || matrix.shape(0) != d ||
            matrix.shape(1) != d || border.size() != d)
            throw nb::value_error("arrays of a wrong length");
        nb::gil_scoped_release free;
        if (single)
            rows.gram<float>(D.data(), matrix.data(), border.data());
        else
            rows.gram<double>(D.data(), matrix.data(), border.data());
    }
    void diagonal(const Doubles& D, const Vector& out) {
        if (std::int64_t(D.size()) != rows.count() || std::int64_t(out.size()) != rows.features())
            throw nb::value_error("arrays of a wrong length");
        nb::gil_scoped_release free;
        rows.diagonal(D.data(), out.data());
    }
    // X w, bounds on its errors, X'b as a sum of two, and the size of the terms behind that.
    nb::tuple audit(const Doubles& w, const Doubles& b, bool compensated) {
        const std::size_t n = std::size_t(rows.count());
        const std::size_t d = std::size_t(rows.features());
        if (w.size() != d || b.size() != n) throw nb::value_error("arrays of a wrong length");
        std::vector<double> f(n);
        std::vector<double> f_error(n);
        std::vector<double> high(d);
        std::vector<double> low(d);
        double size = 0;
        std::vector<CompensatedSum> sums(d);
        {
            nb::gil_scoped_release free;
            size =
                rows.audit(compensated, w.data(), b.data(), f.data(), f_error.data(), sums.data());
        }
        for (std::size_t k = 0; k < d; ++k) {
            high[k] = sums[k].high;
            low[k] = sums[k].low;
        }
        return nb::make_tuple(to_numpy(std::move(f)), to_numpy(std::move(f_error)),
                              to_numpy(std::move(high)), to_numpy(std::move(low)), size);
    }
    nb::object squares() {
        std::vector<double> found;
        {
            nb::gil_scoped_release free;
            found = rows.squares();
        }
        return to_numpy(std::move(found));
    }
};

struct PyRowTerms {
    Doubles y, C;
    RowTerms terms;
    PyRowTerms(const PyLoss& loss, Doubles targets, Doubles weights, PyTeam& team)
        : y(targets),
          C(weights),
          terms(loss.params, y.data(), C.data(), std::int64_t(y.size()), team) {
        check(C.size());
    }
    void check(std::size_t length) const {
        if (length != y.size()) throw nb::value_error("arrays of a wrong length");
    }
    nb::tuple respond(const std::optional<Doubles>& centre, double delta, const Doubles& f) {
        check(f.size());
        check(centre ? centre->size() : y.size());
        std::vector<double> beta(f.size());
        std::vector<double> second(f.size());
        {
            nb::gil_scoped_release free;
            terms.respond(centre ? centre->data() : nullptr, delta, f.data(), beta.data(),
                          second.data());
        }
        return nb::make_tuple(to_numpy(std::move(beta)), to_numpy(std::move(second)));
    }
    double line_search(const std::optional<Doubles>& centre, double delta, const Doubles& f,
                       const Doubles& df, double slope, double square) {
        check(f.size());
        check(df.size());
        check(centre ? centre->size() : y.size());
        nb::gil_scoped_release free;
        return terms.line_search(centre ? centre->data() : nullptr, delta, f.data(), df.data(),
                                 slope, square);
    }
    double gap(const Doubles& beta, const Doubles& f, double b) {
        check(beta.size());
        check(f.size());
        nb::gil_scoped_release free;
        return terms.gap(beta.data(), f.data(), b);
    }
    double value(const Doubles& f, double b) {
        check(f.size());
        nb::gil_scoped_release free;
        return terms.value(f.data(), b);
    }
    double conjugate(const Doubles& beta) {
        check(beta.size());
        nb::gil_scoped_release free;
        return terms.conjugate(beta.data());
    }
    double value_error(const Doubles& f, double b, double error) {
        check(f.size());
        nb::gil_scoped_release free;
        return terms.value_error(f.data(), b, error);
    }
    std::tuple<double, double> total(const Doubles& beta) {
        check(beta.size());
        nb::gil_scoped_release free;
        return terms.total(beta.data());
    }
    double best_intercept(const Doubles& f, double from) {
        check(f.size());
        nb::gil_scoped_release free;
        return terms.best_intercept(f.data(), from);
    }
    nb::dict audit(const Doubles& beta, const Doubles& f, const Doubles& error, double b,
                   bool closely) {
        check(beta.size());
        check(f.size());
        check(error.size());
        RowTerms::Audit found;
        {
            nb::gil_scoped_release free;
            found = terms.audit(beta.data(), f.data(), error.data(), b, closely);
        }
        nb::dict sums;
        sums["gap"] = found.gap;
        sums["upper"] = found.upper;
        sums["conjugate"] = found.conjugate;
        sums["product"] = found.product;
        sums["product_error"] = found.product_error;
        sums["size"] = found.size;
        sums["sum"] = found.sum.value();
        sums["sum_size"] = found.sum_size;
        return sums;
    }
    nb::tuple absorb(const Doubles& beta, const Doubles& f, const Doubles& error, double b,
                     double change) {
        const bool same = error.size() == 1;  // for all rows
        check(beta.size());
        check(f.size());
        check(same ? beta.size() : error.size());
        std::pair<std::int64_t, double> found;
        {
            nb::gil_scoped_release free;
            found = terms.absorb(beta.data(), f.data(), error.data(), same ? 0 : 1, b, change);
        }
        return nb::make_tuple(found.first, found.second);
    }
    nb::object feasible(const Doubles& beta, bool balanced) {
        check(beta.size());
        std::vector<double> found = copied(beta);
        {
            nb::gil_scoped_release free;
            terms.make_feasible(found.data(), balanced);
        }
        return to_numpy(std::move(found));
    }
};

// Stochastic steps; returns w - centre, the constant feature last.
nb::object stochastic_steps(PyLinearRows& rows, PyRowTerms& terms, const Longs& order, double eta,
                            const Doubles& f, const Doubles& slopes, bool constant,
                            const Doubles& start) {
    const std::int64_t n = rows.rows.count();
    const std::int64_t d = rows.rows.features();
    terms.check(f.size());
    terms.check(slopes.size());
    terms.check(std::size_t(n));
    if (std::int64_t(start.size()) != d + 1) throw nb::value_error("a start of a wrong length");
    for (std::size_t t = 0; t < order.size(); ++t)
        if (order.data()[t] < 0 || order.data()[t] >= n) throw nb::value_error("no such row");
    std::vector<double> u = copied(start);
    {
        nb::gil_scoped_release free;
        double factor = 1;
        terms.terms.visit([&](const auto& loss) {
            factor = rows.rows.stochastic_steps(
                loss, terms.y.data(), terms.C.data(), order.data(), std::int64_t(order.size()), eta,
                f.data(), slopes.data(), constant ? 1.0 : 0.0, factor, u.data());
        });
        for (double& x : u) x *= factor;
    }
    return to_numpy(std::move(u));
}

class PyLinearDescent {
  public:
    PyLinearDescent(PyLinearRows& rows, PyRowTerms& terms, const std::string& intercept,
                    const std::optional<Doubles>& start, std::uint64_t seed, double patience)
        : descent_(rows.rows, checked(rows, terms, start),
                   intercept == "free"          ? Intercept::free
                   : intercept == "regularized" ? Intercept::regularized
                                                : Intercept::none,
                   start ? copied(*start) : std::vector<double>(), seed, patience) {}

    nb::tuple advance(double target, std::int64_t max_rounds, double seconds, double time_left) {
        std::vector<Round> records;
        Status status = Status::stopped;
        {
            nb::gil_scoped_release free;
            descent_.target = target;
            descent_.watch().limit(time_left);
            try {
                status = descent_.advance(max_rounds, seconds, records);
            } catch (const Stopped&) {
            }
        }
        return ended(status, records, as_dict);
    }
    nb::object certify(double time_left) {
        Round record;
        {
            nb::gil_scoped_release free;
            descent_.watch().limit(time_left);
            try {
                record = descent_.certify();
            } catch (const Stopped&) {
                nb::gil_scoped_acquire lock;
                return nb::none();
            }
        }
        return as_dict(record);
    }
    nb::dict figures() {
        Round record;
        {
            nb::gil_scoped_release free;
            descent_.watch().limit(1e18);
            Watch& watch = descent_.watch();
            // The last figures of a stopped solve are not to be stopped themselves.
            auto asked = std::move(watch.interrupted);
            watch.interrupted = nullptr;
            record = descent_.certify();
            watch.interrupted = std::move(asked);
        }
        return as_dict(record);
    }
    nb::object beta() { return to_numpy(std::vector<double>(descent_.beta)); }
    nb::object scores() { return to_numpy(std::vector<double>(descent_.scores)); }
    nb::object weights() { return to_numpy(std::vector<double>(descent_.weights)); }
    nb::tuple work() { return nb::make_tuple(descent_.rounds(), descent_.steps(), 0); }
    bool interrupted() { return descent_.watch().was_interrupted; }

  private:
    static const RowTerms& checked(const PyLinearRows& rows, const PyRowTerms& terms,
                                   const std::optional<Doubles>& start) {
        terms.check(std::size_t(rows.rows.count()));
        if (start) terms.check(start->size());
        return terms.terms;
    }
    static nb::dict as_dict(const Round& r) { return record_of(r, "passes", nb::float_(r.passes)); }
    LinearDescent descent_;
};

void bind_rows(nb::module_& m) {
    nb::class_<PyTeam>(m, "Team", "The threads of one fit, and the watch over Ctrl-C and time.")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"), nb::arg("isa") = "")
        .def(
            "limit", [](PyTeam& t, double seconds) { t.watch.limit(seconds); }, nb::arg("seconds"),
            "Stop work after this many seconds.")
        .def_prop_ro("interrupted", [](const PyTeam& t) { return t.watch.was_interrupted; })
        .def_prop_ro("threads", [](const PyTeam& t) { return t.threads.count(); });
    nb::class_<PyLinearRows>(
        m, "LinearRows",
        "Passes over ranges of rows; each raises Stopped if Ctrl-C or the time ends it.")
        .def(nb::init<PyRows, const std::vector<std::int64_t>&, const std::vector<std::int64_t>&,
                      PyTeam&>(),
             nb::arg("rows"), nb::arg("firsts"), nb::arg("lasts"), nb::arg("team"),
             nb::keep_alive<1, 5>())
        .def("multiply", &PyLinearRows::multiply, nb::arg("W"), nb::arg("out"),
             "out[c, i] = x_i'W[c]")
        .def("transposed", &PyLinearRows::transposed, nb::arg("B"), nb::arg("out"),
             "out[c] += sum_i B[c, i] x_i")
        .def("gram", &PyLinearRows::gram, nb::arg("D"), nb::arg("matrix"), nb::arg("border"),
             nb::arg("single") = false, "matrix += sum_i D_i x_i x_i', border += sum_i D_i x_i")
        .def("diagonal", &PyLinearRows::diagonal, nb::arg("D"), nb::arg("out"),
             "out += sum_i D_i x_i * x_i")
        .def("audit", &PyLinearRows::audit, nb::arg("w"), nb::arg("b"), nb::arg("compensated"),
             "X w, bounds on its errors, X'b as a sum of two, and the size of the terms behind "
             "that.")
        .def("squares", &PyLinearRows::squares, "x_i'x_i of every row")
        .def_prop_ro(
            "longest", [](const PyLinearRows& r) { return r.rows.longest(); },
            "Bound on the length of every row, once they have been multiplied.")
        .def_prop_ro("n_rows", [](const PyLinearRows& r) { return r.rows.count(); })
        .def_prop_ro("n_columns", [](const PyLinearRows& r) { return r.rows.features(); });
}

void bind_terms(nb::module_& m) {
    nb::class_<PyRowTerms>(m, "RowTerms", "What the rows of a problem add to its primal and dual.")
        .def(nb::init<const PyLoss&, Doubles, Doubles, PyTeam&>(), nb::arg("loss"), nb::arg("y"),
             nb::arg("C"), nb::arg("team"), nb::keep_alive<1, 5>())
        .def("respond", &PyRowTerms::respond, nb::arg("centre").none(), nb::arg("delta"),
             nb::arg("f"),
             "The maximisers beta(f) of the envelopes, and the envelopes' second derivatives.")
        .def("line_search", &PyRowTerms::line_search, nb::arg("centre").none(), nb::arg("delta"),
             nb::arg("f"), nb::arg("df"), nb::arg("slope"), nb::arg("square"))
        .def("gap", &PyRowTerms::gap, nb::arg("beta"), nb::arg("f"), nb::arg("b"),
             "Sum of the rows' gap terms.")
        .def("value", &PyRowTerms::value, nb::arg("f"), nb::arg("b"), "Sum of the losses.")
        .def("conjugate", &PyRowTerms::conjugate, nb::arg("beta"))
        .def("value_error", &PyRowTerms::value_error, nb::arg("f"), nb::arg("b"), nb::arg("error"),
             "How far the value can be off if no score is off by more than the error.")
        .def("total", &PyRowTerms::total, nb::arg("beta"),
             "Sum of beta, compensated, and of its absolute values.")
        .def("best_intercept", &PyRowTerms::best_intercept, nb::arg("f"), nb::arg("start"))
        .def("audit", &PyRowTerms::audit, nb::arg("beta"), nb::arg("f"), nb::arg("error"),
             nb::arg("b"), nb::arg("closely"),
             "Sums of the rows' terms, with bounds for scores that are known up to an error each.")
        .def("absorb", &PyRowTerms::absorb, nb::arg("beta"), nb::arg("f"), nb::arg("error"),
             nb::arg("b"), nb::arg("change"),
             "The row that takes up a change of the sum of beta at the least cost, and the cost.")
        .def("feasible", &PyRowTerms::feasible, nb::arg("beta"), nb::arg("balanced"),
             "Near beta, inside the box, of sum zero if balanced.");
}

void bind_descent(nb::module_& m) {
    descent_class<PyLinearDescent>(m, "LinearDescent", "Coordinate descent with the weights kept.")
        .def(nb::init<PyLinearRows&, PyRowTerms&, const std::string&, const std::optional<Doubles>&,
                      std::uint64_t, double>(),
             nb::arg("rows"), nb::arg("terms"), nb::arg("intercept"), nb::arg("start").none(),
             nb::arg("seed"), nb::arg("patience"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def_prop_ro("weights", &PyLinearDescent::weights);
}

nb::object solve_small(const Table& A, const Doubles& b) {
    if (A.shape(0) != A.shape(1) || A.shape(0) != b.size())
        throw nb::value_error("a system of a wrong shape");
    std::vector<double> factor(A.data(), A.data() + A.size());
    std::vector<double> x = copied(b);
    if (!solve_positive(factor.data(), x.data(), std::int64_t(x.size()), choose_isa("")))
        return nb::none();
    return to_numpy(std::move(x));
}

}  // namespace

namespace margrave {

void bind_linear(nb::module_& m) {
    nb::exception<Stopped>(m, "Stopped");
    bind_rows(m);
    bind_terms(m);
    bind_descent(m);
    m.def("solve_positive", &solve_small, nb::arg("A"), nb::arg("b"),
          "Solve a small positive definite system; None if it is not.");
    m.def("stochastic_steps", &stochastic_steps, nb::arg("rows"), nb::arg("terms"),
          nb::arg("order"), nb::arg("eta"), nb::arg("f"), nb::arg("slopes"), nb::arg("constant"),
          nb::arg("start"),
          "Steps with reduced variance; w - centre before and after, the constant feature last.");
}

}  // namespace margrave
