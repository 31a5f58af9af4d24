// The host's view of the GEMM kernel: tile shapes, tensor maps, and the launch.
// Used by the cuda backend, tests and benchmarks.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cuda/kernels/group_table.hpp"
#include "backends/cuda/kernels/tile_table.hpp"
#include "backends/cuda/kernels/worker_table.hpp"
#include "lower/tile_shapes.hpp"
#include "tilewire/dtype.hpp"

namespace tilewire::cuda {

/// A cluster of `m` rows of `n` tiles. Their records are neighbours in the table, row by row, and agree in k_begin and
/// k_steps. Tiles of a row agree in a_map and a_row, tiles of a column in b_map and b_col: each CTA loads a part of
/// such a shared operand for all. With cluster split-K, `k` CTAs make one tile, each over a part of K.
struct ClusterShape {
  uint32_t m = 1;
  uint32_t n = 1;
  uint32_t k = 1;

  bool operator==(const ClusterShape&) const = default;
};

[[nodiscard]] constexpr uint32_t cluster_ctas(ClusterShape cluster) { return cluster.m * cluster.n * cluster.k; }
inline constexpr uint32_t kMostCluster = 8;
/// Rows of A, or columns of B, in one box: equal parts, multiples of 8, for the CTAs that use the same `lines`.
[[nodiscard]] constexpr int lines_of_a_box(int lines, uint32_t ctas) {
  return ctas >= 4 && lines % 32 == 0 ? lines / 4 : ctas >= 2 && lines % 16 == 0 ? lines / 2 : lines;
}
/// Rows of A, or columns of B, that one tensor copy loads; of B stored [K,N] it loads 64 columns.
[[nodiscard]] constexpr int rows_of_a_box(TileShape shape, ClusterShape cluster) {
  return lines_of_a_box(shape.m, cluster.n);
}
[[nodiscard]] constexpr int cols_of_b_box(TileShape shape, ClusterShape cluster) {
  return lines_of_a_box(shape.n, cluster.m);
}
/// Most rows of a tile with runtime rows that may use cluster split-K.
inline constexpr int kMostClusterSplitRows = kRuntimeRowShapes[1].m;
/// Whether tiles of this shape may use cluster split-K: a consumer has at most three chunks, in one block of 64 rows.
[[nodiscard]] constexpr bool may_split_k_in_cluster(TileShape shape) {
  return shape.m * shape.n <= 128 * 128 || (has_runtime_rows(shape) && shape.m <= kMostClusterSplitRows);
}
/// Fewest steps of K per CTA in cluster split-K. Loads of a tile then never overtake the chunks of the tile before.
[[nodiscard]] constexpr int least_part_steps(TileShape shape) { return num_stages(shape, false); }

/// Places `some` CTAs evenly among `all` CTAs of a grid, in groups of 1 << shift. NOTE: the hardware fills one GPC
/// after another with a grid's CTAs, and each TPC (two SMs) with two consecutive ones. An SM gets less memory bandwidth
/// if all SMs of its GPC load, and more if the other SM of its TPC loads the same data.
struct Spread {
  uint32_t all = 0;   ///< CTAs of the grid, in whole groups
  uint32_t some = 0;  ///< CTAs to place; the last group may be incomplete
  uint32_t step = 0;  ///< groups to place for each group of the grid, times 65536
  uint32_t shift = 0;
};
[[nodiscard]] constexpr Spread spread_of(uint32_t some, uint32_t all, uint32_t shift) {
  const uint32_t rest = (1U << shift) - 1;
  const uint32_t groups = std::max(1U, (all + rest) >> shift);
  return {groups << shift, some, ((((some + rest) >> shift) << 16) + groups - 1) / groups, shift};
}
/// How many of the placed CTAs come before CTA `cta` of the grid.
[[nodiscard]] TILEWIRE_BOTH_SIDES constexpr uint32_t spread_before(const Spread& spread, uint32_t cta) {
  const uint32_t group = (cta < spread.all ? cta : spread.all) >> spread.shift;
  const uint32_t before = group * spread.step >> 16;
  const bool here = (group + 1) * spread.step >> 16 > before;
  const uint32_t ctas = (before << spread.shift) + (here ? cta & ((1U << spread.shift) - 1) : 0);
  return ctas < spread.some ? ctas : spread.some;
}

/// Number of tensor maps in the launch's parameters, where access is fastest; further maps are in device memory. Enough
/// for A, B and the parts of C on each of eight ranks.
inline constexpr uint32_t kMapsAtHand = 12;

/// A rank's tables in device memory, and the first tensor maps. Of grouped GEMMs: families instead of tiles.
struct GemmTable {
  const TileRecord* tiles = nullptr;
  const WaitRecord* waits = nullptr;
  const PostRecord* posts = nullptr;
  const WriteRecord* writes = nullptr;
  const PartialRecord* parts = nullptr;
  const EpilogueRecord* epilogue = nullptr;
  const CUtensorMap* maps = nullptr;  ///< maps from number kMapsAtHand on
  const FamilyRecord* families = nullptr;
  uint32_t num_tiles = 0;
  uint32_t num_families = 0;
  uint32_t num_maps = 0;
  CacheHints cache_hints{};
  RowSplit splits[kMostSplits]{};
  CUtensorMap at_hand[kMapsAtHand]{};
};

/// The parameters of one launch.
struct GemmLaunch {
  /// Two zeros in device memory: CTAs take tasks when they are free, and leave zeros. Null: compute CTA c takes tasks
  /// c, c + ctas, ... Must be null with clusters.
  uint32_t* counter = nullptr;
  uint32_t ctas = 0;  ///< compute CTAs, whole clusters; 0 = balanced_ctas, at each launch
  /// Steps of K that a CTA loads ahead; 0 = balanced_depth, at each launch. A body with sums uses all stages.
  uint32_t depth = 0;
  /// With k > 1 (cluster split-K) the CTAs of a cluster share the additions of a tile's chunks (adders_of) and add in
  /// the order of the CTAs. Then the shape must be may_split_k_in_cluster, and m = n = 1.
  ClusterShape cluster{};
  int a_box = 0;  ///< rows_of_a_box and cols_of_b_box: set by launch_gemm_tiles
  int b_box = 0;
  int tile_rows = 0;  ///< rows of GemmBodyKind::shape: set by launch_gemm_tiles
  /// Set by launch_gemm_tiles: the places of compute CTAs in the grid, in pairs, and of worker CTAs among the rest.
  /// Compute CTAs in clusters come first, as the hardware spreads clusters itself.
  Spread computing{};
  Spread working{};
  /// Lanes for worker CTAs of the launch, without OpCode::multiply; tiles use its bases, counters and watch, too.
  WorkerLaunch workers{};
  GemmTable table{};  // NOTE: last, with its maps last, so that the parameters that each CTA reads first are adjacent
};

/// Whether tiles are of groups (group_table.hpp), and if so whether each column has a gate.
enum class Groups : uint8_t { none, plain, gated };

/// Selects an instantiation of the kernel.
struct GemmBodyKind {
  DType dtype = DType::bf16;  ///< of A and B; bf16 or fp16
  bool b_is_kn = false;       ///< B is stored [K,N]; otherwise [N,K]
  TileShape shape{};
  bool sums = false;   ///< tiles may complete sums (see most_partials); a body without is shorter and faster
  bool steps = false;  ///< a tile's epilogue may be more than one bias
  Groups groups = Groups::none;

  bool operator==(const GemmBodyKind&) const = default;
};

/// A row-major matrix in memory, dimensions in elements. `data` and the bytes of `ld` are multiples of 16.
struct MatrixView {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
};

/// Maps to load A ([M,K]) in boxes of `rows` rows (rows_of_a_box, or a part of a split), and B ([N,K], or [K,N] with
/// `b_is_kn`), for tiles of this shape. Reads outside the matrix give zeros.
[[nodiscard]] CUtensorMap make_a_map(const MatrixView& a, TileShape shape, int rows);
[[nodiscard]] CUtensorMap make_b_map(const MatrixView& b, TileShape shape, ClusterShape cluster, bool b_is_kn);
/// Map to load A of groups in boxes of `rows` rows, and B: `groups` matrices of b.rows / groups lines each, one below
/// the other. If gated, half of the lines of each (of the columns with `b_is_kn`) are the gate, and half are up, or
/// each two neighbours are both (not with `b_is_kn`).
[[nodiscard]] CUtensorMap make_group_a_map(const MatrixView& a, int rows);
[[nodiscard]] CUtensorMap make_group_b_map(const MatrixView& b, int64_t groups, Activation activation, TileShape shape,
                                           bool b_is_kn);
/// Map to store tiles of any shape to a matrix, and to load partials from it. Writes outside are dropped.
[[nodiscard]] CUtensorMap make_output_map(const MatrixView& c);
/// The same in boxes of kRestRows, for WriteRecord::rest_map.
[[nodiscard]] CUtensorMap make_rest_map(const MatrixView& c);

/// Bytes of shared memory of one CTA. An SM holds one CTA.
[[nodiscard]] int shared_bytes(const GemmBodyKind& kind);

/// Load the kernel, with and without sums, into the current device. Call it before the two functions below and before a
/// launch: the first launch of a kernel that is not loaded waits for all running kernels.
void load_gemm_tiles(const GemmBodyKind& kind);

/// The fewest CTAs that need as many waves as CTAs on all SMs of the current device. An unused SM leaves its power to
/// the others, or has room for other roles.
[[nodiscard]] uint32_t balanced_ctas(const GemmBodyKind& kind, uint32_t cluster, uint32_t num_tiles);

/// CTAs that are resident at once on the current device, in clusters of `cluster`. SMs of a GPC that do not fill a
/// cluster stay empty.
[[nodiscard]] uint32_t resident_ctas(const GemmBodyKind& kind, uint32_t cluster);

/// Steps of K that each of `ctas` CTAs loads ahead. With few rows, all CTAs read B at the speed of memory. More bytes
/// in flight than that needs (docs/cuda.md, The GEMM kernel) queue up, and some CTAs end later than others.
[[nodiscard]] uint32_t balanced_depth(const GemmBodyKind& kind, uint32_t ctas);

/// Enqueue the kernel of grouped GEMMs (kind.groups), with `launch.ctas` CTAs, 0 = on all SMs.
void launch_groups(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream);

/// Enqueue the kernel. Throws Error if the kind is not compiled or CUDA refuses.
void launch_gemm_tiles(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream);

}  // namespace tilewire::cuda
