// Addresses of all ranks' buffers in this process during one call.
// Filled by a program's workspace; read by its workers.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "backends/reachable_memory.hpp"
#include "core/text.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::host {

/// A region as memory addresses. Of groups: all rows of memory.
struct Block {
  std::byte* data = nullptr;
  DType dtype = DType::fp32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements
  bool ll = false;     ///< Buffer::ll

  [[nodiscard]] std::byte* at(int64_t row, int64_t col) const { return data + (row * stride + col) * bytes_of(dtype); }
};

/// First element of one rank's buffer.
struct Base {
  std::byte* data = nullptr;
  int64_t stride = 0;
  /// Of a peer's tensor: its position (ReachableMemory::place_of), which the peer stores when it enters the call.
  const std::atomic<int64_t>* announced = nullptr;
};

class Addresses {
 public:
  Addresses(const Plan& plan, const ReachableMemory& reachable)
      : plan_(plan), reachable_(reachable), bases_(static_cast<size_t>(plan.team.num_ranks) * plan.buffers.size()) {}
  /// The call uses this copy of double-buffered LL data.
  void use_copy(int copy) { copy_ = copy; }
  [[nodiscard]] Base& base(int rank, int buffer) { return bases_[rank * plan_.buffers.size() + buffer]; }
  [[nodiscard]] Block block(const Region& region) const {
    const Base& base = bases_[region.rank * plan_.buffers.size() + region.buffer];
    const Buffer& buffer = plan_.buffers[region.buffer];
    std::byte* first = first_of(region.rank, base);
    const int64_t elements = (is_grouped(buffer) ? 0 : region.row * base.stride) + region.col;
    if (buffer.copies > 1) first += copy_ * copy_bytes(buffer);
    std::byte* data = first + elements * bytes_of(buffer.dtype);
    return {data,        buffer.dtype, is_grouped(buffer) ? buffer.most_rows : region.rows,
            region.cols, base.stride,  buffer.ll};
  }
  /// The rows of memory of one group of a grouped buffer.
  [[nodiscard]] Range rows_of_group(int rank, int buffer, int64_t group) const {
    const Base& extents = bases_[rank * plan_.buffers.size() + plan_.buffers[buffer].extents];
    const auto* first = reinterpret_cast<const int32_t*>(first_of(rank, extents));
    const Range rows{first[group], first[extents.stride + group]};
    // The extents may come from the caller.
    const int64_t most = plan_.buffers[buffer].most_rows;
    require(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= most,
            "{} of rank {}: group {} has the rows {}..{}, want some of 0..{}",
            plan_.buffers[plan_.buffers[buffer].extents].name, rank, group, rows.begin, rows.end, most);
    return rows;
  }

 private:
  [[nodiscard]] std::byte* first_of(int rank, const Base& base) const {
    // NOTE: a task that accesses a peer's tensor has waited for the begin of the peer's call, so the position is
    // stored.
    return base.announced == nullptr ? base.data : reachable_.at(rank, base.announced->load(std::memory_order_relaxed));
  }

  const Plan& plan_;
  const ReachableMemory& reachable_;
  std::vector<Base> bases_;
  int copy_ = 0;
};

}  // namespace tilewire::host
