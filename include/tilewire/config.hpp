// How a problem is to be done: the schedule and its knobs. One flat struct; `--set knob=value` and
// JSON use the field names. Read by schedules and backends; chosen by the tuner where it is not given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tilewire/dtype.hpp"

namespace tilewire {

enum class Direction { push, pull };
enum class Transport {
  store,        ///< the finished tile is stored where it belongs, on whichever rank
  bulk,         ///< as store, by bulk asynchronous copies (cuda)
  tma,          ///< as store, by tensor copies also to other GPUs (cuda)
  copy_engine,  ///< stored locally; a copy lane sends finished chunks
  ll,           ///< the flag travels with the data
};
enum class Algorithm { direct, ring, one_shot, two_phase };
enum class ReduceMode {
  staged,      ///< partials are sent to slots at their owner, which sums them in rank order
  pull,        ///< partials stay where they are; the owner reads them
  accumulate,  ///< peers add theirs up in one place at the owner, one after another; the owner adds its own
};
enum class ReduceWhen { beside, after };  ///< beside the GEMM, or when all of it is done
enum class TileOrder {
  naive,
  rank_shifted,
  in_step,  ///< tiles of all owners, or group_owners, together; own ones too begin behind others' first columns of A
};
enum class Release { tile, all };  ///< what a second lane waits for: its tile, or the whole GEMM
enum class Pacing { unpaced, lockstep };
enum class Provider { tiles, library };  ///< tilewire's own tasks, or one call of the vendor's library

/// How `auto` chooses a config. All but `again` take the winner of an earlier measurement where one fits (winners in
/// the tuner's file are those of problems with M in the same bucket), then the winner that tilewire ships for the
/// machine.
enum class Tuning {
  off,  ///< measures nothing: also the winner of the nearest bucket of M, else the fastest by the model, else the first
        ///< of `fused`
  quick,  ///< measures the first few candidates, for at most a second
  full,   ///< measures the first eight where there is a model, else all, for at most four seconds
  again,  ///< measures as `full` and replaces the winner, after a change of driver, clocks or links
};

/// Knobs; every schedule ignores none silently: a knob it cannot honour is an Error. The defaults are fixed, for any
/// problem and machine: Config{.schedule = "fused"} is rarely the best of that schedule. `default_config`
/// (schedule.hpp) gives what it would be tried with first.
struct Config {
  std::string schedule = "fused";
  int64_t tile_m = 128;
  int64_t tile_n = 256;
  int cluster_m = 1;  ///< thread blocks that share loads
  int cluster_n = 1;
  int cluster_split_k = 1;  ///< thread blocks that make one tile together, each over a part of K
  int64_t group_m = 1;      ///< row tiles that are grouped, column by column of tiles (cache reuse)
  int split_k = 1;          ///< parts that K is cut into, each a task of its own
  int tile_workers = 0;     ///< workers of a tile lane; 0 = the backend's choice
  int reduce_workers = 0;   ///< workers of a reduce lane; 0 = the backend's choice
  int launches = 1;         ///< kernels for tiles and for what sums beside them: one, or 2 on two streams of a GPU
  int copy_workers = 0;     ///< workers that move bytes without a copy engine; 0 = the backend's choice
  int64_t chunk_rows = 0;   ///< rows that are communicated at once; 0 = a whole shard
  int64_t chunk_cols = 0;   ///< columns of A that a gather moves at once; 0 = all
  Direction direction = Direction::push;
  Transport transport = Transport::store;
  Algorithm algorithm = Algorithm::direct;
  ReduceMode reduce_mode = ReduceMode::staged;
  ReduceWhen reduce_when = ReduceWhen::beside;
  std::optional<DType> wire{};  ///< type in which partials travel; default: the output's
  TileOrder tile_order = TileOrder::rank_shifted;
  int group_owners = 1;  ///< owners whose tiles are grouped, so that what they share of B is read once
  int rounds = 1;  ///< cuts of each owner's tiles: a round has one cut of each peer's; mine follow, or of a gather lead
  Release release = Release::tile;
  int copy_lanes = 1;
  Pacing pacing = Pacing::unpaced;
  Provider compute = Provider::tiles;     ///< who multiplies
  Provider collective = Provider::tiles;  ///< who moves and sums between ranks

  bool operator==(const Config&) const = default;
};

}  // namespace tilewire
