// Tensor maps and launches of the GEMM kernel.
// Called by the cuda backend, tests and benchmarks through gemm_tiles.hpp.
#include "backends/cuda/kernels/gemm_tiles.hpp"

#include <algorithm>
#include <array>

#include "backends/cuda/kernels/gemm_bodies.hpp"
#include "backends/cuda/runtime/driver.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

const std::vector<GemmBodyEntry>& all_bodies() {
  static const std::vector<GemmBodyEntry> bodies = [] {
    std::vector<GemmBodyEntry> all;
    for (const auto& some :
         {gemm_bodies_bf16_nk(), gemm_bodies_bf16_kn(), gemm_bodies_fp16_nk(), gemm_bodies_fp16_kn(),
          group_bodies_bf16_nk(), group_bodies_bf16_kn(), group_bodies_fp16_nk(), group_bodies_fp16_kn()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return bodies;
}

const GemmBodyEntry& find_body(const GemmBodyKind& kind) {
  if (kind.groups != Groups::none) {
    const GemmBodyKind groups{.dtype = kind.dtype, .b_is_kn = kind.b_is_kn, .shape = kind.shape, .groups = kind.groups};
    const auto found = std::ranges::find(all_bodies(), groups, &GemmBodyEntry::kind);
    if (found != all_bodies().end()) return *found;
    fail(ErrorKind::unsupported, "gemm_tiles has no body of groups for these dtypes");
  }
  const TileShape shape = body_shape(kind.shape);
  const bool steps = kind.steps && fills_registers(shape);
  const GemmBodyKind compiled{kind.dtype, kind.b_is_kn, shape, kind.sums || steps, steps};
  const auto found = std::ranges::find(all_bodies(), compiled, &GemmBodyEntry::kind);
  if (found != all_bodies().end()) return *found;
  fail(ErrorKind::unsupported, "gemm_tiles has no body of {}x{}{} for these dtypes", kind.shape.m, kind.shape.n,
       kind.sums ? " with sums" : "");
}

CUtensorMapDataType map_type(DType dtype) {
  if (dtype == DType::bf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (dtype == DType::fp16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return dtype == DType::fp32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_INT32;
}

/// A dimension of a map behind the first one: its extent, its stride in elements of the matrix, and that of the box.
struct MapAxis {
  int64_t extent;
  int64_t stride;
  int box;
};

/// A map with boxes of 128 bytes along a row, and 128-byte swizzle. `promotion`: the bytes that L2 fetches together.
template <size_t kAxes>
CUtensorMap make_map(const MatrixView& m, const std::array<MapAxis, kAxes>& axes, CUtensorMapL2promotion promotion) {
  CUtensorMap map{};
  const auto size = static_cast<cuuint64_t>(bytes_of(m.dtype));
  std::array<cuuint64_t, kAxes + 1> dims{static_cast<cuuint64_t>(m.cols)};
  std::array<cuuint64_t, kAxes> strides{};
  std::array<cuuint32_t, kAxes + 1> box{static_cast<cuuint32_t>(128 / size)};
  std::array<cuuint32_t, kAxes + 1> steps{};
  steps.fill(1);
  for (size_t i = 0; i < kAxes; ++i) {
    dims[i + 1] = static_cast<cuuint64_t>(axes[i].extent);
    strides[i] = static_cast<cuuint64_t>(axes[i].stride) * size;
    box[i + 1] = static_cast<cuuint32_t>(axes[i].box);
  }
  static const auto encode = load_driver().tensor_map_encode_tiled;
  const CUresult result = encode(&map, map_type(m.dtype), kAxes + 1, const_cast<void*>(m.data), dims.data(),
                                 strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(result == CUDA_SUCCESS, "no tensor map for a matrix of {} x {} with ld {}: 16-byte alignment is needed",
          m.rows, m.cols, m.ld);
  return map;
}

CUtensorMap make_map(const MatrixView& m, int box_rows,
                     CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  return make_map(m, std::array<MapAxis, 1>{{{m.rows, m.ld, box_rows}}}, promotion);
}

/// Tiles of few rows read B once, at the speed of memory. Then 256-byte promotion, half of it for the next step, costs
/// 3 to 7 %.
CUtensorMapL2promotion promotion_for(TileShape shape) {
  return shape.m < 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

/// The configuration of a launch. Not copyable, as `config` points to `attribute`.
struct LaunchConfig {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};

  LaunchConfig(const GemmBodyEntry& body, uint32_t ctas, uint32_t cluster, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = static_cast<size_t>(body.shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
};

/// SMs of the current device.
uint32_t num_sms() {
  int device = 0;
  int sms = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return static_cast<uint32_t>(sms);
}

}  // namespace

CUtensorMap make_a_map(const MatrixView& a, TileShape shape, int rows) {
  return make_map(a, rows, promotion_for(shape));
}

CUtensorMap make_b_map(const MatrixView& b, TileShape shape, ClusterShape cluster, bool b_is_kn) {
  return make_map(b, b_is_kn ? kTileK : cols_of_b_box(shape, cluster), promotion_for(shape));
}

CUtensorMap make_group_a_map(const MatrixView& a, int rows) { return make_map(a, rows); }

CUtensorMap make_group_b_map(const MatrixView& b, int64_t groups, Activation activation, TileShape shape,
                             bool b_is_kn) {
  if (b_is_kn) {
    // 64 columns in a box; K, gate and up, groups.
    require(activation != Activation::swiglu_pairs, "groups with B stored [K,N]: no tensor map has pairs of columns");
    MatrixView part = b;
    const int64_t gates = activation == Activation::swiglu ? 2 : 1;
    part.cols /= gates;
    const int64_t lines = b.rows / groups;
    const std::array<MapAxis, 3> axes{{{lines, b.ld, kTileK}, {gates, part.cols, 1}, {groups, lines * b.ld, 1}}};
    return make_map(part, axes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  }
  const int64_t lines = b.rows / groups;
  // A box for each consumer.
  const int box = shape.n / (is_gated(activation) ? 4 : 2);
  // Lines, gate and up, groups.
  const int64_t all = lines * b.ld;
  std::array<MapAxis, 3> axes{{{lines, b.ld, box}, {1, all, 1}, {groups, all, 1}}};
  if (activation == Activation::swiglu) axes = {{{lines / 2, b.ld, box}, {2, all / 2, 2}, {groups, all, 1}}};
  if (activation == Activation::swiglu_pairs) axes = {{{lines / 2, 2 * b.ld, box}, {2, b.ld, 2}, {groups, all, 1}}};
  return make_map(b, axes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

CUtensorMap make_output_map(const MatrixView& c) { return make_map(c, 64); }

CUtensorMap make_rest_map(const MatrixView& c) { return make_map(c, kRestRows); }

int shared_bytes(const GemmBodyKind& kind) { return find_body(kind).shared_bytes; }

uint32_t resident_ctas(const GemmBodyKind& kind, uint32_t cluster) {
  const GemmBodyEntry& body = find_body(kind);
  LaunchConfig launch(body, cluster, cluster, nullptr);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, body.function, &launch.config), "cudaOccupancyMaxActiveClusters");
  return static_cast<uint32_t>(clusters) * cluster;
}

uint32_t balanced_ctas(const GemmBodyKind& kind, uint32_t cluster, uint32_t num_tiles) {
  const uint32_t most = resident_ctas(kind, cluster);
  if (num_tiles == 0 || most == 0) return 0;
  const uint32_t turns = (num_tiles + most - 1) / most;
  const uint32_t ctas = (num_tiles + turns - 1) / turns;
  return (ctas + cluster - 1) / cluster * cluster;
}

uint32_t balanced_depth(const GemmBodyKind& kind, uint32_t ctas) {
  constexpr int64_t kOnTheWay = 16 << 20;
  constexpr int64_t kLeast = 4;
  const int64_t most = num_stages(kind.shape, kind.b_is_kn);
  if (kind.shape.m > 64) return static_cast<uint32_t>(most);
  const int64_t depth = kOnTheWay / (int64_t{std::max(1u, ctas)} * stage_bytes(kind.shape, kind.b_is_kn));
  return static_cast<uint32_t>(std::clamp(depth, kLeast, most));
}

void load_gemm_tiles(const GemmBodyKind& kind) {
  if (kind.groups != Groups::none) {
    const GemmBodyEntry& body = find_body(kind);
    check(cudaFuncSetAttribute(body.function, cudaFuncAttributeMaxDynamicSharedMemorySize, body.shared_bytes),
          "cudaFuncSetAttribute");
    return;
  }
  for (const bool sums : {false, true}) {
    if (sums && most_partials(kind.shape) == 0) continue;
    const GemmBodyEntry& body = find_body({kind.dtype, kind.b_is_kn, kind.shape, sums, kind.steps});
    check(cudaFuncSetAttribute(body.function, cudaFuncAttributeMaxDynamicSharedMemorySize, body.shared_bytes),
          "cudaFuncSetAttribute");
  }
}

void launch_groups(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream) {
  const GemmBodyEntry& body = find_body(kind);
  GemmLaunch full = launch;
  if (full.ctas == 0) full.ctas = resident_ctas(kind, 1);
  full.depth = static_cast<uint32_t>(num_stages(body.kind.shape, false));
  const uint32_t workers = worker_ctas(full.workers.table, kThreads);
  const uint32_t begin = std::max(full.ctas + workers, num_sms());
  full.computing = spread_of(full.ctas, begin, 1);
  full.working = spread_of(workers, std::max(begin, full.computing.all) - full.ctas, 0);
  const uint32_t all = std::max(begin, full.computing.all) + full.workers.table.helper_ctas;
  LaunchConfig config(body, all, 1, stream);
  config.config.numAttrs = 0;
  void* arguments[] = {&full};
  check(cudaLaunchKernelExC(&config.config, body.function, arguments), "launch of grouped gemm_tiles");
}

void launch_gemm_tiles(const GemmBodyKind& kind, const GemmLaunch& launch, cudaStream_t stream) {
  const ClusterShape& shape = launch.cluster;
  const uint32_t cluster = cluster_ctas(shape);
  const bool splits_k = shape.k != 1;
  if (cluster == 0 || cluster > kMostCluster ||
      (splits_k && (shape.m * shape.n != 1 || !may_split_k_in_cluster(kind.shape)))) {
    fail(ErrorKind::unsupported,
         "gemm_tiles: clusters of {} x {} tiles of {} x {} in {} parts of K: want at most {} CTAs; parts for 128 x 128 "
         "or less, or up to {} x 128, no shared operand",
         shape.m, shape.n, kind.shape.m, kind.shape.n, shape.k, kMostCluster, kMostClusterSplitRows);
  }
  const uint32_t tiles = launch.table.num_tiles;
  GemmLaunch full = launch;
  if (full.ctas == 0) full.ctas = balanced_ctas(kind, cluster, tiles);
  full.ctas = std::min(full.ctas, tiles);
  if (full.ctas == 0) return;
  if (full.ctas % cluster != 0 || tiles % cluster != 0 || (cluster > 1 && full.counter != nullptr)) {
    fail(ErrorKind::unsupported,
         "gemm_tiles: {} CTAs, {} tiles{} in clusters of {}: with clusters, CTAs and tiles must be multiples of the "
         "cluster size, and the order is fixed",
         full.ctas, tiles, full.counter != nullptr ? " in dynamic order" : "", cluster);
  }
  const auto stages = static_cast<uint32_t>(num_stages(kind.shape, kind.b_is_kn));
  const GemmBodyEntry& body = find_body(kind);
  full.depth =
      body.kind.sums ? stages : std::min(stages, full.depth > 0 ? full.depth : balanced_depth(kind, full.ctas));
  full.depth = std::min(stages, std::max(full.depth, shape.k - 1));  // stages for the other CTAs' chunks
  full.a_box = rows_of_a_box(kind.shape, full.cluster);
  full.b_box = cols_of_b_box(kind.shape, full.cluster);
  full.tile_rows = kind.shape.m;
  const uint32_t workers = worker_ctas(full.workers.table, kThreads);
  const uint32_t begin = cluster > 1 ? full.ctas + workers : std::max(full.ctas + workers, num_sms());
  full.computing = cluster > 1 ? spread_of(full.ctas, full.ctas, 0) : spread_of(full.ctas, begin, 1);
  full.working = spread_of(workers, std::max(begin, full.computing.all) - full.ctas, 0);
  // NOTE: the grid is a multiple of the cluster; CTAs without a role end at once.
  const uint32_t all = std::max(begin, full.computing.all) + full.workers.table.helper_ctas;
  LaunchConfig config(body, (all + cluster - 1) / cluster * cluster, cluster, stream);
  // NOTE: launched with clusters of one CTA, CTAs begin 1 to 2 us later.
  if (cluster == 1) config.config.numAttrs = 0;
  void* arguments[] = {&full};
  check(cudaLaunchKernelExC(&config.config, body.function, arguments), "launch of gemm_tiles");
}

}  // namespace tilewire::cuda
