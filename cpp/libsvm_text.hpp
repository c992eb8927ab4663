// LIBSVM's text: one row a line, numbers (a label, or coefficients of a model) followed by
// index:value pairs.
//
// Two passes over parts of whole lines, in parallel: the first counts lines and colons, which gives
// the positions of the rows and entries of each part; the second parses them into place. Comments
// and blank lines leave gaps that are closed at the end.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "decimal.hpp"
#include "row_view.hpp"
#include "threads.hpp"

namespace margrave {

// What is wrong in which line.
struct BadText : std::exception {
    std::string message;
    BadText(std::int64_t line, const std::string& what)
        : message(std::to_string(line) + ": " + what) {}
    const char* what() const noexcept override { return message.c_str(); }
};

enum class Base { zero, one, found };

// How a file is to be read.
struct TextRules {
    int heads = 1;            // numbers in front of the pairs of a line
    Base base = Base::found;  // found: an index of zero anywhere means zero-based
    std::int64_t most = (std::int64_t(1) << 31) - 2;  // the largest index
};

template <class T>
class LibsvmText {
  public:
    std::unique_ptr<T[]> values;
    std::unique_ptr<std::int32_t[]> columns;
    std::unique_ptr<std::int64_t[]> starts;  // entries of row i: starts[i] to starts[i + 1]
    std::unique_ptr<double[]> heads;
    std::int64_t rows = 0;
    std::int64_t entries = 0;
    std::int64_t features = 0;
    bool zero_based = false;
    bool has_qid = false;

    // False if the watch stopped it.
    bool read(const char* text, std::int64_t size, const TextRules& rules, Threads& threads,
              Watch& watch) {
        rules_ = rules;
        cut(text, size);
        if (!threads.run(std::int64_t(parts_.size()), &watch,
                         [&](std::int64_t s, int) { count(parts_[s]); }))
            return false;
        place();
        if (!threads.run(std::int64_t(parts_.size()), &watch,
                         [&](std::int64_t s, int) { parse(parts_[s]); }))
            return false;
        std::int64_t lines = 0;
        for (const Part& part : parts_) {
            if (!part.error.empty()) throw BadText(lines + part.error_line, part.error);
            lines += part.lines;
        }
        close_gaps();
        return number(threads, watch);
    }

  private:
    struct Part {
        // Whole lines, each with its newline.
        const char* from = nullptr;
        const char* to = nullptr;
        // There are at most as many rows and entries as lines and colons.
        std::int64_t lines = 0;
        std::int64_t colons = 0;
        // Where the first row and the first entry belong, and how many there are.
        std::int64_t row = 0;
        std::int64_t entry = 0;
        std::int64_t rows = 0;
        std::int64_t entries = 0;
        // The smallest and the largest index.
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        std::int64_t most = -1;
        std::int64_t error_line = 0;
        bool has_qid = false;
        std::string error = {};
    };

    void cut(const char* text, std::int64_t size) {
        constexpr std::int64_t step = 1 << 20;
        const char* end = text + size;
        const char* last = end;  // the last line may lack its newline, and gets it in a copy
        while (last > text && last[-1] != '\n') --last;
        for (const char* from = text; from < last;) {
            const char* to = last - from > step
                                 ? static_cast<const char*>(std::memchr(
                                       from + step, '\n', std::size_t(last - from - step))) +
                                       1
                                 : last;
            parts_.push_back({from, to});
            from = to;
        }
        if (last < end) {
            tail_.assign(last, end);
            tail_ += '\n';
            parts_.push_back({tail_.data(), tail_.data() + tail_.size()});
        }
    }

    static void count(Part& part) {
        const char* p = part.from;
        while (p < part.to) {  // counts up to 255 fit into bytes, which vectorise well
            const std::ptrdiff_t n = std::min<std::ptrdiff_t>(255, part.to - p);
            unsigned char lines = 0;
            unsigned char colons = 0;
            for (std::ptrdiff_t i = 0; i < n; ++i) {
                lines += p[i] == '\n';
                colons += p[i] == ':';
            }
            part.lines += lines;
            part.colons += colons;
            p += n;
        }
    }

    void place() {
        for (Part& part : parts_) {
            part.row = rows;
            part.entry = entries;
            rows += part.lines;
            entries += part.colons;
        }
        // Not filled here: the threads that parse touch the memory first
        values = std::make_unique_for_overwrite<T[]>(std::size_t(entries));
        columns = std::make_unique_for_overwrite<std::int32_t[]>(std::size_t(entries));
        starts = std::make_unique_for_overwrite<std::int64_t[]>(std::size_t(rows) + 1);
        heads = std::make_unique_for_overwrite<double[]>(std::size_t(rows) * rules_.heads);
        starts[0] = 0;
    }

    static bool is_blank(char c) {
        return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
    }
    static bool is_end(char c) { return c == ' ' || c == '\n' || c == '#' || is_blank(c); }
    static const char* skip(const char* p) {
        while (is_blank(*p)) ++p;
        return p;
    }

    // The word at p, for a message.
    static std::string shown(const char* p) {
        std::string word = "'";
        for (int n = 0; !is_end(*p); ++p, ++n) {
            if (n == 24) return word + "...'";
            const auto byte = static_cast<unsigned char>(*p);
            char code[8];
            std::snprintf(code, sizeof code, "\\x%02x", unsigned(byte));
            if (byte < 0x20 || byte >= 0x7f)
                word += code;
            else
                word += *p;
        }
        return word + "'";
    }

    void parse(Part& part) const {
        const char* p = part.from;
        for (std::int64_t line = 1; p < part.to; ++line) {
            p = skip(p);
            if (*p != '\n' && *p != '#') {
                p = parse_row(p, part);
                if (!p) {
                    part.error_line = line;
                    return;
                }
            }
            if (*p == '#')
                p = static_cast<const char*>(std::memchr(p, '\n', std::size_t(part.to - p)));
            ++p;
        }
    }

    // One row; returns the end of its line or the beginning of its comment, null for an error.
    const char* parse_row(const char* p, Part& part) const {
        const std::int64_t row = part.row + part.rows;
        for (int h = 0; h < rules_.heads; ++h) {
            p = skip(p);
            double& head = heads[row * rules_.heads + h];
            const char* q = read_decimal(p, head);
            if (q == p || !is_end(*q) || !std::isfinite(head)) return wrong_head(p, q, part);
            p = q;
        }
        std::int64_t at = part.entry + part.entries;
        std::int64_t last = -1;
        const std::int64_t first = rules_.base == Base::zero ? 0 : 1;
        for (p = skip(p); *p != '\n' && *p != '#'; p = skip(p)) {
            const char* const word = p;
            std::int64_t index = 0;
            while (is_digit(*p) && p - word < 18) index = 10 * index + (*p++ - '0');
            if (p == word || *p != ':') {
                p = last < 0 ? skip_qid(word, part) : nullptr;
                if (!p) return wrong_pair(word, part);
                continue;
            }
            if (index > rules_.most || index <= last || (index == 0 && rules_.base == Base::one))
                return wrong_index(index, last, part);
            double value = 0;
            const char* const begin = ++p;
            p = read_decimal(begin, value);
            const T kept = T(value);
            if (p == begin || !is_end(*p) || !std::isfinite(kept))
                return wrong_value(begin, p, index, part);
            values[at] = kept;
            columns[at++] = std::int32_t(index - first);
            if (last < 0) part.least = std::min(part.least, index);
            last = index;
        }
        part.most = std::max(part.most, last);
        part.entries = at - part.entry;
        starts[row + 1] = at;
        ++part.rows;
        return p;
    }

    // One past a query number (qid:1), null if it is none.
    static const char* skip_qid(const char* word, Part& part) {
        if (std::strncmp(word, "qid:", 4) != 0) return nullptr;
        part.has_qid = true;
        const char* p = word + 4;
        while (is_digit(*p)) ++p;
        return p > word + 4 && is_end(*p) ? p : nullptr;
    }

    // What is wrong: each returns null.
    static const char* wrong_pair(const char* word, Part& part) {
        const char* p = word;
        while (is_digit(*p) && p - word < 18) ++p;
        if (is_digit(*word) && is_digit(*p))
            return fail(part, "the index in " + shown(word) + " is too large");
        return fail(part, shown(word) + " is not an index:value pair");
    }
    const char* wrong_index(std::int64_t index, std::int64_t last, Part& part) const {
        const std::string name = "index " + std::to_string(index);
        if (index > rules_.most)
            return fail(part, name + " is larger than " + std::to_string(rules_.most) +
                                  ", the largest possible");
        if (index <= last)
            return fail(part, name + " comes after index " + std::to_string(last) +
                                  ": indices must ascend");
        return fail(part, name + " in a file whose indices begin at 1");
    }
    static const char* wrong_value(const char* begin, const char* p, std::int64_t index,
                                   Part& part) {
        if (p == begin && is_end(*p))
            return fail(part, "the value of index " + std::to_string(index) + " is missing");
        return fail(part, "the value " + shown(begin) + " of index " + std::to_string(index) +
                              " is not a finite number");
    }
    const char* wrong_head(const char* word, const char* p, Part& part) const {
        while (!is_end(*p) && *p != ':' && *p != ',') ++p;
        if (*p == ':')
            return fail(part, std::string(rules_.heads == 1 ? "the label" : "a coefficient") +
                                  " is missing in front of " + shown(word));
        if (*p == ',') return fail(part, "several labels in one row: " + shown(word));
        if (is_end(*word)) return fail(part, "a coefficient is missing");
        return fail(part, shown(word) + " is not a finite number");
    }
    static const char* fail(Part& part, std::string what) {
        part.error = std::move(what);
        return nullptr;
    }

    // Blank lines, comments and query numbers leave some of the reserved room unused.
    void close_gaps() {
        rows = entries = 0;
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (const Part& part : parts_) {
            const std::int64_t back = part.entry - entries;
            if (part.row != rows || back) {
                std::copy_n(values.get() + part.entry, part.entries, values.get() + entries);
                std::copy_n(columns.get() + part.entry, part.entries, columns.get() + entries);
                std::copy_n(heads.get() + part.row * rules_.heads, part.rows * rules_.heads,
                            heads.get() + rows * rules_.heads);
                for (std::int64_t i = 0; i < part.rows; ++i)
                    starts[rows + i + 1] = starts[part.row + i + 1] - back;
            }
            rows += part.rows;
            entries += part.entries;
            least = std::min(least, part.least);
            features = std::max(features, part.most);
            has_qid |= part.has_qid;
        }
        zero_based = rules_.base == Base::zero || (rules_.base == Base::found && least == 0);
        features += zero_based && entries;
    }

    // Columns count from zero; a file that turned out to be zero-based was read as if it were not.
    bool number(Threads& threads, Watch& watch) {
        if (rules_.base != Base::found || !zero_based) return true;
        constexpr std::int64_t step = 1 << 20;
        return threads.run((entries + step - 1) / step, &watch, [&](std::int64_t t, int) {
            for (std::int64_t i = t * step, end = std::min(entries, i + step); i < end; ++i)
                ++columns[i];
        });
    }

    TextRules rules_;
    std::vector<Part> parts_;
    std::string tail_;
};

// The lines of some rows, numbers as short as they can be; entries that are zero are left out.
inline std::string libsvm_lines(const Rows& rows, const double* heads, int n_heads,
                                std::int64_t from, std::int64_t to, int base) {
    std::string text;
    for (std::int64_t i = from; i < to; ++i) {
        for (int h = 0; h < n_heads; ++h) {
            if (h) text += ' ';
            write_decimal(text, heads[i * n_heads + h]);
        }
        rows.each(i, [&](std::int64_t k, auto value) {
            if (value == 0) return;
            text += ' ';
            write_decimal(text, k + base);
            text += ':';
            write_decimal(text, value);
        });
        text += '\n';
    }
    return text;
}

}  // namespace margrave
