// Kernel rows and the solvers for Python. Long work runs without the interpreter's lock and checks
// for Ctrl-C from time to time.
#include <cstring>

#include "bind.hpp"
#include "coordinate_descent.hpp"
#include "foreign_rows.hpp"
#include "joint.hpp"
#include "working_set.hpp"

using namespace margrave;

namespace {

nb::object numbers(const Subset& s) {
    std::vector<std::int64_t> v(s.count);
    for (std::int64_t i = 0; i < s.count; ++i) v[i] = s[i];
    return to_numpy(std::move(v));
}

// Kernel values from a Python function of two arrays of row numbers.
Fetch ask_python(const nb::object& function) {
    return [function](const Subset& queries, const Subset& points, double* out) {
        nb::gil_scoped_acquire lock;
        const Table values = nb::cast<Table>(function(numbers(queries), numbers(points)));
        if (std::int64_t(values.shape(0)) != queries.count ||
            std::int64_t(values.shape(1)) != points.count)
            throw nb::value_error("the kernel function returned an array of a wrong shape");
        std::memcpy(out, values.data(), sizeof(double) * queries.count * points.count);
    };
}

// The store and the rows that it borrows.
struct PyKernelRows {
    PyRows rows;
    nb::object function;  // kept here too: it must not be released without the interpreter's lock
    KernelStore store;

    PyKernelRows(PyRows borrowed, const std::optional<PyKernel>& kernel, nb::object fetch,
                 double offset, std::vector<std::int64_t> starts, const std::string& dtype,
                 std::int64_t memory, std::int64_t buffer, int threads, bool cache,
                 const std::string& isa)
        : rows(std::move(borrowed)),
          function(fetch),
          store(rows.rows, kernel ? &kernel->params : nullptr,
                fetch.is_none() ? values_of(rows.rows) : ask_python(fetch), offset,
                checked(std::move(starts), rows.rows.count),
                {is_double(dtype), cache, memory, buffer, threads}, choose_isa(isa)) {}

    // K[points, queries] coef, None if Ctrl-C or the time limit stopped it; and whether it was
    // Ctrl-C.
    nb::tuple multiply(const Longs& queries, const Table& coef, const Longs& points, bool exact,
                       double time_left) {
        const Subset from = some(queries);
        const Subset to = some(points);
        if (std::int64_t(coef.shape(0)) != from.count)
            throw nb::value_error("one row of coefficients per kernel row is needed");
        const std::size_t outputs = coef.shape(1);
        std::vector<double> sums(std::size_t(to.count) * outputs);
        bool whole = false;
        Watch watch;
        {
            nb::gil_scoped_release free;
            watch.interrupted = ctrl_c;
            watch.limit(time_left);
            const bool same = outputs == 1 && from.count == to.count &&
                              std::equal(from.list, from.list + from.count, to.list);
            const auto run = [&](auto& source) {
                whole =
                    same ? source.apply_among(from, coef.data(), sums.data(), &watch)
                         : source.apply(from, coef.data(), int(outputs), to, sums.data(), &watch);
            };
            if (exact || store.is_double())
                run(*store.view<double>().exact);
            else
                run(*store.view<float>().source);
        }
        nb::object found =
            whole ? to_numpy(std::move(sums), {std::size_t(to.count), outputs}) : nb::none();
        return nb::make_tuple(found, watch.was_interrupted);
    }
    // The same for the points of one block, one row of sums per output, from cached values where
    // there are any.
    nb::object block_sums(const Longs& queries, const Table& coef, int block) {
        const Subset from = some(queries);
        if (std::int64_t(coef.shape(0)) != from.count)
            throw nb::value_error("one row of coefficients per kernel row is needed");
        if (block < 0 || std::size_t(block) + 1 >= store.starts().size())
            throw nb::value_error("no such block of rows");
        const std::size_t outputs = coef.shape(1);
        const std::size_t width = std::size_t(store.starts()[block + 1] - store.starts()[block]);
        std::vector<double> sums(outputs * width, 0.0);
        bool whole = false;
        {
            nb::gil_scoped_release free;
            Watch watch;
            watch.interrupted = ctrl_c;
            const std::vector<std::int64_t> which(from.list, from.list + from.count);
            const auto run = [&](const auto& kernel) {
                kernel.cache->begin_round();
                whole = kernel.add(which, coef.data(), int(outputs), block, true, sums.data(),
                                   &watch) >= 0;
            };
            if (store.is_double())
                run(store.view<double>());
            else
                run(store.view<float>());
        }
        if (!whole) raise_interrupt();
        return to_numpy(std::move(sums), {outputs, width});
    }
    nb::object diagonal(const Longs& points) {
        const Subset of = some(points);
        std::vector<double> values(of.count);
        for (std::int64_t i = 0; i < of.count; ++i)
            values[i] = store.view<double>().exact->diagonal(of[i]);
        return to_numpy(std::move(values));
    }
    // Sums with compensation and bounds of their errors; None for both where the source cannot or
    // was stopped.
    nb::tuple multiply_carefully(const Longs& queries, const Doubles& coef, const Longs& points,
                                 double time_left) {
        const Subset from = some(queries);
        const Subset to = some(points);
        if (std::int64_t(coef.size()) != from.count)
            throw nb::value_error("one coefficient per kernel row is needed");
        std::vector<double> sums(to.count);
        std::vector<double> errors(to.count);
        bool whole = false;
        Watch watch;
        {
            nb::gil_scoped_release free;
            watch.interrupted = ctrl_c;
            watch.limit(time_left);
            whole = store.view<double>().exact->apply_carefully(from, coef.data(), to, sums.data(),
                                                                errors.data(), &watch);
        }
        if (watch.was_interrupted) raise_interrupt();
        if (!whole) return nb::make_tuple(nb::none(), nb::none());
        return nb::make_tuple(to_numpy(std::move(sums)), to_numpy(std::move(errors)));
    }
    nb::tuple rounding(const Longs& points) {
        const Subset of = some(points);
        std::vector<double> products(of.count);
        std::vector<double> relative(of.count);
        std::vector<double> roots(of.count);
        const auto fill = [&](std::int64_t i) {
            const Rounding found = store.view<double>().exact->rounding(of[i]);
            products[i] = found.product;
            relative[i] = found.relative;
            roots[i] = found.root;
        };
        {
            nb::gil_scoped_release free;
            constexpr std::int64_t per = 4096;
            store.view<double>().threads->run(
                (of.count + per - 1) / per, nullptr, [&](std::int64_t t, int) {
                    for (std::int64_t i = t * per; i < std::min(of.count, (t + 1) * per); ++i)
                        fill(i);
                });
        }
        return nb::make_tuple(to_numpy(std::move(products)), to_numpy(std::move(relative)),
                              to_numpy(std::move(roots)));
    }
    Subset some(const Longs& list) const {
        for (std::size_t i = 0; i < list.size(); ++i)
            if (list.data()[i] < 0 || list.data()[i] >= rows.rows.count)
                throw nb::value_error("no such row");
        return {list.data(), 0, std::int64_t(list.size())};
    }

    static std::vector<std::int64_t> checked(std::vector<std::int64_t> starts, std::int64_t rows) {
        if (starts.size() < 2 || starts.front() != 0 || starts.back() != rows ||
            !std::is_sorted(starts.begin(), starts.end()))
            throw nb::value_error("blocks do not cover the rows");
        return starts;
    }
};

void check_length(std::int64_t n, std::initializer_list<std::size_t> lengths) {
    for (std::size_t length : lengths)
        if (std::int64_t(length) != n) throw nb::value_error("solver: arrays of a wrong length");
}

// Kernel rows of foreign points over own rows, and the rows that it borrows.
class PyForeignRows {
  public:
    PyForeignRows(PyRows own, const PyKernel& kernel, const std::string& dtype, std::int64_t memory,
                  int threads)
        : own_(std::move(own)) {
        if (own_.rows.count < 1) throw nb::value_error("foreign rows: there are no own ones");
        if (is_double(dtype))
            double_ = std::make_unique<ForeignRows<double>>(kernel.params, own_.rows, memory,
                                                            choose_isa(""), threads);
        else
            float_ = std::make_unique<ForeignRows<float>>(kernel.params, own_.rows, memory,
                                                          choose_isa(""), threads);
    }
    nb::object add(const PyRows& foreign, const Longs& which, const Longs& numbers,
                   const Doubles& change) {
        if (foreign.rows.features != own_.rows.features || foreign.rows.sparse != own_.rows.sparse)
            throw nb::value_error("rows of another kind");
        check_length(std::int64_t(which.size()), {numbers.size(), change.size()});
        for (std::size_t q = 0; q < which.size(); ++q)
            if (which.data()[q] < 0 || which.data()[q] >= foreign.rows.count)
                throw nb::value_error("a row that is not there");
        std::vector<double> sums(own_.rows.count, 0.0);
        bool whole = false;
        {
            nb::gil_scoped_release free;
            Watch watch;
            watch.interrupted = ctrl_c;
            const auto run = [&](auto& rows) {
                whole = rows.add(foreign.rows, {which.data(), 0, std::int64_t(which.size())},
                                 numbers.data(), change.data(), sums.data(), &watch);
            };
            if (double_)
                run(*double_);
            else
                run(*float_);
        }
        if (!whole) raise_interrupt();
        return to_numpy(std::move(sums));
    }
    std::int64_t kernel_values() const {
        return double_ ? double_->kernel_values() : float_->kernel_values();
    }

  private:
    PyRows own_;
    std::unique_ptr<ForeignRows<float>> float_;
    std::unique_ptr<ForeignRows<double>> double_;
};

nb::dict as_dict(const Round& r) {
    nb::dict d;
    d["round"] = r.round;
    d["objective"] = r.primal;
    d["dual"] = r.dual;
    d["gap"] = r.gap;
    d["violation"] = r.violation;
    d["support"] = r.support;
    d["steps"] = r.steps;
    d["kernel_values"] = r.kernel_values;
    d["intercept"] = r.bias;
    d["ago"] = seconds_since(r.when);
    return d;
}

// What all compiled solvers offer: rounds, figures, the certificate, the point. Method<T> computes
// in float or double.
template <template <class> class Method>
class PyDescent {
  public:
    // Rounds until `target` is reached or something ends them; returns how it ended and one record
    // per round.
    nb::tuple advance(double target, std::int64_t max_rounds, double seconds, double time_left) {
        std::vector<Round> records;
        Status status = Status::running;
        {
            nb::gil_scoped_release free;
            visit([&](auto& w) {
                w.target = target;
                w.watch.limit(time_left);
                if (!begin(w)) {
                    status = Status::stopped;
                    return;
                }
                status = w.advance(max_rounds, seconds, records);
            });
        }
        static const char* names[] = {"running", "converged", "stalled", "stopped"};
        nb::list list;
        for (const Round& r : records) list.append(as_dict(r));
        return nb::make_tuple(names[int(status)], list);
    }
    // The certificate in double precision; None if it was stopped.
    nb::object certify(double time_left) {
        Round record;
        bool whole = false;
        {
            nb::gil_scoped_release free;
            visit([&](auto& w) {
                w.watch.limit(time_left);
                whole = w.certify(record);
            });
        }
        return whole ? nb::object(as_dict(record)) : nb::none();
    }
    nb::dict figures() {
        Round record;
        {
            nb::gil_scoped_release free;
            visit([&](auto& w) {
                if (!started_ && !is_zero(w)) w.forget();  // stopped before its scores were there
                started_ = true;
                record = w.figures();
            });
        }
        return as_dict(record);
    }
    nb::object beta() {
        return shaped([](auto& w) { return w.beta; });
    }
    nb::object scores() {
        return shaped([](auto& w) { return w.scores; });
    }
    nb::tuple work() {
        std::int64_t rounds = 0;
        std::int64_t steps = 0;
        std::int64_t values = 0;
        visit([&](auto& w) {
            rounds = w.rounds();
            steps = w.steps();
            values = w.kernel_values();
        });
        return nb::make_tuple(rounds, steps, values);
    }
    bool interrupted() {
        bool was = false;
        visit([&](auto& w) { was = w.watch.was_interrupted; });
        return was;
    }

  protected:
    template <class... A>
    void make(PyKernelRows& kernel, const A&... arguments) {
        if (kernel.store.is_double())
            double_.emplace(kernel.store.view<double>(), arguments...);
        else
            float_.emplace(kernel.store.view<float>(), arguments...);
        visit([](auto& w) { w.watch.interrupted = ctrl_c; });
    }
    template <class F>
    void visit(F&& f) {
        if (float_)
            f(*float_);
        else
            f(*double_);
    }
    // The scores of a start that is not zero.
    template <class W>
    bool begin(W& w) {
        if (!started_ && !is_zero(w) && !w.rebuild()) return false;
        return started_ = true;
    }
    template <class W>
    static bool is_zero(const W& w) {
        return std::all_of(w.beta.begin(), w.beta.end(), [](double b) { return b == 0; });
    }
    template <class F>
    nb::object shaped(F&& f) {
        std::vector<double> v;
        visit([&](auto& w) { v = f(w); });
        const std::size_t rows = v.size() / columns_;
        return columns_ == 1 ? to_numpy(std::move(v)) : to_numpy(std::move(v), {rows, columns_});
    }

    std::optional<Method<float>> float_;
    std::optional<Method<double>> double_;
    bool started_ = false;
    std::size_t columns_ = 1;
};

// Checks that the arrays of a problem are as long as its blocks of rows.
void check_problem(const PyKernelRows& kernel, const DualProblem& problem) {
    const std::vector<std::int64_t>& starts = kernel.store.starts();
    std::int64_t n = 0;
    for (int b : problem.blocks) {
        if (b < 0 || std::size_t(b) + 1 >= starts.size())
            throw nb::value_error("no such block of rows");
        n += starts[b + 1] - starts[b];
    }
    check_length(n, {problem.y.size(), problem.C.size()});
    if (!problem.start.empty()) check_length(n, {problem.start.size()});
    if (!problem.fixed.shift.empty()) check_length(n, {problem.fixed.shift.size()});
}

class PyWorkingSet : public PyDescent<WorkingSet> {
  public:
    PyWorkingSet(PyKernelRows& kernel, const DualProblem& problem, int size) {
        check_problem(kernel, problem);
        started_ = !problem.fixed.scores.empty();  // it brings its scores
        if (size < 2 || (started_ && problem.start.empty()))
            throw nb::value_error("working set: too small, or without a start");
        make(kernel, problem, size);
    }

    nb::object kkt_violations() {
        std::vector<double> v;
        {
            nb::gil_scoped_release free;
            visit([&](auto& w) {
                if (begin(w)) v = w.kkt_violations();
            });
        }
        return to_numpy(std::move(v));
    }
    // None if it was stopped.
    std::optional<FixedPart> fixed_part(const Longs& active, double time_left) {
        FixedPart found;
        bool whole = false;
        nb::gil_scoped_release free;
        visit([&](auto& w) {
            w.watch.limit(time_left);
            whole = w.fixed_part(rows_of(active, w), found);
        });
        return whole ? std::optional(std::move(found)) : std::nullopt;
    }
    bool adopt(const Longs& active, const Doubles& beta, const Doubles& scores, double time_left) {
        check_length(std::int64_t(active.size()), {beta.size(), scores.size()});
        bool whole = false;
        nb::gil_scoped_release free;
        visit([&](auto& w) {
            w.watch.limit(time_left);
            whole = w.adopt(rows_of(active, w), copied(beta), copied(scores));
        });
        return whole;
    }

  private:
    template <class W>
    static std::vector<std::int64_t> rows_of(const Longs& active, const W& w) {
        std::vector<std::int64_t> rows(active.data(), active.data() + active.size());
        for (std::int64_t i : rows)
            if (i < 0 || i >= std::int64_t(w.y.size()))
                throw nb::value_error("working set: no such row");
        return rows;
    }
};

class PyCoordinateDescent : public PyDescent<CoordinateDescent> {
  public:
    PyCoordinateDescent(PyKernelRows& kernel, const DualProblem& problem, std::uint64_t seed) {
        check_problem(kernel, problem);
        make(kernel, problem, seed);
    }
};

class PyJoint : public PyDescent<JointPoint> {
  public:
    PyJoint(PyKernelRows& kernel, const std::string& loss, const Longs& y, int classes,
            const Doubles& C, const std::optional<Table>& start, const Doubles& bias, int size) {
        columns_ = std::size_t(classes);
        if (loss != CrammerSinger::name && loss != Softmax::name)
            throw nb::value_error(("unknown joint loss '" + loss + "'").c_str());
        if (classes < 2 || size < 2)
            throw nb::value_error("joint problem: too few classes or rows at a time");
        check_length(kernel.rows.rows.count,
                     {y.size(), C.size(), start ? start->shape(0) : y.size()});
        check_length(classes, {bias.size(), start ? start->shape(1) : bias.size()});
        std::vector<std::int64_t> labels(y.data(), y.data() + y.size());
        for (std::int64_t c : labels)
            if (c < 0 || c >= classes) throw nb::value_error("joint problem: no such class");
        std::vector<double> from;
        if (start) from.assign(start->data(), start->data() + start->size());
        make(kernel, loss == Softmax::name, labels, classes, copied(C), from, copied(bias), size);
    }
    void set_bias(const Doubles& bias) {
        check_length(std::int64_t(columns_), {bias.size()});
        visit([&](auto& w) { w.set_bias(copied(bias)); });
    }
};

template <class C>
nb::class_<C> descent_class(nb::module_& m, const char* name, const char* doc) {
    return nb::class_<C>(m, name, doc)
        .def("advance", &C::advance, nb::arg("target"), nb::arg("max_rounds"), nb::arg("seconds"),
             nb::arg("time_left"))
        .def("certify", &C::certify, nb::arg("time_left"))
        .def("figures", &C::figures)
        .def_prop_ro("work", &C::work, "Rounds, steps and kernel values so far.")
        .def_prop_ro("interrupted", &C::interrupted)
        .def_prop_ro("beta", &C::beta)
        .def_prop_ro("scores", &C::scores);
}

void bind_kernel_rows(nb::module_& m) {
    nb::class_<PyKernelRows>(m, "KernelRows",
                             "Kernel rows of one data set, cached within a memory budget.")
        .def(nb::init<PyRows, const std::optional<PyKernel>&, nb::object, double,
                      std::vector<std::int64_t>, const std::string&, std::int64_t, std::int64_t,
                      int, bool, const std::string&>(),
             nb::arg("rows"), nb::arg("kernel").none(), nb::arg("fetch").none(), nb::arg("offset"),
             nb::arg("starts"), nb::arg("dtype"), nb::arg("memory"), nb::arg("buffer"),
             nb::arg("threads"), nb::arg("cache") = true, nb::arg("isa") = "")
        .def("multiply", &PyKernelRows::multiply, nb::arg("rows"), nb::arg("coef"),
             nb::arg("points"), nb::arg("exact"), nb::arg("time_left"),
             "K[points, rows] @ coef, None if it was stopped; and whether Ctrl-C stopped it.")
        .def("block_sums", &PyKernelRows::block_sums, nb::arg("rows"), nb::arg("coef"),
             nb::arg("block"), "coef.T @ K[rows, block], from cached values where there are any.")
        .def("diagonal", &PyKernelRows::diagonal, nb::arg("points"),
             "Kernel values of these rows with themselves.")
        .def("multiply_carefully", &PyKernelRows::multiply_carefully, nb::arg("rows"),
             nb::arg("coef"), nb::arg("points"), nb::arg("time_left"),
             "K[points, rows] @ coef by compensated sums, with bounds on the errors; None where "
             "that is not possible or time ran out.")
        .def("rounding", &PyKernelRows::rounding, nb::arg("points"),
             "For each row product, relative and the square root of k(x, x): the error of k(x, z) "
             "is at most product(x) product(z) + (relative(x) + relative(z)) |k(x, z)|, in units "
             "of rounding.")
        .def_prop_ro("cached_bytes", [](const PyKernelRows& k) { return k.store.cached_bytes(); });
    nb::class_<PyForeignRows>(m, "ForeignRows",
                              "Kernel rows of points from elsewhere over the rows at hand, cached "
                              "under the points' numbers.")
        .def(nb::init<PyRows, const PyKernel&, const std::string&, std::int64_t, int>(),
             nb::arg("rows"), nb::arg("kernel"), nb::arg("dtype"), nb::arg("memory"),
             nb::arg("threads"))
        .def("add", &PyForeignRows::add, nb::arg("points"), nb::arg("which"), nb::arg("numbers"),
             nb::arg("change"),
             "Sums over some of the points of their change times the kernel, for every own row.")
        .def_prop_ro("kernel_values", &PyForeignRows::kernel_values);
}

void make_fixed_part(FixedPart* to, const Doubles& shift, const Doubles& scores, double dual,
                     double gap, double bound) {
    if (scores.size()) check_length(std::int64_t(shift.size()), {scores.size()});
    new (to) FixedPart{copied(shift), copied(scores), dual, gap, bound};
}

void make_dual_problem(DualProblem* to, std::vector<int> blocks, const PyLoss& loss,
                       const Doubles& y, const Doubles& C, const std::optional<Doubles>& start,
                       bool has_free_intercept, double sum, double scale,
                       const std::optional<FixedPart>& fixed) {
    if (start) check_length(std::int64_t(y.size()), {start->size()});
    DualProblem problem;
    problem.blocks = std::move(blocks);
    problem.loss = loss.params;
    problem.y = copied(y);
    problem.C = copied(C);
    if (start) problem.start = copied(*start);
    problem.has_free_intercept = has_free_intercept;
    problem.sum = sum;
    problem.scale = scale;
    if (fixed) problem.fixed = *fixed;
    new (to) DualProblem(std::move(problem));
}

void bind_problems(nb::module_& m) {
    nb::class_<FixedPart>(m, "FixedPart",
                          "The contribution of the rows outside to a problem on some of the rows.")
        .def("__init__", &make_fixed_part, nb::arg("shift"), nb::arg("scores"), nb::arg("dual"),
             nb::arg("gap"), nb::arg("bound"),
             "Scores from the rows outside and from all; the outside rows' share of the dual and "
             "of the gap; the objective of the zero model.");
    nb::class_<DualProblem>(m, "DualProblem", "The dual problem on some blocks of rows.")
        .def("__init__", &make_dual_problem, nb::arg("blocks"), nb::arg("loss"), nb::arg("y"),
             nb::arg("C"), nb::kw_only(), nb::arg("start").none() = nb::none(),
             nb::arg("has_free_intercept") = false, nb::arg("sum") = 0.0, nb::arg("scale") = 0.0,
             nb::arg("fixed").none() = nb::none(),
             "With a free intercept the sum of beta is `sum`. Gaps are relative to the objective "
             "or, if larger, to `scale`.");
}

void bind_descents(nb::module_& m) {
    nb::class_<StallRule>(m, "StallRule", "Whether a descent has stalled.")
        .def(nb::init<std::int64_t, bool, bool>(), nb::arg("window"), nb::arg("is_single"),
             nb::arg("is_hull"))
        .def(
            "check",
            [](StallRule& rule, std::int64_t rounds, double primal, double dual, double gap) {
                Round last;
                last.primal = primal;
                last.dual = dual;
                last.gap = gap;
                return rule.check(rounds, last, std::fabs(dual));
            },
            nb::arg("rounds"), nb::arg("primal"), nb::arg("dual"), nb::arg("gap"),
            "Whether these figures, those of the last round, are no better than earlier ones.")
        .def_prop_rw("state", &StallRule::state, &StallRule::restore);
    descent_class<PyWorkingSet>(m, "WorkingSet", "The working-set solver for one problem.")
        .def(nb::init<PyKernelRows&, const DualProblem&, int>(), nb::arg("kernel_rows"),
             nb::arg("problem"), nb::arg("size"), nb::keep_alive<1, 2>())
        .def("kkt_violations", &PyWorkingSet::kkt_violations,
             "How much each row violates the KKT conditions: positive for violators.")
        .def("fixed_part", &PyWorkingSet::fixed_part, nb::arg("active"), nb::arg("time_left"),
             "The contribution of all other rows to a problem on the active ones.")
        .def("adopt", &PyWorkingSet::adopt, nb::arg("active"), nb::arg("beta"), nb::arg("scores"),
             nb::arg("time_left"));
    descent_class<PyCoordinateDescent>(m, "CoordinateDescent",
                                       "One row after the other, in random order.")
        .def(nb::init<PyKernelRows&, const DualProblem&, std::uint64_t>(), nb::arg("kernel_rows"),
             nb::arg("problem"), nb::arg("seed"), nb::keep_alive<1, 2>());
    descent_class<PyJoint>(m, "Joint", "Several classes in one problem.")
        .def(nb::init<PyKernelRows&, const std::string&, const Longs&, int, const Doubles&,
                      const std::optional<Table>&, const Doubles&, int>(),
             nb::arg("kernel_rows"), nb::arg("loss"), nb::arg("y"), nb::arg("n_classes"),
             nb::arg("C"), nb::arg("start").none(), nb::arg("bias"), nb::arg("size"),
             nb::keep_alive<1, 2>())
        .def("set_bias", &PyJoint::set_bias, nb::arg("bias"));
}

}  // namespace

namespace margrave {

void bind_solvers(nb::module_& m) {
    bind_kernel_rows(m);
    bind_problems(m);
    bind_descents(m);
}

}  // namespace margrave
