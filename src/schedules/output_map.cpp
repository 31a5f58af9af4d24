// From a map of the output to a plan: fills, tiles that add where they are mapped, copies that start when all updates
// of a block have come. Called by track_trigger.cpp, the simulator's study of T3 and tests.
#include "schedules/output_map.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "schedules/builder.hpp"
#include "schedules/pieces.hpp"

namespace tilewire {

OutputMap::OutputMap(int num_ranks)
    : num_ranks_(num_ranks), chunks_(static_cast<size_t>(num_ranks) * static_cast<size_t>(num_ranks)) {}

MappedChunk& OutputMap::chunk_at(int rank, int chunk, int to) {
  const auto known = [&](int index) { return index >= 0 && index < num_ranks_; };
  require(known(rank) && known(chunk) && known(to), "map of chunk {} of rank {} to rank {}: there are {} ranks", chunk,
          rank, to, num_ranks_);
  return chunks_[rank * num_ranks_ + chunk];
}

void OutputMap::remote_map(int rank, int chunk, int to) {
  MappedChunk& mapped = chunk_at(rank, chunk, to);
  require(rank != to, "remote_map of chunk {}: rank {} is no remote rank of itself", chunk, rank);
  mapped.via = MappedChunk::Via::stores;
  mapped.to = to;
}

void OutputMap::dma_map(int rank, int chunk, int to, int updates_per_element) {
  MappedChunk& mapped = chunk_at(rank, chunk, to);
  require(rank != to, "dma_map of chunk {}: rank {} is no remote rank of itself", chunk, rank);
  require(updates_per_element >= 1, "dma_map of chunk {}: updates_per_element = {}: want at least 1", chunk,
          updates_per_element);
  mapped.via = MappedChunk::Via::dma;
  mapped.to = to;
  mapped.updates = updates_per_element;
}

void OutputMap::make_in_stage(int rank, int chunk, int stage) { chunk_at(rank, chunk, rank).stage = stage; }

int OutputMap::updates_seen(int rank, int chunk) const {
  int seen = at(rank, chunk).via == MappedChunk::Via::stores ? 0 : 1;
  for (int sender = 0; sender < num_ranks_; ++sender) {
    const MappedChunk& sent = at(sender, chunk);
    seen += sender != rank && sent.via != MappedChunk::Via::memory && sent.to == rank ? 1 : 0;
  }
  return seen;
}

OutputMap ring_reduce_scatter(int num_ranks) {
  OutputMap map(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int next = (rank + 1) % num_ranks;
    for (int stage = 0; stage < num_ranks; ++stage) {
      const int chunk = (rank - 1 - stage + 2 * num_ranks) % num_ranks;
      map.make_in_stage(rank, chunk, stage);
      if (chunk == rank) continue;
      stage == 0 ? map.remote_map(rank, chunk, next) : map.dma_map(rank, chunk, next, 2);
    }
  }
  return map;
}

OutputMap direct_reduce_scatter(int num_ranks) {
  OutputMap map(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int stage = 0; stage < num_ranks; ++stage) {
      const int chunk = (rank + 1 + stage) % num_ranks;
      map.make_in_stage(rank, chunk, stage);
      if (chunk != rank) map.remote_map(rank, chunk, chunk);
    }
  }
  return map;
}

namespace {

class MappedPlanner {
 public:
  MappedPlanner(const Problem& problem, const Team& team, const Config& config, const OutputMap& map)
      : build_(problem, team, config),
        map_(map),
        n_(team.num_ranks),
        wire_(config.wire.value_or(out_dtype_of(problem))),
        cut_(cut_output(problem, config, n_, Share::rows)) {
    for (Piece& piece : cut_.pieces) {
      // NOTE: without chunk_rows a block is a tile; cut_output would make it a whole shard.
      if (config.chunk_rows == 0) piece.chunk = static_cast<int>(&piece - cut_.pieces.data());
    }
    if (config.chunk_rows > 0) return;
    cut_.chunks.clear();
    for (int i = 0; i < std::ssize(cut_.pieces); ++i) {
      const Piece& piece = cut_.pieces[i];
      cut_.chunks.push_back({piece.owner, piece.rows, piece.cols, i});
    }
  }

  Plan make() {
    check_updates();
    add_buffers();
    updated_ = build_.add_signals(kUpdatedSignals, static_cast<int>(cut_.chunks.size()));
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] Range shard(int rank) const { return shard_of(problem().m, n_, rank); }

  void check_updates() const {
    for (int rank = 0; rank < n_; ++rank) {
      for (int chunk = 0; chunk < n_; ++chunk) {
        const MappedChunk& mapped = map_.at(rank, chunk);
        if (mapped.via != MappedChunk::Via::dma) continue;
        const int seen = map_.updates_seen(rank, chunk);
        require(mapped.updates == seen, "dma_map of chunk {} on rank {}: waits for {} updates per element, {} come",
                chunk, rank, mapped.updates, seen);
      }
    }
  }

  void add_buffers() {
    output_ = build_.buffer("c");
    in_output_ = in_arena(problem(), "c") && wire_ == out_dtype_of(problem()) && problem().epilogue.empty();
    sum_ = build_.add_buffer("sum", wire_, problem().m, problem().n, Scope::symmetric);
  }

  /// Where `rank` keeps part of a chunk.
  [[nodiscard]] Region place(int rank, int chunk, Range rows, Range cols) const {
    if (chunk != rank || !in_output_) return PlanBuilder::region(rank, sum_, rows, cols);
    const int64_t first = shard(rank).begin;
    return PlanBuilder::region(rank, output_, {rows.begin - first, rows.end - first}, cols);
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
    if (in_output_) {
      wait_for_output(rank, sums);
    } else {
      for (const Piece& piece : cut_.pieces) {
        if (piece.owner == rank) build_.add(sums, result_task(piece));
      }
    }
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
    std::vector<std::vector<const Piece*>> pieces_of(cut_.tiles.size());
    for (const Piece& piece : cut_.pieces) pieces_of[piece.tile].push_back(&piece);
    std::vector<int> stages(cut_.tiles.size(), n_);
    for (const Piece& piece : cut_.pieces) {
      const bool naive = config().order == Order::naive;
      stages[piece.tile] = std::min(stages[piece.tile], naive ? 0 : map_.at(rank, piece.owner).stage);
    }
    const int a = build_.buffer("a");
    const int64_t depth = shape_on(build_.plan().buffers[a], rank).cols;
    for (const int index : walk_tiles(cut_.tiles, stages, config(), Mine::last)) {
      const Tile& tile = cut_.tiles[index];
      const Task task = tile_task(rank, tile, pieces_of[index]);
      for (int part = 0; part < config().split_k; ++part) {
        build_.add_part(lane, PlanBuilder::region(rank, a, tile.rows, shard_of(depth, config().split_k, part)),
                        tile.cols, task);
      }
    }
  }

  [[nodiscard]] Task tile_task(int rank, const Tile& tile, const std::vector<const Piece*>& pieces) {
    Task task{.kind = TaskKind::compute};
    for (const Piece* piece : pieces) {
      const MappedChunk& mapped = map_.at(rank, piece->owner);
      const int to = mapped.via == MappedChunk::Via::stores ? mapped.to : rank;
      task.writes.push_back({.to = place(to, piece->owner, piece->rows, piece->cols),
                             .first_row = piece->rows.begin - tile.rows.begin,
                             .mode = WriteMode::accumulate});
      task.posts.push_back({{to, updated_ + piece->chunk}});
      const Wait ready = cleared(rank, to);
      if (std::ranges::find(task.waits, ready) == task.waits.end()) task.waits.push_back(ready);
    }
    return task;
  }

  /// Blocks in the order in which they are made.
  void add_copies(int rank, const std::vector<int>& lanes) {
    std::vector<int> blocks;
    for (int block = 0; block < std::ssize(cut_.chunks); ++block) {
      if (map_.at(rank, cut_.chunks[block].owner).via == MappedChunk::Via::dma) blocks.push_back(block);
    }
    std::ranges::stable_sort(blocks, {}, [&](int block) { return map_.at(rank, cut_.chunks[block].owner).stage; });
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& [owner, rows, cols, first_piece] = cut_.chunks[blocks[i]];
      const int to = map_.at(rank, owner).to;
      const int index = updated_ + blocks[i];
      build_.add(lanes[i % lanes.size()],
                 {.kind = TaskKind::copy,
                  .reads = {place(rank, owner, rows, cols)},
                  .writes = {{.to = place(to, owner, rows, cols), .mode = WriteMode::accumulate}},
                  .waits = {cleared(rank, to), {{rank, index}, kAllPosts}},
                  .posts = {{{to, index}}}});
    }
  }

  /// The output is complete when its last block is: for whoever comes after this call.
  void wait_for_output(int rank, int lane) {
    Task task{.kind = TaskKind::sync};
    for (int block = 0; block < std::ssize(cut_.chunks); ++block) {
      if (cut_.chunks[block].owner == rank) task.waits.push_back({{rank, updated_ + block}, kAllPosts});
    }
    build_.add(lane, std::move(task));
  }

  [[nodiscard]] Task result_task(const Piece& piece) {
    const int rank = piece.owner;
    const int64_t first = shard(rank).begin;
    const Range rows{piece.rows.begin - first, piece.rows.end - first};
    return {.kind = TaskKind::reduce,
            .reads = {place(rank, rank, piece.rows, piece.cols)},
            .writes = {{PlanBuilder::region(rank, output_, rows, piece.cols)}},
            .waits = {{{rank, updated_ + piece.chunk}, kAllPosts}},
            .epilogue = build_.epilogue(rank, piece.cols)};
  }

  PlanBuilder build_;
  const OutputMap& map_;
  int n_;
  DType wire_;
  OutputCut cut_;
  int output_ = 0, sum_ = 0, updated_ = 0;
  bool in_output_ = false;
};

}  // namespace

Plan make_mapped_plan(const Problem& problem, const Team& team, const Config& config, const OutputMap& map) {
  ensure(map.num_ranks() == team.num_ranks, "a map of {} ranks for a team of {}", map.num_ranks(), team.num_ranks);
  return MappedPlanner(problem, team, config, map).make();
}

}  // namespace tilewire
