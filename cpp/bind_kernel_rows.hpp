// Kernel rows for Python.
#pragma once
#include "bind.hpp"

namespace margrave {

// The store and the rows that it borrows.
struct PyKernelRows {
    PyRows rows;
    nb::object function;  // kept here too: it must not be released without the interpreter's lock
    KernelStore store;

    PyKernelRows(PyRows borrowed, const std::optional<PyKernel>& kernel, nb::object fetch,
                 double offset, std::vector<std::int64_t> starts, const std::string& dtype,
                 std::int64_t memory, std::int64_t buffer, int threads, bool cache,
                 const std::string& isa);

    // K[points, queries] coef, None if Ctrl-C or the time limit stopped it; and whether it was
    // Ctrl-C.
    nb::tuple multiply(const Longs& queries, const Table& coef, const Longs& points, bool exact,
                       double time_left);
    // The same for the points of one block, one row of sums per output, from cached values where
    // there are any.
    nb::object block_sums(const Longs& queries, const Table& coef, int block);
    nb::object diagonal(const Longs& points);
    // Sums with compensation and bounds of their errors; None for both where the source cannot or
    // was stopped.
    nb::tuple multiply_carefully(const Longs& queries, const Doubles& coef, const Longs& points,
                                 double time_left);
    nb::tuple rounding(const Longs& points);

  private:
    Subset some(const Longs& list) const;
};

}  // namespace margrave
