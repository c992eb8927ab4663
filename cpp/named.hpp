// Numbers of a struct by their names: how the parameters of kernels and losses come from Python.
#pragma once

namespace margrave {

template <class Params>
struct Named {
    const char* name;
    double Params::* member;
};

}  // namespace margrave
