// Relative addresses: tables name callers' tensors by the number of a base and an offset; each launch has the bases.
// Used by the host, which makes the tables, and by kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TILEWIRE_BOTH_SIDES __host__ __device__
#else
#define TILEWIRE_BOTH_SIDES
#endif

namespace tilewire::cuda {

/// The number of bases in a launch. Base 0 is zero, for absolute addresses.
inline constexpr uint32_t kMostBases = 16;
/// The number of a base begins at this bit; addresses use the bits below.
inline constexpr int kBaseShift = 48;
/// The number of the base of double-buffered LL data (Buffer::copies): an address of it is that of the first copy, and
/// kernels add the distance to the copy that the call uses.
inline constexpr uint32_t kCopyBase = kMostBases - 1;
/// Added to every offset, since an offset from a tensor's first byte may be negative.
inline constexpr uint64_t kBaseMiddle = uint64_t{1} << (kBaseShift - 2);
/// A relative address and the real one are equal modulo this number, so that code can check alignments.
inline constexpr uint64_t kBaseAlignment = 256;

/// For each number of a base: the value to add to a relative address.
struct Bases {
  uint64_t of[kMostBases]{};
};

[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr bool is_relative(uint64_t address) { return address >> kBaseShift != 0; }

/// The real address of a relative one. An absolute address does not change.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint64_t resolve(const Bases& bases, uint64_t address) {
  return address + bases.of[address >> kBaseShift];
}

template <class T>
[[nodiscard]] TILEWIRE_BOTH_SIDES inline T* resolve(const Bases& bases, T* address) {
  return reinterpret_cast<T*>(resolve(bases, reinterpret_cast<uint64_t>(address)));
}

/// The same; `copy`: bytes from the first copy of double-buffered data to the copy of the call.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint64_t resolve(const Bases& bases, uint64_t address, uint64_t copy) {
  return resolve(bases, address) + (address >> kBaseShift == kCopyBase ? copy : 0);
}

template <class T>
[[nodiscard]] TILEWIRE_BOTH_SIDES inline T* resolve(const Bases& bases, T* address, uint64_t copy) {
  return reinterpret_cast<T*>(resolve(bases, reinterpret_cast<uint64_t>(address), copy));
}

/// The relative address of double-buffered data whose first copy is at `address`, and the base for it.
[[nodiscard]] constexpr uint64_t copied_address(uint64_t address) {
  return address + (uint64_t{kCopyBase} << kBaseShift);
}
[[nodiscard]] constexpr uint64_t base_of_copies() { return ~(uint64_t{kCopyBase} << kBaseShift) + 1; }

/// The relative address of the first byte of tensor `number` (1 to kCopyBase - 1), which is at `address`.
[[nodiscard]] constexpr uint64_t relative_address(uint32_t number, uint64_t address) {
  return (uint64_t{number} << kBaseShift) + kBaseMiddle + address % kBaseAlignment;
}
/// The base that resolves this relative address to `address`.
[[nodiscard]] constexpr uint64_t base_of(uint32_t number, uint64_t address) {
  return address - relative_address(number, address);
}

}  // namespace tilewire::cuda
