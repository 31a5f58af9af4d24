// The host's view of the GEMM kernel: tile shapes, tensor maps, and the launch.
// Used by the cuda backend, which makes the tables; tests and benchmarks call it directly.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cuda/kernels/tile_table.hpp"
#include "backends/cuda/kernels/worker_table.hpp"
#include "lower/tile_shapes.hpp"
#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

/// The CTAs of a cluster: `m` rows of `n` tiles, whose records are neighbours, row by row. They run side by side and
/// agree in k_begin and k_steps. Tiles of a row agree in a_map and a_row, those of a column in b_map and b_col: such an
/// operand is loaded once, each CTA a part of it for all. `k`: so many make one tile together, each over a part of K.
struct ClusterShape {
  uint32_t m = 1;
  uint32_t n = 1;
  uint32_t k = 1;

  bool operator==(const ClusterShape&) const = default;
};

[[nodiscard]] constexpr uint32_t cluster_ctas(ClusterShape cluster) { return cluster.m * cluster.n * cluster.k; }
inline constexpr uint32_t kMostCluster = 8;
/// Rows of A, or columns of B, that each of the CTAs loads which use the same `lines`: whole groups of 8 for all.
[[nodiscard]] constexpr int lines_of_a_box(int lines, uint32_t ctas) {
  return ctas >= 4 && lines % 32 == 0 ? lines / 4 : ctas >= 2 && lines % 16 == 0 ? lines / 2 : lines;
}
/// Rows of A, or columns of B, that one tensor copy brings; of B stored [K,N] it is 64 columns.
[[nodiscard]] constexpr int rows_of_a_box(TileShape shape, ClusterShape cluster) {
  return lines_of_a_box(shape.m, cluster.n);
}
[[nodiscard]] constexpr int cols_of_b_box(TileShape shape, ClusterShape cluster) {
  return lines_of_a_box(shape.n, cluster.m);
}
/// Most rows of tiles with runtime rows that may be made so.
inline constexpr int kMostClusterSplitRows = kRuntimeRowShapes[1].m;
/// Whether tiles of this shape may: a consumer has three chunks of one at most, side by side.
[[nodiscard]] constexpr bool may_split_k_in_cluster(TileShape shape) {
  return shape.m * shape.n <= 128 * 128 || (has_runtime_rows(shape) && shape.m <= kMostClusterSplitRows);
}
/// Fewest steps of each part of K: loads of a tile then never get ahead of the parts of the tile before.
[[nodiscard]] constexpr int least_part_steps(TileShape shape) { return num_stages(shape, false); }

/// Where some CTAs are among all: evenly, in groups of 1 << shift. NOTE: the hardware fills one GPC of SMs after the
/// other with the CTAs of a grid, each pair of SMs with two that follow each other. An SM gets less from memory where
/// all of its GPC load, and more where the other of its pair loads the same.
struct Spread {
  uint32_t all = 0;   ///< whole groups
  uint32_t some = 0;  ///< of the last group perhaps not all
  uint32_t step = 0;  ///< groups of them, from group to group, in parts of 65536
  uint32_t shift = 0;
};
[[nodiscard]] constexpr Spread spread_of(uint32_t some, uint32_t all, uint32_t shift) {
  const uint32_t rest = (1U << shift) - 1;
  const uint32_t groups = std::max(1U, (all + rest) >> shift);
  return {groups << shift, some, ((((some + rest) >> shift) << 16) + groups - 1) / groups, shift};
}
/// How many of them come before this one of all.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint32_t spread_before(const Spread& spread, uint32_t cta) {
  const uint32_t group = (cta < spread.all ? cta : spread.all) >> spread.shift;
  const uint32_t before = group * spread.step >> 16;
  const bool here = (group + 1) * spread.step >> 16 > before;
  const uint32_t ctas = (before << spread.shift) + (here ? cta & ((1U << spread.shift) - 1) : 0);
  return ctas < spread.some ? ctas : spread.some;
}

/// So many tensor maps go with the launch, as CUDA likes them best; where tiles use more, the others lie in device
/// memory. Enough for A, B and the parts of C that lie with each of eight ranks.
inline constexpr uint32_t kMapsAtHand = 12;

/// A rank's tables in device memory, and the first tensor maps.
struct GemmTable {
  const TileRecord* tiles = nullptr;
  const WaitRecord* waits = nullptr;
  const PostRecord* posts = nullptr;
  const WriteRecord* writes = nullptr;
  const PartialRecord* parts = nullptr;
  const EpilogueRecord* epilogue = nullptr;
  const CUtensorMap* maps = nullptr;  ///< from number kMapsAtHand on
  uint32_t num_tiles = 0;
  uint32_t num_maps = 0;
  CacheHints cache_hints{};
  RowSplit splits[kMostSplits]{};
  CUtensorMap at_hand[kMapsAtHand]{};
};

/// What one launch is told.
struct GemmLaunch {
  /// Two words of zeros in device memory: CTAs take tasks as they get free, and leave zeros. None: compute CTA c takes
  /// tasks c, c + ctas, ... Not with clusters.
  uint32_t* counter = nullptr;
  uint32_t ctas = 0;  ///< compute CTAs, whole clusters; 0 = balanced_ctas, asked for at each launch
  /// Steps of K that a CTA loads ahead; 0 = balanced_depth, asked for at each launch. A body with sums takes all
  /// stages.
  uint32_t depth = 0;
  /// With k > 1 (split_k_in_cluster) the CTAs of a cluster take turns in adding what all have of a chunk, in their
  /// order, and sending it on (the first one alone of tiles that complete a sum or post): for a shape that
  /// may_split_k_in_cluster, and no operand is shared.
  ClusterShape cluster{};
  int a_box = 0;  ///< rows_of_a_box and cols_of_b_box: filled in at the launch
  int b_box = 0;
  int tile_rows = 0;  ///< of GemmBodyKind::shape: filled in at the launch
  /// Where compute CTAs are in the grid, in pairs, and CTAs that work in what they leave: filled in at the launch. CTAs
  /// of clusters, which the hardware spreads, come first.
  Spread computing{};
  Spread working{};
  /// Lanes that other CTAs of the launch execute (none of their steps multiplies), and what tiles wait with, too.
  WorkerLaunch workers{};
  GemmTable table{};  // NOTE: last, its maps too, so that the little that all CTAs begin with is side by side
};

/// Which instantiation runs.
struct GemmBodyKind {
  DType dtype = DType::bf16;  ///< of A and B; bf16 or fp16
  bool b_is_kn = false;       ///< B is stored [K,N]; otherwise [N,K]
  TileShape shape{};
  bool sums = false;   ///< tiles may complete sums; a body without is shorter, and faster for it. See most_partials
  bool steps = false;  ///< a tile's epilogue may be more than one bias

  bool operator==(const GemmBodyKind&) const = default;
};

/// A row-major matrix in memory: dimensions in elements. `data` and ld bytes are multiples of 16.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
};

/// Maps to load A ([M,K]), so many rows at once (rows_of_a_box, or those of a part of a split), and B ([N,K], or [K,N]
/// where `b_is_kn`) for tiles of this shape. Reads outside give zeros.
[[nodiscard]] CUtensorMap make_a_map(const MatrixView& a, TileShape shape, int rows);
[[nodiscard]] CUtensorMap make_b_map(const MatrixView& b, TileShape shape, ClusterShape cluster, bool b_is_kn);
/// Map to store tiles of any shape into a matrix, and to load parts of sums from it. Writes outside are dropped.
[[nodiscard]] CUtensorMap make_output_map(const MatrixView& c);
/// For WriteRecord::rest_map: the same in boxes of kRestRows.
[[nodiscard]] CUtensorMap make_rest_map(const MatrixView& c);

/// Bytes of shared memory that one CTA takes: an SM holds one.
[[nodiscard]] int shared_bytes(const GemmBodyKind& kind);

/// Before the two below: load the kernel, with and without sums, into the current device; its first launch would wait
/// for all that run.
void load_gemm_tiles(const GemmBodyKind& kind);

/// The fewest CTAs that take as many turns as all SMs of the current device would: an SM less is power for the others,
/// or room for other roles.
[[nodiscard]] uint32_t balanced_ctas(const GemmBodyKind& kind, uint32_t cluster, uint32_t num_tiles);

/// CTAs that are resident at once on the current device in clusters of so many: SMs of a GPC that make no whole cluster
/// have none.
[[nodiscard]] uint32_t resident_ctas(const GemmBodyKind& kind, uint32_t cluster);

/// How far ahead each of so many CTAs loads. With few rows all of them read B at the speed of memory: more bytes on
/// their way than that needs (docs/cuda.md, The GEMM kernel) wait for each other, and some CTAs end later than others.
[[nodiscard]] uint32_t balanced_depth(const GemmBodyKind& kind, uint32_t ctas);

/// Enqueue the kernel. Throws Error where the kind is not compiled or CUDA refuses.
void launch_gemm_tiles(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream);

}  // namespace tilewire::cuda
