// Numbers of a struct by name: how Python passes the parameters of kernels and losses.
#pragma once

namespace margrave {

template <class Params>
struct Named {
    const char* name;
    double Params::* member;
};

}  // namespace margrave
