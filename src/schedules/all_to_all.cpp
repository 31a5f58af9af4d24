// Plans of GEMM + AllToAll: a rank makes its rows, and each block of columns or rows goes to the rank that owns it.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#include "schedules/all_to_all.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "operators/exchange.hpp"
#include "schedules/builder.hpp"
#include "schedules/copies.hpp"
#include "schedules/knobs.hpp"
#include "schedules/ranges.hpp"
#include "schedules/tiles.hpp"

namespace tilewire {
namespace {

/// Part of a rank's product that goes to one rank: a tile, or rows that a copy sends.
struct Block {
  int maker = 0;
  int owner = 0;
  Tile at;  ///< in the maker's product
};

class AllToAllPlanner {
 public:
  AllToAllPlanner(const Problem& problem, const Team& team, const Config& config)
      : build_(problem, team, config), exchange_(problem, team.num_ranks), n_(team.num_ranks) {
    for (int rank = 0; rank < n_; ++rank) {
      tiles_.push_back(tiles_of(rank));
      sent_.push_back(sends() ? chunks_of(rank) : tiles_in_order(rank));
    }
  }

  Plan make() {
    add_buffers();
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] bool by_library() const { return config().compute == Provider::library; }
  /// Tiles are stored on their own rank, and copies send them.
  [[nodiscard]] bool sends() const { return config().transport == Transport::copy_engine && n_ > 1; }
  /// All of a rank's rows are multiplied in one call of the library, its own block among them.
  [[nodiscard]] bool one_call() const { return by_library() && sends() && config().release == Release::all; }
  /// Peers address the output.
  [[nodiscard]] bool into_output() const { return in_arena(problem(), "c"); }

  /// Tiles of a rank, row by row; no tile has elements of two owners, but where one call makes all.
  [[nodiscard]] std::vector<Block> tiles_of(int rank) const {
    std::vector<Block> tiles;
    if (one_call()) {
      const Shape made = exchange_.made_by(rank);
      if (made.rows * made.cols > 0) tiles.push_back({rank, rank, {{0, made.rows}, {0, made.cols}}});
      return tiles;
    }
    for (int owner = 0; owner < n_; ++owner) {
      const ExchangedBlock block = exchange_.block(rank, owner);
      for (const Range rows : cuts(block.rows, by_library() ? config().chunk_rows : config().tile_m)) {
        for (const Range cols : cuts(block.cols, by_library() ? 0 : config().tile_n))
          tiles.push_back({rank, owner, {rows, cols}});
      }
    }
    std::ranges::stable_sort(tiles, {}, [](const Block& tile) { return tile.at.rows.begin; });
    return tiles;
  }

  /// In the order in which the rank makes them: rank + 1's first, its own last.
  [[nodiscard]] std::vector<Block> tiles_in_order(int rank) const {
    std::vector<Tile> tiles;
    std::vector<int> stages;
    for (const Block& tile : tiles_[rank]) {
      tiles.push_back(tile.at);
      stages.push_back(config().tile_order == TileOrder::naive ? 0 : (tile.owner - rank - 1 + n_) % n_);
    }
    std::vector<Block> blocks;
    for (const int index : order_tiles(tiles, stages, config(), LocalTiles::last))
      blocks.push_back(tiles_[rank][index]);
    return blocks;
  }

  /// What copies send, peer after peer; and where one call makes all, the block that stays.
  [[nodiscard]] std::vector<Block> chunks_of(int rank) const {
    std::vector<int> owners = peers_after(n_, rank);
    if (one_call()) owners.push_back(rank);
    std::vector<Block> chunks;
    for (const int owner : owners) {
      const ExchangedBlock block = exchange_.block(rank, owner);
      for (const Range rows : cuts(block.rows, config().chunk_rows)) {
        if (rows.size() * block.cols.size() > 0) chunks.push_back({rank, owner, {rows, block.cols}});
      }
    }
    return chunks;
  }

  void add_buffers() {
    c_ = build_.buffer("c");
    const DType dtype = out_dtype_of(problem());
    size_t most_sent = 0;
    size_t most_tiles = 0;
    for (int rank = 0; rank < n_; ++rank) {
      most_sent = std::max(most_sent, sent_[rank].size());
      most_tiles = std::max(most_tiles, tiles_[rank].size());
    }
    if (sends()) {
      partial_ = build_.add_buffer("partial", dtype, exchange_.made_by(0).rows, problem().n, Scope::local);
      made_ = build_.add_signals("made", config().release == Release::all ? 1 : static_cast<int>(most_sent));
    }
    landing_ = c_;
    if (n_ > 1 && !into_output()) {
      const Shape most = exchange_.output_of(0);
      landing_ = build_.add_buffer("landed", dtype, most.rows, most.cols, Scope::symmetric);
    }
    // What lies in workspace is copied block by block.
    most_sent_ = static_cast<int>(most_sent);
    landed_ = build_.add_signals("landed", into_output() ? 1 : n_ * most_sent_);
    if (config().pacing == Pacing::lockstep) pace_ = build_.add_signals("pace", n_);
    build_.expect_products(static_cast<int64_t>(most_tiles));
  }

  /// Counts block number `index` of `maker` at its owner.
  [[nodiscard]] Signal landed(int maker, int owner, size_t index) const {
    return {owner, landed_ + (into_output() ? 0 : maker * most_sent_ + static_cast<int>(index))};
  }
  [[nodiscard]] Signal made(int rank, size_t chunk) const {
    return {rank, made_ + (config().release == Release::all ? 0 : static_cast<int>(chunk))};
  }

  /// A block in its owner's `buffer`, which is the output, or has its shape.
  [[nodiscard]] Region at_owner(const Block& block, int buffer) const {
    const ExchangedBlock whole = exchange_.block(block.maker, block.owner);
    const auto moved = [](Range range, int64_t by) { return Range{range.begin + by, range.end + by}; };
    return PlanBuilder::region(block.owner, buffer, moved(block.at.rows, whole.at.rows - whole.rows.begin),
                               moved(block.at.cols, whole.at.cols - whole.cols.begin));
  }
  /// A block in a buffer of its maker that has the product's shape.
  [[nodiscard]] static Region at_maker(const Block& block, int buffer) {
    return PlanBuilder::region(block.maker, buffer, block.at.rows, block.at.cols);
  }

  void add_rank(int rank) {
    const int tiles =
        build_.add_lane(rank, by_library() ? Engine::library : Engine::tiles, "tiles", config().tile_workers);
    const int sums = config().split_k > 1 ? build_.add_lane(rank, Engine::reduce, "split_k") : -1;
    build_.say_ready(rank, tiles);
    add_tiles(rank, tiles, sums);
    if (sends()) add_copies(rank);
    if (n_ > 1) add_landings(rank);
  }

  void add_tiles(int rank, int lane, int sum_lane) {
    const int a = build_.buffer("a");
    const std::vector<Block> ordered = tiles_in_order(rank);
    for (size_t i = 0; i < ordered.size(); ++i) {
      const Block& tile = ordered[i];
      Task task{.kind = by_library() ? TaskKind::gemm_call : TaskKind::compute,
                .epilogue = build_.epilogue(rank, tile.at.rows, tile.at.cols)};
      if (one_call() || (sends() && tile.owner != rank)) {
        task.writes = {{at_maker(tile, partial_)}};
        for (size_t chunk = 0; chunk < sent_[rank].size(); ++chunk) {
          const Block& sent = sent_[rank][chunk];
          if (meet(sent.at.rows, tile.at.rows) && meet(sent.at.cols, tile.at.cols))
            task.posts.push_back({made(rank, chunk)});
        }
        PlanBuilder::merge_posts(task);
      } else {
        deliver(task, i, tile);
      }
      const Region rows = PlanBuilder::region(rank, a, tile.at.rows, {0, problem().k});
      build_.add_product(lane, sum_lane, rows, tile.at.cols, std::move(task));
    }
  }

  /// Write block number `index` where it belongs, and say so.
  void deliver(Task& task, size_t index, const Block& block) {
    task.writes = {{at_owner(block, block.owner == block.maker ? c_ : landing_)}};
    if (block.owner == block.maker) return;
    task.waits.push_back(build_.ready(block.maker, block.owner));
    task.posts.push_back({landed(block.maker, block.owner, index)});
  }

  void add_copies(int rank) {
    std::vector<int> lanes;
    for (int lane = 0; lane < config().copy_lanes; ++lane) lanes.push_back(build_.add_lane(rank, Engine::copy, "send"));
    for (size_t chunk = 0; chunk < sent_[rank].size(); ++chunk) {
      const Block& block = sent_[rank][chunk];
      const int phase = (block.owner - rank + n_) % n_;
      Task task{.kind = TaskKind::copy, .reads = {at_maker(block, partial_)}};
      deliver(task, chunk, block);
      task.waits.push_back({made(rank, chunk), kAllPosts});
      if (phase > 0) build_.pace(task, rank, phase, pace_);
      build_.add(lanes[(phase + n_ - 1) % n_ % lanes.size()], std::move(task));
    }
  }

  /// Take what peers have sent, in the order in which it comes.
  void add_landings(int rank) {
    const int lane = build_.add_lane(rank, Engine::reduce, "land", config().reduce_workers);
    if (into_output()) {
      build_.add(lane, {.kind = TaskKind::sync, .waits = {{landed(rank, rank, 0), kAllPosts}}});
      return;
    }
    for (const int maker : peers_before(n_, rank)) {
      for (size_t index = 0; index < sent_[maker].size(); ++index) {
        const Block& block = sent_[maker][index];
        if (block.owner != rank) continue;
        build_.add(lane, {.kind = TaskKind::copy,
                          .reads = {at_owner(block, landing_)},
                          .writes = {{at_owner(block, c_)}},
                          .waits = {{landed(maker, rank, index)}}});
      }
    }
  }

  PlanBuilder build_;
  Exchange exchange_;
  int n_;
  std::vector<std::vector<Block>> tiles_;  ///< by rank
  std::vector<std::vector<Block>> sent_;   ///< by rank: what arrives somewhere in one task, in its order
  int most_sent_ = 0;
  int c_ = 0, landing_ = 0, partial_ = 0;
  int made_ = 0, landed_ = 0, pace_ = 0;
};

}  // namespace

Plan make_all_to_all_plan(const Problem& problem, const Team& team, const Config& config) {
  return AllToAllPlanner(problem, team, config).make();
}

namespace {

bool exchanges_on_gpus(const Workload& work) { return exchanges(work.problem) && on_gpus(work); }
bool exchanges_on_host(const Workload& work) { return exchanges(work.problem) && !on_gpus(work); }

constexpr Way kExchangeWays[] = {
    {"tiles stored at owners", kAll, 1, exchanges_on_gpus, first_tile, by_stores},
    {"two rounds", kAll, 2, exchanges_on_gpus, first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.rounds = 2;
     }},
    {"four rounds", kAll, 2, exchanges_on_gpus, first_tile,
     [](const Workload& work, Config& config) {
       by_stores(work, config);
       config.rounds = 4;
     }},
    {"other tiles", kAll, 1, exchanges_on_gpus, other_tiles, by_stores},
    {"largest tile", kAll, 1, exchanges_on_gpus, largest_tile, by_stores},
    {"runtime rows", kAll, 1, exchanges_on_gpus, tiles_of_runtime_rows, by_stores},
    {"CTAs share K", kAll, 1, [](const Workload& work) { return exchanges_on_gpus(work) && made_rows(work) <= 512; },
     tiles_that_share_k, by_stores},
    {"copy engines send shards", kAll, 1, exchanges_on_gpus, first_tile, by_engines},
    {"copy engines send results of the library", kAll, 1, exchanges_on_gpus, nullptr, by_engines_of_library},
    {"library stores at owners", kAll, 1, exchanges_on_gpus, nullptr,
     [](const Workload& /*work*/, Config& config) { config.compute = Provider::library; }},
    {"tiles stored at owners", kAll, 1, exchanges_on_host},
    {"copy lanes send", kAll, 1, exchanges_on_host, nullptr, by_engines},
    {"copy lanes send results of the library", kAll, 1, exchanges_on_host, nullptr, by_engines_of_library},
};

}  // namespace

std::vector<Way> ways_of_exchanges() { return {std::begin(kExchangeWays), std::end(kExchangeWays)}; }

}  // namespace tilewire
