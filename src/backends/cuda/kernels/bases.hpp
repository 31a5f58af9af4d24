// Relative addresses: how tables name memory that moves from call to call, callers' tensors. One is the number of a
// base and a distance from it; the bases come with each launch. Used by the host, which makes tables, and by kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TILEWIRE_BOTH_SIDES __host__ __device__
#else
#define TILEWIRE_BOTH_SIDES
#endif

namespace tilewire::cuda {

/// Bases of a launch. Number 0 is for addresses as they are.
inline constexpr uint32_t kMostBases = 16;
/// Bits below the number of a base, as many as addresses have.
inline constexpr int kBaseShift = 48;
/// Distances count from here: they may be negative.
inline constexpr uint64_t kBaseMiddle = uint64_t{1} << (kBaseShift - 2);
/// A relative address has the low bits of the address that it stands for: alignments can be seen.
inline constexpr uint64_t kBaseAlignment = 256;

/// By number, what must be added to a relative address.
struct Bases {
  uint64_t of[kMostBases]{};
};

[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr bool is_relative(uint64_t address) { return address >> kBaseShift != 0; }

/// The address that a relative one stands for; others stay.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint64_t resolve(const Bases& bases, uint64_t address) {
  return address + bases.of[address >> kBaseShift];
}

template <class T>
[[nodiscard]] TILEWIRE_BOTH_SIDES inline T* resolve(const Bases& bases, T* address) {
  return reinterpret_cast<T*>(resolve(bases, reinterpret_cast<uint64_t>(address)));
}

/// Of the first byte of tensor `number`, 1 to kMostBases - 1, which begins at `address`.
[[nodiscard]] constexpr uint64_t relative_address(uint32_t number, uint64_t address) {
  return (uint64_t{number} << kBaseShift) + kBaseMiddle + address % kBaseAlignment;
}
/// The base with which it is there.
[[nodiscard]] constexpr uint64_t base_of(uint32_t number, uint64_t address) {
  return address - relative_address(number, address);
}

}  // namespace tilewire::cuda
