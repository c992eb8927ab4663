// The solvers for Python. Long work runs without the interpreter's lock and checks for Ctrl-C from
// time to time.
#include "bind_descent.hpp"
#include "bind_kernel_rows.hpp"
#include "coordinate_descent.hpp"
#include "joint.hpp"
#include "working_set.hpp"

using namespace margrave;

namespace {

// What all compiled solvers offer: rounds, figures, the certificate, the point. Method<T> computes
// in float or double.
template <template <class> class Method>
class PyDescent {
    static nb::dict as_dict(const Round& r) {
        return record_of(r, "kernel_values", nb::int_(r.kernel_values));
    }

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
        return ended(status, records, as_dict);
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
    // By how much each row violates the conditions of the optimum, as the method measures it.
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
    // Takes new values of some rows with their scores, and updates the other scores; false if it
    // was stopped.
    bool adopt(const Longs& active, const Values& beta, const Values& scores, double time_left) {
        check_length(std::int64_t(active.size() * columns_), {beta.size(), scores.size()});
        bool whole = false;
        nb::gil_scoped_release free;
        visit([&](auto& w) {
            w.watch.limit(time_left);
            whole = w.adopt(rows_of(active, w), copied(beta), copied(scores));
        });
        return whole;
    }
    // A Python function that says whether to stop is asked as often as Ctrl-C is looked for.
    void stop_if(const nb::callable& is_over) {
        visit([&](auto& w) { w.watch.interrupted = ctrl_c_or(is_over); });
    }
    bool interrupted() {
        bool was = false;
        visit([&](auto& w) { was = w.watch.was_interrupted; });
        return was;
    }

  protected:
    template <class W>
    std::vector<std::int64_t> rows_of(const Longs& active, const W& w) const {
        std::vector<std::int64_t> rows(active.data(), active.data() + active.size());
        for (std::int64_t i : rows)
            if (i < 0 || i >= std::int64_t(w.scores.size() / columns_))
                throw nb::value_error("no such row");
        return rows;
    }
    template <class... A>
    void make(PyKernelRows& kernel, const A&... arguments) {
        nb::gil_scoped_release free;
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

    // As `advance`; what changes of variables add to the scores is asked of a Python function,
    // which returns None if it was stopped.
    nb::tuple advance_with(const nb::callable& sums_of, double target, std::int64_t max_rounds,
                           double seconds, double time_left) {
        const auto ask = [&](std::vector<std::int64_t>&& rows, std::vector<double>&& change,
                             std::vector<double>& sums) {
            nb::gil_scoped_acquire hold;
            const nb::object found =
                sums_of(to_numpy(std::move(rows)), to_numpy(std::move(change)));
            if (found.is_none()) return false;
            const auto values = nb::cast<Doubles>(found);
            check_length(std::int64_t(sums.size()), {values.size()});
            std::copy(values.data(), values.data() + values.size(), sums.begin());
            return true;
        };
        struct Lent {
            PyWorkingSet& to;
            ~Lent() {
                to.visit([](auto& w) { w.spread = nullptr; });
            }
        } lent{*this};
        visit([&](auto& w) { w.spread = ask; });
        return advance(target, max_rounds, seconds, time_left);
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
            const Doubles& C, const std::optional<Table>& start, const Doubles& bias, int size,
            const std::optional<FixedPart>& fixed) {
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
        if (fixed) {
            const auto length = std::int64_t(y.size()) * classes;
            check_length(length, {fixed->shift.size(), fixed->scores.size()});
            if (!start) throw nb::value_error("joint problem: a part needs a start");
        }
        started_ = fixed.has_value();  // it brings its scores
        make(kernel, loss == Softmax::name, labels, classes, copied(C), from, copied(bias),
             fixed.value_or(FixedPart()), size);
    }
    void set_bias(const Doubles& bias) {
        check_length(std::int64_t(columns_), {bias.size()});
        visit([&](auto& w) { w.set_bias(copied(bias)); });
    }
};

std::vector<double> copy_of(const std::vector<double>& values) { return values; }

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
             "of the gap; the objective of the zero model.")
        .def_prop_ro("shift", [](const FixedPart& part) { return to_numpy(copy_of(part.shift)); })
        .def_prop_ro("scores", [](const FixedPart& part) { return to_numpy(copy_of(part.scores)); })
        .def_ro("dual", &FixedPart::dual)
        .def_ro("gap", &FixedPart::gap)
        .def_ro("bound", &FixedPart::bound);
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
            [](StallRule& rule, std::int64_t rounds, double primal, double dual, double gap,
               double size) {
                Round last;
                last.primal = primal;
                last.dual = dual;
                last.gap = gap;
                return rule.check(rounds, last, std::max(std::fabs(dual), size));
            },
            nb::arg("rounds"), nb::arg("primal"), nb::arg("dual"), nb::arg("gap"),
            nb::arg("size") = 0.0,
            "Whether these figures, those of the last round, are no better than earlier ones.")
        .def_prop_rw("state", &StallRule::state, &StallRule::restore);
    descent_class<PyWorkingSet>(m, "WorkingSet", "The working-set solver for one problem.")
        .def(nb::init<PyKernelRows&, const DualProblem&, int>(), nb::arg("kernel_rows"),
             nb::arg("problem"), nb::arg("size"), nb::keep_alive<1, 2>())
        .def("advance_with", &PyWorkingSet::advance_with, nb::arg("sums_of"), nb::arg("target"),
             nb::arg("max_rounds"), nb::arg("seconds"), nb::arg("time_left"),
             "As `advance`; sums_of(rows, change) is what changes of variables add to all scores, "
             "or None if it was stopped.")
        .def("kkt_violations", &PyWorkingSet::kkt_violations,
             "How much each row violates the KKT conditions: positive for violators.")
        .def("fixed_part", &PyWorkingSet::fixed_part, nb::arg("active"), nb::arg("time_left"),
             "The contribution of all other rows to a problem on the active ones.")
        .def("adopt", &PyWorkingSet::adopt, nb::arg("active"), nb::arg("beta"), nb::arg("scores"),
             nb::arg("time_left"))
        .def("stop_if", &PyWorkingSet::stop_if, nb::arg("is_over"));
    descent_class<PyCoordinateDescent>(m, "CoordinateDescent",
                                       "One row after the other, in random order.")
        .def(nb::init<PyKernelRows&, const DualProblem&, std::uint64_t>(), nb::arg("kernel_rows"),
             nb::arg("problem"), nb::arg("seed"), nb::keep_alive<1, 2>());
    descent_class<PyJoint>(m, "Joint", "Several classes in one problem.")
        .def(nb::init<PyKernelRows&, const std::string&, const Longs&, int, const Doubles&,
                      const std::optional<Table>&, const Doubles&, int,
                      const std::optional<FixedPart>&>(),
             nb::arg("kernel_rows"), nb::arg("loss"), nb::arg("y"), nb::arg("n_classes"),
             nb::arg("C"), nb::arg("start").none(), nb::arg("bias"), nb::arg("size"),
             nb::arg("fixed").none() = nb::none(), nb::keep_alive<1, 2>())
        .def("kkt_violations", &PyJoint::kkt_violations)
        .def("adopt", &PyJoint::adopt, nb::arg("active"), nb::arg("beta"), nb::arg("scores"),
             nb::arg("time_left"))
        .def("set_bias", &PyJoint::set_bias, nb::arg("bias"))
        .def("stop_if", &PyJoint::stop_if, nb::arg("is_over"));
}

}  // namespace

namespace margrave {

void bind_solvers(nb::module_& m) {
    bind_problems(m);
    bind_descents(m);
}

}  // namespace margrave
