// Plans of an all-gather of A's columns + GEMM: every rank's columns travel, some rows after others; a tile waits for
// an owner's columns when its product comes to them. Called by fused.cpp and sequential.cpp.
#include "schedules/column_gather.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "schedules/builder.hpp"
#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/ranges.hpp"
#include "schedules/tiles.hpp"

namespace tilewire {
namespace {

class ColumnGatherPlanner {
 public:
  ColumnGatherPlanner(const Problem& problem, const Team& team, const Config& config)
      : build_(problem, team, config), n_(team.num_ranks), chunks_(cuts({0, problem.m}, config.chunk_rows)) {}

  Plan make() {
    add_buffers();
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] bool by_library() const { return config().compute == Provider::library; }
  [[nodiscard]] bool waits_for_all() const { return config().release == Release::all; }
  [[nodiscard]] Range cols_of(int owner) const { return shard_of(problem().k, n_, owner); }
  /// One rank reads its input where it is.
  [[nodiscard]] bool into_output() const {
    return n_ > 1 && problem().gathered_output && in_arena(problem(), "gathered");
  }
  [[nodiscard]] int num_chunks() const { return static_cast<int>(std::ssize(chunks_)); }

  void add_buffers() {
    a_ = build_.buffer("a");
    gathered_ = n_ == 1 ? a_
                : into_output()
                    ? build_.buffer("gathered")
                    : build_.add_buffer("gather", problem().dtype, problem().m, problem().k, Scope::symmetric);
    int64_t most = 0;
    for (int rank = 0; rank < n_; ++rank) most = std::max(most, std::ssize(tiles_of(rank)));
    build_.expect_products(most);
    if (n_ > 1) arrived_ = build_.add_signals("arrived", n_ * std::max(1, num_chunks()));
    if (n_ > 1 && waits_for_all()) gate_ = build_.add_signals("all_arrived", 1);
  }

  [[nodiscard]] Signal arrived(int rank, int owner, int chunk) const {
    return {rank, arrived_ + owner * num_chunks() + chunk};
  }
  /// Rows of a chunk, and an owner's columns, where they are gathered.
  [[nodiscard]] Region in_place(int rank, int owner, int chunk) const {
    return PlanBuilder::region(rank, gathered_, chunks_[chunk], cols_of(owner));
  }
  [[nodiscard]] Region at_owner(int owner, int chunk) const {
    return PlanBuilder::region(owner, a_, chunks_[chunk], {0, cols_of(owner).size()});
  }

  void add_rank(int rank) {
    const int tiles =
        build_.add_lane(rank, by_library() ? Engine::library : Engine::tiles, "tiles", config().tile_workers);
    build_.say_ready(rank, tiles);
    const int sums = config().split_k > 1 ? build_.add_lane(rank, Engine::reduce, "split_k") : -1;
    const int own = add_comm_lane(rank, "own");
    std::vector<int> lanes;
    for (int lane = 0; lane < config().copy_lanes; ++lane) lanes.push_back(add_comm_lane(rank, "gather"));
    if (n_ > 1) add_copies(rank, own, lanes);
    add_gathered_output(rank, own);
    if (n_ > 1) add_gate(rank, own);
    add_tiles(rank, tiles, sums);
  }

  int add_comm_lane(int rank, const char* name) {
    const bool engines = config().transport == Transport::copy_engine;
    return build_.add_lane(rank, engines ? Engine::copy : Engine::tiles, name, engines ? 0 : config().copy_workers);
  }

  /// Some rows to everybody before more of them: a tile needs those rows of all owners.
  void add_copies(int rank, int own, const std::vector<int>& lanes) {
    if (cols_of(rank).size() == 0) return;
    for (int chunk = 0; chunk < num_chunks(); ++chunk) {
      build_.add(own, {.kind = TaskKind::copy,
                       .reads = {at_owner(rank, chunk)},
                       .writes = {{in_place(rank, rank, chunk)}},
                       .posts = {{arrived(rank, rank, chunk)}}});
      const std::vector<int> peers = peers_after(n_, rank);
      for (size_t phase = 0; phase < peers.size(); ++phase) {
        build_.add(lanes[phase % lanes.size()], {.kind = TaskKind::copy,
                                                 .reads = {at_owner(rank, chunk)},
                                                 .writes = {{in_place(peers[phase], rank, chunk)}},
                                                 .waits = {build_.ready(rank, peers[phase])},
                                                 .posts = {{arrived(peers[phase], rank, chunk)}}});
      }
    }
  }

  /// The caller's copy of what was gathered in workspace.
  void add_gathered_output(int rank, int lane) {
    if (!problem().gathered_output || into_output()) return;
    const int output = build_.buffer("gathered");
    for (int chunk = 0; chunk < num_chunks(); ++chunk) {
      Task task{.kind = TaskKind::copy,
                .reads = {PlanBuilder::region(rank, gathered_, chunks_[chunk], {0, problem().k})},
                .writes = {{PlanBuilder::region(rank, output, chunks_[chunk], {0, problem().k})}}};
      add_arrivals(task, rank, chunk);
      if (chunks_[chunk].size() * problem().k > 0) build_.add(lane, std::move(task));
    }
  }

  /// Everything is here: opens the GEMM where it waits for that, and ends the call of a rank that has no tile.
  void add_gate(int rank, int lane) {
    const bool has_tiles = problem().m * columns_on(problem(), n_, rank).back().end > 0;
    if (has_tiles && !waits_for_all()) return;
    Task gate{.kind = TaskKind::sync};
    for (int chunk = 0; chunk < num_chunks(); ++chunk) add_arrivals(gate, rank, chunk);
    if (waits_for_all()) gate.posts.push_back({{rank, gate_}});
    if (!gate.waits.empty() || !gate.posts.empty()) build_.add(lane, std::move(gate));
  }

  void add_arrivals(Task& task, int rank, int chunk) const {
    for (int owner = 0; n_ > 1 && owner < n_; ++owner) {
      if (cols_of(owner).size() > 0) task.waits.push_back({arrived(rank, owner, chunk)});
    }
  }

  [[nodiscard]] std::vector<Tile> tiles_of(int rank) const {
    const std::vector<Range> columns = columns_on(problem(), n_, rank);
    if (!by_library()) return tile_grid(problem().m, columns, config().tile_m, config().tile_n);
    std::vector<Tile> calls;
    for (const Range rows : waits_for_all() ? cuts({0, problem().m}, 0) : chunks_) {
      for (const Range cols : columns) calls.push_back({rows, cols});
    }
    return calls;
  }

  void add_tiles(int rank, int lane, int sum_lane) {
    const std::vector<Tile> tiles = tiles_of(rank);
    build_.expect_tasks(lane, std::ssize(tiles) * config().split_k);
    for (const int index : order_tiles(tiles, std::vector<int>(tiles.size()), config(), LocalTiles::first)) {
      const Tile& tile = tiles[index];
      if (tile.rows.size() * tile.cols.size() == 0) continue;
      Task task{.kind = by_library() ? TaskKind::gemm_call : TaskKind::compute,
                .writes = {{build_.output(rank, tile.rows, tile.cols)}},
                .waits = waits_for(rank, tile.rows),
                .epilogue = build_.epilogue(rank, tile.rows, tile.cols)};
      const Region rows = PlanBuilder::region(rank, gathered_, tile.rows, {0, problem().k});
      build_.add_product(lane, sum_lane, rows, tile.cols, std::move(task));
    }
  }

  /// An owner's columns are needed when the product comes to them; by a call of the library, or a part of K, at once.
  [[nodiscard]] std::vector<Wait> waits_for(int rank, Range rows) const {
    if (n_ == 1) return {};
    if (waits_for_all()) return {{{rank, gate_}}};
    const bool at_once = by_library() || config().split_k > 1;
    std::vector<Wait> waits;
    for (int owner = 0; owner < n_; ++owner) {
      for (int chunk = 0; cols_of(owner).size() > 0 && chunk < num_chunks(); ++chunk) {
        if (!meet(chunks_[chunk], rows)) continue;
        waits.push_back({.signal = arrived(rank, owner, chunk), .from_col = at_once ? 0 : cols_of(owner).begin});
      }
    }
    return waits;
  }

  PlanBuilder build_;
  int n_;
  std::vector<Range> chunks_;  ///< rows that travel together
  int a_ = 0, gathered_ = 0;
  int arrived_ = 0, gate_ = 0;
};

}  // namespace

Plan make_column_gather_plan(const Problem& problem, const Team& team, const Config& config) {
  return ColumnGatherPlanner(problem, team, config).make();
}

namespace {

bool scatters_columns(const Workload& work) {
  return scatters(work.problem) && by_columns(work.problem) && on_gpus(work);
}
bool gathers_columns_on_gpus(const Workload& work) { return gathers_columns(work.problem) && on_gpus(work); }
bool gathers_columns_on_host(const Workload& work) { return gathers_columns(work.problem) && !on_gpus(work); }

void unpaced(const Workload& /*work*/, Config& config) { config.transport = Transport::copy_engine; }

void in_quarters(const Workload& work, Config& config) {
  by_engines(work, config);
  config.chunk_rows = part_of(work.problem.m, 4);
}

void in_quarters_of_library(const Workload& work, Config& config) {
  in_quarters(work, config);
  config.compute = Provider::library;
}

constexpr Way kColumnWays[] = {
    {"tiles stored at owners", kAll, 1, scatters_columns, first_two_tiles, by_stores},
    {"copy engines send shards", kAll, 1, scatters_columns, first_tile, unpaced},
    {"copy engines send results of the library", kAll, 1, scatters_columns, nullptr,
     [](const Workload& work, Config& config) {
       unpaced(work, config);
       config.compute = Provider::library;
     }},
    {"copy engines, quarters of rows", kAll, 1, gathers_columns_on_gpus, first_two_tiles, in_quarters},
    {"copy engines, quarters of rows, calls of the library", kAll, 1, gathers_columns_on_gpus, nullptr,
     in_quarters_of_library},
    {"copy engines, all rows", kAll, 1, gathers_columns_on_gpus, first_two_tiles, by_engines},
    {"copy engines, all rows, calls of the library", kAll, 1, gathers_columns_on_gpus, nullptr, by_engines_of_library},
    {"workers copy", kAll, 1, gathers_columns_on_gpus, first_tile},
    {"copy lanes, quarters of rows", kAll, 1, gathers_columns_on_host, nullptr, in_quarters},
    {"copy lanes, all rows", kAll, 1, gathers_columns_on_host, nullptr, by_engines},
    {"workers copy", kAll, 1, gathers_columns_on_host},
};

}  // namespace

std::vector<Way> ways_of_columns() { return {std::begin(kColumnWays), std::end(kColumnWays)}; }

}  // namespace tilewire
