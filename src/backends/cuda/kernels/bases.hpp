// Places: how tables name memory that moves from call to call, callers' tensors. A place is the number of a base and a
// distance from it; the bases come with each launch. Used by the host, which makes tables, and by kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define TILEWIRE_BOTH_SIDES __host__ __device__
#else
#define TILEWIRE_BOTH_SIDES
#endif

namespace tilewire::cuda {

/// Bases of a launch, the one of plain addresses included.
inline constexpr uint32_t kMostBases = 16;
/// Bits of a place below the number of its base, as many as addresses have.
inline constexpr int kBaseShift = 48;
/// Distances count from here: they may be negative.
inline constexpr uint64_t kBaseMiddle = uint64_t{1} << (kBaseShift - 2);
/// A place has the low bits of the address that it stands for: alignments can be seen.
inline constexpr uint64_t kPlaceAlignment = 256;

/// What a place's number stands for, less the place's own upper bits. Number 0: an address as it is.
struct Bases {
  uint64_t of[kMostBases]{};

  bool operator==(const Bases&) const = default;
};

[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr bool is_place(uint64_t bits) { return bits >> kBaseShift != 0; }

/// The address of a place; of an address itself.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint64_t address_of(const Bases& bases, uint64_t place) {
  return place + bases.of[place >> kBaseShift];
}

/// Place of the first byte of tensor `number`, 1 to kMostBases - 1, which begins at `address`.
[[nodiscard]] constexpr uint64_t place_of(uint32_t number, uint64_t address) {
  return (uint64_t{number} << kBaseShift) + kBaseMiddle + address % kPlaceAlignment;
}
/// The base with which it is there.
[[nodiscard]] constexpr uint64_t base_of(uint32_t number, uint64_t address) {
  return address - place_of(number, address);
}

template <class T>
[[nodiscard]] TILEWIRE_BOTH_SIDES inline T* address_of(const Bases& bases, T* place) {
  return reinterpret_cast<T*>(address_of(bases, reinterpret_cast<uint64_t>(place)));
}

}  // namespace tilewire::cuda
