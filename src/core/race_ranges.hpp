// Loops over elements under ThreadSanitizer. An instrumented loop calls the sanitizer for each access, which takes most
// of its time. A loop that is not instrumented announces the ranges that it reads and writes. Used by convert.cpp, the
// references of operators and the host backend.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_read_range(void* from, size_t bytes);
void __tsan_write_range(void* to, size_t bytes);
}

/// Inline functions of others stay calls, so that inner loops take pointers, not vectors. They are optimised as without
/// the sanitizer. NOTE: only for functions without atomics, and whose accesses are announced, or go to memory that one
/// thread knows.
#define TILEWIRE_ANNOUNCED __attribute__((no_sanitize_thread, noinline, optimize("O3")))
#else
#define TILEWIRE_ANNOUNCED
#endif

namespace tilewire {

/// The caller reads these bytes before its next synchronisation with another thread.
inline void announce_read([[maybe_unused]] const void* from, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  if (bytes > 0) __tsan_read_range(const_cast<void*>(from), bytes);
#endif
}

/// The caller writes these bytes before its next synchronisation with another thread.
inline void announce_write([[maybe_unused]] void* to, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  if (bytes > 0) __tsan_write_range(to, bytes);
#endif
}

}  // namespace tilewire
