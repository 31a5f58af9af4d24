// Lets the CTA that makes a tile of few rows sum the tiles of all ranks, too: the GEMV kernel.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/passes.hpp"
#include "tilewire/print.hpp"

namespace tilewire::lowering {
namespace {

/// Why the GEMV kernel cannot make a tile, or nothing.
std::optional<std::string> unfit_tile(const Plan& plan, const Task& tile) {
  const GemmParams& gemm = tile.gemm;
  if (gemm.tile_m > kMostGemvRows || gemm.tile_n > kMostGemvCols)
    return fmt::format("tiles of {} x {}, want at most {} x {}", gemm.tile_m, gemm.tile_n, kMostGemvRows,
                       kMostGemvCols);
  const DType dtype = plan.buffers[tile.reads[0].buffer].dtype;
  if (bytes_of(dtype) != 2 || plan.buffers[tile.reads[1].buffer].dtype != dtype)
    return "operands of " + to_string(dtype);
  if (gemm.b_layout != BLayout::nk) return "B of layout kn";
  if (tile.reads.size() != 2 || in_cluster(tile) || gemm.cluster_split_k > 1) return "tiles of several CTAs or pieces";
  const Shape shape = result_shape(tile);
  const int64_t depth = depth_of(tile);
  if (shape.rows == 0 || shape.cols % kGemvUnit != 0 || depth == 0 || depth % kGemvUnit != 0)
    return fmt::format("tiles of {} x {} over K = {}, want columns and K in multiples of {}", shape.rows, shape.cols,
                       depth, kGemvUnit);
  const auto whole_ll = [&](const Write& write) {
    return is_ll(plan, write.to) && plan.buffers[write.to.buffer].dtype == dtype && write.mode == WriteMode::store &&
           write.first_row == 0 && write.first_col == 0 && write.to.rows == shape.rows && write.to.cols == shape.cols;
  };
  if (!std::ranges::all_of(tile.writes, whole_ll)) return "tiles that are not sent whole as LL data";
  const auto is_ready = [](const Wait& wait) { return wait.purpose == Purpose::ready; };
  const bool plain = tile.epilogue.empty() && tile.addends.empty() && tile.posts.empty();
  if (!plain || !std::ranges::all_of(tile.waits, is_ready)) return "tiles with posts, addends or waits for data";
  return std::nullopt;
}

/// Whether `sum` sums the partials of `tile` of all ranks, and is the only reader of the tile's own partial.
bool completes(const Plan& plan, const Lane& lane, const Task& tile, const Task& sum) {
  if (sum.kind != TaskKind::reduce || !polls(plan, lane, sum) || !sum.waits.empty() || !sum.posts.empty()) return false;
  const auto own = std::ranges::find_if(tile.writes, [&](const Write& write) { return write.to.rank == lane.rank; });
  if (own == tile.writes.end() || std::ranges::find(sum.reads, own->to) == sum.reads.end()) return false;
  const Shape shape = result_shape(tile);
  return std::ranges::all_of(sum.writes, [&](const Write& write) {
    return !is_ll(plan, write.to) && write.to.rank == lane.rank && write.mode == WriteMode::store &&
           write.first_row == 0 && write.to.rows == shape.rows && write.to.cols == shape.cols;
  });
}

/// The lanes of a rank that has tiles and sums and nothing else.
struct Lanes {
  size_t tiles = 0;
  size_t sums = 0;
};

std::optional<Lanes> lanes_of(const Plan& plan, int rank) {
  std::optional<size_t> tiles;
  std::optional<size_t> sums;
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane& lane = plan.lanes[i];
    const auto moves = [](const Task& task) { return task.kind != TaskKind::sync; };
    if (lane.rank != rank || std::ranges::none_of(lane.tasks, moves)) continue;
    const bool multiplies = std::ranges::any_of(lane.tasks, is_gemm_tile);
    if (lane.stage > 0 || lane.kernel > 0 || is_serial(lane.engine) || (multiplies ? tiles : sums)) return std::nullopt;
    (multiplies ? tiles : sums) = i;
  }
  if (!tiles || !sums) return std::nullopt;
  return Lanes{*tiles, *sums};
}

/// The sums in the order of the tiles, or nothing where one of them does not belong to its tile.
std::optional<std::vector<Task>> in_order_of(const Plan& plan, const std::vector<Task>& tiles, const Lane& sums) {
  std::vector<Task> ordered;
  std::vector<Task> left = sums.tasks;
  for (const Task& tile : tiles) {
    const auto found = std::ranges::find_if(left, [&](const Task& sum) { return completes(plan, sums, tile, sum); });
    if (found == left.end()) return std::nullopt;
    ordered.push_back(std::move(*found));
    left.erase(found);
  }
  if (!left.empty()) return std::nullopt;
  return ordered;
}

/// Join the lanes of one rank. Returns why not, or nothing.
std::optional<std::string> join(Plan& plan, int rank, int sms) {
  const auto lanes = lanes_of(plan, rank);
  if (!lanes) return "a rank has other work than tiles and sums";
  Lane& lane = plan.lanes[lanes->tiles];
  std::vector<Task> tiles;
  std::vector<Task> others;
  for (const Task& task : lane.tasks) (is_gemm_tile(task) ? tiles : others).push_back(task);
  for (const Task& task : others) {
    if (task.kind != TaskKind::sync) return "a lane of tiles has other tasks";
  }
  for (const Task& tile : tiles) {
    if (auto reason = unfit_tile(plan, tile)) return reason;
  }
  if (std::ssize(tiles) > sms - kBesideGemv)
    return fmt::format("{} tiles, want at most {}, one for each CTA", tiles.size(), sms - kBesideGemv);
  auto sums = in_order_of(plan, tiles, plan.lanes[lanes->sums]);
  if (!sums) return "sums that do not belong to one tile each";
  const auto count = static_cast<int>(tiles.size());
  plan.lanes[lanes->sums].tasks = std::move(*sums);
  plan.lanes[lanes->sums].joined = true;
  plan.lanes[lanes->sums].workers = count;
  lane.tasks = std::move(tiles);
  lane.workers = count;
  if (!others.empty()) plan.lanes.push_back({.rank = rank, .engine = Engine::tiles, .name = "ready", .tasks = others});
  return std::nullopt;
}

}  // namespace

std::string join_sums(Plan& plan, const Target& target) {
  if (!uses_ll(plan)) return "no LL data";
  std::string reason;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const auto refused = join(plan, rank, target.sms);
    if (refused && reason.empty()) reason = *refused;
  }
  const auto joined = std::ranges::find(plan.lanes, true, &Lane::joined);
  if (joined == plan.lanes.end()) return reason;
  return fmt::format("{} CTAs make a tile and its sum{}", joined->workers,
                     reason.empty() ? "" : ", not on all ranks: " + reason);
}

}  // namespace tilewire::lowering
