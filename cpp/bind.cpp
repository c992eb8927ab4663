// The only file that sees Python. Long work runs without the interpreter's lock and asks for Ctrl-C from time to time.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#include "working_set.hpp"

namespace nb = nanobind;
using namespace margrave;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

namespace {

std::vector<double> copied(const Doubles& a) { return {a.data(), a.data() + a.size()}; }

template <class T>
nb::object to_numpy(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape, owner));
}

bool ctrl_c() {
    nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return false;
    PyErr_Clear();
    return true;
}

bool is_double(const std::string& dtype) {
    if (dtype != "float32" && dtype != "float64") throw nb::value_error(("dtype must be float32 or float64, got " + dtype).c_str());
    return dtype == "float64";
}

const Isa& choose_isa(const std::string& name) {
    const Isa* found[4];
    const int n = usable_isas(found);
    if (name.empty()) return *found[n - 1];
    for (int i = 0; i < n; ++i)
        if (name == found[i]->name) return *found[i];
    throw nb::value_error(("instruction set '" + name + "' is not usable here").c_str());
}

// The rows and the arrays that they borrow.
struct PyRows {
    Rows rows;
    std::vector<nb::object> keep;
};

PyRows dense_rows(nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu> array) {
    PyRows r;
    r.rows.is_double = array.dtype() == nb::dtype<double>();
    if (!r.rows.is_double && array.dtype() != nb::dtype<float>()) throw nb::type_error("rows must be float32 or float64");
    r.rows.count = std::int64_t(array.shape(0)), r.rows.features = std::int64_t(array.shape(1));
    r.rows.values = array.data();
    r.rows.row_stride = array.stride(0), r.rows.column_stride = array.stride(1);
    r.keep.push_back(nb::cast(array));
    return r;
}

PyRows csr_rows(nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> values,
                nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> indices, Longs starts, std::int64_t features) {
    PyRows r;
    r.rows.sparse = true;
    r.rows.is_double = values.dtype() == nb::dtype<double>();
    r.rows.wide_indices = indices.dtype() == nb::dtype<std::int64_t>();
    if (!r.rows.is_double && values.dtype() != nb::dtype<float>()) throw nb::type_error("rows must be float32 or float64");
    if (!r.rows.wide_indices && indices.dtype() != nb::dtype<std::int32_t>()) throw nb::type_error("indices must be int32 or int64");
    if (starts.size() < 1 || features >= (std::int64_t(1) << 31)) throw nb::value_error("compressed rows of a wrong shape");
    r.rows.count = std::int64_t(starts.size()) - 1, r.rows.features = features;
    r.rows.values = values.data(), r.rows.indices = indices.data(), r.rows.starts = starts.data();
    // Numbers from outside address memory: check them once.
    const std::int64_t stored = std::int64_t(std::min(values.size(), indices.size()));
    for (std::int64_t i = 0; i < r.rows.count; ++i) {
        if (starts.data()[i] > starts.data()[i + 1] || starts.data()[i] < 0 || starts.data()[i + 1] > stored)
            throw nb::value_error("compressed rows: offsets do not fit the data");
        r.rows.each(i, [&](std::int64_t k, double) {
            if (k < 0 || k >= features) throw nb::value_error("compressed rows: a column index is out of range");
        });
    }
    r.keep = {nb::cast(values), nb::cast(indices), nb::cast(starts)};
    return r;
}

struct PyKernel {
    KernelParams params;
    std::string name;
    PyKernel(const std::string& name, double gamma, int degree, double coef0, double offset) : name(name) {
        int at = 0;
        params = {-1, gamma, coef0, degree, offset};
        Kernels::each([&](auto k) {
            if (name == decltype(k)::name) params.id = at;
            ++at;
        });
        if (params.id < 0) throw nb::value_error(("unknown kernel '" + name + "'").c_str());
    }
};

struct PyLoss {
    LossParams params;
    PyLoss(const std::string& name, double epsilon, double theta, double upsilon, double floor) : params{-1, epsilon, theta, upsilon, floor} {
        int at = 0;
        Losses::each([&](auto l) {
            if (name == decltype(l)::name) params.id = at;
            ++at;
        });
        if (params.id < 0) throw nb::value_error(("unknown loss '" + name + "'").c_str());
    }
    template <class F, class... A>
    nb::object map(F&& f, const Doubles& first, const A&... rest) const {
        std::vector<double> out(first.size());
        if (((rest.size() != first.size()) || ...)) throw nb::value_error("arrays of unequal length");
        Losses::visit(params, [&](const auto& loss) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(loss, first.data()[i], rest.data()[i]...);
        });
        const std::size_t n = out.size();
        return to_numpy(std::move(out), {n});
    }
};

template <class List>
nb::dict table(List) {
    nb::dict d;
    const auto add = [&](auto entry) {
        std::istringstream words(decltype(entry)::parameters);
        nb::list names;
        for (std::string w; words >> w;) names.append(w);
        d[decltype(entry)::name] = nb::tuple(names);
    };
    List::each(add);
    return d;
}

nb::object numbers(const Subset& s) {
    std::vector<std::int64_t> v(s.count);
    for (std::int64_t i = 0; i < s.count; ++i) v[i] = s[i];
    return to_numpy(std::move(v), {std::size_t(s.count)});
}

// Kernel values from a Python function of two arrays of row numbers.
Fetch ask_python(const nb::object& function) {
    return [function](const Subset& queries, const Subset& points, double* out) {
        nb::gil_scoped_acquire lock;
        const Table values = nb::cast<Table>(function(numbers(queries), numbers(points)));
        if (std::int64_t(values.shape(0)) != queries.count || std::int64_t(values.shape(1)) != points.count)
            throw nb::value_error("the kernel function returned an array of a wrong shape");
        std::memcpy(out, values.data(), sizeof(double) * queries.count * points.count);
    };
}

// The store and the rows that it borrows.
struct PyKernelRows {
    PyRows rows;
    nb::object function;  // kept here too: it must not be released without the interpreter's lock
    KernelStore store;

    PyKernelRows(PyRows borrowed, const std::optional<PyKernel>& kernel, nb::object fetch, double offset, std::vector<std::int64_t> starts,
                 const std::string& dtype, std::int64_t memory, std::int64_t buffer, int threads, bool cache, const std::string& isa)
        : rows(std::move(borrowed)), function(fetch),
          store(rows.rows, kernel ? &kernel->params : nullptr, fetch.is_none() ? values_of(rows.rows) : ask_python(fetch), offset,
                checked(std::move(starts), rows.rows.count), {is_double(dtype), cache, memory, buffer, threads}, choose_isa(isa)) {}

    static std::vector<std::int64_t> checked(std::vector<std::int64_t> starts, std::int64_t rows) {
        if (starts.size() < 2 || starts.front() != 0 || starts.back() != rows || !std::is_sorted(starts.begin(), starts.end()))
            throw nb::value_error("blocks do not cover the rows");
        return starts;
    }
};

nb::dict as_dict(const Round& r) {
    nb::dict d;
    d["round"] = r.round, d["objective"] = r.primal, d["dual"] = r.dual, d["gap"] = r.gap, d["violation"] = r.violation;
    d["support"] = r.support, d["steps"] = r.steps, d["kernel_values"] = r.kernel_values, d["intercept"] = r.bias;
    return d;
}

class PyWorkingSet {
  public:
    PyWorkingSet(PyKernelRows& kernel, std::vector<int> blocks, const PyLoss& loss, bool pairs, const Doubles& y, const Doubles& C,
                 const std::optional<Doubles>& start, const Surroundings& around, int size) {
        std::int64_t n = 0;
        for (int b : blocks) {
            if (b < 0 || std::size_t(b) + 1 >= kernel.store.starts().size()) throw nb::value_error("no such block of rows");
            n += kernel.store.starts()[b + 1] - kernel.store.starts()[b];
        }
        if (std::int64_t(y.size()) != n || std::int64_t(C.size()) != n || (start && std::int64_t(start->size()) != n) ||
            (!around.shift.empty() && (std::int64_t(around.shift.size()) != n || !start)) || size < 2)
            throw nb::value_error("working set: arrays of a wrong length");
        std::vector<double> from = start ? copied(*start) : std::vector<double>();
        started_ = !around.shift.empty();  // it brings its scores
        if (kernel.store.is_double()) double_.emplace(kernel.store.view<double>(), std::move(blocks), loss.params, pairs, copied(y), copied(C), std::move(from), around, size);
        else float_.emplace(kernel.store.view<float>(), std::move(blocks), loss.params, pairs, copied(y), copied(C), std::move(from), around, size);
        visit([](auto& w) { w.watch.interrupted = ctrl_c; });
    }

    // Rounds until `target` is reached or something ends them; returns how it ended and one record per round.
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
    nb::object discontent() {
        std::vector<double> v;
        {
            nb::gil_scoped_release free;
            visit([&](auto& w) {
                if (begin(w)) v = w.discontent();
            });
        }
        const std::size_t n = v.size();
        return to_numpy(std::move(v), {n});
    }
    // None if it was stopped.
    std::optional<Surroundings> around(const Longs& active, double time_left) {
        Surroundings found;
        bool whole = false;
        nb::gil_scoped_release free;
        visit([&](auto& w) {
            w.watch.limit(time_left);
            whole = w.around(rows_of(active, w), found);
        });
        return whole ? std::optional(std::move(found)) : std::nullopt;
    }
    bool adopt(const Longs& active, const Doubles& beta, const Doubles& scores, double time_left) {
        if (beta.size() != active.size() || scores.size() != active.size()) throw nb::value_error("working set: arrays of a wrong length");
        bool whole = false;
        nb::gil_scoped_release free;
        visit([&](auto& w) {
            w.watch.limit(time_left);
            whole = w.adopt(rows_of(active, w), copied(beta), copied(scores));
        });
        return whole;
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
        std::vector<double> v;
        visit([&](auto& w) { v = w.beta; });
        const std::size_t n = v.size();
        return to_numpy(std::move(v), {n});
    }
    nb::object scores() {
        std::vector<double> v;
        visit([&](auto& w) { v = w.scores; });
        const std::size_t n = v.size();
        return to_numpy(std::move(v), {n});
    }
    nb::tuple work() {
        std::int64_t rounds = 0, steps = 0, values = 0;
        visit([&](auto& w) { rounds = w.rounds(), steps = w.steps(), values = w.kernel_values(); });
        return nb::make_tuple(rounds, steps, values);
    }
    bool interrupted() {
        bool was = false;
        visit([&](auto& w) { was = w.watch.was_interrupted; });
        return was;
    }

  private:
    template <class F>
    void visit(F&& f) {
        if (float_) f(*float_);
        else f(*double_);
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
    template <class W>
    static std::vector<std::int64_t> rows_of(const Longs& active, const W& w) {
        std::vector<std::int64_t> rows(active.data(), active.data() + active.size());
        for (std::int64_t i : rows)
            if (i < 0 || i >= std::int64_t(w.y.size())) throw nb::value_error("working set: no such row");
        return rows;
    }
    std::optional<WorkingSet<float>> float_;
    std::optional<WorkingSet<double>> double_;
    bool started_ = false;
};

template <class T>
nb::object tile_of(const PyKernel& kernel, const PyRows& A, const PyRows& B, int threads, const Isa& isa) {
    const std::int64_t n = A.rows.count, m = B.rows.count, stride = (m + 63) / 64 * 64;
    std::vector<T> out(std::size_t(n) * m);
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        TileSource<T> source(kernel.params, A.rows, B.rows, isa, pool);
        const std::int64_t per = std::max<std::int64_t>(1, std::min<std::int64_t>(n, (1 << 24) / std::max<std::int64_t>(1, stride)));
        Aligned<T> buffer(per * stride);
        std::vector<T*> rows(per);
        for (std::int64_t r = 0; r < per; ++r) rows[r] = buffer.data() + r * stride;
        for (std::int64_t from = 0; from < n; from += per) {
            const std::int64_t k = std::min(per, n - from);
            source.tile({nullptr, from, k}, {nullptr, 0, m}, rows.data(), nullptr);
            for (std::int64_t r = 0; r < k; ++r) std::copy(rows[r], rows[r] + m, out.begin() + (from + r) * m);
        }
    }
    return to_numpy(std::move(out), {std::size_t(n), std::size_t(m)});
}

template <class T>
std::vector<double> scores_of(const PyKernel& kernel, const PyRows& X, const PyRows& points, const Table& coef, int threads, const Isa& isa, bool& whole) {
    std::vector<double> out(std::size_t(X.rows.count) * coef.shape(1));
    nb::gil_scoped_release free;
    Threads pool(threads);
    Watch watch;
    watch.interrupted = ctrl_c;
    TileSource<T> source(kernel.params, points.rows, X.rows, isa, pool);
    whole = source.apply({nullptr, 0, points.rows.count}, coef.data(), int(coef.shape(1)), {nullptr, 0, X.rows.count}, out.data(), &watch);
    return out;
}

void check_features(const PyRows& A, const PyRows& B) {
    if (A.rows.features != B.rows.features) throw nb::value_error("rows of unequal length");
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core: kernel tiles, losses, and the working-set solver.";
    nb::class_<PyRows>(m, "Rows", "Rows of a matrix, borrowed from numpy arrays without a copy.")
        .def_static("dense", &dense_rows, nb::arg("array"))
        .def_static("csr", &csr_rows, nb::arg("data"), nb::arg("indices"), nb::arg("indptr"), nb::arg("n_columns"))
        .def_prop_ro("n_rows", [](const PyRows& r) { return r.rows.count; })
        .def_prop_ro("n_columns", [](const PyRows& r) { return r.rows.features; });
    nb::class_<PyKernel>(m, "Kernel", "A kernel function with its parameters; `offset` is added to every value.")
        .def(nb::init<const std::string&, double, int, double, double>(), nb::arg("name"), nb::arg("gamma") = 1.0, nb::arg("degree") = 3,
             nb::arg("coef0") = 0.0, nb::arg("offset") = 0.0)
        .def_ro("name", &PyKernel::name);
    nb::class_<PyLoss>(m, "Loss", "A loss and its conjugate, evaluated row by row.")
        .def(nb::init<const std::string&, double, double, double, double>(), nb::arg("name"), nb::arg("epsilon") = 0.0, nb::arg("theta") = 0.0,
             nb::arg("upsilon") = 0.0, nb::arg("floor") = 0.0)
        .def_prop_ro("labels", [](const PyLoss& l) {
            bool labels = true;
            Losses::visit(l.params, [&](const auto& loss) { labels = loss.labels; });
            return labels; }, "Whether targets are +-1.")
        .def("value", [](const PyLoss& l, Doubles y, Doubles C, Doubles f) {
            return l.map([](const auto& loss, double a, double b, double c) { return loss.value(a, b, c); }, y, C, f); },
            nb::arg("y"), nb::arg("C"), nb::arg("f"))
        .def("conjugate", [](const PyLoss& l, Doubles y, Doubles C, Doubles beta) {
            return l.map([](const auto& loss, double a, double b, double c) { return loss.h(a, b, c); }, y, C, beta); },
            nb::arg("y"), nb::arg("C"), nb::arg("beta"))
        .def("box", [](const PyLoss& l, Doubles y, Doubles C) {
            return nb::make_tuple(l.map([](const auto& loss, double a, double b) { return loss.lo(a, b); }, y, C),
                                  l.map([](const auto& loss, double a, double b) { return loss.hi(a, b); }, y, C)); },
            nb::arg("y"), nb::arg("C"))
        .def("step", [](const PyLoss& l, Doubles y, Doubles C, Doubles beta, Doubles f, Doubles k) {
            return l.map([](const auto& loss, double a, double b, double c, double d, double e) { return one_step(loss, a, b, std::clamp(c, loss.lo(a, b), loss.hi(a, b)), d, e); }, y, C, beta, f, k); },
            nb::arg("y"), nb::arg("C"), nb::arg("beta"), nb::arg("f"), nb::arg("k"))
        .def("gap", [](const PyLoss& l, Doubles y, Doubles C, Doubles beta, Doubles f) {
            return l.map([](const auto& loss, double a, double b, double c, double d) { return loss.gap(a, b, c, d); }, y, C, beta, f); },
            nb::arg("y"), nb::arg("C"), nb::arg("beta"), nb::arg("f"));
    nb::class_<PyKernelRows>(m, "KernelRows", "Kernel rows of one data set, cached within a memory budget.")
        .def(nb::init<PyRows, const std::optional<PyKernel>&, nb::object, double, std::vector<std::int64_t>, const std::string&, std::int64_t, std::int64_t, int, bool, const std::string&>(),
             nb::arg("rows"), nb::arg("kernel").none(), nb::arg("fetch").none(), nb::arg("offset"), nb::arg("starts"), nb::arg("dtype"), nb::arg("memory"),
             nb::arg("buffer"), nb::arg("threads"), nb::arg("cache") = true, nb::arg("isa") = "")
        .def_prop_ro("cached_bytes", [](const PyKernelRows& k) { return k.store.cached_bytes(); });
    nb::class_<Surroundings>(m, "Surroundings", "What the rest of a larger problem does to the rows of one part of it.")
        .def(nb::init<>());
    nb::class_<PyWorkingSet>(m, "WorkingSet", "The working-set solver for one problem.")
        .def(nb::init<PyKernelRows&, std::vector<int>, const PyLoss&, bool, const Doubles&, const Doubles&, const std::optional<Doubles>&,
                      const Surroundings&, int>(),
             nb::arg("kernel_rows"), nb::arg("blocks"), nb::arg("loss"), nb::arg("pairs"), nb::arg("y"), nb::arg("C"), nb::arg("start").none(),
             nb::arg("around"), nb::arg("size"), nb::keep_alive<1, 2>())
        .def("discontent", &PyWorkingSet::discontent)
        .def("around", &PyWorkingSet::around, nb::arg("active"), nb::arg("time_left"))
        .def("adopt", &PyWorkingSet::adopt, nb::arg("active"), nb::arg("beta"), nb::arg("scores"), nb::arg("time_left"))
        .def("advance", &PyWorkingSet::advance, nb::arg("target"), nb::arg("max_rounds"), nb::arg("seconds"), nb::arg("time_left"))
        .def("certify", &PyWorkingSet::certify, nb::arg("time_left"))
        .def("figures", &PyWorkingSet::figures)
        .def_prop_ro("work", &PyWorkingSet::work, "Rounds, steps and kernel values so far.")
        .def_prop_ro("interrupted", &PyWorkingSet::interrupted)
        .def_prop_ro("beta", &PyWorkingSet::beta)
        .def_prop_ro("scores", &PyWorkingSet::scores);
    m.attr("KERNELS") = table(Kernels{});
    m.attr("LOSSES") = table(Losses{});
    m.def("isa_levels", [] {
        const Isa* found[4];
        nb::list names;
        for (int i = 0, n = usable_isas(found); i < n; ++i) names.append(found[i]->name);
        return names;
    }, "Instruction sets usable here, the best last.");
    m.def("tile", [](const PyKernel& kernel, const PyRows& A, const PyRows& B, const std::string& dtype, int threads, const std::string& isa) {
        check_features(A, B);
        return is_double(dtype) ? tile_of<double>(kernel, A, B, threads, choose_isa(isa)) : tile_of<float>(kernel, A, B, threads, choose_isa(isa));
    }, nb::arg("kernel"), nb::arg("A"), nb::arg("B"), nb::arg("dtype") = "float64", nb::arg("threads") = 1, nb::arg("isa") = "",
       "Kernel values of all rows of A with all rows of B.");
    m.def("scores", [](const PyKernel& kernel, const PyRows& X, const PyRows& points, const Table& coef, const std::string& dtype, int threads, const std::string& isa) {
        check_features(X, points);
        if (std::int64_t(coef.shape(0)) != points.rows.count) throw nb::value_error("one row of coefficients per point is needed");
        bool whole = false;
        std::vector<double> out = is_double(dtype) ? scores_of<double>(kernel, X, points, coef, threads, choose_isa(isa), whole)
                                                    : scores_of<float>(kernel, X, points, coef, threads, choose_isa(isa), whole);
        if (!whole) {
            PyErr_SetNone(PyExc_KeyboardInterrupt);
            throw nb::python_error();
        }
        return to_numpy(std::move(out), {std::size_t(X.rows.count), coef.shape(1)});
    }, nb::arg("kernel"), nb::arg("X"), nb::arg("points"), nb::arg("coef"), nb::arg("dtype") = "float64", nb::arg("threads") = 1, nb::arg("isa") = "",
       "Sums of coefficients times kernel values, for every row of X.");
}
