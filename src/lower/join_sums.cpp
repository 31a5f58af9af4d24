// Lets the CTA that makes a tile of few rows, or copies a part of a row, sum those of all ranks, too: the GEMV kernel,
// and the kernel of rows.
// Listed in lower.cpp.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/gemm_tasks.hpp"
#include "core/ll.hpp"
#include "core/text.hpp"
#include "lower/gemv_tiles.hpp"
#include "lower/kernel_limits.hpp"
#include "lower/lane_roles.hpp"
#include "lower/passes.hpp"
#include "tilewire/print.hpp"

namespace tilewire::lowering {
namespace {

/// Whether a task makes a partial of the sums.
bool makes_partial(const Task& task) { return is_gemm_tile(task) || task.kind == TaskKind::copy; }

/// Whether a task stores its whole result in LL data of its type.
bool sends_whole_ll(const Plan& plan, const Task& task, const Shape& shape, DType dtype) {
  return std::ranges::all_of(task.writes, [&](const Write& write) {
    return is_ll(plan, write.to) && plan.buffers[write.to.buffer].dtype == dtype && write.mode == WriteMode::store &&
           write.first_row == 0 && write.first_col == 0 && write.to.rows == shape.rows && write.to.cols == shape.cols;
  });
}

/// Whether a task neither posts nor waits for data, and ends with its result.
bool is_plain(const Task& task) {
  const auto is_ready = [](const Wait& wait) { return wait.purpose == Purpose::ready; };
  return task.epilogue.empty() && task.addends.empty() && task.posts.empty() &&
         std::ranges::all_of(task.waits, is_ready);
}

/// Why the kernel of rows cannot copy a part of a row, or nothing.
std::optional<std::string> unfit_copy(const Plan& plan, const Task& copy) {
  const Region& row = copy.reads[0];
  const Buffer& buffer = plan.buffers[row.buffer];
  if (bytes_of(buffer.dtype) != 2) return "rows of " + to_string(buffer.dtype);
  if (row.rows != 1 || row.cols % kGemvUnit != 0 || row.cols > kMostPartCols)
    return fmt::format("copies of {} x {}, want parts of one row of at most {} columns, a multiple of {}", row.rows,
                       row.cols, kMostPartCols, kGemvUnit);
  if (!sends_whole_ll(plan, copy, {row.rows, row.cols}, buffer.dtype)) return "rows that are not sent whole as LL data";
  if (!is_plain(copy)) return "copies with posts or waits for data";
  return std::nullopt;
}

/// Why the GEMV kernel cannot make a tile and its sum, or nothing.
std::optional<std::string> unfit_tile(const Plan& plan, const Task& tile) {
  if (auto reason = unfit_product(plan, tile)) return reason;
  const DType dtype = plan.buffers[tile.reads[0].buffer].dtype;
  if (!sends_whole_ll(plan, tile, result_shape(tile), dtype)) return "tiles that are not sent whole as LL data";
  if (!is_plain(tile)) return "tiles with posts, addends or waits for data";
  return std::nullopt;
}

/// Whether `sum` sums the partials of `tile`, or of the part that it copies, of all ranks, and is the only reader of
/// the tile's own partial.
bool completes(const Plan& plan, const Lane& lane, const Task& tile, const Task& sum) {
  if (sum.kind != TaskKind::reduce || !polls(plan, lane, sum) || !sum.waits.empty()) return false;
  const auto own = std::ranges::find_if(tile.writes, [&](const Write& write) { return write.to.rank == lane.rank; });
  if (own == tile.writes.end() || std::ranges::find(sum.reads, own->to) == sum.reads.end()) return false;
  const Region& shape = own->to;
  return std::ranges::all_of(sum.writes, [&](const Write& write) {
    const Buffer& buffer = plan.buffers[write.to.buffer];
    return !buffer.ll && buffer.dtype == plan.buffers[shape.buffer].dtype && write.to.rank == lane.rank &&
           write.mode == WriteMode::store && write.first_row == 0 && write.to.rows == shape.rows &&
           write.to.cols == shape.cols;
  });
}

/// The lanes of a rank that has tiles, sums and norms of the sums, and nothing else, except for a call of the library
/// in an earlier stage.
struct Lanes {
  size_t tiles = 0;
  size_t sums = 0;
  std::optional<size_t> norms{};
};

std::optional<Lanes> lanes_of(const Plan& plan, int rank) {
  const int stage = has_stages(plan, rank) ? kStageAfterCall : 0;
  std::optional<size_t> tiles;
  std::optional<size_t> sums;
  std::optional<size_t> norms;
  for (size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane& lane = plan.lanes[i];
    const auto moves = [](const Task& task) { return task.kind != TaskKind::sync; };
    if (lane.rank != rank || std::ranges::none_of(lane.tasks, moves)) continue;
    if (lane.stage == kCallStage) continue;
    std::optional<size_t>& its = std::ranges::all_of(lane.tasks, is_norm)         ? norms
                                 : std::ranges::any_of(lane.tasks, makes_partial) ? tiles
                                                                                  : sums;
    if (lane.stage != stage || lane.kernel > 0 || is_serial(lane.engine) || its) return std::nullopt;
    its = i;
  }
  if (!tiles || !sums) return std::nullopt;
  return Lanes{*tiles, *sums, norms};
}

/// Whether a norm stores its whole rows, and then their scales if it quantises.
bool stores_whole_rows(const Task& norm) {
  const int64_t cols = norm.reads[0].cols;
  if (norm.writes.size() != (quantises(norm.norm) ? 2U : 1U)) return false;
  return std::ranges::all_of(norm.writes, [&](const Write& write) {
    const bool first = &write == norm.writes.data();
    return write.first_row == 0 && write.mode == WriteMode::store && write.first_col == (first ? 0 : cols) &&
           write.to.cols == (first ? cols : 1);
  });
}

/// The norm of the rows of `sum`, which stores the columns of `sum`, made of `norms` that wait for it. Nothing where
/// these are not the norms of just these rows.
std::optional<Task> norm_of_columns(const Plan& plan, const Task& sum, const Lane& norms) {
  if (sum.posts.size() != 1 || sum.writes.size() != 1) return std::nullopt;
  const Region& own = sum.writes[0].to;
  const Signal& summed = sum.posts[0].signal;
  if (others_wait(plan, norms, summed)) return std::nullopt;
  std::vector<const Task*> parts;
  for (const Task& norm : norms.tasks) {
    if (std::ranges::find(norm.waits, summed, &Wait::signal) != norm.waits.end()) parts.push_back(&norm);
  }
  std::ranges::sort(parts, {}, [](const Task* norm) { return norm->reads[0].row; });
  int64_t next = own.row;
  for (const Task* norm : parts) {
    const Region& rows = norm->reads[0];
    if (rows.buffer != own.buffer || rows.rank != own.rank || rows.row != next || norm->waits.size() != 1 ||
        !norm->posts.empty() || !stores_whole_rows(*norm))
      return std::nullopt;
    next += rows.rows;
  }
  if (parts.empty() || next != own.row + own.rows) return std::nullopt;
  Task norm = *parts[0];
  norm.reads[0].rows = own.rows;
  for (Write& write : norm.writes) write.to.rows = own.rows;
  if (own.col > 0) norm.writes.resize(1);  // the first columns' norm stores the scales
  Write& write = norm.writes[0];
  write.first_col = own.col;
  write.to.col += own.col;
  write.to.cols = own.cols;
  return norm;
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
std::optional<std::string> join(Plan& plan, int rank, const Target& target) {
  const auto lanes = lanes_of(plan, rank);
  if (!lanes) return "a rank has other work than tiles and sums";
  Lane& lane = plan.lanes[lanes->tiles];
  std::vector<Task> tiles;
  std::vector<Task> others;
  for (const Task& task : lane.tasks) (makes_partial(task) ? tiles : others).push_back(task);
  for (const Task& task : others) {
    if (task.kind != TaskKind::sync) return "a lane of tiles has other tasks";
  }
  for (const Task& tile : tiles) {
    if (is_gemm_tile(tile) != is_gemm_tile(tiles[0])) return "a lane has tiles and copies";
    if (auto reason = is_gemm_tile(tile) ? unfit_tile(plan, tile) : unfit_copy(plan, tile)) return reason;
  }
  const int most = target.sms - kBesideGemv;
  if (std::ssize(tiles) > most) return fmt::format("{} tiles, want at most {}, one for each CTA", tiles.size(), most);
  const auto count = static_cast<int>(tiles.size());
  const auto place = [](const Task& copy) { return std::pair(copy.reads[0].row, copy.reads[0].col); };
  if (!is_gemm_tile(tiles[0])) std::ranges::sort(tiles, {}, place);
  Lane& sums = plan.lanes[lanes->sums];
  auto ordered = in_order_of(plan, tiles, sums);
  if (!ordered) return "sums that do not belong to one tile each";
  const bool tell = std::ranges::any_of(*ordered, [](const Task& sum) { return !sum.posts.empty(); });
  if (tell && !lanes->norms) return "sums that other tasks wait for";
  if (lanes->norms) {
    const bool parts = !is_gemm_tile(tiles[0]);
    const auto in_first_row =
        std::ranges::count(tiles, tiles[0].reads[0].row, [](const Task& task) { return task.reads[0].row; });
    if (parts && in_first_row > kMostRowParts)
      return fmt::format("{} parts of a row with a norm, want at most {}", in_first_row, kMostRowParts);
    if (parts && in_first_row > 1 && !target.whole_gpu)
      return fmt::format("{} parts of a row with a norm are a cluster, which may not fit into a part of the GPU",
                         in_first_row);
    // All sums before the norms: with one CTA for each, no norm then takes the place of a sum that it waits for.
    for (int i = 0; i < count; ++i) {
      auto norm = norm_of_columns(plan, (*ordered)[i], plan.lanes[*lanes->norms]);
      if (!norm) return "norms of other rows than those of the sums";
      ordered->push_back(std::move(*norm));
    }
    plan.lanes[*lanes->norms].tasks.clear();
  }
  sums.tasks = std::move(*ordered);
  sums.joined = true;
  sums.workers = count;
  lane.tasks = std::move(tiles);
  lane.workers = count;
  if (!others.empty())
    plan.lanes.push_back(
        {.rank = rank, .engine = Engine::tiles, .name = "ready", .stage = lane.stage, .tasks = others});
  return std::nullopt;
}

}  // namespace

std::string join_sums(Plan& plan, const Target& target) {
  if (!uses_ll(plan)) return "no LL data";
  std::string reason;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    const auto refused = join(plan, rank, target);
    if (refused && reason.empty()) reason = *refused;
  }
  const auto joined = std::ranges::find(plan.lanes, true, &Lane::joined);
  if (joined == plan.lanes.end()) return reason;
  const bool norms = is_norm(joined->tasks.back());
  const bool tiles = std::ranges::any_of(plan.lanes, [&](const Lane& lane) {
    return lane.rank == joined->rank && std::ranges::any_of(lane.tasks, is_gemm_tile);
  });
  const std::string what = fmt::format("{}{}", tiles ? "make a tile and its sum" : "send a part of a row and sum it",
                                       norms ? ", and normalise it" : "");
  return fmt::format("{} CTAs {}{}", joined->workers, what, reason.empty() ? "" : ", not on all ranks: " + reason);
}

}  // namespace tilewire::lowering
