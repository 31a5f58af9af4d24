// L2 eviction priorities of what tiles load.
// Listed in lower.cpp.
#include <algorithm>
#include <map>
#include <tuple>

#include "core/ceil_div.hpp"
#include "core/text.hpp"
#include "lower/cache_hints.hpp"
#include "lower/passes.hpp"
#include "tilewire/print.hpp"

namespace tilewire {

OperandHints cache_hints_for(int64_t rows, int64_t b_bytes, int64_t tile_m, bool near) {
  constexpr int64_t kMiB = 1 << 20;
  constexpr OperandHints kNothing{};
  const bool once = rows <= tile_m;
  if (once && b_bytes >= 256 * kMiB) return {.b = CacheHint::evict_normal};
  if (rows > 1024) return kNothing;
  // Much B, few rows: lines that are evicted first are gone before all have had them,
  if (rows > 64 && rows <= 192 && b_bytes >= 224 * kMiB) return kNothing;
  // as they are where those who share them are far apart, but for little B and more rows.
  if (!once && !near && (rows <= 256 || b_bytes >= 128 * kMiB)) return kNothing;
  const bool a_too = rows > 128 && rows < 1024;
  return {.a = a_too ? CacheHint::evict_first : CacheHint::none, .b = CacheHint::evict_first};
}

namespace lowering {
namespace {

/// Tiles of one rank that share columns of B, over the same part of K.
struct Sharers {
  int64_t first = 0;  ///< position of the first one
  int64_t rows = 0;
};

/// The hints for a rank's tiles. NOTE: where tiles wait for other ranks, those that share columns drift apart, unless
/// they are a cluster.
OperandHints hints_of(const std::vector<const Task*>& tiles, bool waits) {
  constexpr int64_t kStep = 64;  // columns of K of one step
  constexpr int64_t kNear = 16;  // positions at which tiles of one GPU load at about the same time, at most
  const GemmParams& gemm = tiles.front()->gemm;
  const int64_t reach = waits ? gemm.cluster_m * gemm.cluster_n * gemm.cluster_split_k : kNear;
  std::map<std::tuple<int, int, int64_t, int64_t, int64_t>, Sharers> all;
  int64_t rows = 0;
  int64_t b_bytes = 0;
  bool near = true;
  for (int64_t i = 0; i < std::ssize(tiles); ++i) {
    const Region& a = tiles[i]->reads[0];
    const Region& b = tiles[i]->reads[1];
    const bool kn = tiles[i]->gemm.b_layout == BLayout::kn;
    const auto key =
        kn ? std::tuple(b.rank, b.buffer, b.row, b.rows, b.col) : std::tuple(b.rank, b.buffer, b.col, b.cols, b.row);
    const auto [found, is_new] = all.try_emplace(key, Sharers{i});
    Sharers& sharers = found->second;
    if (is_new) b_bytes += (kn ? b.cols : b.rows) * ceil_div(a.cols, kStep) * kStep * bytes_of(DType::bf16);
    near = near && i - sharers.first < reach;
    sharers.rows += a.rows;
    rows = std::max(rows, sharers.rows);
  }
  return cache_hints_for(rows, b_bytes, gemm.tile_m, near);
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
        if (task.kind != TaskKind::compute || task.body != Body::gemm) continue;
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
        if (task.kind == TaskKind::compute && task.body == Body::gemm)
          task.gemm.a_hint = hints.a, task.gemm.b_hint = hints.b;
      }
    }
    if (text.empty()) text = fmt::format("A {}, B {} on rank {}", to_string(hints.a), to_string(hints.b), rank);
  }
  return text.empty() ? "no tiles" : text;
}

}  // namespace lowering
}  // namespace tilewire
