// tilewire's GEMM kernel against the fastest of cuBLASLt's candidates, interleaved in one run: a ratio for each shape.
// Usage: cuda_gemm [--json FILE] [--turns N] [--explore] [--cold] [M N K ...]; needs a Hopper GPU and libcublasLt.
// The visible GPUs share the shapes; each shape is measured on one GPU. With --explore only one GPU is used.
// --cold: each call alone, after a write that empties the L2 cache, as operators of few rows are called.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/tables/gemm_table.hpp"
#include "commit.hpp"
#include "cuda_timer.cuh"
#include "tuner/measure.hpp"

using namespace tilewire;
using namespace tilewire::bench;
using namespace tilewire::cuda;
using tilewire::tuner::median;

namespace {

struct Shape3 {
  int64_t m, n, k;
};

const std::vector<Shape3> kShapes{
    {8192, 12288, 12288}, {4096, 12288, 12288}, {2048, 12288, 12288}, {1024, 12288, 12288}, {512, 12288, 12288},
    {8192, 14336, 8192},  {8192, 2560, 8192},   {8192, 8192, 7168},   {8192, 8192, 2048},   {1024, 8192, 2048},
    {1024, 8192, 7168},   {64, 12288, 12288},   {8192, 8192, 8192}};

__global__ void fill(__nv_bfloat16* p, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    p[i] = __float2bfloat16(static_cast<int>((h ^ h >> 13) & 0xffff) / 32768.f - 1.f);
  }
}

/// Adds |x - y|^2 and |y|^2 to sums.
__global__ void distance(const __nv_bfloat16* x, const __nv_bfloat16* y, size_t n, double* sums) {
  double d = 0;
  double s = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    const double a = __bfloat162float(x[i]);
    const double b = __bfloat162float(y[i]);
    d += (a - b) * (a - b);
    s += b * b;
  }
  atomicAdd(&sums[0], d);
  atomicAdd(&sums[1], s);
}

struct Buffers {
  __nv_bfloat16* a{};
  __nv_bfloat16* b{};
  __nv_bfloat16* c{};
  __nv_bfloat16* c_lt{};
  void* workspace{};
  uint32_t* counter{};
  double* sums{};
};
constexpr size_t kWorkspace = 256u << 20;

struct Lt {
  cublasLtHandle_t handle{};
  cublasLtMatmulDesc_t desc{};
  cublasLtMatrixLayout_t a{}, b{}, c{};
  cublasLtMatmulHeuristicResult_t candidates[12]{};
  int num_candidates = 0;

  Lt(const Shape3& s) {
    CHECK(cublasLtCreate(&handle));
    CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t t = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
    CHECK(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, s.k, s.n, s.k));
    CHECK(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, s.k, s.m, s.k));
    CHECK(cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, s.n, s.m, s.n));
    cublasLtMatmulPreference_t preference;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                               sizeof kWorkspace));
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, b, a, c, c, preference, 12, candidates, &num_candidates));
  }

  void run(const Buffers& m, int candidate, cudaStream_t stream) const {
    const float one = 1;
    const float zero = 0;
    CHECK(cublasLtMatmul(handle, desc, &one, m.b, b, m.a, a, &zero, m.c_lt, c, m.c_lt, c, &candidates[candidate].algo,
                         m.workspace, kWorkspace, stream));
  }
};

struct Choice {
  TileShape shape{};
  ClusterShape cluster{};
  int group_m = 8;
  StoreVia via = StoreVia::tensor_map;
  bool counter = false;

  std::string name() const {
    return std::to_string(shape.m) + "x" + std::to_string(shape.n) + " cluster " + std::to_string(cluster.m) + "x" +
           std::to_string(cluster.n) + " group " + std::to_string(group_m) +
           (via == StoreVia::pointer ? " pointer" : " tensor") +
           (cluster.k > 1 ? " parts " + std::to_string(cluster.k) : "") + (counter ? " counter" : "");
  }
};

struct Bench {
  Shape3 s{};
  Buffers m{};
  Timer timer{};
  bool explore = false;

  Launch launcher(const Choice& c) const {
    PlainProduct p{.a = {m.a, DType::bf16, s.m, s.k, s.k},
                   .b = {m.b, DType::bf16, s.n, s.k, s.k},
                   .c = {m.c, DType::bf16, s.m, s.n, s.n}};
    p.shape = c.shape;
    p.cluster = c.cluster;
    p.group_m = c.group_m;
    p.via = c.via;
    HostTable host = plain_table(p);
    if (c.cluster.k > 1) split_k_in_cluster(host, static_cast<int>(c.cluster.k));
    const DeviceTable table = upload(host);
    GemmLaunch launch{.counter = c.counter ? m.counter : nullptr, .cluster = c.cluster, .table = table.table};
    const GemmBodyKind kind{DType::bf16, false, c.shape};
    load_gemm_tiles(kind);
    return [=, stream = timer.stream] {
      (void)table.memory;
      launch_gemm_tiles(kind, launch, stream);
    };
  }

  double measure(const Launch& launch, int count) const {
    if (timer.cache == nullptr) return std::min(timer.burst(launch, count), timer.burst(launch, count));
    std::vector<double> samples(7);
    for (double& us : samples) us = timer.cold(launch);
    return median(samples);
  }

  /// The fastest of `candidates`, by measurement.
  Choice fastest(const std::vector<Choice>& candidates, int count) const {
    Choice best{};
    double best_us = 1e30;
    for (const Choice& c : candidates) {
      const double us = measure(launcher(c), count);
      if (explore) std::printf("    %-44s %9.2f us\n", c.name().c_str(), us);
      if (us < best_us) best = c, best_us = us;
    }
    return best;
  }

  /// First the shape, then the tile order, the stores, and the order in which CTAs take tasks.
  Choice tune(int count) const {
    std::vector<TileShape> tiles_of(kTileShapes.begin(), kTileShapes.end());
    for (int64_t across = 1; across <= 16; ++across) {
      const TileShape free{static_cast<int>((s.m + 8 * across - 1) / (8 * across) * 8), 128};
      if (has_runtime_rows(free) && free != tiles_of.back()) tiles_of.push_back(free);
    }
    std::vector<Choice> shapes;
    for (const TileShape& t : tiles_of) {
      if (s.m > 512 && t.m == 64) continue;
      if (s.m < 128 && t.m > 128) continue;
      for (const ClusterShape cluster : {ClusterShape{}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}}) {
        // Clusters of four fit on fewer SMs.
        const bool fits = (cluster.m - 1) * t.m < s.m && (s.m <= 1024 || cluster.m * cluster.n <= 2);
        if (fits) shapes.push_back({.shape = t, .cluster = cluster, .group_m = 2048 / t.m});
      }
      const int64_t tiles = ((s.m + t.m - 1) / t.m) * ((s.n + t.n - 1) / t.n);
      for (uint32_t parts = 2; parts <= 6 && may_split_k_in_cluster(t) && tiles * parts <= 132; ++parts) {
        if (s.k / kTileK / parts < least_part_steps(t)) break;
        shapes.push_back({.shape = t, .cluster = {.k = parts}, .group_m = 2048 / t.m});
      }
    }
    Choice best = fastest(shapes, count);
    std::vector<Choice> orders{best};
    for (const int group : {0, 4, 8, 12, 16, 32}) orders.push_back(best), orders.back().group_m = group;
    if (s.m > 512) best = fastest(orders, count);
    std::vector<Choice> rest{best, best};
    rest[1].via = StoreVia::pointer;
    best = fastest(rest, count);
    if (cluster_ctas(best.cluster) > 1) return best;
    rest = {best, best};
    rest[1].counter = true;
    return fastest(rest, count);
  }

  double error() const {
    CHECK(cudaMemset(m.sums, 0, 2 * sizeof(double)));
    distance<<<512, 256>>>(m.c, m.c_lt, static_cast<size_t>(s.m * s.n), m.sums);
    double sums[2];
    CHECK(cudaMemcpy(sums, m.sums, sizeof sums, cudaMemcpyDeviceToHost));
    return std::sqrt(sums[0] / sums[1]);
  }
};

struct Row {
  Shape3 s{};
  Choice choice{};
  std::vector<double> ours{};
  std::vector<double> theirs{};
  double error = 0;

  double ratio() const { return median(theirs) / median(ours); }
};

struct Options {
  int turns = 11;
  bool explore = false;
  bool cold = false;
};

Row compare(const Shape3& s, const Buffers& m, const Timer& timer, const Options& options) {
  Bench bench{s, m, timer, options.explore};
  const double expected_us = std::max(2.0 * s.m * s.n * s.k / 800e6, s.n * s.k * 2 / 4e6);
  const int count = std::max(2, static_cast<int>(9000 / expected_us));
  const Lt lt(s);
  int best_lt = 0;
  double best_us = 1e30;
  for (int i = 0; i < lt.num_candidates; ++i) {
    const double us = bench.measure([&] { lt.run(m, i, timer.stream); }, count);
    if (options.explore) std::printf("    cuBLASLt %d %40.2f us\n", i, us);
    if (us < best_us) best_us = us, best_lt = i;
  }
  Row row{s, bench.tune(count)};
  CHECK(cudaMemset(m.c, 0xff, static_cast<size_t>(s.m * s.n) * 2));
  const Launch ours = bench.launcher(row.choice);
  for (int i = 0; i < options.turns; ++i) {
    row.theirs.push_back(timer.sample([&] { lt.run(m, best_lt, timer.stream); }, count));
    row.ours.push_back(timer.sample(ours, count));
  }
  row.error = bench.error();
  return row;
}

void write_json(const std::string& path, int gpu, const std::vector<Row>& rows, bool cold) {
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, gpu));
  nlohmann::ordered_json json{
      {"device", device.name}, {"commit", kCommit}, {"cublaslt", cublasLtGetVersion()}, {"cold", cold}};
  for (const Row& r : rows)
    json["rows"].push_back({{"m", r.s.m},
                            {"n", r.s.n},
                            {"k", r.s.k},
                            {"choice", r.choice.name()},
                            {"ratio", r.ratio()},
                            {"error", r.error},
                            {"ours_us", r.ours},
                            {"cublaslt_us", r.theirs}});
  std::ofstream(path) << json.dump(1) << "\n";
}

/// Memory for the largest matrices; A and B are filled.
Buffers make_buffers(const std::vector<Shape3>& shapes) {
  Buffers m;
  size_t a = 0, b = 0, c = 0;
  for (const Shape3& s : shapes) {
    a = std::max(a, static_cast<size_t>(s.m * s.k));
    b = std::max(b, static_cast<size_t>(s.n * s.k));
    c = std::max(c, static_cast<size_t>(s.m * s.n));
  }
  CHECK(cudaMalloc(&m.a, 2 * a));
  CHECK(cudaMalloc(&m.b, 2 * b));
  CHECK(cudaMalloc(&m.c, 2 * c));
  CHECK(cudaMalloc(&m.c_lt, 2 * c));
  CHECK(cudaMalloc(&m.workspace, kWorkspace));
  CHECK(cudaMalloc(&m.counter, 2 * sizeof(uint32_t)));
  CHECK(cudaMalloc(&m.sums, 2 * sizeof(double)));
  CHECK(cudaMemset(m.counter, 0, 2 * sizeof(uint32_t)));
  fill<<<1024, 256>>>(m.a, a, 1);
  fill<<<1024, 256>>>(m.b, b, 2);
  return m;
}

/// State that the threads of all GPUs share.
struct Work {
  const std::vector<Shape3>& shapes;
  const Options& options;
  std::atomic<size_t> next{0};
  std::vector<Row> rows{};  ///< in the order of shapes
  std::mutex printing{};
};

void print(const Row& r) {
  const double us = median(r.ours);
  std::printf("%6ld %6ld %6ld %10.2f %10.2f %8.1f %8.4f %9.1e  %s\n", r.s.m, r.s.n, r.s.k, us, median(r.theirs),
              2e-6 * r.s.m * r.s.n * r.s.k / us, r.ratio(), r.error, r.choice.name().c_str());
  std::fflush(stdout);
}

/// Measure shapes on that GPU: the next one whenever the GPU is free.
void measure_on(int device, Work& work) {
  CHECK(cudaSetDevice(device));
  const Buffers m = make_buffers(work.shapes);
  Timer timer;
  if (work.options.cold) CHECK(cudaMalloc(&timer.cache, kCacheBytes));
  CHECK(cudaStreamCreateWithFlags(&timer.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&timer.start));
  CHECK(cudaEventCreate(&timer.stop));
  CHECK(cudaDeviceSynchronize());
  for (size_t i = work.next++; i < work.shapes.size(); i = work.next++) {
    const Shape3& s = work.shapes[i];
    if (work.options.explore) std::printf("  %ld %ld %ld\n", s.m, s.n, s.k);
    work.rows[i] = compare(s, m, timer, work.options);
    const std::lock_guard lock(work.printing);
    print(work.rows[i]);
  }
}

/// Numbers of the visible GPUs that can run the kernel; with --explore only the first of them.
std::vector<int> gpus_for(const Options& options) {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  std::vector<int> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp facts{};
    CHECK(cudaGetDeviceProperties(&facts, device));
    if (facts.major == 9 && (gpus.empty() || !options.explore)) gpus.push_back(device);
  }
  return gpus;
}

void print_bars(const std::vector<Row>& rows) {
  double log_sum = 0;
  double least = 1e30;
  int large = 0;
  for (const Row& r : rows) {
    if (r.s.m < 1024) continue;
    log_sum += std::log(r.ratio()), ++large;
    least = std::min(least, r.ratio());
  }
  if (large == 0) return;
  const double mean = std::exp(log_sum / large);
  std::printf("M >= 1024: geometric mean of the ratios %.4f (want 0.99: %s), least %.4f (want 0.97: %s)\n", mean,
              mean >= 0.99 ? "met" : "MISSED", least, least >= 0.97 ? "met" : "MISSED");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string json;
  std::vector<int64_t> sizes;
  CLI::App app("Our GEMM kernel against the fastest of cuBLASLt's candidates, in turn: a ratio for each shape");
  app.add_option("sizes", sizes, "M N K, and so on (default: a list)")->check(CLI::PositiveNumber);
  app.add_option("--json", json, "Write rows with all samples to a file");
  app.add_option("--turns", options.turns, "Samples of each")->check(CLI::PositiveNumber);
  app.add_flag("--explore", options.explore, "Print every candidate; on one GPU");
  app.add_flag("--cold", options.cold, "Each call behind a write over the L2 cache");
  CLI11_PARSE(app, argc, argv);
  std::vector<Shape3> shapes;
  for (size_t i = 0; i + 2 < sizes.size(); i += 3) shapes.push_back({sizes[i], sizes[i + 1], sizes[i + 2]});
  if (sizes.size() % 3 != 0) return app.exit(CLI::ValidationError("sizes", "want M N K for each shape"));
  if (shapes.empty()) shapes = kShapes;
  const std::vector<int> gpus = gpus_for(options);
  if (gpus.empty()) return app.exit(CLI::ValidationError("GPUs", "none that is visible has compute capability 9.0"));
  std::printf("%6s %6s %6s %10s %10s %8s %8s %9s  choice\n", "M", "N", "K", "ours us", "Lt us", "TFLOP/s", "ratio",
              "error");
  Work work{.shapes = shapes, .options = options};
  work.rows.resize(shapes.size());
  std::vector<std::thread> threads;
  for (const int device : gpus) threads.emplace_back([&, device] { measure_on(device, work); });
  for (std::thread& thread : threads) thread.join();
  print_bars(work.rows);
  if (!json.empty()) write_json(json, gpus[0], work.rows, options.cold);
  return 0;
}
