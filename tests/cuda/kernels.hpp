// Small kernels for tests of groups, on the current device.
// Used by group_test.cpp.
#pragma once

#include <cstdint>

namespace tilewire::testing {

/// words[i] = seed + i, by stores of all SMs. Complete on return; throws Error.
void store_words(uint32_t* words, int64_t count, uint32_t seed);
/// Number of words that are not seed + i, by loads of all SMs. Throws Error.
[[nodiscard]] int64_t count_wrong_words(const uint32_t* words, int64_t count, uint32_t seed);
/// Spin until `*abort` is not 0 or `limit_s` have passed, then write 1 or 2 to `*verdict`. Returns at once; throws
/// Error.
void start_spinning(const uint32_t* abort, double limit_s, uint32_t* verdict);

}  // namespace tilewire::testing
