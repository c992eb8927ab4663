// The instruction sets that this build holds.
#include "isa.hpp"

namespace margrave {

#ifdef MARGRAVE_X86
namespace v2 { extern const Isa isa; }
namespace v3 { extern const Isa isa; }
namespace v4 { extern const Isa isa; }
static const Isa* const all[] = {&v2::isa, &v3::isa, &v4::isa};
#else
namespace generic { extern const Isa isa; }
static const Isa* const all[] = {&generic::isa};
#endif

int usable_isas(const Isa* (&found)[4]) {
    int n = 0;
    for (const Isa* isa : all)
        if (isa->usable()) found[n++] = isa;
    return n;
}

}  // namespace margrave
