// Loops over elements are compiled for several widths of vector; the processor at hand picks one at load time.
// Used by convert.cpp and the host backend's elements.cpp.
#pragma once

// NOTE: sanitizers instrument the resolver, which runs before they are ready; with them there is one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
/// NOTE: files that use it are compiled with -ffp-contract=off: the wider versions would fuse a * b + c, and give other
/// bits than the default.
#define TILEWIRE_VECTOR_LOOPS __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define TILEWIRE_VECTOR_LOOPS
#endif

/// What a vectorised function calls in its loops must become part of each version.
#define TILEWIRE_INLINE [[gnu::always_inline]] inline
