// From a map of a summed output to a plan: fills, tiles that add where they are mapped, copies that start when all
// updates of a block have come. Called by track_trigger.cpp, the simulator's study of T3 and tests.
#include "schedules/mapped_plan.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"
#include "schedules/partition.hpp"

namespace tilewire {
namespace {

class MappedPlanner {
 public:
  MappedPlanner(const Problem& problem, const Team& team, const Config& config, const OutputMap& map)
      : build_(problem, team, config),
        map_(map),
        n_(team.num_ranks),
        wire_(config.wire.value_or(out_dtype_of(problem))),
        whole_(all_reduces(problem)),
        gathers_(map.any_stores()),
        cut_(partition_output(problem, config, n_, Ownership::rows)) {
    for (Slice& slice : cut_.slices) {
      // NOTE: without chunk_rows a block is a tile; partition_output would make it a whole shard.
      if (config.chunk_rows == 0) slice.chunk = static_cast<int>(&slice - cut_.slices.data());
    }
    if (config.chunk_rows > 0) return;
    cut_.chunks.clear();
    for (int i = 0; i < std::ssize(cut_.slices); ++i) {
      const Slice& slice = cut_.slices[i];
      cut_.chunks.push_back({slice.owner, slice.rows, slice.cols, i});
    }
  }

  Plan make() {
    add_buffers();
    updated_ = build_.add_signals(kUpdatedSignals, static_cast<int>(cut_.chunks.size()));
    if (gathers_) stored_ = build_.add_signals("stored", static_cast<int>(cut_.chunks.size()));
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] Range shard(int rank) const { return shard_of(problem().m, n_, rank); }

  void add_buffers() {
    output_ = build_.buffer("c");
    reaches_output_ = in_arena(problem(), "c");
    in_output_ = reaches_output_ && wire_ == out_dtype_of(problem()) && problem().epilogue.empty();
    for (int rank = 0; rank < n_; ++rank) {
      for (int chunk = 0; chunk < n_; ++chunk) sums_pass_ |= chunk != rank && map_.updates_seen(rank, chunk) > 0;
    }
    if (sums_pass_ || !in_output_)
      sum_ = build_.add_buffer("sum", wire_, sums_pass_ ? problem().m : shard(0).size(), problem().n, Scope::symmetric);
    if (gathers_ && !reaches_output_)
      result_ = build_.add_buffer("result", out_dtype_of(problem()), problem().m, problem().n, Scope::symmetric);
  }

  /// The output on `rank`, which is whole or the rank's own rows.
  [[nodiscard]] Region in_output(int rank, Range rows, Range cols) const {
    const int64_t first = whole_ ? 0 : shard(rank).begin;
    return PlanBuilder::region(rank, output_, {rows.begin - first, rows.end - first}, cols);
  }

  /// Where `rank` sums part of a chunk.
  [[nodiscard]] Region place(int rank, int chunk, Range rows, Range cols) const {
    if (chunk == rank && in_output_) return in_output(rank, rows, cols);
    const int64_t first = sums_pass_ ? 0 : shard(rank).begin;
    return PlanBuilder::region(rank, sum_, {rows.begin - first, rows.end - first}, cols);
  }

  /// Where `rank` has part of a chunk when it is complete: made here, or stored by another.
  [[nodiscard]] Region complete(int rank, int chunk, Range rows, Range cols) const {
    if (chunk == rank || reaches_output_) return in_output(rank, rows, cols);
    return PlanBuilder::region(rank, result_, rows, cols);
  }

  /// That a block is complete on `rank`.
  [[nodiscard]] Wait completed(int rank, int block) const {
    const bool summed_there = cut_.chunks[block].owner == rank && in_output_;
    return {{rank, (summed_there ? updated_ : stored_) + block}, kAllPosts};
  }

  void add_rank(int rank) {
    const int sums = build_.add_lane(rank, Engine::reduce, "sum", config().reduce_workers);
    const int tiles = build_.add_lane(rank, Engine::tiles, "tiles", config().tile_workers);
    std::vector<int> engines;
    for (int lane = 0; lane < config().copy_lanes; ++lane)
      engines.push_back(build_.add_lane(rank, Engine::copy, "dma"));
    add_fill(rank, sums);
    add_tiles(rank, tiles);
    add_copies(rank, engines);
    if (!in_output_) {
      for (const Slice& slice : cut_.slices) {
        if (slice.owner == rank) build_.add(sums, result_task(slice));
      }
    }
    if (gathers_ && !reaches_output_) add_landings(rank, build_.add_lane(rank, Engine::reduce, "land"));
    wait_for_output(rank, sums);
  }

  /// Clear what will be added to, chunk by chunk; each tells those who add.
  void add_fill(int rank, int lane) {
    bool fills = false;
    for (int chunk = 0; chunk < n_; ++chunk) {
      const Range rows = shard(chunk);
      if (rows.size() == 0 || map_.updates_seen(rank, chunk) == 0) continue;
      fills = true;
      build_.add(lane, {.kind = TaskKind::fill,
                        .writes = {{place(rank, chunk, rows, {0, problem().n})}},
                        .posts = build_.ready_posts(rank, true)});
    }
    if (!fills) build_.add(lane, {.kind = TaskKind::sync, .posts = build_.ready_posts(rank, true)});
  }

  /// Wait on `rank` until `to` has cleared everything.
  [[nodiscard]] Wait cleared(int rank, int to) {
    Wait wait = build_.ready(rank, to);
    wait.at_least = kAllPosts;
    return wait;
  }

  void add_tiles(int rank, int lane) {
    std::vector<std::vector<const Slice*>> slices_of(cut_.tiles.size());
    for (const Slice& slice : cut_.slices) slices_of[slice.tile].push_back(&slice);
    std::vector<int> stages(cut_.tiles.size(), n_);
    for (const Slice& slice : cut_.slices) {
      const bool naive = config().tile_order == TileOrder::naive;
      stages[slice.tile] = std::min(stages[slice.tile], naive ? 0 : map_.at(rank, slice.owner).stage);
    }
    const int a = build_.buffer("a");
    const int64_t depth = shape_on(build_.plan().buffers[a], rank).cols;
    for (const int index : order_tiles(cut_.tiles, stages, config(), LocalTiles::last)) {
      const Tile& tile = cut_.tiles[index];
      const Task task = tile_task(rank, tile, slices_of[index]);
      for (int part = 0; part < config().split_k; ++part) {
        build_.add_part(lane, PlanBuilder::region(rank, a, tile.rows, shard_of(depth, config().split_k, part)),
                        tile.cols, task);
      }
    }
  }

  [[nodiscard]] Task tile_task(int rank, const Tile& tile, const std::vector<const Slice*>& slices) {
    Task task{.kind = TaskKind::compute};
    for (const Slice* slice : slices) {
      const int to = map_.at(rank, slice->owner).kept ? rank : map_.sum_of(rank, slice->owner)->to;
      task.writes.push_back({.to = place(to, slice->owner, slice->rows, slice->cols),
                             .first_row = slice->rows.begin - tile.rows.begin,
                             .mode = WriteMode::accumulate});
      task.posts.push_back({{to, updated_ + slice->chunk}});
      const Wait ready = cleared(rank, to);
      if (std::ranges::find(task.waits, ready) == task.waits.end()) task.waits.push_back(ready);
    }
    return task;
  }

  struct Sending {
    const Mapping* mapping;
    int block;
  };

  /// Sums in the order in which they are made; then what is complete, first the rank's own chunk, then the others in
  /// the order in which a ring brings them.
  [[nodiscard]] std::vector<Sending> sendings(int rank) const {
    std::vector<Sending> all;
    for (int block = 0; block < std::ssize(cut_.chunks); ++block) {
      for (const Mapping& mapping : map_.at(rank, cut_.chunks[block].owner).to) {
        if (mapping.via == Mapping::Via::dma) all.push_back({&mapping, block});
      }
    }
    std::ranges::stable_sort(all, {}, [&](const Sending& each) {
      const int owner = cut_.chunks[each.block].owner;
      const bool stores = each.mapping->mode == WriteMode::store;
      return std::pair(stores, stores ? (rank - owner + n_) % n_ : map_.at(rank, owner).stage);
    });
    return all;
  }

  void add_copies(int rank, const std::vector<int>& lanes) {
    const std::vector<Sending> all = sendings(rank);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& [mapping, block] = all[i];
      const auto& [owner, rows, cols, first_slice] = cut_.chunks[block];
      const int to = mapping->to;
      Task task{.kind = TaskKind::copy, .waits = {cleared(rank, to)}};
      if (mapping->mode == WriteMode::store) {
        task.reads = {complete(rank, owner, rows, cols)};
        task.writes = {{complete(to, owner, rows, cols)}};
        task.waits.push_back(completed(rank, block));
        task.posts = {{{to, stored_ + block}}};
      } else {
        task.reads = {place(rank, owner, rows, cols)};
        task.writes = {{.to = place(to, owner, rows, cols), .mode = WriteMode::accumulate}};
        task.waits.push_back({{rank, updated_ + block}, kAllPosts});
        task.posts = {{{to, updated_ + block}}};
      }
      build_.add(lanes[i % lanes.size()], std::move(task));
    }
  }

  /// Take what others stored in workspace, in the order in which a ring brings it.
  void add_landings(int rank, int lane) {
    std::vector<int> blocks;
    for (int block = 0; block < std::ssize(cut_.chunks); ++block) {
      if (map_.stores_seen(rank, cut_.chunks[block].owner) > 0) blocks.push_back(block);
    }
    std::ranges::stable_sort(blocks, {}, [&](int block) { return (rank - cut_.chunks[block].owner + n_) % n_; });
    for (const int block : blocks) {
      const auto& [owner, rows, cols, first_slice] = cut_.chunks[block];
      build_.add(lane, {.kind = TaskKind::copy,
                        .reads = {complete(rank, owner, rows, cols)},
                        .writes = {{in_output(rank, rows, cols)}},
                        .waits = {completed(rank, block)}});
    }
  }

  /// The output is complete when its last block is: for whoever comes after this call.
  void wait_for_output(int rank, int lane) {
    Task task{.kind = TaskKind::sync};
    for (int block = 0; block < std::ssize(cut_.chunks); ++block) {
      const int owner = cut_.chunks[block].owner;
      const bool summed = owner == rank && in_output_;
      const bool stored = owner != rank && reaches_output_ && map_.stores_seen(rank, owner) > 0;
      if (summed || stored) task.waits.push_back(completed(rank, block));
    }
    if (in_output_ || !task.waits.empty()) build_.add(lane, std::move(task));
  }

  [[nodiscard]] Task result_task(const Slice& slice) {
    const int rank = slice.owner;
    const Region to = in_output(rank, slice.rows, slice.cols);
    Task task{.kind = TaskKind::reduce,
              .reads = {place(rank, rank, slice.rows, slice.cols)},
              .writes = {{to}},
              .waits = {{{rank, updated_ + slice.chunk}, kAllPosts}},
              .epilogue = build_.epilogue(rank, {to.row, to.row + to.rows}, slice.cols)};
    if (gathers_) task.posts = {{{rank, stored_ + slice.chunk}}};
    return task;
  }

  PlanBuilder build_;
  const OutputMap& map_;
  int n_;
  DType wire_;
  bool whole_;              ///< every rank has all of the output
  bool gathers_;            ///< what is complete is sent
  bool sums_pass_ = false;  ///< parts of sums are passed on by ranks that do not own them
  bool reaches_output_ = false;
  bool in_output_ = false;  ///< sums are completed there
  Partition cut_;
  int output_ = 0, sum_ = 0, result_ = 0, updated_ = 0, stored_ = 0;
};

/// A rank's part of a sum stays or is passed on as a part.
void check_sum(const OutputMap& map, int rank, int chunk) {
  const MappedChunk& mapped = map.at(rank, chunk);
  require(mapped.kept || map.sum_of(rank, chunk) != nullptr, "the part of rank {} in the sum of chunk {} goes nowhere",
          rank, chunk);
  for (const Mapping& sent : mapped.to) {
    require(sent.via == Mapping::Via::dma || sent.mode == WriteMode::accumulate,
            "remote_map of chunk {} of rank {} stores what is part of a sum: want accumulate", chunk, rank);
  }
}

}  // namespace

Plan make_mapped_plan(const Problem& problem, const Team& team, const Config& config, const OutputMap& map) {
  const int ranks = team.num_ranks;
  ensure(map.num_ranks() == ranks && map.num_chunks() == ranks, "a map of {} ranks and {} chunks for a team of {}",
         map.num_ranks(), map.num_chunks(), ranks);
  map.validate();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < ranks; ++chunk) check_sum(map, rank, chunk);
  }
  return MappedPlanner(problem, team, config, map).make();
}

}  // namespace tilewire
