// The host's view of sums of LL data across ranks in the CTAs that send the partials, and of the norms behind them
// (Lane::joined). Used by the GEMV kernel and by the kernel of rows; made by tables/.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

/// Most ranks, waits, destinations and epilogue steps.
inline constexpr uint32_t kSumRanks = 8;
inline constexpr uint32_t kSumTargets = 2;
inline constexpr uint32_t kSumSteps = 4;

/// Where a partial goes.
struct Exchange {
  TargetRecord peers[kSumRanks]{};  ///< LL data; without the rank's own slot
  WaitRecord waits[kSumRanks]{};    ///< before the partial goes there
  uint8_t num_peers = 0;
  uint8_t num_waits = 0;
};

/// The norm of the rows of a sum. Weight and bias are in the dtype of the partials.
struct RowNorm {
  SourceRecord weight{};  ///< one row, like the bias
  SourceRecord bias{};    ///< of a layer norm
  TargetRecord normed{};  ///< in the dtype of the partials, or quantised
  TargetRecord scale{};   ///< of quantised rows
  float eps = 0;
  bool there = false;  ///< there is a norm
  bool layer = false;
  uint32_t first_name = 0;  ///< number of the first norm's name
};

/// What a norm needs of a row's columns in one CTA (Spread). Each carries the number of the call, so that no CTA resets
/// what others still read.
struct alignas(16) Moments {
  float mean;
  uint32_t mean_call;
  float squares;
  uint32_t squares_call;
};

/// Most moments of a call: CTAs times rows of each.
inline constexpr int kMostMoments = 4096;

/// Sums of all ranks' partials, in the ranks' order. Addresses are those of the first CTA; they grow with row or
/// column.
struct SumOfPartials {
  SourceRecord partials[kSumRanks]{};   ///< LL data, but for the rank's own
  TargetRecord targets[kSumTargets]{};  ///< in the dtype of the partials
  EpilogueRecord steps[kSumSteps]{};
  RowNorm norm{};
  /// Where the CTAs of the first row post; those of row r post r * signal_step further. Null: nowhere. In this call
  /// nobody waits for it, but the counters must grow as in calls by other kernels.
  uint64_t* signal = nullptr;
  int64_t signal_step = 0;
  uint8_t num_partials = 0;  ///< the rank's own included
  uint8_t own_partial = 0;   ///< place of the rank's own, which its CTA keeps
  uint8_t num_targets = 0;
  uint8_t num_steps = 0;
  bool fetches = false;     ///< operands of the epilogue are 16-byte units of the partials' dtype
  uint32_t first_name = 0;  ///< number of the first sum's name; the others follow
};

}  // namespace tilewire::cuda
