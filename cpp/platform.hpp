// What operating systems do differently.
#pragma once
#include <cstddef>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifndef _WIN32
#include <unistd.h>
#endif

namespace margrave {

// Uninitialised memory for large tables; null if there is none. On Linux it asks for huge pages:
// the first use of ordinary ones costs as much time as the tiles.
inline void* take_pages(std::size_t size) {
#ifdef __linux__
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
#else
    return ::operator new(size, std::align_val_t(64), std::nothrow);
#endif
}

inline void return_pages(void* memory, [[maybe_unused]] std::size_t size) {
#ifdef __linux__
    munmap(memory, size);
#else
    ::operator delete(memory, std::align_val_t(64));
#endif
}

// Tells a forked child from its parent.
inline int process_id() {
#ifdef _WIN32
    return 1;  // processes do not fork there
#else
    return int(getpid());
#endif
}

}  // namespace margrave
