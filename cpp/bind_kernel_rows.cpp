// Kernel rows for Python: products with them, what rounding does to them, and rows of points from
// elsewhere.
#include "bind_kernel_rows.hpp"

#include <cstring>

#include "foreign_rows.hpp"

namespace margrave {

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

std::vector<std::int64_t> checked(std::vector<std::int64_t> starts, std::int64_t rows) {
    if (starts.size() < 2 || starts.front() != 0 || starts.back() != rows ||
        !std::is_sorted(starts.begin(), starts.end()))
        throw nb::value_error("blocks do not cover the rows");
    return starts;
}

// Native kernels pack their rows without the interpreter's lock, so that threads do it side by
// side; a Python function cannot be copied without it.
KernelStore build(const Rows& rows, const KernelParams* kernel, Fetch fetch, double offset,
                  std::vector<std::int64_t> starts, StoreSettings settings, const Isa& isa) {
    std::optional<nb::gil_scoped_release> free;
    if (kernel) free.emplace();
    return KernelStore(rows, kernel, std::move(fetch), offset, std::move(starts), settings, isa);
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

}  // namespace

PyKernelRows::PyKernelRows(PyRows borrowed, const std::optional<PyKernel>& kernel, nb::object fetch,
                           double offset, std::vector<std::int64_t> starts,
                           const std::string& dtype, std::int64_t memory, std::int64_t buffer,
                           int threads, bool cache, const std::string& isa)
    : rows(std::move(borrowed)),
      function(fetch),
      store(build(rows.rows, kernel ? &kernel->params : nullptr,
                  fetch.is_none() ? values_of(rows.rows) : ask_python(fetch), offset,
                  checked(std::move(starts), rows.rows.count),
                  {is_double(dtype), cache, memory, buffer, threads}, choose_isa(isa))) {}

nb::tuple PyKernelRows::multiply(const Longs& queries, const Table& coef, const Longs& points,
                                 bool exact, double time_left) {
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
            whole = same ? source.apply_among(from, coef.data(), sums.data(), &watch)
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

nb::object PyKernelRows::block_sums(const Longs& queries, const Table& coef, int block) {
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
            whole = kernel.add(which, coef.data(), int(outputs), block, true, sums.data(), &watch);
        };
        if (store.is_double())
            run(store.view<double>());
        else
            run(store.view<float>());
    }
    if (!whole) raise_interrupt();
    return to_numpy(std::move(sums), {outputs, width});
}

nb::object PyKernelRows::diagonal(const Longs& points) {
    const Subset of = some(points);
    std::vector<double> values(of.count);
    for (std::int64_t i = 0; i < of.count; ++i)
        values[i] = store.view<double>().exact->diagonal(of[i]);
    return to_numpy(std::move(values));
}

nb::tuple PyKernelRows::multiply_carefully(const Longs& queries, const Doubles& coef,
                                           const Longs& points, double time_left) {
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

nb::tuple PyKernelRows::rounding(const Longs& points) {
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
                for (std::int64_t i = t * per; i < std::min(of.count, (t + 1) * per); ++i) fill(i);
            });
    }
    return nb::make_tuple(to_numpy(std::move(products)), to_numpy(std::move(relative)),
                          to_numpy(std::move(roots)));
}

Subset PyKernelRows::some(const Longs& list) const {
    for (std::size_t i = 0; i < list.size(); ++i)
        if (list.data()[i] < 0 || list.data()[i] >= rows.rows.count)
            throw nb::value_error("no such row");
    return {list.data(), 0, std::int64_t(list.size())};
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
        .def_prop_ro(
            "centre",
            [](PyKernelRows& k) { return to_numpy(k.store.view<double>().exact->centre()); },
            "What is subtracted from all rows; empty for nothing.")
        .def_prop_ro("cached_bytes", [](const PyKernelRows& k) { return k.store.cached_bytes(); })
        .def_prop_ro(
            "kernel_values",
            [](PyKernelRows& k) {
                return k.store.is_double() ? k.store.view<double>().values_computed()
                                           : k.store.view<float>().values_computed();
            },
            "How many kernel values were computed so far; negligible ones are skipped.");
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

}  // namespace margrave
