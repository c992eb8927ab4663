// What all compiled solvers offer to Python: rounds, figures, the certificate, the point.
#pragma once
#include "bind.hpp"
#include "moving_point.hpp"

namespace margrave {

// The record of a round; `work` is what the method counts besides its steps.
inline nb::dict record_of(const Round& r, const char* work, const nb::object& count) {
    nb::dict d;
    d["round"] = r.round;
    d["objective"] = r.primal;
    d["dual"] = r.dual;
    d["gap"] = r.gap;
    d["violation"] = r.violation;
    d["support"] = r.support;
    d["steps"] = r.steps;
    d[work] = count;
    d["intercept"] = r.bias;
    d["ago"] = seconds_since(r.when);
    return d;
}

// How the rounds ended, and one record for each.
inline nb::tuple ended(Status status, const std::vector<Round>& records,
                       nb::dict (*as_dict)(const Round&)) {
    static const char* names[] = {"running", "converged", "stalled", "stopped"};
    nb::list list;
    for (const Round& r : records) list.append(as_dict(r));
    return nb::make_tuple(names[int(status)], list);
}

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

}  // namespace margrave
