// Where each rank's part of a GEMM's output goes when it is made: T3's configuration of the output's address space
// (section 4.4). Called by track_trigger.cpp, the simulator's study of T3 and tests.
#pragma once

#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// The signals that count updates, one for each block of the output: what T3's Tracker counts.
inline constexpr const char* kUpdatedSignals = "updated";

/// What one rank does with one chunk of the output. Chunk c is the rows that rank c owns in the end.
struct MappedChunk {
  enum class Via {
    memory,  ///< stays in the rank's own memory
    stores,  ///< the GEMM's stores go to `to`
    dma,     ///< stays in the rank's own memory until `updates` have come, then a copy engine sends it to `to`
  };
  Via via = Via::memory;
  int to = -1;
  int updates = 1;  ///< of each element, the rank's own among them
  int stage = 0;    ///< chunks are made in this order

  bool operator==(const MappedChunk&) const = default;
};

class OutputMap {
 public:
  explicit OutputMap(int num_ranks);

  /// The stores of `rank`'s GEMM into `chunk` go to `to`, which adds them to what it has (T3: remote_map).
  void remote_map(int rank, int chunk, int to);
  /// When each element of `chunk` in the memory of `rank` has been updated `updates_per_element` times, a copy engine
  /// sends it to `to`, which adds it (T3: dma_map).
  void dma_map(int rank, int chunk, int to, int updates_per_element);
  /// `rank` makes its part of `chunk` in that stage of its GEMM (T3: staggered scheduling).
  void make_in_stage(int rank, int chunk, int stage);

  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] const MappedChunk& at(int rank, int chunk) const { return chunks_[rank * num_ranks_ + chunk]; }
  /// How often `rank` is to see each element of `chunk` updated: by itself and by those who send to it.
  [[nodiscard]] int updates_seen(int rank, int chunk) const;

 private:
  [[nodiscard]] MappedChunk& chunk_at(int rank, int chunk, int to);

  int num_ranks_;
  std::vector<MappedChunk> chunks_;
};

/// Rank r stores chunk r - 1 straight into rank r + 1; of each other chunk but its own it sends to rank r + 1 the sum
/// of its part and what has come from rank r - 1 (T3, figures 7 and 11).
[[nodiscard]] OutputMap ring_reduce_scatter(int num_ranks);
/// Every rank stores each chunk straight into its owner (T3, section 7.1); rank + 1's first.
[[nodiscard]] OutputMap direct_reduce_scatter(int num_ranks);

/// The plan of a GEMM + ReduceScatter by `map`: tiles in order of stage, a copy task for each block (a tile, or
/// chunk_rows rows) that is sent. Sums are completed in the output itself where it lies in the arena, has the wire's
/// type and needs no epilogue; else in workspace. Throws Error(invalid_input) where a DMA waits for more or fewer
/// updates than come.
[[nodiscard]] Plan make_mapped_plan(const Problem& problem, const Team& team, const Config& config,
                                    const OutputMap& map);

}  // namespace tilewire
