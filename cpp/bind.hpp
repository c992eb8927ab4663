// What the binding files share: the only part of the core that sees Python.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "kernel_rows.hpp"
#include "loss.hpp"

namespace nb = nanobind;

namespace margrave {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;  // one per row, or several

template <class A>
std::vector<double> copied(const A& a) {
    return {a.data(), a.data() + a.size()};
}

template <class T>
nb::object to_numpy(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape, owner));
}
template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    const std::size_t n = values.size();
    return to_numpy(std::move(values), {n});
}

inline void check_length(std::int64_t n, std::initializer_list<std::size_t> lengths) {
    for (std::size_t length : lengths)
        if (std::int64_t(length) != n) throw nb::value_error("solver: arrays of a wrong length");
}

inline bool ctrl_c() {
    nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return false;
    PyErr_Clear();
    return true;
}

// Ctrl-C, or a Python function says so: other threads than the main one do not see Ctrl-C.
inline std::function<bool()> ctrl_c_or(const nb::callable& is_over) {
    return [is_over] {
        nb::gil_scoped_acquire hold;
        return ctrl_c() || nb::cast<bool>(is_over());
    };
}

[[noreturn]] inline void raise_interrupt() {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
}

inline bool is_double(const std::string& dtype) {
    if (dtype != "float32" && dtype != "float64")
        throw nb::value_error(("dtype must be float32 or float64, got " + dtype).c_str());
    return dtype == "float64";
}

inline const Isa& choose_isa(const std::string& name) {
    const Isa* found[4];
    const int n = usable_isas(found);
    if (n == 0) throw nb::value_error("margrave needs a processor of the level x86-64-v2 or later");
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

// Stores numbers by their names.
template <class Params, std::size_t N>
void assign(Params& params, const Named<Params> (&known)[N], const nb::kwargs& numbers) {
    for (auto [key, value] : numbers) {
        const std::string name = nb::cast<std::string>(key);
        const auto* found =
            std::find_if(known, known + N, [&](const auto& one) { return name == one.name; });
        if (found == known + N)
            throw nb::type_error(("there is no parameter '" + name + "'").c_str());
        params.*found->member = nb::cast<double>(value);
    }
}

struct PyKernel {
    KernelParams params;
    std::string name;
    PyKernel(const std::string& name, const nb::kwargs& numbers) : name(name) {
        int at = 0;
        params.id = -1;
        Kernels::each([&](auto k) {
            if (name == decltype(k)::name) params.id = at;
            ++at;
        });
        if (params.id < 0) throw nb::value_error(("unknown kernel '" + name + "'").c_str());
        assign(params, kKernelParameters, numbers);
    }
};

struct PyLoss {
    LossParams params;
    PyLoss(const std::string& name, const nb::kwargs& numbers) {
        params.id = -1;
        int at = 0;
        Losses::each([&](auto l) {
            if (name == decltype(l)::name) params.id = at;
            ++at;
        });
        if (params.id < 0) throw nb::value_error(("unknown loss '" + name + "'").c_str());
        assign(params, kLossParameters, numbers);
    }
    template <class F, class... A>
    nb::object map(F&& f, const Doubles& first, const A&... rest) const {
        std::vector<double> out(first.size());
        if (((rest.size() != first.size()) || ...))
            throw nb::value_error("arrays of unequal length");
        {
            nb::gil_scoped_release free;
            Losses::visit(params, [&](const auto& loss) {
                for (std::size_t i = 0; i < out.size(); ++i)
                    out[i] = f(loss, first.data()[i], rest.data()[i]...);
            });
        }
        return to_numpy(std::move(out));
    }
};

void bind_kernel_rows(nb::module_& m);
void bind_solvers(nb::module_& m);
void bind_linear(nb::module_& m);
void bind_text(nb::module_& m);

}  // namespace margrave
