// Plans of AllGather + GEMM: chunks of A travel, tiles of C wait for the chunks that they read.
// Called by fused.cpp and sequential.cpp, which differ in the config alone.
#include "schedules/gather.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "schedules/builder.hpp"
#include "schedules/ranges.hpp"
#include "schedules/row_chunks.hpp"

namespace tilewire {
namespace {

/// A shard begins and ends with a tile that others share, at most.
constexpr int kMostPieces = 2;

class GatherPlanner {
 public:
  GatherPlanner(const Problem& problem, const Team& team, const Config& config)
      : build_(problem, team, config), n_(team.num_ranks) {}

  Plan make() {
    cut_ = cut_shards(problem(), n_, config());
    count_together();
    add_buffers();
    for (int rank = 0; rank < n_; ++rank) add_lanes(rank);
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] bool pulls() const { return config().direction == Direction::pull; }
  [[nodiscard]] bool by_library() const { return config().compute == Provider::library; }
  /// Everything is multiplied in one call; else the library is called for every chunk.
  [[nodiscard]] bool one_call() const { return by_library() && config().release == Release::all; }
  [[nodiscard]] int64_t tile_rows() const { return one_call() ? std::max<int64_t>(1, problem().m) : config().tile_m; }
  [[nodiscard]] Range shard(int rank) const { return shard_of(problem().m, n_, rank); }
  [[nodiscard]] Range depth() const { return {0, problem().k}; }
  [[nodiscard]] bool is_mine(int rank, Range rows) const { return n_ == 1 || within(rows, shard(rank)); }

  /// Whether a tile is as high as the output.
  [[nodiscard]] bool one_row_of_tiles() const { return problem().m <= tile_rows(); }
  [[nodiscard]] bool into_output() const {
    return problem().gathered_output && (pulls() || in_arena(problem(), "gathered") || n_ == 1);
  }
  /// Chunks that the same tiles need count in one signal. Not where something waits for one alone: a ring, a call of
  /// the library, copies to the output (but of few rows).
  void count_together() {
    const bool copied = problem().gathered_output && !into_output() && (one_call() || !one_row_of_tiles());
    const bool together = n_ > 1 && !copied && config().algorithm != Algorithm::ring && (!by_library() || one_call());
    groups_ = group_chunks(cut_.chunks, tile_grid(problem().m, 1, tile_rows(), 1, n_), together);
  }

  [[nodiscard]] Signal arrived(int rank, int chunk) const { return {rank, arrived_ + groups_.of[chunk]}; }
  /// Until a chunk is at `rank`, and those that count with it.
  [[nodiscard]] Wait arrival(int rank, int chunk) const {
    return {arrived(rank, chunk), groups_.sizes[groups_.of[chunk]] > 1 ? kAllPosts : 1};
  }
  /// The same as one of many, in their order, unless it is waited for already.
  void add_arrival(std::vector<Wait>& waits, int rank, int chunk) const {
    const Wait wait = arrival(rank, chunk);
    if (waits.empty() || waits.back() != wait) waits.push_back(wait);
  }

  /// My own rows that others' tiles share, number `slice`.
  [[nodiscard]] Signal own(int rank, int slice, int part) const { return {rank, own_ + part * kMostPieces + slice}; }
  void add_own(std::vector<Wait>& waits, int rank, int slice) const {
    for (int part = 0; part < num_parts(); ++part)
      waits.push_back({own(rank, slice, part), own_posts(rank, slices_[slice], part)});
  }

  [[nodiscard]] int64_t own_posts(int rank, Range slice, int part) const {
    if (!own_along(rank)) return std::ssize(own_cuts(slice));
    const Range mine = cut_.chunks_of(rank, part);
    return std::count_if(cut_.chunks.begin() + mine.begin, cut_.chunks.begin() + mine.end,
                         [&](const RowChunk& chunk) { return meet(chunk.rows, slice); });
  }

  /// Where every tile has rows of all ranks, all wait for them and for what peers push: side by side.
  [[nodiscard]] bool own_apart() const { return !slices_.empty() && one_row_of_tiles(); }
  [[nodiscard]] bool goes_to_group_at_once(int rank) const {
    return n_ > 1 && few_push_to_groups(config(), cut_.chunks_of(rank, 0).size());
  }
  /// Where a chunk goes to several peers in one task, it goes there, too.
  [[nodiscard]] bool own_along(int rank) const { return goes_to_group_at_once(rank) && !one_row_of_tiles(); }
  /// By a pool of workers each takes a chunk; beside tiles that need the SMs, a few take one slice together.
  [[nodiscard]] bool own_by_pool() const {
    return config().transport != Transport::copy_engine && (!own_apart() || one_call());
  }
  [[nodiscard]] std::vector<Range> own_cuts(Range slice) const {
    return cuts(slice, own_by_pool() ? config().chunk_rows : 0);
  }

  [[nodiscard]] int num_parts() const { return static_cast<int>(std::ssize(cut_.columns)); }

  void add_buffers() {
    a_ = build_.buffer("a");
    gathered_ = into_output() ? build_.buffer("gathered")
                              : build_.add_buffer("gather", problem().dtype, problem().m, problem().k,
                                                  pulls() || n_ == 1 ? Scope::local : Scope::symmetric);
    stages_ = pulls() && n_ > 1 && !in_arena(problem(), "a");
    source_ =
        stages_ ? build_.add_buffer("shard", problem().dtype, shard(0).size(), problem().k, Scope::symmetric) : a_;
    arrived_ = build_.add_signals("arrived", static_cast<int>(std::ssize(groups_.sizes)));
    own_ = build_.add_signals("own", kMostPieces * num_parts());
    if (stages_) staged_ = build_.add_signals("staged", static_cast<int>(std::ssize(cut_.chunks)));
    if (pulls()) taken_ = build_.add_signals("taken", 1);
    if (config().release == Release::all) gate_ = build_.add_signals("all_arrived", 1);
    if (config().pacing == Pacing::lockstep) pace_ = build_.add_signals("pace", n_);
    int64_t most = 0;
    for (int rank = 0; rank < n_; ++rank) most = std::max(most, std::ssize(tiles_of(rank)));
    build_.expect_products(most);
  }

  [[nodiscard]] std::vector<Tile> tiles_of(int rank) const {
    const std::vector<Range> columns = columns_on(problem(), n_, rank);
    if (by_library() && !one_call()) return calls_of_library(cut_, rank, shard(rank), columns);
    return tile_grid(problem().m, columns, tile_rows(), one_call() ? 0 : config().tile_n, n_);
  }

  void add_lanes(int rank) {
    tile_lanes_.push_back(
        build_.add_lane(rank, by_library() ? Engine::library : Engine::tiles, "tiles", config().tile_workers));
    sum_lanes_.push_back(config().split_k > 1 ? build_.add_lane(rank, Engine::reduce, "split_k") : -1);
    const bool engines = config().transport == Transport::copy_engine;
    auto& lanes = comm_lanes_.emplace_back();
    for (int lane = 0; lane < config().copy_lanes; ++lane) {
      lanes.push_back(
          build_.add_lane(rank, engines ? Engine::copy : Engine::tiles, "gather", engines ? 0 : config().copy_workers));
    }
  }

  void add_rank(int rank) {
    build_.say_ready(rank, tile_lanes_[rank]);
    // These tiles read `gather`, not `a`.
    slices_ = by_library() && !one_call() ? std::vector<Range>{} : shared_rows(problem().m, n_, rank, tile_rows());
    const int own_lane = lane_of_own(rank);
    if (stages_) stage_shard(rank);
    if (config().algorithm == Algorithm::ring) {
      add_own_copies(rank, own_lane, 0);
      add_ring_pushes(rank);
    } else {
      add_exchange(rank, own_lane);
    }
    add_gathered_output(rank);
    add_gate(rank);
    add_tiles(rank);
    // Peers read my shard: my call ends when they have.
    if (pulls()) build_.add(tile_lanes_[rank], {.kind = TaskKind::sync, .waits = {{{rank, taken_}, kAllPosts}}});
  }

  /// Owners whose tiles are made together.
  [[nodiscard]] int together() const { return one_row_of_tiles() ? n_ : owners_together(config(), n_); }

  /// Tiles of several owners that are made together need some columns of all of these before more of any. What comes
  /// before what the next ones need; own rows beside what the first peers get.
  void add_exchange(int rank, int own_lane) {
    for (int first = 0; first < n_; first += together()) {
      const Range phases{std::max(1, first), std::min(n_, first + together())};
      for (int part = 0; phases.size() > 0 && part < num_parts(); ++part) {
        if (phases.begin == 1 && !own_along(rank)) add_own_copies(rank, own_lane, part);
        goes_to_group_at_once(rank) ? push_to_group(rank, phases, part) : add_phases(rank, phases, part);
      }
    }
  }

  [[nodiscard]] Region shard_region(int rank, int buffer, Range rows, Range cols) const {
    const int64_t first = shard(rank).begin;
    return PlanBuilder::region(rank, buffer, {rows.begin - first, rows.end - first}, cols);
  }
  [[nodiscard]] Region shard_region(int rank, int buffer, const RowChunk& chunk) const {
    return shard_region(rank, buffer, chunk.rows, chunk.cols);
  }
  [[nodiscard]] Region gathered_region(int rank, const RowChunk& chunk) const {
    return PlanBuilder::region(rank, gathered_, chunk.rows, chunk.cols);
  }

  int lane_of_own(int rank) {
    if (!own_apart()) return comm_lanes_[rank][0];
    return build_.add_lane(rank, own_by_pool() ? Engine::tiles : Engine::copy, "own",
                           own_by_pool() ? config().copy_workers : 0);
  }

  void add_own_copies(int rank, int lane, int part) {
    for (int i = 0; i < std::ssize(slices_); ++i) {
      for (const Range rows : own_cuts(slices_[i])) {
        build_.add(lane, {.kind = TaskKind::copy,
                          .reads = {shard_region(rank, a_, rows, cut_.columns[part])},
                          .writes = {{PlanBuilder::region(rank, gathered_, rows, cut_.columns[part])}},
                          .posts = {{own(rank, i, part)}}});
      }
    }
  }

  /// My shard, to where peers can read it.
  void stage_shard(int rank) {
    for (int chunk = 0; chunk < std::ssize(cut_.chunks); ++chunk) {
      if (cut_.chunks[chunk].owner != rank) continue;
      Task task{.kind = TaskKind::copy,
                .reads = {shard_region(rank, a_, cut_.chunks[chunk])},
                .writes = {{shard_region(rank, source_, cut_.chunks[chunk])}}};
      for (const int peer : peers_after(n_, rank)) task.posts.push_back({{peer, staged_ + chunk}});
      build_.add(comm_lanes_[rank][0], std::move(task));
    }
  }

  void push_to_group(int rank, Range phases, int part) {
    const Range mine = cut_.chunks_of(rank, part);
    for (auto chunk = static_cast<int>(mine.begin); chunk < mine.end; ++chunk) {
      Task task{.kind = TaskKind::copy, .reads = {shard_region(rank, a_, cut_.chunks[chunk])}};
      for (auto phase = static_cast<int>(phases.begin); phase < phases.end; ++phase) {
        const int peer = (rank + phase) % n_;
        task.writes.push_back({gathered_region(peer, cut_.chunks[chunk])});
        task.waits.push_back(build_.ready(rank, peer));
        task.posts.push_back({arrived(peer, chunk)});
      }
      const bool along = own_along(rank) && phases.begin == 1;
      for (int i = 0; along && i < std::ssize(slices_); ++i) add_local_rows(task, rank, i, cut_.chunks[chunk]);
      build_.add(comm_lanes_[rank][0], std::move(task));
    }
  }

  /// Those rows of a chunk that others' tiles share, in slice number `slice`.
  void add_local_rows(Task& task, int rank, int slice, const RowChunk& chunk) {
    const Range rows = common(chunk.rows, slices_[slice]);
    if (rows.size() <= 0) return;
    const Region to = PlanBuilder::region(rank, gathered_, rows, chunk.cols);
    task.writes.push_back({.to = to, .first_row = rows.begin - chunk.rows.begin});
    task.posts.push_back({own(rank, slice, chunk.part)});
  }

  /// Phase k of `rank`: push some columns of my shard to rank + k, or pull them from rank + k.
  void add_phases(int rank, Range phases, int part) {
    for (auto phase = static_cast<int>(phases.begin); phase < phases.end; ++phase) {
      const int peer = (rank + phase) % n_;
      const int lane = comm_lanes_[rank][(phase - 1) % config().copy_lanes];
      const Range mine = cut_.chunks_of(pulls() ? peer : rank, part);
      for (auto chunk = static_cast<int>(mine.begin); chunk < mine.end; ++chunk) {
        Task task =
            pulls() ? pull_task(rank, chunk) : push_task(peer, chunk, shard_region(rank, a_, cut_.chunks[chunk]));
        if (!pulls()) task.waits = handshakes(rank, phase, part == 0 && chunk == mine.begin);
        build_.pace(task, rank, phase, pace_);
        build_.add(lane, std::move(task));
      }
    }
  }

  /// Whom a push of this phase waits for. In an engine's lane the first one waits for all whom the lane sends to: the
  /// others then follow by themselves, from one peer to the next, too.
  [[nodiscard]] std::vector<Wait> handshakes(int rank, int phase, bool first) {
    const int lanes = config().copy_lanes;
    if (config().transport != Transport::copy_engine) return {build_.ready(rank, (rank + phase) % n_)};
    std::vector<Wait> waits;
    if (!first || phase > lanes) return waits;
    for (int each = phase; each < n_; each += lanes) waits.push_back(build_.ready(rank, (rank + each) % n_));
    return waits;
  }

  [[nodiscard]] Task push_task(int peer, int chunk, Region from) {
    return {.kind = TaskKind::copy,
            .reads = {from},
            .writes = {{gathered_region(peer, cut_.chunks[chunk])}},
            .posts = {{arrived(peer, chunk)}}};
  }

  [[nodiscard]] Task pull_task(int rank, int chunk) {
    const int owner = cut_.chunks[chunk].owner;
    const Wait there = stages_ ? Wait{{rank, staged_ + chunk}} : build_.ready(rank, owner, Purpose::data);
    return {.kind = TaskKind::copy,
            .reads = {shard_region(owner, source_, cut_.chunks[chunk])},
            .writes = {{gathered_region(rank, cut_.chunks[chunk])}},
            .waits = {there},
            .posts = {{arrived(rank, chunk)}, {{owner, taken_}}}};
  }

  /// Everything goes to rank + 1: my own shard, then each shard that I received.
  void add_ring_pushes(int rank) {
    const int next = (rank + 1) % n_;
    for (int step = 1; step < n_; ++step) {
      const int owner = (rank - step + 1 + n_) % n_;
      const Range mine = cut_.chunks_of(owner, 0);
      for (auto chunk = static_cast<int>(mine.begin); chunk < mine.end; ++chunk) {
        const RowChunk& what = cut_.chunks[chunk];
        Task task = push_task(next, chunk, step == 1 ? shard_region(rank, a_, what) : gathered_region(rank, what));
        task.waits = {build_.ready(rank, next)};
        if (step > 1) task.waits.push_back(arrival(rank, chunk));
        build_.add(comm_lanes_[rank][(step - 1) % config().copy_lanes], std::move(task));
      }
    }
  }

  /// Complete the caller's `gathered`: my own rows, and what arrived in workspace.
  void add_gathered_output(int rank) {
    if (!problem().gathered_output) return;
    const int lane = comm_lanes_[rank][0];
    const int output = build_.buffer("gathered");
    const auto add_copy = [&](Region from, Range rows, Range cols, std::vector<Wait> waits) {
      if (rows.size() <= 0) return;
      build_.add(lane, {.kind = TaskKind::copy,
                        .reads = {from},
                        .writes = {{PlanBuilder::region(rank, output, rows, cols)}},
                        .waits = std::move(waits)});
    };
    Range rest = shard(rank);
    if (gathered_ == output) {
      for (const Range slice : slices_) {
        if (slice.begin == rest.begin) rest.begin = slice.end;
        if (slice.end == rest.end) rest.end = slice.begin;
      }
    }
    add_copy(shard_region(rank, a_, rest, depth()), rest, depth(), {});
    if (gathered_ == output) return;
    for (int chunk = 0; chunk < std::ssize(cut_.chunks); ++chunk) {
      if (cut_.chunks[chunk].owner == rank) continue;
      const RowChunk& what = cut_.chunks[chunk];
      add_copy(gathered_region(rank, what), what.rows, what.cols, {arrival(rank, chunk)});
    }
  }

  /// All chunks are here: ends the call, and opens the GEMM where it waits for all of them.
  void add_gate(int rank) {
    Task gate{.kind = TaskKind::sync};
    for (int chunk = 0; chunk < std::ssize(cut_.chunks); ++chunk) {
      if (cut_.chunks[chunk].owner != rank) add_arrival(gate.waits, rank, chunk);
    }
    for (int i = 0; i < std::ssize(slices_); ++i) add_own(gate.waits, rank, i);
    if (config().release == Release::all) gate.posts.push_back({{rank, gate_}});
    if (!gate.waits.empty() || !gate.posts.empty()) build_.add(comm_lanes_[rank][0], std::move(gate));
  }

  void add_tiles(int rank) {
    const std::vector<Tile> tiles = tiles_of(rank);
    const std::vector<int> peers = pulls() ? peers_after(n_, rank) : peers_before(n_, rank);
    const bool turns = config().tile_order == TileOrder::rank_shifted || config().group_owners > 1;
    const auto stages = turns ? stages_behind(tiles, peers, problem().m, n_) : std::vector<int>(tiles.size());
    build_.expect_tasks(tile_lanes_[rank], std::ssize(tiles) * config().split_k);
    std::map<std::pair<int64_t, int64_t>, std::vector<Wait>> waits;  // by rows
    for (const int index : order_tiles(tiles, stages, config(), LocalTiles::first)) {
      const Tile& tile = tiles[index];
      const auto [known, is_new] = waits.try_emplace({tile.rows.begin, tile.rows.end});
      if (is_new) known->second = waits_for(rank, tile.rows);
      Task task{.kind = by_library() ? TaskKind::gemm_call : TaskKind::compute,
                .writes = {{build_.output(rank, tile.rows, tile.cols)}},
                .waits = known->second,
                .epilogue = build_.epilogue(rank, tile.rows, tile.cols)};
      const Region a = is_mine(rank, tile.rows) ? shard_region(rank, a_, tile.rows, depth())
                                                : PlanBuilder::region(rank, gathered_, tile.rows, depth());
      build_.add_product(tile_lanes_[rank], sum_lanes_[rank], a, tile.cols, std::move(task));
    }
  }

  [[nodiscard]] std::vector<Wait> waits_for(int rank, Range rows) const {
    if (config().release == Release::all) return {{{rank, gate_}}};
    std::vector<Wait> waits;
    const bool own = is_mine(rank, rows);
    // My own rows need nobody's, but in step with tiles that do they begin with these owners' first columns.
    const int64_t chunks = !own                                        ? std::ssize(cut_.chunks)
                           : config().tile_order == TileOrder::in_step ? cut_.first[n_]
                                                                       : 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int owner = cut_.chunks[chunk].owner;
      const int behind = (pulls() ? owner - rank + n_ : rank - owner + n_) % n_;
      if (owner != rank && (own ? behind < together() : meet(cut_.chunks[chunk].rows, rows)))
        add_arrival(waits, rank, chunk);
    }
    for (int i = 0; i < std::ssize(slices_); ++i) {
      if (meet(slices_[i], rows)) add_own(waits, rank, i);
    }
    return waits;
  }

  PlanBuilder build_;
  int n_;
  CutShards cut_;
  ChunkGroups groups_;         // by what they count in when they arrive
  std::vector<Range> slices_;  // of the rank that is being added
  bool stages_ = false;
  int a_ = 0, gathered_ = 0, source_ = 0;
  int arrived_ = 0, own_ = 0, staged_ = 0, taken_ = 0, gate_ = 0, pace_ = 0;
  std::vector<int> tile_lanes_, sum_lanes_;
  std::vector<std::vector<int>> comm_lanes_;
};

}  // namespace

Plan make_gather_plan(const Problem& problem, const Team& team, const Config& config) {
  return GatherPlanner(problem, team, config).make();
}

}  // namespace tilewire
