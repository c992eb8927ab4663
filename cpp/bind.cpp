// Rows, kernels, losses, tiles and scores for Python; bind_solvers.cpp has the rest.
#include <sstream>

#include "bind.hpp"
#include "exact_step.hpp"
#include "gradients.hpp"
#include "spatial_order.hpp"
#include "team.hpp"

using namespace margrave;

namespace {

PyRows dense_rows(nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu> array) {
    PyRows r;
    r.rows.is_double = array.dtype() == nb::dtype<double>();
    if (!r.rows.is_double && array.dtype() != nb::dtype<float>())
        throw nb::type_error("rows must be float32 or float64");
    r.rows.count = std::int64_t(array.shape(0));
    r.rows.features = std::int64_t(array.shape(1));
    r.rows.values = array.data();
    r.rows.row_stride = array.stride(0);
    r.rows.column_stride = array.stride(1);
    r.keep.push_back(nb::cast(array));
    return r;
}

PyRows csr_rows(nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> values,
                nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu> indices,
                Longs starts, std::int64_t features) {
    PyRows r;
    r.rows.sparse = true;
    r.rows.is_double = values.dtype() == nb::dtype<double>();
    r.rows.wide_indices = indices.dtype() == nb::dtype<std::int64_t>();
    if (!r.rows.is_double && values.dtype() != nb::dtype<float>())
        throw nb::type_error("rows must be float32 or float64");
    if (!r.rows.wide_indices && indices.dtype() != nb::dtype<std::int32_t>())
        throw nb::type_error("indices must be int32 or int64");
    if (starts.size() < 1 || features >= (std::int64_t(1) << 31))
        throw nb::value_error("compressed rows of the wrong shape");
    r.rows.count = std::int64_t(starts.size()) - 1;
    r.rows.features = features;
    r.rows.values = values.data();
    r.rows.indices = indices.data();
    r.rows.starts = starts.data();
    // These numbers address memory: check them once.
    const std::int64_t stored = std::int64_t(std::min(values.size(), indices.size()));
    const std::int64_t first = starts.data()[0];
    const std::int64_t last = starts.data()[r.rows.count];
    bool ordered = first >= 0 && last <= stored;
    for (std::int64_t i = 0; i < r.rows.count; ++i)
        ordered &= starts.data()[i] <= starts.data()[i + 1];
    if (!ordered) throw nb::value_error("compressed rows: offsets do not fit the data");
    const auto all = [&](const auto* x, auto&& good) {
        bool every = true;
        for (std::int64_t t = first; t < last; ++t) every &= good(x[t]);
        return every;
    };
    const auto known = [&](auto k) { return std::uint64_t(k) < std::uint64_t(features); };
    const auto is_one = [](auto v) { return v == 1; };
    if (!(r.rows.wide_indices ? all(static_cast<const std::int64_t*>(r.rows.indices), known)
                              : all(static_cast<const std::int32_t*>(r.rows.indices), known)))
        throw nb::value_error("compressed rows: a column index is out of range");
    r.rows.ones = r.rows.is_double ? all(static_cast<const double*>(r.rows.values), is_one)
                                   : all(static_cast<const float*>(r.rows.values), is_one);
    r.keep = {nb::cast(values), nb::cast(indices), nb::cast(starts)};
    return r;
}

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

template <class T>
nb::object tile_of(const PyKernel& kernel, const PyRows& A, const PyRows& B, int threads,
                   const Isa& isa) {
    const std::int64_t n = A.rows.count;
    const std::int64_t m = B.rows.count;
    const std::int64_t stride = (m + 63) / 64 * 64;
    std::vector<T> out(std::size_t(n) * m);
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        TileSource<T> source(kernel.params, A.rows, B.rows, isa, pool);
        const std::int64_t per = std::max<std::int64_t>(
            1, std::min<std::int64_t>(n, (1 << 24) / std::max<std::int64_t>(1, stride)));
        Aligned<T> buffer(per * stride);
        std::vector<T*> rows(per);
        for (std::int64_t r = 0; r < per; ++r) rows[r] = buffer.data() + r * stride;
        for (std::int64_t from = 0; from < n; from += per) {
            const std::int64_t k = std::min(per, n - from);
            source.tile({nullptr, from, k}, {nullptr, 0, m}, rows.data(), nullptr);
            for (std::int64_t r = 0; r < k; ++r)
                std::copy(rows[r], rows[r] + m, out.begin() + (from + r) * m);
        }
    }
    return to_numpy(std::move(out), {std::size_t(n), std::size_t(m)});
}

// The share of values below kNegligible<float> in a sample of pairs of rows.
double negligible_share(KernelParams kernel, const Rows& A, const Rows& B) {
    bool shift_invariant = false;
    Kernels::visit(kernel.id, [&](auto k) { shift_invariant = is_shift_invariant<decltype(k)>; });
    if (!shift_invariant || A.sparse || B.sparse || A.count == 0 || B.count == 0) return 0;
    constexpr std::int64_t most = 128;
    const auto sample = [&](const Rows& rows) {
        std::vector<std::int64_t> some;
        const std::int64_t n = std::min(most, rows.count);
        for (std::int64_t i = 0; i < n; ++i) some.push_back((rows.count - 1) * i / n);
        return some;
    };
    kernel.offset = 0;
    const std::vector<std::int64_t> a = sample(A);
    const std::vector<std::int64_t> b = sample(B);
    Threads one(1);
    TileSource<float> source(kernel, A, B, choose_isa(""), one);
    Aligned<float> values(a.size() * most);
    std::vector<float*> out;
    for (std::size_t q = 0; q < a.size(); ++q) out.push_back(values.data() + q * most);
    source.tile(Subset::of(a), Subset::of(b), out.data(), nullptr);
    std::int64_t found = 0;
    for (const float* row : out)
        for (std::size_t j = 0; j < b.size(); ++j) found += row[j] <= kNegligible<float>;
    return double(found) / double(a.size() * b.size());
}

constexpr std::int64_t kLeaf = 32;             // a panel of floats
constexpr std::int64_t kWorthOrdering = 2000;  // rows

// Sums over the features in so many lanes, which the compiler turns into vectors.
constexpr int kLanes = 8;
template <class U, class F>
double sum_of(const double* x, const U* z, std::int64_t features, F&& term) {
    double lanes[kLanes] = {};
    std::int64_t k = 0;
    for (; k + kLanes <= features; k += kLanes)
        for (int l = 0; l < kLanes; ++l) lanes[l] += term(x[k + l], double(z[k + l]));
    double sum = 0;
    for (; k < features; ++k) sum += term(x[k], double(z[k]));
    for (double lane : lanes) sum += lane;
    return sum;
}

constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kFewProducts = 1 << 20;

// Whether packing takes longer than a pass over the rows as they are.
bool are_few(const Rows& X, const Rows& points) {
    return !X.sparse && !points.sparse && points.column_stride == 1 && X.count <= kFewRows &&
           X.count * points.count * points.features <= kFewProducts;
}

// Sums for a few rows X, in double precision.
template <class U>
void add_scores(const KernelParams& kernel, const Rows& X, const Rows& points, const Table& coef,
                std::vector<double>& sums) {
    const std::int64_t d = points.features;
    const std::int64_t outputs = std::int64_t(coef.shape(1));
    constexpr std::int64_t W = sizeof(Vec<double>) / sizeof(double);
    std::vector<double> x(d);
    Kernels::visit(kernel.id, [&](auto k) {
        const auto pair_with = [&](const U* z) {
            if constexpr (k.pairing == Pairing::product)
                return sum_of(x.data(), z, d, [](double a, double b) { return a * b; });
            else if constexpr (k.pairing == Pairing::squares)
                return sum_of(x.data(), z, d, [](double a, double b) { return (a - b) * (a - b); });
            else
                return sum_of(x.data(), z, d, [](double a, double b) { return std::fabs(a - b); });
        };
        for (std::int64_t i = 0; i < X.count; ++i) {
            X.each(i, [&](std::int64_t at, double value) { x[at] = value; });
            for (std::int64_t from = 0; from < points.count; from += W) {
                const std::int64_t n = std::min(W, points.count - from);
                Vec<double> pairs = splat(1.0);
                for (std::int64_t j = 0; j < n; ++j)
                    pairs[j] = pair_with(static_cast<const U*>(points.values) +
                                         (from + j) * points.row_stride);
                const Vec<double> values =
                    decltype(k)::template map<Vec<double>, double>(kernel, pairs);
                for (std::int64_t j = 0; j < n; ++j)
                    for (std::int64_t o = 0; o < outputs; ++o)
                        sums[i * outputs + o] +=
                            coef.data()[(from + j) * outputs + o] * (values[j] + kernel.offset);
            }
        }
    });
}

// The sums, and how many kernel values were computed for them.
template <class T>
std::pair<std::vector<double>, std::int64_t> scores_of(const PyKernel& kernel, const PyRows& X,
                                                       const PyRows& points, const Table& coef,
                                                       int threads, double seconds, const Isa& isa,
                                                       Watch& watch) {
    nb::gil_scoped_release free;
    watch.limit(seconds);
    std::vector<double> out(std::size_t(X.rows.count) * coef.shape(1));
    if (are_few(X.rows, points.rows)) {
        const auto add = points.rows.is_double ? add_scores<double> : add_scores<float>;
        add(kernel.params, X.rows, points.rows, coef, out);
        return {std::move(out), X.rows.count * points.rows.count};
    }
    Threads pool(threads);
    const int outputs = int(coef.shape(1));
    TileSource<T> source(kernel.params, points.rows, X.rows, isa, pool);
    if (std::min(points.rows.count, X.rows.count) < kWorthOrdering ||
        negligible_share(kernel.params, points.rows, X.rows) < 0.5) {
        source.apply({nullptr, 0, points.rows.count}, coef.data(), outputs,
                     {nullptr, 0, X.rows.count}, out.data(), &watch);
        return {std::move(out), source.values_computed()};
    }
    const auto from = spatial_order(points.rows, kLeaf, pool, &watch);
    const auto to = spatial_order(X.rows, kLeaf, pool, &watch);
    std::vector<double> ordered;
    for (std::int64_t i : from)
        ordered.insert(ordered.end(), coef.data() + i * outputs, coef.data() + (i + 1) * outputs);
    std::vector<double> sums(out.size());
    source.skip_distant(Subset::of(from), Subset::of(to));
    source.apply(Subset::of(from), ordered.data(), outputs, Subset::of(to), sums.data(), &watch);
    for (std::size_t j = 0; j < to.size(); ++j)
        std::copy_n(sums.data() + j * outputs, outputs, out.data() + to[j] * outputs);
    return {std::move(out), source.values_computed()};
}

nb::object order_of(const PyRows& X, std::int64_t leaf, int threads, double seconds) {
    if (X.rows.sparse) throw nb::value_error("the order of sparse rows is not known");
    if (leaf < 1) throw nb::value_error("a leaf has at least one row");
    std::vector<std::int64_t> order;
    Watch watch;
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        watch.interrupted = ctrl_c;
        watch.limit(seconds);
        order = spatial_order(X.rows, leaf, pool, &watch);
    }
    if (watch.was_interrupted) raise_interrupt();
    if (watch.stopped()) throw Stopped{};
    return to_numpy(std::move(order));
}

void check_features(const PyRows& A, const PyRows& B) {
    if (A.rows.features != B.rows.features) throw nb::value_error("rows of unequal length");
}

nb::object tile(const PyKernel& kernel, const PyRows& A, const PyRows& B, const std::string& dtype,
                int threads, const std::string& isa) {
    check_features(A, B);
    return is_double(dtype) ? tile_of<double>(kernel, A, B, threads, choose_isa(isa))
                            : tile_of<float>(kernel, A, B, threads, choose_isa(isa));
}

nb::object scores(const PyKernel& kernel, const PyRows& X, const PyRows& points, const Table& coef,
                  const std::string& dtype, int threads, const std::string& isa, double seconds,
                  const std::optional<nb::callable>& stop_if) {
    check_features(X, points);
    if (std::int64_t(coef.shape(0)) != points.rows.count)
        throw nb::value_error("one row of coefficients per point is needed");
    Watch watch;
    watch.interrupted = stop_if ? ctrl_c_or(*stop_if) : ctrl_c;
    const auto compute = is_double(dtype) ? scores_of<double> : scores_of<float>;
    auto [out, computed] =
        compute(kernel, X, points, coef, threads, seconds, choose_isa(isa), watch);
    if (watch.was_interrupted) raise_interrupt();
    if (watch.stopped()) throw Stopped{};
    return nb::make_tuple(to_numpy(std::move(out), {std::size_t(X.rows.count), coef.shape(1)}),
                          computed);
}

nb::object gradients(const PyKernel& kernel, const PyRows& X, const PyRows& points,
                     const Table& coef, const std::string& dtype, int threads,
                     const std::string& isa, double seconds) {
    check_features(X, points);
    if (X.rows.sparse || points.rows.sparse) throw nb::value_error("gradients need dense rows");
    if (std::int64_t(coef.shape(0)) != points.rows.count)
        throw nb::value_error("one row of coefficients per point is needed");
    Kernels::visit(kernel.params.id, [&](auto k) {
        if (!is_shift_invariant<decltype(k)>)
            throw nb::value_error("gradients are for kernels of a distance");
    });
    const std::int64_t outputs = std::int64_t(coef.shape(1));
    std::vector<double> out(std::size_t(X.rows.count * outputs * X.rows.features));
    Watch watch;
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        watch.interrupted = ctrl_c;
        watch.limit(seconds);
        const auto compute =
            is_double(dtype) ? compute_gradients<double> : compute_gradients<float>;
        compute(kernel.params, points.rows, coef.data(), int(outputs), X.rows, out.data(),
                choose_isa(isa), pool, watch);
    }
    if (watch.was_interrupted) raise_interrupt();
    if (watch.stopped()) throw Stopped{};
    return to_numpy(std::move(out), {std::size_t(X.rows.count), std::size_t(outputs),
                                     std::size_t(X.rows.features)});
}

nb::list isa_levels() {
    const Isa* found[4];
    const int count = usable_isas(found);
    nb::list names;
    for (int i = 0; i < count; ++i) names.append(found[i]->name);
    return names;
}

void bind_rows(nb::module_& m) {
    nb::class_<PyRows>(m, "Rows", "Rows of a matrix, borrowed from numpy arrays without a copy.")
        .def_static("dense", &dense_rows, nb::arg("array"))
        .def_static("csr", &csr_rows, nb::arg("data"), nb::arg("indices"), nb::arg("indptr"),
                    nb::arg("n_columns"))
        .def_prop_ro("n_rows", [](const PyRows& r) { return r.rows.count; })
        .def_prop_ro("n_columns", [](const PyRows& r) { return r.rows.features; });
    nb::class_<PyKernel>(m, "Kernel",
                         "A kernel function with its parameters; `offset` is added to every value.")
        .def(nb::init<const std::string&, nb::kwargs>(), nb::arg("name"), nb::arg("numbers"))
        .def_prop_ro(
            "shift_invariant",
            [](const PyKernel& kernel) {
                bool found = false;
                Kernels::visit(kernel.params.id,
                               [&](auto k) { found = is_shift_invariant<decltype(k)>; });
                return found;
            },
            "Whether values decrease with a distance, from k(x, x) = 1.")
        .def_prop_ro(
            "pairing",
            [](const PyKernel& kernel) {
                constexpr const char* names[] = {"product", "distance", "squares"};
                const char* found = "";
                Kernels::visit(kernel.params.id, [&](auto k) { found = names[int(k.pairing)]; });
                return found;
            },
            "What it is a function of: the product x'z, the distance |x - z|_1, or the squares "
            "|x - z|^2.")
        .def(
            "negligible",
            [](const PyKernel& kernel, bool single) {
                double found = 0;
                Kernels::visit(kernel.params.id, [&](auto k) {
                    if (!is_shift_invariant<decltype(k)>) return;
                    found = single ? kNegligible<float> : kNegligible<double>;
                });
                return found;
            },
            nb::arg("single"),
            "Values up to this, without the offset, may be left out of sums, in single precision "
            "or in double.")
        .def_ro("name", &PyKernel::name)
        .def(
            "far",
            [](const PyKernel& kernel, bool single) {
                bool local = false;
                Kernels::visit(kernel.params.id,
                               [&](auto k) { local = is_shift_invariant<decltype(k)>; });
                const double value = single ? kNegligible<float> : kNegligible<double>;
                return local ? distance_below(kernel.params, value / 2) : HUGE_VAL;
            },
            nb::arg("single"),
            "The distance (or its square, as the kernel has it) from which on values are "
            "negligible, in single precision or in double.")
        .def_prop_ro(
            "packed",
            [](const PyKernel& kernel) { return nb::bytes(&kernel.params, sizeof kernel.params); },
            "The struct that the compiled code reads.");
}

// A property of the loss itself.
template <class F>
auto trait(F f) {
    return [f](const PyLoss& l) {
        bool value = false;
        Losses::visit(l.params, [&](const auto& loss) { value = f(loss); });
        return value;
    };
}

// A method f(loss, y, C, x) of one row, where x is a score or a dual variable, for all rows.
template <class F>
auto each_row(F f) {
    return [f](const PyLoss& l, Doubles y, Doubles C, Doubles x) { return l.map(f, y, C, x); };
}

using LossClass = nb::class_<PyLoss>;

void bind_traits(LossClass& c) {
    c.def_prop_ro("labels", trait([](const auto& loss) { return loss.labels; }),
                  "Whether targets are +-1.");
    c.def_prop_ro("smooth", trait([](const auto& loss) { return loss.smooth; }),
                  "Whether the value has a derivative everywhere.");
    c.def_prop_ro("quadratic", trait([](const auto& loss) { return loss.quadratic; }),
                  "Whether the conjugate is a parabola on either side of zero.");
    c.def_prop_ro("sides", trait([](const auto& loss) { return loss.sides; }),
                  "Whether rows with y = +1 and y = -1 keep a sum each.");
    c.def_prop_ro(
        "packed", [](const PyLoss& loss) { return nb::bytes(&loss.params, sizeof loss.params); },
        "The struct that the compiled code reads.");
}

void bind_value(LossClass& c) {
    const nb::arg y("y");
    const nb::arg C("C");
    const nb::arg f("f");
    const auto value = [](const auto& l, double y, double C, double f) { return l.value(y, C, f); };
    const auto slope = [](const auto& l, double y, double C, double f) { return l.slope(y, C, f); };
    const auto second = [](const auto& l, double y, double C, double f) {
        return l.second_derivative(y, C, f);
    };
    c.def("value", each_row(value), y, C, f);
    c.def("slope", each_row(slope), y, C, f, "Derivative of the value.");
    c.def("second_derivative", each_row(second), y, C, f, "Of the value.");
}

void bind_conjugate(LossClass& c) {
    const nb::arg y("y");
    const nb::arg C("C");
    const nb::arg beta("beta");
    const auto conjugate = [](const auto& l, double y, double C, double b) { return l.h(y, C, b); };
    const auto right = [](const auto& l, double y, double C, double b) {
        return b < l.hi(y, C) ? l.right_derivative(y, C, b) : kInfinity;
    };
    const auto left = [](const auto& l, double y, double C, double b) {
        return b > l.lo(y, C) ? l.left_derivative(y, C, b) : -kInfinity;
    };
    const auto box = [](const PyLoss& loss, Doubles y, Doubles C) {
        return nb::make_tuple(
            loss.map([](const auto& l, double y, double C) { return l.lo(y, C); }, y, C),
            loss.map([](const auto& l, double y, double C) { return l.hi(y, C); }, y, C));
    };
    c.def("conjugate", each_row(conjugate), y, C, beta);
    c.def("right_derivative", each_row(right), y, C, beta,
          "Derivative of the conjugate from the right; infinite at the upper bound.");
    c.def("left_derivative", each_row(left), y, C, beta,
          "Derivative of the conjugate from the left; infinite at the lower bound.");
    c.def("box", box, y, C, "Bounds on beta.");
    const auto start = [](const PyLoss& loss, Doubles y, Doubles C) {
        return loss.map([](const auto& l, double y, double C) { return l.start(y, C); }, y, C);
    };
    c.def("start", start, y, C, "A feasible beta for a cold start.");
}

void bind_steps(LossClass& c) {
    const auto step = [](const PyLoss& loss, Doubles y, Doubles C, Doubles beta, Doubles f,
                         Doubles k) {
        const auto one = [](const auto& l, double y, double C, double b, double f, double k) {
            return one_step(l, y, C, std::clamp(b, l.lo(y, C), l.hi(y, C)), f, k);
        };
        return loss.map(one, y, C, beta, f, k);
    };
    const auto gap = [](const PyLoss& loss, Doubles y, Doubles C, Doubles beta, Doubles f) {
        const auto one = [](const auto& l, double y, double C, double b, double f) {
            return l.gap(y, C, b, f);
        };
        return loss.map(one, y, C, beta, f);
    };
    c.def("step", step, nb::arg("y"), nb::arg("C"), nb::arg("beta"), nb::arg("f"), nb::arg("k"));
    c.def("gap", gap, nb::arg("y"), nb::arg("C"), nb::arg("beta"), nb::arg("f"));
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core: kernel tiles, losses, and the solvers.";
    bind_rows(m);
    LossClass loss(m, "Loss", "A loss and its conjugate, evaluated row by row.");
    loss.def(nb::init<const std::string&, nb::kwargs>(), nb::arg("name"), nb::arg("numbers"));
    bind_traits(loss);
    bind_value(loss);
    bind_conjugate(loss);
    bind_steps(loss);
    bind_kernel_rows(m);
    bind_solvers(m);
    bind_linear(m);
    bind_text(m);
    m.attr("KERNELS") = table(Kernels{});
    m.attr("LOSSES") = table(Losses{});
    m.def(
        "negligible_share",
        [](const PyKernel& kernel, const PyRows& A, const PyRows& B) {
            check_features(A, B);
            nb::gil_scoped_release free;
            return negligible_share(kernel.params, A.rows, B.rows);
        },
        nb::arg("kernel"), nb::arg("A"), nb::arg("B"),
        "Share of the kernel values of dense rows that are negligible in single precision, from a "
        "sample of pairs.");
    m.def("spatial_order", &order_of, nb::arg("rows"), nb::arg("leaf") = kLeaf,
          nb::arg("threads") = 1, nb::arg("seconds") = 1e18,
          "An order of dense rows in which neighbours are close: the leaves of a k-d tree. Raises "
          "Stopped when the time is up.");
    m.def("isa_levels", &isa_levels, "Instruction sets usable here, the best last.");
    m.def("tile", &tile, nb::arg("kernel"), nb::arg("A"), nb::arg("B"),
          nb::arg("dtype") = "float64", nb::arg("threads") = 1, nb::arg("isa") = "",
          "Kernel values of all rows of A with all rows of B.");
    m.def("gradients", &gradients, nb::arg("kernel"), nb::arg("X"), nb::arg("points"),
          nb::arg("coef"), nb::arg("dtype") = "float64", nb::arg("threads") = 1,
          nb::arg("isa") = "", nb::arg("seconds") = 1e18,
          "The gradients of these sums at every row of X, for kernels of a distance between dense "
          "rows: an array of rows, columns of `coef` and features. Raises Stopped when the time is "
          "up.");
    m.def("scores", &scores, nb::arg("kernel"), nb::arg("X"), nb::arg("points"), nb::arg("coef"),
          nb::arg("dtype") = "float64", nb::arg("threads") = 1, nb::arg("isa") = "",
          nb::arg("seconds") = 1e18, nb::arg("stop_if").none() = nb::none(),
          "Sums of coefficients times kernel values, for every row of X, and how many values were "
          "computed for them; raises Stopped when the time is up, and KeyboardInterrupt when "
          "`stop_if` returns true.");
}
