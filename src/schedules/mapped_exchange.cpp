// From a map of an output that nobody sums to a plan: tiles that are stored wherever they are mapped to, copies that
// pass on what has come. Called by tests.
#include "schedules/mapped_exchange.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "operators/gemm.hpp"
#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"
#include "schedules/mapped_plan.hpp"
#include "schedules/ranges.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers_of(const Problem& problem, int num_ranks, bool gathers) {
  std::vector<Shape> a;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    a.push_back({shard_of(problem.m, num_ranks, rank).size(), problem.k});
    c.push_back({problem.m, gathers ? problem.n : shard_of(problem.n, num_ranks, rank).size()});
  }
  return {sharded_buffer("a", problem.dtype, Scope::input, a),
          whole_buffer("b", problem.dtype, Scope::input, b_shape(problem, problem.n, problem.k)),
          sharded_buffer("c", out_dtype_of(problem), Scope::output, c)};
}

class ExchangePlanner {
 public:
  ExchangePlanner(const Problem& problem, const Team& team, const Config& config, bool gathers, const OutputMap& map)
      : build_(problem, team, config, buffers_of(problem, team.num_ranks, gathers)),
        gathers_(gathers),
        map_(map),
        n_(team.num_ranks) {}

  Plan make() {
    const int num_blocks = cut_blocks();
    updated_ = build_.add_signals(kUpdatedSignals, num_blocks);
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  /// What is sent at once.
  struct Block {
    int index;
    Tile part;
  };

  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] Range rows_of(int chunk) const { return shard_of(problem().m, n_, gathers_ ? chunk : chunk / n_); }
  [[nodiscard]] Range cols_of(int chunk) const {
    return gathers_ ? Range{0, problem().n} : shard_of(problem().n, n_, chunk % n_);
  }

  /// A chunk in parts of at most so many rows and columns.
  [[nodiscard]] std::vector<Tile> parts_of(int chunk, int64_t rows, int64_t cols) const {
    const Range all_rows = rows_of(chunk);
    const Range all_cols = cols_of(chunk);
    std::vector<Tile> parts = tile_grid(all_rows.size(), all_cols.size(), rows, cols);
    for (auto& [part_rows, part_cols] : parts) {
      part_rows = {part_rows.begin + all_rows.begin, part_rows.end + all_rows.begin};
      part_cols = {part_cols.begin + all_cols.begin, part_cols.end + all_cols.begin};
    }
    return parts;
  }

  /// Returns how many there are.
  int cut_blocks() {
    int count = 0;
    const bool by_rows = config().chunk_rows > 0;
    for (int chunk = 0; chunk < map_.num_chunks(); ++chunk) {
      const int64_t rows = by_rows ? config().chunk_rows : config().tile_m;
      const int64_t cols = by_rows ? std::max<int64_t>(1, problem().n) : config().tile_n;
      auto& blocks = blocks_.emplace_back();
      for (const Tile& part : parts_of(chunk, rows, cols)) blocks.push_back({count++, part});
    }
    return count;
  }

  [[nodiscard]] Region place(int rank, const Tile& part) const {
    const int64_t first = gathers_ ? 0 : shard_of(problem().n, n_, rank).begin;
    return PlanBuilder::region(rank, build_.buffer("c"), part.rows, {part.cols.begin - first, part.cols.end - first});
  }

  [[nodiscard]] Wait updated(int rank, const Block& block) const { return {{rank, updated_ + block.index}, kAllPosts}; }

  void add_rank(int rank) {
    const int tiles = build_.add_lane(rank, Engine::tiles, "tiles", config().tile_workers);
    std::vector<int> engines;
    for (int lane = 0; lane < config().copy_lanes; ++lane)
      engines.push_back(build_.add_lane(rank, Engine::copy, "dma"));
    build_.say_ready(rank, tiles);
    add_tiles(rank, tiles);
    add_copies(rank, engines);
    Task whole{.kind = TaskKind::sync};
    for (int chunk = 0; chunk < map_.num_chunks(); ++chunk) {
      if (!map_.at(rank, chunk).kept && map_.stores_seen(rank, chunk) == 0) continue;
      for (const Block& block : blocks_[chunk]) whole.waits.push_back(updated(rank, block));
    }
    build_.add(build_.add_lane(rank, Engine::reduce, "whole"), std::move(whole));
  }

  void add_tiles(int rank, int lane) {
    std::vector<Tile> tiles;
    std::vector<int> chunks, stages;
    for (int chunk = 0; chunk < map_.num_chunks(); ++chunk) {
      if (!map_.makes(rank, chunk)) continue;
      for (const Tile& tile : parts_of(chunk, config().tile_m, config().tile_n)) {
        tiles.push_back(tile);
        chunks.push_back(chunk);
        stages.push_back(map_.at(rank, chunk).stage);
      }
    }
    const int64_t first = shard_of(problem().m, n_, rank).begin;
    for (const int index : order_tiles(tiles, stages, config(), LocalTiles::last)) {
      const Tile& tile = tiles[index];
      const Range rows{tile.rows.begin - first, tile.rows.end - first};
      build_.add_part(lane, PlanBuilder::region(rank, build_.buffer("a"), rows, {0, problem().k}), tile.cols,
                      tile_task(rank, chunks[index], tile));
    }
  }

  [[nodiscard]] Task tile_task(int rank, int chunk, const Tile& tile) {
    Task task{.kind = TaskKind::compute};
    const auto store = [&](int to) {
      task.writes.push_back({place(to, tile)});
      if (to != rank) task.waits.push_back(build_.ready(rank, to));
      for (const auto& [index, part] : blocks_[chunk]) {
        if (meet(part.rows, tile.rows) && meet(part.cols, tile.cols)) task.posts.push_back({{to, updated_ + index}});
      }
    };
    const MappedChunk& mapped = map_.at(rank, chunk);
    if (mapped.kept) store(rank);
    for (const Mapping& mapping : mapped.to) {
      if (mapping.via == Mapping::Via::stores) store(mapping.to);
    }
    return task;
  }

  /// In the order in which a ring brings what is passed on.
  void add_copies(int rank, const std::vector<int>& lanes) {
    size_t count = 0;
    const int each = map_.num_chunks() / n_;  // made by one rank
    for (int step = 0; step < map_.num_chunks(); ++step) {
      const int chunk = (rank - step / each + n_) % n_ * each + step % each;
      for (const Mapping& mapping : map_.at(rank, chunk).to) {
        if (mapping.via != Mapping::Via::dma) continue;
        const Wait ready = build_.ready(rank, mapping.to);
        for (const Block& block : blocks_[chunk]) {
          build_.add(lanes[count++ % lanes.size()], {.kind = TaskKind::copy,
                                                     .reads = {place(rank, block.part)},
                                                     .writes = {{place(mapping.to, block.part)}},
                                                     .waits = {ready, updated(rank, block)},
                                                     .posts = {{{mapping.to, updated_ + block.index}}}});
        }
      }
    }
  }

  PlanBuilder build_;
  bool gathers_;
  const OutputMap& map_;
  int n_;
  int updated_ = 0;
  std::vector<std::vector<Block>> blocks_;  ///< by chunk
};

/// Chunks must be made by those who have their rows, and come to those who have their columns in the end.
void check_map(const OutputMap& map, Collective collective) {
  const int ranks = map.num_ranks();
  const bool gathers = collective == Collective::all_gather;
  map.validate();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < map.num_chunks(); ++chunk) {
      require(map.sum_of(rank, chunk) == nullptr, "{} sums nothing: rank {} maps chunk {} with accumulate",
              to_string(collective), rank, chunk);
      const int maker = gathers ? chunk : chunk / ranks;
      require(rank == maker || !map.makes(rank, chunk), "{}: rank {} makes chunk {}, whose rows rank {} has",
              to_string(collective), rank, chunk, maker);
      const bool comes = map.at(rank, chunk).kept || map.stores_seen(rank, chunk) > 0;
      require(gathers || rank == chunk % ranks || !comes, "{}: chunk {} comes to rank {}, but is for rank {}",
              to_string(collective), chunk, rank, chunk % ranks);
    }
  }
}

}  // namespace

Plan make_exchange_plan(const Problem& problem, const Team& team, const Config& config, Collective collective,
                        const OutputMap& map) {
  const bool gathers = collective == Collective::all_gather;
  require(gathers || collective == Collective::all_to_all, "exchange of an output by {}: want all_gather or all_to_all",
          to_string(collective));
  const int ranks = team.num_ranks;
  const int chunks = gathers ? ranks : ranks * ranks;
  require(map.num_ranks() == ranks && map.num_chunks() == chunks,
          "a map of {} ranks and {} chunks: {} on {} ranks has {} chunks", map.num_ranks(), map.num_chunks(),
          to_string(collective), ranks, chunks);
  check_map(map, collective);
  validate(config);
  const std::vector<Knob> knobs{
      {"tile_m", any_operator},       {"tile_n", any_operator},     {"cluster_m", any_operator},
      {"cluster_n", any_operator},    {"group_m", any_operator},    {"cluster_split_k", any_operator},
      {"tile_workers", any_operator}, {"chunk_rows", any_operator}, {"copy_lanes", any_operator}};
  const std::optional<std::string> ignored = knob_without_row(knobs, problem, config);
  require(!ignored, "exchange of an output: {}", ignored.value_or(""));
  require(problem.epilogue.empty(), "epilogue has {} steps: an exchanged output takes none", problem.epilogue.size());
  Problem reachable = problem;
  reachable.arena = {"c"};
  Plan plan = ExchangePlanner(reachable, team, config, gathers, map).make();
  set_note(plan, {reachable, config});
  return plan;
}

}  // namespace tilewire
