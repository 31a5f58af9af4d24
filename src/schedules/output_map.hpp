// Where each rank's part of a GEMM's output goes when it is made: T3's configuration of the output's address space
// (section 4.4). Called by track_trigger.cpp, mapped_plan.cpp, the simulator's study of T3 and tests.
#pragma once

#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// One way on which a chunk leaves a rank.
struct Mapping {
  enum class Via {
    stores,  ///< the GEMM's stores go to `to`
    dma,     ///< a copy engine sends it to `to` when `updates` have come
  };
  Via via = Via::stores;
  int to = -1;
  WriteMode mode = WriteMode::accumulate;
  int updates = 1;  ///< of each element in the sender's memory, its own GEMM's among them

  bool operator==(const Mapping&) const = default;
};

/// What one rank does with one chunk of the output.
struct MappedChunk {
  bool kept = true;  ///< what the rank's GEMM makes of it goes to the rank's own memory
  std::vector<Mapping> to{};
  int stage = 0;  ///< chunks are made in this order

  bool operator==(const MappedChunk&) const = default;
};

/// T3's two calls, for all ranks. What is sent with WriteMode::accumulate is part of a sum, and the receiver adds it to
/// what it has; each rank passes its part to one other. What is sent with WriteMode::store is complete, and may go to
/// several.
class OutputMap {
 public:
  /// Of as many chunks as ranks, of which chunk c is the rows that rank c owns; or of more, as `all_to_all` has.
  explicit OutputMap(int num_ranks, int num_chunks = 0);

  /// The stores of `rank`'s GEMM into `chunk` go to `to` (T3: remote_map). A part of a sum is then not kept.
  void remote_map(int rank, int chunk, int to, WriteMode mode = WriteMode::accumulate);
  /// When each element of `chunk` in the memory of `rank` has been written `updates_per_element` times, a copy engine
  /// sends it to `to` (T3: dma_map).
  void dma_map(int rank, int chunk, int to, int updates_per_element, WriteMode mode = WriteMode::accumulate);
  /// The GEMM of `rank` writes nothing of `chunk` to the rank's own memory, and makes it only where it is stored at
  /// others (T3, section 7.1: all-to-all).
  void drop(int rank, int chunk);
  /// `rank` makes its part of `chunk` in that stage of its GEMM (T3: staggered scheduling).
  void make_in_stage(int rank, int chunk, int stage);

  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] int num_chunks() const { return num_chunks_; }
  [[nodiscard]] const MappedChunk& at(int rank, int chunk) const { return chunks_[rank * num_chunks_ + chunk]; }
  /// Where the part of `rank` in the sum of `chunk` goes; nullptr where it stays.
  [[nodiscard]] const Mapping* sum_of(int rank, int chunk) const;
  /// Whether the GEMM of `rank` makes any part of `chunk`.
  [[nodiscard]] bool makes(int rank, int chunk) const;
  /// Whether anything complete is sent.
  [[nodiscard]] bool any_stores() const;
  /// How often `rank` is to see each element of `chunk` updated: by itself and by those who add to what it has.
  [[nodiscard]] int updates_seen(int rank, int chunk) const;
  /// How often others store each element of `chunk` at `rank`.
  [[nodiscard]] int stores_seen(int rank, int chunk) const;
  /// Throw Error(invalid_input) where a DMA waits for more or fewer updates than come, or two ranks store the same.
  void validate() const;

 private:
  [[nodiscard]] MappedChunk& chunk_at(int rank, int chunk, int to);
  void add(const char* call, int rank, int chunk, const Mapping& mapping);
  [[nodiscard]] int senders(int rank, int chunk, WriteMode mode) const;

  int num_ranks_;
  int num_chunks_;
  std::vector<MappedChunk> chunks_;
};

/// Rank r stores chunk r - 1 straight into rank r + 1; of each other chunk but its own it sends to rank r + 1 the sum
/// of its part and what has come from rank r - 1 (T3, figures 7 and 11).
[[nodiscard]] OutputMap ring_reduce_scatter(int num_ranks);
/// Every rank stores each chunk straight into its owner (T3, section 7.1); rank + 1's first.
[[nodiscard]] OutputMap direct_reduce_scatter(int num_ranks);
/// The same, and then an owner's chunk, when it has its last update, is sent around the ring in num_ranks - 1 steps.
[[nodiscard]] OutputMap ring_all_reduce(int num_ranks);
/// The same, and then an owner sends its chunk to every other rank; rank + 1 first.
[[nodiscard]] OutputMap direct_all_reduce(int num_ranks);
/// A rank makes its own chunk alone, keeps it and stores it at rank + 1, from where it is passed on (T3, section 7.1).
[[nodiscard]] OutputMap ring_all_gather(int num_ranks);
/// A rank makes its own chunk alone and stores it everywhere.
[[nodiscard]] OutputMap direct_all_gather(int num_ranks);
/// Chunk r * num_ranks + s is what rank r makes for rank s, and stores there; rank + 1's first, its own last.
[[nodiscard]] OutputMap all_to_all(int num_ranks);

}  // namespace tilewire
