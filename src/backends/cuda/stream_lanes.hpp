// Which lanes of a plan streams work for, and the records of that work.
// Called by lane_tables.cpp.
#pragma once

#include "backends/cuda/lane_tables.hpp"

namespace tilewire::cuda {

/// Where regions lie, from one rank's point of view.
struct Places {
  const Plan& plan;
  const Addresses& addresses;

  [[nodiscard]] const Base& base(const Region& region) const {
    return addresses.bases[region.rank * plan.buffers.size() + region.buffer];
  }
  [[nodiscard]] DType dtype_of(const Region& region) const { return plan.buffers[region.buffer].dtype; }
  [[nodiscard]] std::byte* data_of(const Region& region) const {
    const Base& at = base(region);
    return at.data + (region.row * at.ld + region.col) * bytes_of(dtype_of(region));
  }
};

/// Whether a stream can do all that the lane moves: whole, with one destination, nothing converted or added; and it is
/// worth it.
[[nodiscard]] bool by_copy_engine(const Plan& plan, const Lane& lane);
/// Whether the lane's products are the library's.
[[nodiscard]] bool by_library(const Lane& lane);
/// Whether all that a lane does waits for the same: the end of everything else.
[[nodiscard]] bool is_late(const Lane& lane);

/// What a task, which is not empty, is for a stream.
[[nodiscard]] StreamCopy stream_copy(const Places& places, const Task& task);
[[nodiscard]] LibraryGemm library_gemm(const Places& places, const Task& task);

/// Heavy lanes become kernels of their own, which begin when the waits of their first task have ended: until then their
/// SMs are the library's. `gates`: those of the rank.
void start_walkers_late(RankTables& tables, Gate* gates);
/// How many of `sms` the library's calls can count on: not those of the light kernel, nor of lanes that are meant to
/// run beside it.
void tell_library_its_sms(RankTables& tables, const Plan& plan, int sms);

}  // namespace tilewire::cuda
