// Compiled once per instruction set with MARGRAVE_ISA naming it; see CMakeLists.txt.
#include "isa.hpp"
#include "inner.hpp"
#include "row_operations.hpp"
#include "tile.hpp"

#define MARGRAVE_TEXT_(x) #x
#define MARGRAVE_TEXT(x) MARGRAVE_TEXT_(x)

namespace margrave {
inline namespace MARGRAVE_ISA {
extern const Isa isa;
const Isa isa = {MARGRAVE_TEXT(MARGRAVE_ISA),
                 row_operations,
                 {square<float>, tile<float>, apply<float>, gradients<float>, combine<float>,
                  solve_inner<float>},
                 {square<double>, tile<double>, apply<double>, gradients<double>, combine<double>,
                  solve_inner<double>}};
}  // namespace MARGRAVE_ISA
}  // namespace margrave
