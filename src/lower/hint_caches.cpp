// Sets the L2 eviction priorities of the loads of tiles.
// Listed in lower.cpp.
#include <algorithm>

#include "core/ceil_div.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "lower/cache_hints.hpp"
#include "lower/passes.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

constexpr int64_t kStep = 64;  // columns of A of one step

}  // namespace

OperandHints cache_hints_for(int64_t rows, int64_t b_bytes, int64_t tile_m, bool near) {
  constexpr int64_t kMiB = 1 << 20;
  constexpr OperandHints kNothing{};
  const bool once = rows <= tile_m;
  if (once && b_bytes >= 256 * kMiB) return {.b = CacheHint::evict_normal};
  if (rows > 1024) return kNothing;
  // Large B, few rows: lines with evict_first would be gone before all tiles have loaded them.
  if (rows > 64 && rows <= 192 && b_bytes >= 224 * kMiB) return kNothing;
  // The same if tiles with equal columns are far apart, except for a small B with more rows.
  if (!once && !near && (rows <= 256 || b_bytes >= 128 * kMiB)) return kNothing;
  const bool a_too = rows > 128 && rows < 1024;
  return {.a = a_too ? CacheHint::evict_first : CacheHint::none, .b = CacheHint::evict_first};
}

void HintFinder::add(const std::array<int64_t, 5>& shared, int64_t rows, int64_t cols, int64_t k_steps) {
  const auto [found, is_new] = all_.try_emplace(shared, Sharers{num_tiles_});
  Sharers& sharers = found->second;
  if (is_new) b_bytes_ += cols * k_steps * kStep * bytes_of(DType::bf16);
  near_ = near_ && num_tiles_ - sharers.first < reach_;
  sharers.rows += rows;
  rows_ = std::max(rows_, sharers.rows);
  ++num_tiles_;
}

namespace lowering {
namespace {

/// The hints for a rank's tiles. NOTE: if tiles wait for other ranks, tiles with equal columns drift apart, unless they
/// are in one cluster.
OperandHints hints_of(const std::vector<const Task*>& tiles, bool waits) {
  const GemmParams& gemm = tiles.front()->gemm;
  HintFinder finder(waits ? gemm.cluster_m * gemm.cluster_n * gemm.cluster_split_k : kNear);
  for (const Task* tile : tiles) {
    const Region& b = tile->reads[1];
    const bool kn = tile->gemm.b_layout == BLayout::kn;
    finder.add({b.rank, b.buffer, kn ? b.row : b.col, kn ? b.rows : b.cols, kn ? b.col : b.row}, tile->reads[0].rows,
               kn ? b.cols : b.rows, ceil_div(tile->reads[0].cols, kStep));
  }
  return finder.find(gemm.tile_m);
}

}  // namespace

std::string hint_caches(Plan& plan, const Target&) {
  std::string text;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    std::vector<const Task*> tiles;
    bool automatic = true;
    for (const Lane& lane : plan.lanes) {
      if (lane.rank != rank) continue;
      for (const Task& task : lane.tasks) {
        if (!is_gemm_tile(task)) continue;
        tiles.push_back(&task);
        automatic = automatic && task.gemm.a_hint == CacheHint::automatic && task.gemm.b_hint == CacheHint::automatic;
      }
    }
    if (tiles.empty()) continue;
    if (!automatic) {
      text = "the schedule has chosen";
      continue;
    }
    const OperandHints hints = hints_of(tiles, plan.team.num_ranks > 1);
    for (Lane& lane : plan.lanes) {
      if (lane.rank != rank) continue;
      for (Task& task : lane.tasks) {
        if (is_gemm_tile(task)) task.gemm.a_hint = hints.a, task.gemm.b_hint = hints.b;
      }
    }
    if (text.empty()) text = fmt::format("A {}, B {} on rank {}", to_string(hints.a), to_string(hints.b), rank);
  }
  return text.empty() ? "no tiles" : text;
}

}  // namespace lowering
}  // namespace tilewire
