// From a plan to the records that one rank's kernels walk: tiles for tensor cores, steps for everything else.
// Called by cuda programs.
#include "backends/cuda/lane_tables.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "backends/cuda/sm_shares.hpp"
#include "backends/cuda/stream_lanes.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

/// CTAs that move data without being told how many: enough for the links (docs/performance.md).
constexpr int kMovers = 16;
/// SMs that walkers leave to a GEMM of the library, which must get on while they wait for it.
constexpr int kLeastForLibrary = 16;

/// Boxes that finished tiles are stored in, and what sets their maps apart from those of A and B.
constexpr int64_t kStoreRows = 64;
constexpr int64_t kStoreBytes = 128;
constexpr int kStores = 2;

bool is_tile(const Task& task) { return task.kind == TaskKind::compute || task.kind == TaskKind::gemm_call; }

bool has_tiles(const Lane& lane) { return std::ranges::any_of(lane.tasks, is_tile); }

class TableMaker {
 public:
  TableMaker(const Plan& plan, int rank, const Addresses& addresses, const std::vector<int64_t>& totals,
             const Room& room)
      : plan_(plan),
        rank_(rank),
        addresses_(addresses),
        places_{plan, addresses},
        totals_(totals),
        room_(room),
        sms_(room.sms) {}

  RankTables make() {
    const bool fast = !slow_tiles(plan_) && aligned();
    out_.light_alone = room_.streams && std::ranges::any_of(plan_.lanes, [&](const Lane& lane) {
                         return lane.rank == rank_ && by_library(lane);
                       });
    out_.kind = kind_of(plan_);
    for (int lane = 0; lane < std::ssize(plan_.lanes); ++lane) {
      if (plan_.lanes[lane].rank != rank_ || plan_.lanes[lane].tasks.empty()) continue;
      if (fast && has_tiles(plan_.lanes[lane])) {
        add_tile_lane(lane);
      } else if (by_stream(plan_.lanes[lane])) {
        add_stream_lane(lane);
      } else {
        add_walk_lane(lane);
      }
    }
    pair_tiles();
    if (out_.light_alone) start_walkers_late(out_, addresses_.gates);
    std::ranges::stable_partition(out_.walk.lanes, [](const LaneRecord& lane) { return !lane.light; });
    share_out_sms(out_, out_.light_alone ? std::max(1, sms_ - kLeastForLibrary) : sms_, tile_workers_);
    if (out_.light_alone) tell_library_its_sms(out_, plan_, sms_);
    return std::move(out_);
  }

 private:
  [[nodiscard]] const Base& base(const Region& region) const { return places_.base(region); }
  [[nodiscard]] DType dtype_of(const Region& region) const { return places_.dtype_of(region); }
  [[nodiscard]] std::byte* data_of(const Region& region) const { return places_.data_of(region); }

  /// Whether tensor copies can load every operand.
  [[nodiscard]] bool aligned() const {
    for (const Lane& lane : plan_.lanes) {
      if (lane.rank != rank_) continue;
      for (const Task& task : lane.tasks) {
        if (!is_tile(task)) continue;
        for (const Region& read : task.reads) {
          const int64_t size = bytes_of(dtype_of(read));
          if (reinterpret_cast<uintptr_t>(data_of(read)) % 16 != 0 || base(read).ld * size % 16 != 0) return false;
          if (read.rows == 0 || read.cols == 0) return false;
        }
      }
    }
    return true;
  }

  uint32_t name_task(int lane, int64_t task) {
    out_.names.push_back({lane, task});
    return static_cast<uint32_t>(out_.names.size() - 1);
  }

  void add_signals(const Task& task, std::vector<WaitRecord>& waits, std::vector<PostRecord>& posts) const {
    const int signals = num_signals(plan_);
    for (const Wait& wait : task.waits) {
      const int64_t total = totals_[static_cast<size_t>(wait.signal.rank) * signals + wait.signal.index];
      waits.push_back(
          {addresses_.signal(wait.signal), static_cast<uint64_t>(wait.at_least), static_cast<uint64_t>(total)});
    }
    const bool far = std::ranges::any_of(task.writes, [&](const Write& write) { return write.to.rank != rank_; });
    for (const Post& post : task.posts) {
      posts.push_back(
          {addresses_.signal(post.signal), static_cast<uint64_t>(post.add), far || post.signal.rank != rank_});
    }
  }

  // ---- tiles for tensor cores ----

  /// Handshakes before and after the tiles of a lane are the walker's: they move nothing.
  void add_tile_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    std::vector<int64_t> others;
    for (int64_t task = 0; task < std::ssize(lane.tasks); ++task) {
      is_tile(lane.tasks[task]) ? add_tile(index, task) : others.push_back(task);
    }
    if (!others.empty()) add_steps(index, others, 1, true);
    tile_workers_ = lane.workers > 0 ? lane.workers : plan_.config.tile_workers;
  }

  /// Neighbours of the list that agree in an operand load it once for both.
  void pair_tiles() {
    const Config& config = plan_.config;
    if (config.cluster_m * config.cluster_n != 2 || out_.gemm.tiles.size() < 2 || config.tile_m == 64) return;
    out_.share = config.cluster_m == 2 ? Share::b : Share::a;
    out_.gemm.tiles = in_pairs(out_.gemm.tiles, out_.share);
  }

  /// A map over the rows (columns of the result) and the range of K that an operand's region spans.
  uint16_t operand_map(const Region& region, bool is_b) {
    const bool kn = is_b && out_.kind.b_is_kn;
    const auto key = std::make_tuple(static_cast<int>(is_b), region.rank, region.buffer, kn ? region.row : region.col,
                                     kn ? region.rows : region.cols);
    if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
    const Shape shape = shape_on(plan_.buffers[region.buffer], region.rank);
    Region whole = region;
    (kn ? whole.col : whole.row) = 0;
    MatrixView view{data_of(whole), dtype_of(region), kn ? region.rows : shape.rows, kn ? shape.cols : region.cols,
                    base(region).ld};
    const CUtensorMap map =
        is_b ? make_b_map(view, out_.kind.shape, out_.kind.b_is_kn) : make_a_map(view, out_.kind.shape);
    return remember(key, map);
  }

  using MapKey = std::tuple<int, int, int, int64_t, int64_t>;
  uint16_t remember(const MapKey& key, const CUtensorMap& map) {
    out_.gemm.maps.push_back(map);
    return maps_[key] = static_cast<uint16_t>(out_.gemm.maps.size() - 1);
  }

  void add_tile(int lane, int64_t index) {
    const Task& task = plan_.lanes[lane].tasks[index];
    const Region& a = task.reads[0];
    const Region& b = task.reads[1];
    const bool kn = out_.kind.b_is_kn;
    TileRecord tile;
    tile.a_row = static_cast<int32_t>(a.row);
    tile.b_col = static_cast<int32_t>(kn ? b.col : b.row);
    tile.k_steps = static_cast<int32_t>((a.cols + kTileK - 1) / kTileK);
    tile.a_map = operand_map(a, false);
    tile.b_map = operand_map(b, true);
    tile.rows = static_cast<uint16_t>(a.rows);
    tile.cols = static_cast<uint16_t>(kn ? b.cols : b.rows);
    tile.task = name_task(lane, index);
    tile.first_wait = static_cast<uint32_t>(out_.gemm.waits.size());
    tile.first_post = static_cast<uint32_t>(out_.gemm.posts.size());
    tile.first_write = static_cast<uint32_t>(out_.gemm.writes.size());
    add_signals(task, out_.gemm.waits, out_.gemm.posts);
    tile.num_waits = static_cast<uint16_t>(task.waits.size());
    tile.num_posts = static_cast<uint16_t>(task.posts.size());
    for (const Write& write : task.writes) add_write(tile, write);
    if (!task.epilogue.empty()) {
      const Region& bias = *task.epilogue[0].operand;
      tile.bias = data_of(bias);
      if (dtype_of(bias) == DType::fp32) tile.flags |= kBiasFp32;
    }
    out_.gemm.tiles.push_back(tile);
  }

  void add_write(TileRecord& tile, const Write& write) {
    if (write.to.rows == 0 || write.to.cols == 0) return;
    const Base& at = base(write.to);
    const DType dtype = dtype_of(write.to);
    if (dtype == DType::fp32) tile.flags |= kOutputFp32;
    if (const auto map = store_map(tile, write)) {
      out_.gemm.writes.push_back({.row = static_cast<int32_t>(write.to.row - write.first_row),
                                  .col = static_cast<int32_t>(write.to.col),
                                  .map = *map,
                                  .first_row = static_cast<uint16_t>(write.first_row),
                                  .rows = static_cast<uint16_t>(write.to.rows),
                                  .cols = static_cast<uint16_t>(write.to.cols),
                                  .mode = mode_of(write),
                                  .via = StoreVia::tensor_map});
      ++tile.num_writes;
      return;
    }
    out_.gemm.writes.push_back({.to = data_of(write.to) - write.first_row * at.ld * bytes_of(dtype),
                                .ld = static_cast<int32_t>(at.ld),
                                .first_row = static_cast<uint16_t>(write.first_row),
                                .rows = static_cast<uint16_t>(write.to.rows),
                                .cols = static_cast<uint16_t>(write.to.cols),
                                .mode = mode_of(write)});
    ++tile.num_writes;
  }

  /// A map to store through, where boxes of 64 rows lie in the region whole, or end with the buffer.
  std::optional<uint16_t> store_map(const TileRecord& tile, const Write& write) {
    const Region& to = write.to;
    const Shape shape = shape_on(plan_.buffers[to.buffer], to.rank);
    const int64_t size = bytes_of(dtype_of(to));
    const bool whole_rows =
        write.first_row == 0 && to.rows == tile.rows && (to.rows % kStoreRows == 0 || to.row + to.rows == shape.rows);
    const bool whole_cols = to.cols * size % kStoreBytes == 0 || to.col + to.cols == shape.cols;
    const Base& at = base(to);
    const bool fits = reinterpret_cast<uintptr_t>(at.data) % 16 == 0 && at.ld * size % 16 == 0;
    if (!whole_rows || !whole_cols || !fits) return std::nullopt;
    const MapKey key{kStores, to.rank, to.buffer, 0, 0};
    if (const auto found = maps_.find(key); found != maps_.end()) return found->second;
    return remember(key, make_output_map({at.data, dtype_of(to), shape.rows, shape.cols, at.ld}));
  }

  // ---- everything else ----

  [[nodiscard]] static StoreMode mode_of(const Write& write) {
    return write.mode == WriteMode::store ? StoreMode::store : StoreMode::accumulate;
  }

  [[nodiscard]] bool by_stream(const Lane& lane) const {
    return room_.streams && (by_library(lane) || by_copy_engine(plan_, lane));
  }

  /// The light kernel waits and posts, a stream of its own does the work: at once, where nobody waits.
  void add_stream_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    const bool gated =
        std::ranges::any_of(lane.tasks, [](const Task& task) { return !task.waits.empty() || !task.posts.empty(); });
    std::vector<int64_t> all(lane.tasks.size());
    std::iota(all.begin(), all.end(), 0);
    const size_t first_step = out_.walk.steps.size();
    if (gated) add_steps(index, all, 1, true);
    for (size_t i = 0; i < lane.tasks.size(); ++i) {
      const Task& task = lane.tasks[i];
      const bool works = task.kind != TaskKind::sync && task.reads[0].rows > 0 && task.reads[0].cols > 0;
      if (gated) out_.walk.steps[first_step + i].act = works ? Act::gate : Act::sync;
      if (!works) continue;
      StreamWork& work = out_.works.emplace_back();
      work.stream = static_cast<int>(out_.urgent.size());
      work.lane = index;
      work.task = static_cast<int64_t>(i);
      calls_library(task) ? work.what = library_gemm(places_, task) : work.what = stream_copy(places_, task);
      if (!gated) continue;
      work.gate = addresses_.gates + out_.works.size() - 1;
      out_.walk.steps[first_step + i].gate = work.gate;
    }
    out_.urgent.push_back(lane.engine == Engine::copy);
  }

  void add_walk_lane(int index) {
    const Lane& lane = plan_.lanes[index];
    std::vector<int64_t> all;
    bool moves = false;
    for (int64_t task = 0; task < std::ssize(lane.tasks); ++task) {
      all.push_back(task);
      moves = moves || lane.tasks[task].kind != TaskKind::sync;
    }
    const bool serial = is_serial(lane.engine);
    if (!moves) return add_steps(index, all, 1, true);
    int ctas = workers_of(lane);
    if (!serial) ctas = static_cast<int>(std::min<int64_t>(ctas, std::ssize(lane.tasks)));
    // NOTE: a serial lane's products are whole steps of one CTA.
    if (serial && has_tiles(lane)) ctas = 1;
    add_steps(index, all, ctas, false, serial);
  }

  [[nodiscard]] int workers_of(const Lane& lane) const {
    if (lane.workers > 0) return lane.workers;
    if (has_tiles(lane)) return plan_.config.tile_workers > 0 ? plan_.config.tile_workers : sms_;
    if (lane.engine == Engine::reduce && plan_.config.reduce_workers > 0) return plan_.config.reduce_workers;
    // What begins when everything else has ended has the device to itself.
    const bool alone = out_.light_alone || !std::ranges::any_of(plan_.lanes, has_tiles);
    if (alone && !is_serial(lane.engine) && is_late(lane)) return std::max(kMovers, sms_ - 2 * kMovers);
    return kMovers;
  }

  void add_steps(int lane, const std::vector<int64_t>& tasks, int ctas, bool light, bool serial = false) {
    LaneRecord record{.first_step = static_cast<uint32_t>(out_.walk.steps.size()),
                      .num_steps = static_cast<uint32_t>(tasks.size()),
                      .ctas = static_cast<uint32_t>(ctas),
                      .lane = static_cast<uint32_t>(lane),
                      .serial = serial,
                      .light = light};
    record.progress = addresses_.progress + 2 * out_.walk.lanes.size();
    out_.walk.lanes.push_back(record);
    for (const int64_t task : tasks) add_step(lane, task);
  }

  [[nodiscard]] static Act act_of(const Task& task) {
    switch (task.kind) {
      case TaskKind::compute:
      case TaskKind::gemm_call:
        return Act::multiply;
      case TaskKind::copy:
        return Act::copy;
      case TaskKind::reduce:
        return Act::reduce;
      case TaskKind::fill:
        return Act::fill;
      default:
        return Act::sync;
    }
  }

  void add_step(int lane, int64_t index) {
    const Task& task = plan_.lanes[lane].tasks[index];
    HostWalk& walk = out_.walk;
    const Shape shape = result_shape(plan_, task);
    StepRecord step{
        .act = act_of(task), .rows = static_cast<int32_t>(shape.rows), .cols = static_cast<int32_t>(shape.cols)};
    step.task = name_task(lane, index);
    step.value = static_cast<float>(task.value);
    step.first_source = static_cast<uint32_t>(walk.sources.size());
    step.first_target = static_cast<uint32_t>(walk.targets.size());
    step.first_epilogue = static_cast<uint32_t>(walk.epilogue.size());
    step.first_wait = static_cast<uint32_t>(walk.waits.size());
    step.first_post = static_cast<uint32_t>(walk.posts.size());
    if (step.act == Act::multiply) {
      step.a_transposed = plan_.problem.a_layout == ALayout::km;
      step.b_is_kn = plan_.problem.b_layout == BLayout::kn;
      step.depth = static_cast<int32_t>(step.a_transposed ? task.reads[0].rows : task.reads[0].cols);
    }
    for (size_t i = 0; i < task.reads.size(); ++i) {
      const Region& read = task.reads[i];
      const float weight = task.weights.empty() ? 1.0F : static_cast<float>(task.weights[i]);
      walk.sources.push_back({data_of(read), base(read).ld, dtype_of(read), weight});
    }
    for (const Write& write : task.writes) {
      walk.targets.push_back({data_of(write.to), base(write.to).ld, static_cast<int32_t>(write.first_row),
                              static_cast<int32_t>(write.to.rows), dtype_of(write.to), mode_of(write)});
    }
    for (const EpilogueStep& what : task.epilogue) {
      EpilogueRecord record{.kind = what.kind, .value = static_cast<float>(what.value)};
      if (what.operand) {
        record.operand = data_of(*what.operand);
        record.ld = base(*what.operand).ld;
        record.dtype = dtype_of(*what.operand);
      }
      walk.epilogue.push_back(record);
    }
    add_signals(task, walk.waits, walk.posts);
    step.num_sources = static_cast<uint8_t>(task.reads.size());
    step.num_targets = static_cast<uint8_t>(task.writes.size());
    step.num_epilogue = static_cast<uint8_t>(task.epilogue.size());
    step.num_waits = static_cast<uint16_t>(task.waits.size());
    step.num_posts = static_cast<uint16_t>(task.posts.size());
    walk.steps.push_back(step);
  }

  const Plan& plan_;
  int rank_;
  const Addresses& addresses_;
  Places places_;
  const std::vector<int64_t>& totals_;
  Room room_;
  int sms_;
  int tile_workers_ = 0;
  RankTables out_;
  std::map<MapKey, uint16_t> maps_;
};

}  // namespace

RankTables make_tables(const Plan& plan, int rank, const Addresses& addresses, const std::vector<int64_t>& totals,
                       const Room& room) {
  return TableMaker(plan, rank, addresses, totals, room).make();
}

}  // namespace tilewire::cuda
