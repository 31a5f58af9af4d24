// The tables of one rank over made-up addresses: the cuda backend's decisions about a plan, without a GPU.
// Used by library_test.cpp, stream_lanes_test.cpp, stream_ordered_gemm_test.cpp, dealt_tiles_test.cpp and
// tile_tables_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "backends/cuda/tables/lane_tables.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire::cuda {

/// Bytes from a rank's buffers to those of the next rank.
inline constexpr int64_t kMadeUpStep = int64_t{1} << 34;

/// The plan as tables_of lowers it.
inline Plan lowered_for_tables(const Plan& made, bool streams = true, int sms = 132) {
  Target target = gpu_target("made_up", made.team.num_ranks, sms);
  target.streams = streams;
  return lower(made, target).plan;
}

/// `unaligned`: a buffer that begins two bytes later.
inline RankTables tables_of(const Plan& made, bool streams = true, int rank = 0, bool traced = false,
                            const std::string& unaligned = {}, int sms = 132) {
  const Plan plan = lowered_for_tables(made, streams, sms);
  static std::array<Doorbell, 1024> doorbells;
  static std::vector<uint64_t> words(1 << 20);
  Addresses addresses;
  for (int owner = 0; owner < plan.team.num_ranks; ++owner) {
    for (const Buffer& buffer : plan.buffers) {
      const auto at = (uintptr_t{1} << 32) + (buffer.name == unaligned ? 2 : 0);
      addresses.bases.push_back({reinterpret_cast<std::byte*>(at + owner * kMadeUpStep), shape_on(buffer, owner).cols});
    }
  }
  EXPECT_LT(num_signals(plan) * plan.team.num_ranks, std::ssize(words) / 2);
  addresses.signal = [&](const Signal& signal) { return words.data() + signal_id(plan, signal); };
  addresses.progress = words.data() + words.size() / 2;
  addresses.doorbells = doorbells.data();
  Plan mine = plan;
  std::erase_if(mine.lanes, [&](const Lane& lane) { return lane.rank != rank; });
  EXPECT_LE(most_stream_work(plan), std::ssize(doorbells));
  return make_tables(mine, rank, addresses, signal_totals(plan), {sms, streams, traced});
}

}  // namespace tilewire::cuda
