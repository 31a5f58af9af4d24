// Chooses the number of CTAs of each lane.
// Listed in lower.cpp.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/ceil_div.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// CTAs of a data lane without a given number: enough for the links (docs/cuda.md).
constexpr int kCopyCtas = 16;

int parts_of(int whole, int part) { return static_cast<int>(ceil_div(whole, part)); }

/// A data lane of CTAs.
struct DataLane {
  Lane* lane = nullptr;
  int ctas = 0;
  bool sized = false;  ///< the plan gives the number of CTAs, or tiles wait for the lane
  bool after = false;  ///< in the kernel after the library call
};

/// The lanes of one rank, whose CTAs must all be resident at once.
class SmSharer {
 public:
  SmSharer(Plan& plan, const Target& target, int rank)
      : plan_(plan),
        target_(target),
        rank_(rank),
        staged_(has_stages(plan, rank)),
        beside_library_(!staged_ && has_library_lane(plan, rank)),
        tensor_cores_(uses_tensor_cores(plan, rank)),
        cluster_(tensor_cores_ ? cluster_of_tiles(plan, rank) : TileCluster{}) {}

  void share() {
    for (size_t i = 0; i < plan_.lanes.size(); ++i) {
      if (plan_.lanes[i].rank == rank_ && !plan_.lanes[i].tasks.empty()) add(i);
    }
    const bool apart = has_kernels_apart();
    if (apart) handshakes_[0] += static_cast<int>(data_.size());  // a sync-only lane waits for each
    const int sms = sms_for_clusters(target_, cluster());
    const bool may_help = num_tiles() > 0 && target_.streams && target_.whole_gpu && !apart;
    share_out(beside_library_ ? std::max(1, sms - kLeastForLibrary) : sms, may_help);
    set_lanes(may_help);
    if (beside_library_) set_library_sms(sms);
  }

  [[nodiscard]] int tile_ctas() const { return tile_ctas_; }
  [[nodiscard]] int data_ctas() const {
    int ctas = 0;
    for (const DataLane& lane : data_) ctas += lane.ctas;
    return ctas;
  }

 private:
  void add(size_t index) {
    Lane& lane = plan_.lanes[index];
    if (tensor_cores_ && by_tensor_cores(lane)) return add_tiles(lane);
    if (staged_ && lane.stage == kCallStage) return static_cast<void>(++handshakes_[0]);  // the waits of the call
    if (staged_ && goes_with_call(plan_, index)) return;
    const bool after = staged_ && lane.stage == kStageAfterCall;
    if (!moves_data(lane)) return static_cast<void>(++handshakes_[after ? 1 : 0]);
    if (lane.joined) return;  // in the CTAs of the tiles
    if (!staged_ && by_stream(lane)) return static_cast<void>(handshakes_[0] += waits_or_posts(lane) ? 1 : 0);
    const bool serial = is_serial(lane.engine);
    int ctas = workers_of(lane);
    if (!serial) ctas = static_cast<int>(std::min<int64_t>(ctas, std::ssize(lane.tasks)));
    // NOTE: one CTA makes each product of a serial lane.
    if (serial) ctas = std::ranges::any_of(lane.tasks, is_product) ? 1 : std::min(ctas, ctas_for_task(lane));
    data_.push_back({&lane, ctas, lane.engine != Engine::reduce || lane.workers > 0, after});
  }

  /// NOTE: with traces every copy has a doorbell, and so a sync-only lane.
  [[nodiscard]] static bool waits_or_posts(const Lane& lane) {
    return lane.engine == Engine::copy || std::ranges::any_of(lane.tasks, [](const Task& task) {
             return task.kind == TaskKind::collective_call || !task.waits.empty() || !task.posts.empty();
           });
  }

  void add_tiles(Lane& lane) {
    tile_lanes_.push_back(&lane);
    tile_workers_ = lane.workers;
    for (const Task& task : lane.tasks) {
      if (!is_gemm_tile(task)) continue;
      ++(in_cluster(task) ? paired_ : alone_);
    }
    if (!std::ranges::all_of(lane.tasks, is_gemm_tile)) ++handshakes_[0];
  }

  [[nodiscard]] int cluster() const { return ctas_of(cluster_); }

  /// Tiles as the CTAs make them: a tile without a partner counts as a pair, and with split-K each part of K counts.
  [[nodiscard]] int num_tiles() const { return paired_ + cluster() * alone_; }

  /// Whether the data lanes have kernels of their own.
  [[nodiscard]] bool has_kernels_apart() const {
    return beside_library_ || (tensor_cores_ && target_.streams && !staged_ && has_several_kernels(plan_, rank_));
  }

  [[nodiscard]] int workers_of(const Lane& lane) const {
    if (lane.workers > 0) return lane.workers;
    if (by_tensor_cores(lane)) return target_.sms;
    // A lane that starts when all other work has ended can use the whole GPU.
    const auto mine = [&](bool (*makes)(const Task&)) {
      return std::ranges::any_of(plan_.lanes, [&](const Lane& other) {
        return other.rank == rank_ && std::ranges::any_of(other.tasks, makes);
      });
    };
    const bool alone = !mine(is_gemm_tile) && (has_library_lane(plan_, rank_) || !mine(computes));
    if (alone && !is_serial(lane.engine) && is_late(plan_, lane))
      return std::max(kCopyCtas, target_.sms - 2 * kCopyCtas);
    return kCopyCtas;
  }

  /// CTAs that each get a useful part of the largest task. Beside few tiles SMs are scarce.
  [[nodiscard]] int ctas_for_task(const Lane& lane) const {
    constexpr int64_t kLeastBytes = 32 << 10;
    constexpr int64_t kLeastEntries = 2048;  // of lists of experts
    int64_t most = 0;
    for (const Task& task : lane.tasks) {
      if (task.kind == TaskKind::sync) continue;
      if (task.route) {
        const int64_t entries = task.reads[0].rows * task.reads[0].cols;
        return static_cast<int>(std::clamp<int64_t>(ceil_div(entries, kLeastEntries), 1, kMostRouteCtas));
      }
      const Buffer& to = plan_.buffers[task.writes[0].to.buffer];
      const Shape shape = result_shape(task);
      const int64_t rows = is_grouped(to) ? to.most_rows : shape.rows;
      most = std::max(most, rows * shape.cols * bytes_of(to.dtype));
    }
    return static_cast<int>(std::clamp<int64_t>(ceil_div(most, kLeastBytes), 1, std::max(kCopyCtas, lane.workers)));
  }

  /// CTAs of data and sync-only lanes in one kernel: the only one, or the one before or after a library call.
  [[nodiscard]] int ctas_beside_tiles(bool after) const {
    int ctas = parts_of(handshakes_[after ? 1 : 0], kHandshakesOfCta);
    for (const DataLane& lane : data_) ctas += lane.after == after ? lane.ctas : 0;
    return ctas;
  }

  /// Take CTAs from the widest lanes until a kernel has at most `most`.
  void narrow(bool after, int most) {
    while (ctas_beside_tiles(after) > most) {
      const auto width = [&](const DataLane& lane) { return lane.after == after ? lane.ctas : 0; };
      const auto widest = std::ranges::max_element(data_, {}, width);
      require(widest != data_.end() && width(*widest) > 1,
              "rank {}: {} SMs are too few for {} lanes that wait for each other", rank_, most,
              std::ssize(data_) + handshakes_[after ? 1 : 0]);
      --widest->ctas;
    }
  }

  /// If there are few waves, take CTAs from lanes that helper CTAs help, but only if that saves a wave.
  void save_a_wave(int sms) {
    constexpr int kFew = 4;
    const int tiles = num_tiles();
    const auto waves = [&] {
      const int ctas = std::max(0, sms - ctas_beside_tiles(false)) / cluster() * cluster();
      return ctas == 0 ? tiles : parts_of(tiles, ctas);
    };
    const int before = waves();
    const std::vector<DataLane> lanes = data_;
    while (before > 1 && before <= kFew && waves() == before) {
      const auto width = [](const DataLane& lane) { return lane.sized ? 0 : lane.ctas; };
      const auto widest = std::ranges::max_element(data_, {}, width);
      if (widest == data_.end() || width(*widest) <= 1) {
        data_ = lanes;
        return;
      }
      --widest->ctas;
    }
  }

  /// Narrow the widest lanes until all fit. `may_help`: lanes may be narrowed further to save a wave, because helper
  /// CTAs take their remaining tasks.
  void share_out(int sms, bool may_help) {
    const int tiles = num_tiles();
    // Give data lanes beside tiles at most half of the SMs.
    const int room = tiles > 0 ? std::max(sms / 2, sms - tiles) : sms;
    for (const bool after : {false, true}) narrow(after, std::min(room, sms - (tiles > 0 ? cluster() : 0)));
    if (tiles == 0) return;
    if (tile_workers_ == 0 && may_help) save_a_wave(sms);
    const int most = tile_workers_ > 0 ? tile_workers_ * cluster_.split_k : sms;
    tile_ctas_ = std::min({most, sms - ctas_beside_tiles(false), tiles});
    require(tile_ctas_ >= cluster(), "rank {}: {} SMs and {} workers are too few for {} CTAs that make tiles together",
            rank_, sms, tile_workers_, cluster());
    // Use the fewest CTAs that need the same number of waves: idle SMs leave power to the others.
    const int least = parts_of(tiles, parts_of(tiles, tile_ctas_));
    tile_ctas_ = std::min(tile_ctas_ / cluster() * cluster(), parts_of(least, cluster()) * cluster());
  }

  /// Set the fields of all lanes. Lanes whose size is free and that have more tasks than workers get helper CTAs.
  void set_lanes(bool may_help) {
    for (Lane* lane : tile_lanes_) lane->workers = tile_ctas_ / cluster_.split_k;
    for (const DataLane& data : data_) {
      Lane& lane = *data.lane;
      const int64_t tasks = std::ssize(lane.tasks);
      lane.workers = data.ctas;
      lane.warpgroups = !is_serial(lane.engine) && tasks > data.ctas && std::ranges::all_of(lane.tasks, is_small);
      const int at_once = data.ctas * (lane.warpgroups ? kWarpgroupsOfCta : 1);
      lane.helped = may_help && !data.sized && tasks > at_once;
    }
  }

  /// Whether a warpgroup does a task as fast as a CTA: memory latency dominates.
  [[nodiscard]] static bool is_small(const Task& task) {
    constexpr int64_t kMost = 4096;
    const Shape shape = result_shape(task);
    return !is_product(task) && !computes_with(task, Body::pool) && shape.rows * shape.cols <= kMost;
  }

  /// Subtract the SMs of sync-only lanes, of tiles, and of data lanes that run beside the library.
  void set_library_sms(int sms) {
    sms -= static_cast<int>(parts_of(handshakes_[0], kHandshakesOfCta));
    sms -= tile_ctas_;
    for (const DataLane& data : data_) {
      if (!is_serial(data.lane->engine) && !is_late(plan_, *data.lane)) sms -= data.ctas;
    }
    for (Lane& lane : plan_.lanes) {
      if (lane.rank == rank_ && lane.engine == Engine::library) lane.workers = std::max(1, sms);
    }
  }

  Plan& plan_;
  const Target& target_;
  int rank_;
  bool staged_;
  bool beside_library_;
  bool tensor_cores_;
  TileCluster cluster_;
  std::vector<Lane*> tile_lanes_;
  std::vector<DataLane> data_;
  int handshakes_[2] = {0, 0};  ///< sync-only lanes: in the only kernel or before a call; after the call
  int paired_ = 0;              ///< tiles in pairs
  int alone_ = 0;
  int tile_workers_ = 0;  ///< number that the plan gives
  int tile_ctas_ = 0;
};

}  // namespace

std::string share_sms(Plan& plan, const Target& target) {
  std::string text;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    SmSharer sharer(plan, target, rank);
    sharer.share();
    if (rank == 0)
      text = fmt::format("rank 0: {} CTAs for tiles, {} for lanes that move data, of {} SMs", sharer.tile_ctas(),
                         sharer.data_ctas(), target.sms);
  }
  const auto helped = [&](auto field) {
    return std::ranges::count_if(plan.lanes, [&](const Lane& lane) { return lane.rank == 0 && lane.*field; });
  };
  if (const auto count = helped(&Lane::helped); count > 0) text += fmt::format("; helper CTAs help {} lanes", count);
  if (const auto count = helped(&Lane::warpgroups); count > 0)
    text += fmt::format("; {} lanes give tasks to warpgroups", count);
  return text;
}

}  // namespace tilewire::lowering
