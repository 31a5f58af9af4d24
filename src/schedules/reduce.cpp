// Plans that sum partial results of all ranks: GEMM + ReduceScatter, GEMM + AllReduce, AllReduce.
// Called by fused.cpp, two_stream.cpp and sequential.cpp, which differ in the config alone.
#include "schedules/reduce.hpp"

#include <algorithm>

#include "schedules/builder.hpp"
#include "schedules/knobs.hpp"
#include "schedules/partition.hpp"
#include "schedules/route.hpp"

namespace tilewire {
namespace {

class ReducePlanner {
 public:
  ReducePlanner(const Problem& problem, const Team& team, const Config& config, Ownership share)
      : build_(problem, team, config),
        n_(team.num_ranks),
        route_(route_of(config)),
        ownership_(share),
        one_shot_(config.algorithm == Algorithm::one_shot),
        has_gemm_(multiplies(problem)),
        call_first_(config.compute == Provider::library && config.transport == Transport::ll),
        wire_(config.wire.value_or(out_dtype_of(problem))),
        cut_(partition_output(problem, call_first_ ? without_library(config) : config, n_, share)),
        slices_(cut_.slices),
        tiles_(cut_.tiles),
        staging_(staging_of(problem, config, n_, share, cut_)) {}

  Plan make() {
    add_buffers();
    add_signals();
    for (int rank = 0; rank < n_; ++rank) add_lanes(rank);
    for (int rank = 0; rank < n_; ++rank) add_rank(rank);
    return build_.take();
  }

 private:
  [[nodiscard]] const Config& config() const { return build_.config(); }
  [[nodiscard]] const Problem& problem() const { return build_.problem(); }
  [[nodiscard]] static Config without_library(Config config) {
    config.compute = Provider::tiles;
    return config;
  }

  /// Calls of the library make the tiles. (If one call is first, copies follow it, tile by tile.)
  [[nodiscard]] bool by_library() const { return config().compute == Provider::library && !call_first_; }
  /// The product of a tile is made as the tile is.
  [[nodiscard]] bool makes_products() const { return has_gemm_ && !call_first_; }
  [[nodiscard]] bool scatters() const { return tilewire::scatters(problem()); }
  /// One call of the library stores each owner's columns there.
  [[nodiscard]] bool call_stages() const { return by_library() && route_ == Route::stage; }
  /// Every owner's result goes to every rank.
  [[nodiscard]] bool broadcasts() const { return !scatters() && !one_shot_ && n_ > 1; }
  /// Owners wait for everything, not for their slice.
  [[nodiscard]] bool waits_for_all() const {
    return config().reduce_when == ReduceWhen::after || config().release == Release::all || call_stages();
  }
  /// Readers look at the data, and clear it behind them: whoever writes there must know that they have.
  [[nodiscard]] bool uses_ll() const { return config().transport == Transport::ll; }

  void add_buffers() {
    output_ = build_.buffer(has_gemm_ ? "c" : "y");
    const auto symmetric = [&](const char* name, DType dtype, int64_t rows, int64_t cols) {
      return build_.add_buffer(name, dtype, rows, cols, Scope::symmetric);
    };
    if (route_ == Route::stage || route_ == Route::send)
      staged_ = symmetric("staged", wire_, n_ * staging_.rows, staging_.cols);
    if (route_ == Route::accumulate) sum_ = symmetric("sum", wire_, std::min(n_, 2) * staging_.rows, staging_.cols);
    const bool sends = route_ == Route::stage || route_ == Route::send || route_ == Route::accumulate;
    if (sends && !shakes_hands()) build_.keep_to_operator(route_ == Route::accumulate ? sum_ : staged_);
    if (route_ == Route::ring) hop_ = symmetric("hop", wire_, problem().m, problem().n);
    if (keeps_partial(route_)) {
      const bool peers_read = route_ == Route::pull && n_ > 1;
      input_is_partial_ = sums_in_place(problem(), config(), n_);
      partial_ = input_is_partial_ ? build_.buffer("x")
                                   : build_.add_buffer("partial", wire_, problem().m, problem().n,
                                                       peers_read ? Scope::symmetric : Scope::local);
    }
    if (call_first_) partial_ = build_.add_buffer("partial", wire_, problem().m, problem().n, Scope::local);
    lands_in_output_ = !uses_ll() && in_arena(problem(), has_gemm_ ? "c" : "y");
    if (broadcasts())
      landing_ = lands_in_output_ ? output_ : symmetric("result", out_dtype_of(problem()), problem().m, problem().n);
    if (has_gemm_) build_.expect_products(call_first_ ? 1 : std::ssize(tiles_));
  }

  void add_signals() {
    const int slices = static_cast<int>(slices_.size());
    const int chunks = static_cast<int>(cut_.chunks.size());
    arrived_ = build_.add_signals("arrived", waits_for_all() ? 1 : route_ == Route::send ? chunks : cut_.most_slices);
    if (keeps_partial(route_) && route_ != Route::pull && !input_is_partial_)
      made_ = build_.add_signals("made", config().release == Release::all ? 1 : std::max(slices, chunks));
    if (call_first_) made_ = build_.add_signals("made", 1);
    if (route_ == Route::ring) hopped_ = build_.add_signals("hopped", slices);
    if (route_ == Route::accumulate && n_ > 2) turn_ = build_.add_signals("turn", slices);
    if (needs_taken()) taken_ = build_.add_signals("taken", 1);
    if (problem().norm) find_bands();
    if (broadcasts()) landed_ = build_.add_signals("landed", lands_in_output_ && route_ != Route::ring ? 1 : slices);
    if (config().pacing == Pacing::lockstep) pace_ = build_.add_signals("pace", n_);
  }

  /// Bands: the fewest rows whose slices have no rows outside. Their norms wait for the same slices.
  void find_bands() {
    std::vector<const Slice*> by_row;
    for (const Slice& slice : slices_) by_row.push_back(&slice);
    std::ranges::stable_sort(by_row, {}, [](const Slice* slice) { return slice->rows.begin; });
    band_of_.resize(slices_.size());
    for (const Slice* slice : by_row) {
      if (bands_.empty() || bands_.back().rows.end <= slice->rows.begin) bands_.push_back({slice->rows, slice->owner});
      bands_.back().rows.end = std::max(bands_.back().rows.end, slice->rows.end);
      band_of_[slice_id(*slice)] = static_cast<int>(bands_.size()) - 1;
    }
    summed_ = build_.add_signals("summed", static_cast<int>(bands_.size()));
  }

  /// A task writes a slice to the output of `rank`: tell the norms of its rows.
  void post_summed(Task& task, int rank, const Slice& slice) const {
    if (problem().norm) task.posts.push_back({{rank, summed_ + band_of_[slice_id(slice)]}});
  }

  /// Whether a rank must hear that its peers have begun. NOTE: an owner's broadcast tells its peers that it has
  /// read what they sent, and it waits for a part of each; so where owners broadcast, nothing more is needed. Unless
  /// flags travel: what is looked at orders nothing that came before it.
  [[nodiscard]] bool shakes_hands() const {
    const bool sends = route_ == Route::stage || route_ == Route::send || route_ == Route::accumulate;
    if (sends) return n_ > 1 && (!broadcasts() || uses_ll());
    return n_ > 1 && (route_ == Route::ring || input_is_partial_);
  }
  /// Peers read my partials, and nothing else tells me that they have.
  [[nodiscard]] bool needs_taken() const { return route_ == Route::pull && n_ > 1 && !broadcasts(); }

  void add_lanes(int rank) {
    tile_lanes_.push_back(
        build_.add_lane(rank, by_library() ? Engine::library : Engine::tiles, "tiles", config().tile_workers));
    sum_lanes_.push_back(config().split_k > 1 ? build_.add_lane(rank, Engine::reduce, "split_k") : -1);
    auto& lanes = copy_lanes_.emplace_back();
    for (int lane = 0; route_ == Route::send && lane < config().copy_lanes; ++lane)
      lanes.push_back(build_.add_lane(rank, Engine::copy, "send"));
    reduce_lanes_.push_back(build_.add_lane(rank, Engine::reduce, "reduce", config().reduce_workers));
    if (problem().norm) norm_lanes_.push_back(build_.add_lane(rank, Engine::reduce, "norm", config().reduce_workers));
    // Where all sums follow one call, whoever has made a sum takes what has landed.
    const bool in_turn = by_library() && waits_for_all() && route_ != Route::send && !lands_in_output_;
    landing_lanes_.push_back(in_turn ? reduce_lanes_[rank] : build_.add_lane(rank, Engine::reduce, "land"));
  }

  void add_rank(int rank) {
    const LocalTiles mine = local_tiles_of_reduction(problem(), n_, config());
    tile_order_ = order_tiles(tiles_, stages_of(cut_, config(), n_, rank, ownership_), config(), mine);
    if (shakes_hands()) build_.say_ready(rank, tile_lanes_[rank]);
    if (call_first_) add_call(rank);
    if (!input_is_partial_) add_tiles(rank);
    if (route_ == Route::send) add_sends(rank);
    for (const Slice* slice : slices_of_rank(rank)) {
      if (route_ == Route::ring) {
        if (!opens(rank, *slice)) build_.add(reduce_lanes_[rank], ring_task(rank, *slice));
      } else if (slice->owner == rank) {
        build_.add(reduce_lanes_[rank], sum_task(*slice));
      }
    }
    if (broadcasts()) add_landings(rank);
    add_norms(rank);
    if (needs_taken()) build_.add(tile_lanes_[rank], {.kind = TaskKind::sync, .waits = {{{rank, taken_}, kAllPosts}}});
  }

  /// The norms of the rank's rows of the output.
  void add_norms(int rank) {
    const int64_t first = scatters() ? shard_of(problem().m, n_, rank).begin : 0;
    for (int band = 0; band < std::ssize(bands_); ++band) {
      const auto& [rows, owner] = bands_[band];
      if (scatters() && owner != rank) continue;
      build_.add_norms(norm_lanes_[rank], output_, {rows.begin - first, rows.end - first},
                       {{rank, summed_ + band}, kAllPosts});
    }
  }

  /// One call of the library makes the rank's whole partial.
  void add_call(int rank) {
    const int lane = build_.add_lane(rank, Engine::library, "call");
    build_.add_product(
        lane, -1, build_.whole(rank, build_.buffer("a")), {0, problem().n},
        {.kind = TaskKind::gemm_call, .writes = {{build_.whole(rank, partial_)}}, .posts = {{{rank, made_}}}});
  }

  void add_tiles(int rank) {
    std::vector<std::vector<const Slice*>> slices_of(tiles_.size());
    for (const Slice& slice : slices_) slices_of[slice.tile].push_back(&slice);
    build_.expect_tasks(tile_lanes_[rank], std::ssize(tile_order_) * config().split_k);
    const int input = call_first_ ? partial_ : build_.buffer(has_gemm_ ? "a" : "x");
    for (const int index : tile_order_) {
      const Tile& tile = tiles_[index];
      Task task = tile_task(rank, tile, slices_of[index]);
      if (makes_products()) {
        const int64_t depth = shape_on(build_.plan().buffers[input], rank).cols;
        const Region rows = PlanBuilder::region(rank, input, tile.rows, {0, depth});
        task.kind = by_library() ? TaskKind::gemm_call : TaskKind::compute;
        build_.add_product(tile_lanes_[rank], sum_lanes_[rank], rows, tile.cols, std::move(task));
      } else {
        // NOTE: a copy cannot change the type; a sum of one region can.
        task.kind = call_first_ || wire_ == problem().dtype ? TaskKind::copy : TaskKind::reduce;
        task.reads = {PlanBuilder::region(rank, input, tile.rows, tile.cols)};
        if (call_first_) task.waits.push_back({{rank, made_}, kAllPosts});
        build_.add(tile_lanes_[rank], std::move(task));
      }
    }
  }

  /// Where a tile goes, what it waits for and what it tells, whoever computes it.
  [[nodiscard]] Task tile_task(int rank, const Tile& tile, const std::vector<const Slice*>& slices) {
    Task task;
    const auto opened = [&](const Slice* slice) { return opens(rank, *slice); };
    if (keeps_partial(route_) && !std::ranges::all_of(slices, opened))
      task.writes = {{PlanBuilder::region(rank, partial_, tile.rows, tile.cols)}};
    for (const Slice* slice : slices) {
      const int owner = slice->owner;
      if (opens(rank, *slice)) {
        hand_on(task, rank, *slice);
        task.writes.back().first_row = slice->rows.begin - tile.rows.begin;
        continue;
      }
      if (route_ == Route::send || route_ == Route::ring) {
        task.posts.push_back({{rank, made_ + made_index(*slice)}});
        continue;
      }
      if (route_ == Route::accumulate && owner != rank) {
        add_in_turn(task, rank, tile, *slice, slices.back()->owner);
        continue;
      }
      task.posts.push_back({{owner, arrived_ + group_of(*slice)}});
      if (route_ == Route::pull || call_stages()) continue;
      const Region to =
          route_ == Route::accumulate ? place(rank, sum_, 0, *slice) : place(owner, staged_, rank, *slice);
      task.writes.push_back({.to = to, .first_row = slice->rows.begin - tile.rows.begin});
      if (owner != rank && shakes_hands()) task.waits.push_back(build_.ready(rank, owner));
    }
    if (call_stages()) add_columns(task, rank);
    if (by_library()) PlanBuilder::merge_posts(task);
    return task;
  }

  void add_columns(Task& task, int rank) const {
    for (int owner = 0; owner < n_; ++owner) {
      const Slice all{.owner = owner, .rows = {0, problem().m}, .cols = shard_of(problem().n, n_, owner)};
      if (all.cols.size() == 0) continue;
      task.writes.push_back({.to = place(owner, staged_, rank, all), .first_col = all.cols.begin});
    }
  }

  /// Peers add up a slice in its owner's second slot one after another: the first stores, and the owner hears of the
  /// last.
  void add_in_turn(Task& task, int rank, const Tile& tile, const Slice& slice, int last_owner) {
    const std::vector<int> order = adders_of(n_, last_owner, slice.owner);
    const auto me = std::ranges::find(order, rank) - order.begin();
    task.writes.push_back({.to = place(slice.owner, sum_, 1, slice),
                           .first_row = slice.rows.begin - tile.rows.begin,
                           .mode = me > 0 ? WriteMode::accumulate : WriteMode::store});
    const int turn = turn_ + slice_id(slice);
    if (me > 0) task.waits.push_back({{rank, turn}, 1, Purpose::ready});
    if (me == 0 && shakes_hands()) task.waits.push_back(build_.ready(rank, slice.owner));
    const bool last = me + 1 == std::ssize(order);
    task.posts.push_back(last ? Post{{slice.owner, arrived_ + group_of(slice)}} : Post{{order[me + 1], turn}});
  }

  [[nodiscard]] std::vector<const Slice*> slices_of_rank(int rank) const {
    return slices_in_order(cut_, tile_order_, config(), n_, rank);
  }

  [[nodiscard]] int made_index(const Slice& slice) const {
    if (config().release == Release::all) return 0;
    return route_ == Route::send ? slice.chunk : slice_id(slice);
  }

  [[nodiscard]] int slice_id(const Slice& slice) const { return static_cast<int>(&slice - slices_.data()); }

  /// Which `arrived` signal of its owner a slice counts in.
  [[nodiscard]] int group_of(const Slice& slice) const {
    if (waits_for_all()) return 0;
    return route_ == Route::send ? slice.chunk : slice.index;
  }

  /// A slice in `buffer` at its owner, which has a slot for each maker.
  [[nodiscard]] Region place(int rank, int buffer, int slot, const Slice& slice) const {
    const Tile at = staging_.place(slot, slice);
    return PlanBuilder::region(rank, buffer, at.rows, at.cols);
  }

  /// Phase k of `rank`: send the finished chunks of rank + k.
  void add_sends(int rank) {
    const std::vector<int> peers = peers_after(n_, rank);
    for (int phase = 1; phase <= std::ssize(peers); ++phase) {
      const int owner = peers[phase - 1];
      const int lane = copy_lanes_[rank][(phase - 1) % config().copy_lanes];
      for (int chunk = 0; chunk < std::ssize(cut_.chunks); ++chunk) {
        if (cut_.chunks[chunk].owner == owner) build_.add(lane, send_task(rank, phase, chunk));
      }
    }
  }

  [[nodiscard]] Task send_task(int rank, int phase, int chunk) {
    const auto& [owner, rows, cols, first_slice] = cut_.chunks[chunk];
    const Slice& first = slices_[first_slice];
    Region to = place(owner, staged_, rank, first);
    to.rows = rows.size();
    to.cols = cols.size();
    Task task{.kind = TaskKind::copy,
              .reads = {PlanBuilder::region(rank, partial_, rows, cols)},
              .writes = {{to}},
              .posts = {{{owner, arrived_ + group_of(first)}}}};
    if (shakes_hands()) task.waits.push_back(build_.ready(rank, owner));
    if (!input_is_partial_) task.waits.push_back({{rank, made_ + made_index(first)}, kAllPosts});
    build_.pace(task, rank, phase, pace_);
    return task;
  }

  /// The owner sums the slices of all makers in rank order, or its own and what its peers have added up.
  [[nodiscard]] Task sum_task(const Slice& slice) {
    const int rank = slice.owner;
    Task task{.kind = TaskKind::reduce};
    for (int maker = 0; maker < n_; ++maker) {
      if (route_ == Route::accumulate) {
        if (maker < 2) task.reads.push_back(place(rank, sum_, maker, slice));
      } else if (route_ == Route::pull || (route_ == Route::send && maker == rank)) {
        task.reads.push_back(PlanBuilder::region(maker, partial_, slice.rows, slice.cols));
      } else {
        task.reads.push_back(place(rank, staged_, maker, slice));
      }
      if (input_is_partial_ && route_ == Route::pull && maker != rank)
        task.waits.push_back(build_.ready(rank, maker, Purpose::data));
      if (needs_taken() && maker != rank) task.posts.push_back({{maker, taken_}});
    }
    task.waits.push_back({{rank, arrived_ + group_of(slice)}, kAllPosts});
    if (route_ == Route::send && !input_is_partial_)
      task.waits.push_back({{rank, made_ + made_index(slice)}, kAllPosts});
    finish(task, slice);
    return task;
  }

  /// Whether `rank` is the first on a slice's way around the ring, and its tile leaves as it is made.
  [[nodiscard]] bool opens(int rank, const Slice& slice) const {
    const bool leaves = config().transport != Transport::copy_engine && !input_is_partial_ && n_ > 1;
    return route_ == Route::ring && leaves && rank == (slice.owner + 1) % n_;
  }

  /// What has been added up of a slice goes to the next rank of the ring.
  void hand_on(Task& task, int rank, const Slice& slice) {
    const int next = (rank + 1) % n_;
    task.writes.push_back({PlanBuilder::region(next, hop_, slice.rows, slice.cols)});
    task.waits.push_back(build_.ready(rank, next));
    task.posts.push_back({{next, hopped_ + slice_id(slice)}});
  }

  /// One hop: what came from rank - 1 plus my own, to rank + 1; at the owner, the result.
  [[nodiscard]] Task ring_task(int rank, const Slice& slice) {
    Task task{.kind = TaskKind::reduce};
    if (rank != (slice.owner + 1) % n_) {
      task.reads.push_back(PlanBuilder::region(rank, hop_, slice.rows, slice.cols));
      task.waits.push_back({{rank, hopped_ + slice_id(slice)}});
    }
    task.reads.push_back(PlanBuilder::region(rank, partial_, slice.rows, slice.cols));
    if (!input_is_partial_) task.waits.push_back({{rank, made_ + made_index(slice)}, kAllPosts});
    rank == slice.owner ? finish(task, slice) : hand_on(task, rank, slice);
    return task;
  }

  [[nodiscard]] Region in_output(int rank, const Slice& slice) const {
    Range rows = slice.rows;
    Range cols = slice.cols;
    const bool of_columns = ownership_ == Ownership::columns;
    const int64_t first = shard_of(of_columns ? problem().n : problem().m, n_, rank).begin;
    Range& shared = of_columns ? cols : rows;
    if (scatters()) shared = {shared.begin - first, shared.end - first};
    return PlanBuilder::region(rank, output_, rows, cols);
  }

  [[nodiscard]] Region in_landing(int rank, const Slice& slice) const {
    return PlanBuilder::region(rank, landing_, slice.rows, slice.cols);
  }

  [[nodiscard]] Signal landed(int rank, const Slice& slice) const {
    const bool counts = lands_in_output_ && route_ != Route::ring;
    return {rank, landed_ + (counts ? 0 : slice_id(slice))};
  }

  /// Epilogue and destinations of the task that completes a slice at its owner.
  void finish(Task& task, const Slice& slice) {
    const int rank = slice.owner;
    const Region to = in_output(rank, slice);
    task.epilogue = build_.epilogue(rank, {to.row, to.row + to.rows}, {to.col, to.col + to.cols});
    task.writes = {{to}};
    post_summed(task, rank, slice);
    if (!broadcasts()) return;
    for (const int peer : peers_after(n_, rank)) {
      task.writes.push_back({in_landing(peer, slice)});
      task.posts.push_back({landed(peer, slice)});
      if (lands_in_output_) post_summed(task, peer, slice);
      if (route_ == Route::ring || uses_ll()) task.waits.push_back(build_.ready(rank, peer));
      if (route_ == Route::ring) break;
    }
  }

  /// Take what other owners finished; on a ring, hand it on.
  void add_landings(int rank) {
    if (lands_in_output_ && route_ != Route::ring) {
      build_.add(landing_lanes_[rank], {.kind = TaskKind::sync, .waits = {{{rank, landed_}, kAllPosts}}});
      return;
    }
    const int next = (rank + 1) % n_;
    Task gate{.kind = TaskKind::sync};
    for (const Slice* each : slices_of_rank(rank)) {
      const Slice& slice = *each;
      if (slice.owner == rank) continue;
      Task task{.kind = TaskKind::copy, .reads = {in_landing(rank, slice)}, .waits = {{landed(rank, slice)}}};
      if (!lands_in_output_) {
        task.writes.push_back({in_output(rank, slice)});
        post_summed(task, rank, slice);
      }
      if (route_ == Route::ring && slice.owner != next) {
        task.writes.push_back({in_landing(next, slice)});
        task.waits.push_back(build_.ready(rank, next));
        task.posts.push_back({landed(next, slice)});
        if (lands_in_output_) post_summed(task, next, slice);
      }
      if (task.writes.empty()) {
        gate.waits.push_back({landed(rank, slice)});
      } else {
        build_.add(landing_lanes_[rank], std::move(task));
      }
    }
    if (!gate.waits.empty()) build_.add(landing_lanes_[rank], std::move(gate));
  }

  PlanBuilder build_;
  int n_;
  Route route_;
  Ownership ownership_;
  bool one_shot_;
  bool has_gemm_;
  bool call_first_;  ///< one call of the library makes the rank's partial, which is then sent in tiles
  DType wire_;
  bool input_is_partial_ = false;
  bool lands_in_output_ = false;
  Partition cut_;
  const std::vector<Slice>& slices_;
  const std::vector<Tile>& tiles_;
  Staging staging_;
  std::vector<int> tile_order_;  ///< of the tiles, by the rank whose turn it is
  int output_ = 0, partial_ = 0, staged_ = 0, sum_ = 0, hop_ = 0, landing_ = 0;
  int arrived_ = 0, made_ = 0, hopped_ = 0, turn_ = 0, taken_ = 0, landed_ = 0, pace_ = 0, summed_ = 0;
  struct Band {
    Range rows{};
    int owner = 0;  ///< of all slices, where the output is scattered
  };
  std::vector<Band> bands_{};   ///< if the problem has a norm
  std::vector<int> band_of_{};  ///< by slice
  std::vector<int> tile_lanes_, sum_lanes_, reduce_lanes_, norm_lanes_, landing_lanes_;
  std::vector<std::vector<int>> copy_lanes_;
};

}  // namespace

Ownership ownership_of(const Problem& problem, Ownership otherwise) {
  if (!scatters(problem)) return otherwise;
  return by_columns(problem) ? Ownership::columns : Ownership::rows;
}

Plan make_reduce_plan(const Problem& problem, const Team& team, const Config& config, Ownership share) {
  return ReducePlanner(problem, team, config, share).make();
}

}  // namespace tilewire
