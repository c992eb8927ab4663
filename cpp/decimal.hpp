// Decimal numbers in text: read with correct rounding, written as the shortest text that reads back
// as the same number.
#pragma once
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>

#ifdef __APPLE__
#include <xlocale.h>
#endif

namespace margrave {

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// The decimal exponent that p may begin with, [eE] [+-] digits, and one past it; p itself, and
// zero, if there is none.
inline const char* read_exponent(const char* p, std::int64_t& exponent) {
    exponent = 0;
    if (*p != 'e' && *p != 'E') return p;
    const char* q = p + 1;
    const bool negative = *q == '-';
    if (negative || *q == '+') ++q;
    if (!is_digit(*q)) return p;
    for (; is_digit(*q); ++q)
        if (exponent < 1000000) exponent = 10 * exponent + (*q - '0');
    if (negative) exponent = -exponent;
    return q;
}

// Reads [+-] digits [. digits] [e [+-] digits] from p on and returns one past it; p itself if no
// number is there. The text has to end with a character that belongs to no number. What is too
// large for a double comes out as infinity.
inline const char* read_decimal(const char* p, double& value) {
    static constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char* const begin = p;
    const bool negative = *p == '-';
    if (negative || *p == '+') ++p;
    const char* const digits = p;
    std::uint64_t mantissa = 0;  // of up to 19 digits; of more it is not used
    while (is_digit(*p)) mantissa = 10 * mantissa + std::uint64_t(*p++ - '0');
    std::int64_t count = p - digits;
    std::int64_t exponent = 0;
    if (*p == '.') {
        const char* const fraction = ++p;
        while (is_digit(*p)) mantissa = 10 * mantissa + std::uint64_t(*p++ - '0');
        exponent = fraction - p;
        count -= exponent;
    }
    if (count == 0) return begin;
    std::int64_t power;
    p = read_exponent(p, power);
    exponent += power;
    // Whole numbers up to 2^53 and powers up to 10^22 are doubles: one operation on them rounds
    // once.
    if (count <= 19 && mantissa <= (std::uint64_t(1) << 53) && exponent >= -22 && exponent <= 22) {
        value = exponent < 0 ? double(mantissa) / powers[-exponent]
                             : double(mantissa) * powers[exponent];
    } else {
#ifdef __APPLE__
        // The library has no from_chars for doubles; without a locale strtod_l reads as C does.
        value = strtod_l(digits, nullptr, nullptr);
#else
        if (std::from_chars(digits, p, value).ec == std::errc::result_out_of_range) {
            for (const char* q = digits; *q == '0' || *q == '.'; ++q) count -= *q == '0';
            value = exponent + count > 0 ? std::numeric_limits<double>::infinity() : 0.0;
        }
#endif
    }
    if (negative) value = -value;
    return p;
}

template <class T>
void write_decimal(std::string& text, T value) {
    char digits[32];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace margrave
