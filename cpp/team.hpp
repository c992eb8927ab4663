// The threads of one fit and the watch over them, for work that is stopped by an exception.
#pragma once
#include <algorithm>
#include <exception>

#include "isa.hpp"
#include "threads.hpp"

namespace margrave {

// Ctrl-C was pressed, or the time is over.
struct Stopped : std::exception {
    const char* what() const noexcept override { return "stopped"; }
};

class Team {
  public:
    Threads threads;
    Watch watch;
    const Isa* isa;

    Team(int count, const Isa& isa) : threads(count), isa(&isa) {}

    // Calls job(part, from, to) for chunks of 0..n, one part per thread, each part's chunks in
    // order. The parts do not depend on which thread is faster, so that sums by part, added in
    // order, are the same every time.
    template <class Job>
    void parts(std::int64_t n, std::int64_t chunk, Job&& job) {
        const std::int64_t count = part_count(n, chunk);
        threads.run(count, &watch, [&](std::int64_t part, int worker) {
            const std::int64_t end = n * (part + 1) / count;
            for (std::int64_t from = n * part / count; from < end; from += chunk) {
                if (worker == 0 ? watch.check() : watch.stopped()) return;
                job(part, from, std::min(end, from + chunk));
            }
        });
        if (watch.stopped()) throw Stopped{};
    }
    // Short work is not worth a second thread.
    std::int64_t part_count(std::int64_t n, std::int64_t chunk) const {
        return std::max<std::int64_t>(1, std::min<std::int64_t>(threads.count(), n / chunk));
    }
};

}  // namespace margrave
