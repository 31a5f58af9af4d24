// Compiles loops over elements for several vector widths; the loader picks one for the processor.
// Used by convert.cpp and the host backend's elements.cpp.
#pragma once

// NOTE: one version only with sanitizers: they would instrument the resolver, which runs before they are initialised.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
/// NOTE: compile files that use it with -ffp-contract=off. The wider versions would otherwise fuse a * b + c and give
/// other bits than the default version.
#define TILEWIRE_VECTOR_LOOPS __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define TILEWIRE_VECTOR_LOOPS
#endif

/// For functions that such loops call: they must be inlined into each version.
#define TILEWIRE_INLINE [[gnu::always_inline]] inline
