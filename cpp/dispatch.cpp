// The instruction sets that this build holds, and which of them this processor has.
#include "isa.hpp"

#ifdef MARGRAVE_X86
#include <cpuid.h>

namespace margrave {
namespace v2 {
extern const Isa isa;
}
namespace v3 {
extern const Isa isa;
}
namespace v4 {
extern const Isa isa;
}

// The processor's level of x86-64, as the psABI defines it, by the cpuid instruction: the
// compiler's own function for it needs a library that Windows lacks.
static int level() {
    unsigned a = 0, b = 0, basic = 0, extended = 0, wide = 0, c = 0, d = 0;
    __get_cpuid(1, &a, &b, &basic, &d);
    __get_cpuid(0x80000001, &a, &b, &extended, &d);
    __get_cpuid_count(7, 0, &a, &wide, &c, &d);
    const auto all = [](unsigned found, unsigned needed) { return (found & needed) == needed; };
    if (!all(basic, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B) ||
        !all(extended, bit_LAHF_LM))
        return 1;
    if (!all(basic, bit_OSXSAVE | bit_AVX | bit_F16C | bit_FMA | bit_MOVBE) ||
        !all(extended, bit_LZCNT))
        return 2;
    // Which registers the operating system saves: 0x06 those of AVX, 0xe6 also those of AVX-512.
    unsigned kept = 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    if (!all(kept, 0x06) || !all(wide, bit_AVX2 | bit_BMI | bit_BMI2)) return 2;
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    return all(kept, 0xe6) && all(wide, avx512) ? 4 : 3;
}

int usable_isas(const Isa* (&found)[4]) {
    const Isa* const isas[] = {&v2::isa, &v3::isa, &v4::isa};
    // cpuid takes microseconds in a virtual machine: longer than the scores of a row.
    static const int count = level() - 1;
    for (int i = 0; i < count; ++i) found[i] = isas[i];
    return count;
}
}  // namespace margrave

#else

namespace margrave {
namespace generic {
extern const Isa isa;
}

int usable_isas(const Isa* (&found)[4]) {
    found[0] = &generic::isa;
    return 1;
}
}  // namespace margrave
#endif
