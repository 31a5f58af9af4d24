// Finds the part of reachable memory that contains given bytes.
// Called by groups and programs.
#include "backends/reachable_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include "core/text.hpp"

namespace tilewire {
namespace {

/// Relative addresses on GPUs can express larger distances (cuda/kernels/bases.hpp).
constexpr intptr_t kMostDistance = intptr_t{1} << 45;

}  // namespace

void ReachableMemory::check(const Part& part) const {
  const auto none = [](const std::byte* data) { return data == nullptr; };
  require(part.bytes > 0 && std::ranges::none_of(part.at, none),
          "adopted memory of {} bytes: want 1 or more, on every rank", part.bytes);
  const std::byte* begin = part.at[rank_];
  for (const std::byte* there : part.at) {
    require(std::abs(reinterpret_cast<intptr_t>(there) - reinterpret_cast<intptr_t>(begin)) < kMostDistance,
            "adopted memory at {}, another rank's at {}: want less than 2^45 bytes between them", fmt::ptr(begin),
            fmt::ptr(there));
  }
  for (const Part& other : parts_) {
    if (other.at.empty()) continue;
    const std::byte* there = other.at[rank_];
    const bool apart =
        std::less_equal<>()(begin + part.bytes, there) || std::less_equal<>()(there + other.bytes, begin);
    require(apart, "adopted memory at {}, {} bytes, overlaps other memory that peers address", fmt::ptr(begin),
            part.bytes);
  }
}

std::optional<int> ReachableMemory::part_of(const void* data, int64_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  for (int index = 0; index < std::ssize(parts_); ++index) {
    const Part& part = parts_[index];
    if (part.at.empty()) continue;
    const std::byte* there = part.at[rank_];
    if (std::less_equal<>()(there, begin) && std::less_equal<>()(begin + bytes, there + part.bytes)) return index;
  }
  return std::nullopt;
}

std::optional<int64_t> ReachableMemory::place_of(const void* data, int64_t bytes) const {
  const std::optional<int> part = part_of(data, bytes);
  if (!part) return std::nullopt;
  return (int64_t{*part} << kPartShift) + (static_cast<const std::byte*>(data) - parts_[*part].at[rank_]);
}

std::optional<int64_t> ReachableMemory::place_of(const Tensor& tensor) const {
  const int64_t bytes = tensor.rows * tensor.cols * bytes_of(tensor.dtype);
  if (bytes == 0 || (tensor.rows > 1 && tensor.row_stride != tensor.cols)) return std::nullopt;
  return place_of(tensor.data, bytes);
}

}  // namespace tilewire
