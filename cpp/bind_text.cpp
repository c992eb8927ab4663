// LIBSVM's text for Python.
#include "bind.hpp"
#include "libsvm_text.hpp"
#include "team.hpp"

using namespace margrave;

namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::object owned(std::unique_ptr<T[]>&& values, std::initializer_list<std::size_t> shape) {
    T* data = values.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner));
}

template <class T>
nb::dict read(const Bytes& text, const TextRules& rules, int threads) {
    LibsvmText<T> found;
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        Watch watch;
        watch.interrupted = ctrl_c;
        if (!found.read(reinterpret_cast<const char*>(text.data()), std::int64_t(text.size()),
                        rules, pool, watch))
            throw Stopped{};
    }
    const std::size_t rows = std::size_t(found.rows);
    const std::size_t entries = std::size_t(found.entries);
    nb::dict d;
    d["values"] = owned(std::move(found.values), {entries});
    d["columns"] = owned(std::move(found.columns), {entries});
    d["starts"] = owned(std::move(found.starts), {rows + 1});
    d["heads"] = owned(std::move(found.heads), {rows, std::size_t(rules.heads)});
    d["n_features"] = found.features;
    d["zero_based"] = found.zero_based;
    d["has_qid"] = found.has_qid;
    return d;
}

nb::bytes lines(const PyRows& r, const Table& heads, std::int64_t first, std::int64_t last,
                bool zero_based, int threads) {
    if (std::int64_t(heads.shape(0)) != r.rows.count)
        throw nb::value_error("one line of numbers per row is needed");
    if (first < 0 || last < first || last > r.rows.count)
        throw nb::value_error("no such range of rows");
    constexpr std::int64_t step = 256;
    std::vector<std::string> pieces(std::size_t((last - first + step - 1) / step));
    {
        nb::gil_scoped_release free;
        Threads pool(threads);
        pool.run(std::int64_t(pieces.size()), nullptr, [&](std::int64_t t, int) {
            const std::int64_t from = first + t * step;
            pieces[t] = libsvm_lines(r.rows, heads.data(), int(heads.shape(1)), from,
                                     std::min(last, from + step), zero_based ? 0 : 1);
        });
    }
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return nb::bytes(text.data(), text.size());
}

}  // namespace

namespace margrave {

void bind_text(nb::module_& m) {
    nb::exception<BadText>(m, "BadText", PyExc_ValueError);
    m.def(
        "read_libsvm",
        [](const Bytes& text, int heads, std::optional<bool> zero_based, std::int64_t most,
           const std::string& dtype, int threads) {
            TextRules rules;
            if (heads < 0) throw nb::value_error("a negative number of numbers in front");
            rules.heads = heads;
            if (zero_based) rules.base = *zero_based ? Base::zero : Base::one;
            rules.most = std::clamp<std::int64_t>(most, 0, rules.most);
            return is_double(dtype) ? read<double>(text, rules, threads)
                                    : read<float>(text, rules, threads);
        },
        nb::arg("text"), nb::arg("heads"), nb::arg("zero_based").none(), nb::arg("most"),
        nb::arg("dtype"), nb::arg("threads"),
        "Rows of LIBSVM's text: `heads` numbers and index:value pairs a line. BadText names the "
        "line that is wrong.");
    m.def("libsvm_lines", &lines, nb::arg("rows"), nb::arg("heads"), nb::arg("first"),
          nb::arg("last"), nb::arg("zero_based"), nb::arg("threads"),
          "LIBSVM's text of some rows.");
}

}  // namespace margrave
