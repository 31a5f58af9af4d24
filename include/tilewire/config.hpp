// A config: the schedule of a problem and its knobs, in one flat struct. `--set knob=value` and JSON use the field
// names.
// Chosen by callers or the tuner; read by schedules. docs/schedules.md has a table of the knobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tilewire/dtype.hpp"

namespace tilewire {

enum class Direction { push, pull };
enum class Transport {
  store,        ///< a finished tile is stored at its destination, on any rank
  bulk,         ///< as store, but by bulk asynchronous copies (cuda)
  tma,          ///< as store, but by tensor copies (TMA), also to other GPUs (cuda)
  copy_engine,  ///< a finished tile is stored locally; a copy lane sends finished chunks
  ll,           ///< the data carry the flag (LL)
};
enum class Algorithm { direct, ring, one_shot, two_phase };
enum class ReduceMode {
  staged,      ///< partials go to one slot per rank at the owner; the owner sums them in rank order
  pull,        ///< partials stay at their ranks; the owner reads them
  accumulate,  ///< peers add up their partials at the owner, one after another; the owner adds its own partial
};
enum class ReduceWhen { beside, after };  ///< each slice beside the GEMM, or all slices after it
enum class TileOrder {
  naive,
  rank_shifted,
  in_step,  ///< all owners, or group_owners owners, column by column; local tiles wait for peers' first columns, too
};
enum class Release { tile, all };  ///< two_stream: a sum waits for its tile, or for the whole GEMM
enum class Pacing { unpaced, lockstep };
/// How the tokens of a mixture of experts reach their experts, and their results the tokens' owners.
enum class Dispatch {
  all_gather,  ///< all tokens go to all ranks; a rank returns one sum for each token
  per_rank,    ///< a token goes once to each rank that has experts of it; such a rank returns one sum
  per_expert,  ///< a token goes once to each of its experts; the owner reads the rows of all its experts, and sums them
};
enum class Provider { tiles, library };  ///< tilewire's own tasks, or one call of the vendor's library

/// How `auto` chooses a config. Each mode but `again` first looks for the winner of an earlier measurement that fits (M
/// of the problem is rounded to a bucket in the tuner's file), then for a winner that tilewire ships for the machine.
enum class Tuning {
  off,    ///< measure nothing: the winner of the nearest bucket of M, else the fastest by the model, else the first of
          ///< `fused`
  quick,  ///< measure the first few candidates, for at most 1 s
  full,   ///< measure the first eight candidates if there is a model, else all, for at most 4 s
  again,  ///< measure as `full` and replace the winner, after a change of driver, clocks or links
};

/// The knobs. A schedule throws Error for a knob that it cannot honour; it ignores none. The defaults are the same for
/// all problems and machines, so Config{.schedule = "fused"} is rarely the fastest. `default_config` (make_plan.hpp)
/// returns the first candidate of a schedule for a problem.
struct Config {
  std::string schedule = "fused";
  int64_t tile_m = 128;
  int64_t tile_n = 256;
  int cluster_m = 1;  ///< CTAs that share loads
  int cluster_n = 1;
  int cluster_split_k = 1;  ///< CTAs of a cluster that make one tile, each over a part of K
  int64_t group_m = 1;      ///< row tiles in a group, which is made column by column (L2 reuse)
  int split_k = 1;          ///< ranges of K, each computed by a task of its own
  int tile_workers = 0;     ///< workers of a tile lane; 0 = the backend's choice
  int reduce_workers = 0;   ///< workers of a reduce lane; 0 = the backend's choice
  int launches = 1;         ///< two_stream: tiles and sums in one kernel, or in 2 kernels on two streams of a GPU
  int copy_workers = 0;     ///< workers that copy without a copy engine; 0 = the backend's choice
  int64_t chunk_rows = 0;   ///< rows that one copy moves; 0 = a whole shard
  int64_t chunk_cols = 0;   ///< columns of A that one copy of a gather moves; 0 = all
  Direction direction = Direction::push;
  Transport transport = Transport::store;
  Algorithm algorithm = Algorithm::direct;
  ReduceMode reduce_mode = ReduceMode::staged;
  ReduceWhen reduce_when = ReduceWhen::beside;
  std::optional<DType> wire{};  ///< type of partials between ranks; default: the output's
  TileOrder tile_order = TileOrder::rank_shifted;
  int group_owners = 1;  ///< owners in a group, which reads its part of B once
  int rounds = 1;  ///< cuts of each owner's tiles; a round makes one cut per peer; local tiles: last, in gathers first
  Release release = Release::tile;
  int copy_lanes = 1;
  Pacing pacing = Pacing::unpaced;
  Dispatch dispatch = Dispatch::all_gather;
  Provider compute = Provider::tiles;     ///< makes the products
  Provider collective = Provider::tiles;  ///< copies and sums between ranks

  bool operator==(const Config&) const = default;
};

}  // namespace tilewire
