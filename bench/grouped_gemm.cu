// tilewire's grouped GEMM of mixture of experts, with and without SwiGLU: times beside the roof, and its errors.
// Usage: grouped_gemm [--json FILE] [--turns N] [--ranks P]; needs a Hopper GPU. Called by bench/gpu_check.sh.
// Shapes: three models, the experts of one of P ranks. The roof: the matrix rate of a large GEMM, with the rows of each
// expert rounded up to 64, or the bytes read and written once at the rate of a copy, whichever takes longer.
#include <cuda_bf16.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/tables/gemm_table.hpp"
#include "commit.hpp"
#include "core/ceil_div.hpp"
#include "cuda_timer.cuh"
#include "tuner/measure.hpp"

using namespace tilewire;
using namespace tilewire::bench;
using namespace tilewire::cuda;
using tilewire::tuner::median;

namespace {

struct Model {
  const char* name;
  int64_t hidden, ffn;
  int experts, top_k;
};
constexpr Model kModels[] = {
    {"mixtral-8x7b", 4096, 14336, 8, 2}, {"deepseek-v3/4", 7168, 2048, 64, 8}, {"qwen3-235b", 4096, 1536, 128, 8}};
constexpr int kTokens[] = {16, 128, 1024, 4096};  // of a rank

__global__ void fill(__nv_bfloat16* p, size_t n, unsigned seed, float size) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
    h = (h ^ h >> 15) * 2246822519u;
    p[i] = __float2bfloat16(size * (static_cast<int>((h ^ h >> 13) & 0xffff) / 32768.f - 1.f));
  }
}

/// Each block: one element of C in fp32, from row `rows[blockIdx.x]`, and its distance from ours.
__global__ void sample(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, const int* rows,
                       const int* groups, int64_t n, int64_t k, bool gated, double* sums) {
  const int64_t cols = gated ? n / 2 : n;
  const int64_t row = rows[blockIdx.x];
  const int64_t col = (blockIdx.x * 977 + threadIdx.x * 131) % cols;
  const auto dot = [&](int64_t line) {
    const __nv_bfloat16* w = b + (groups[blockIdx.x] * n + line) * k;
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += __bfloat162float(a[row * k + i]) * __bfloat162float(w[i]);
    return sum;
  };
  const float first = dot(col);
  const float want = gated ? first / (1 + expf(-first)) * dot(cols + col) : first;
  const double difference = __bfloat162float(c[row * cols + col]) - want;
  atomicAdd(&sums[0], difference * difference);
  atomicAdd(&sums[1], static_cast<double>(want) * want);
}

/// Rows of each expert of the first rank: the tokens of all ranks, each with top_k different experts.
std::vector<int> counts_of(const Model& model, int tokens, int ranks, double skew) {
  std::mt19937 random(1);
  std::vector<int> popular(model.experts);
  std::iota(popular.begin(), popular.end(), 0);
  std::shuffle(popular.begin(), popular.end(), random);
  std::uniform_real_distribution<double> uniform(1e-6, 1 - 1e-6);
  std::vector<int> counts(model.experts / ranks);
  std::vector<std::pair<double, int>> scores(model.experts);
  for (int token = 0; token < ranks * tokens; ++token) {
    for (int expert = 0; expert < model.experts; ++expert)
      scores[expert] = {std::log(-std::log(uniform(random))) + skew * std::log(1.0 + popular[expert]), expert};
    std::partial_sort(scores.begin(), scores.begin() + model.top_k, scores.end());
    for (int i = 0; i < model.top_k; ++i) {
      if (scores[i].second < std::ssize(counts)) ++counts[scores[i].second];
    }
  }
  return counts;
}

struct Memory {
  __nv_bfloat16 *a{}, *b{}, *c{};
  int* extents{};
  uint32_t* ended{};
  int *rows{}, *groups{};
  double* sums{};
};

struct Rates {
  double flops = 800e12;
  double bytes = 4.2e12;
};

struct Row {
  std::string name;
  std::vector<double> us{};
  double roof_us = 0;
  int rows = 0;
  int most = 0;
  double error = 0;
};

/// The places of groups in memory, and rows of them to sample.
struct Places {
  std::vector<int> extents{};
  std::vector<int> rows{};
  std::vector<int> groups{};
  int64_t end = 0;
  int64_t rounded = 0;  ///< rows of all groups, each rounded up to 64
  int64_t active = 0;   ///< groups with rows
};

Places places_of(const std::vector<int>& counts) {
  Places places{.extents = std::vector<int>(2 * counts.size())};
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t begin = places.end;
    places.extents[i] = static_cast<int>(begin);
    places.extents[counts.size() + i] = static_cast<int>(begin + counts[i]);
    for (const int64_t at : {begin, begin + counts[i] / 2, begin + counts[i] - 1}) {
      if (counts[i] == 0) continue;
      places.rows.push_back(static_cast<int>(at));
      places.groups.push_back(static_cast<int>(i));
    }
    places.end = ceil_div(begin + counts[i], 8) * 8;
    places.rounded += ceil_div(counts[i], 64) * 64;
    places.active += counts[i] > 0;
  }
  return places;
}

/// The relative error of the sampled rows.
double error_of(const Places& places, const Memory& m, int64_t n, int64_t k, bool gated) {
  const auto blocks = static_cast<int>(places.rows.size());
  CHECK(cudaMemset(m.sums, 0, 2 * sizeof(double)));
  CHECK(cudaMemcpy(m.rows, places.rows.data(), blocks * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(m.groups, places.groups.data(), blocks * sizeof(int), cudaMemcpyHostToDevice));
  if (blocks > 0) sample<<<blocks, 64>>>(m.a, m.b, m.c, m.rows, m.groups, n, k, gated, m.sums);
  double sums[2];
  CHECK(cudaMemcpy(sums, m.sums, sizeof sums, cudaMemcpyDeviceToHost));
  return sums[1] > 0 ? std::sqrt(sums[0] / sums[1]) : 0;
}

Row measure(const Model& model, int tokens, double skew, int ranks, int gemm, const Memory& m, const Timer& timer,
            const Rates& rates, int turns) {
  const std::vector<int> counts = counts_of(model, tokens, ranks, skew);
  const auto groups = static_cast<int64_t>(counts.size());
  const Places places = places_of(counts);
  const int64_t next = places.end;
  Row row;
  row.rows = std::accumulate(counts.begin(), counts.end(), 0);
  row.most = *std::max_element(counts.begin(), counts.end());
  const bool first = gemm != 2;
  const bool gated = gemm == 0;
  const int64_t n = first ? 2 * model.ffn : model.hidden;
  const int64_t k = first ? model.hidden : model.ffn;
  const int64_t cols = gated ? n / 2 : n;
  CHECK(cudaMemcpy(m.extents, places.extents.data(), places.extents.size() * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(m.c, 0xff, static_cast<size_t>(next * cols) * 2));
  const TileShape shape = gated ? kWideGroups : shape_of_groups(row.rows, groups);
  const GroupedProduct product{.a = {m.a, DType::bf16, next, k, k},
                               .b = {m.b, DType::bf16, groups * n, k, k},
                               .c = {m.c, DType::bf16, next, cols, cols},
                               .groups = groups,
                               .extents = m.extents,
                               .activation = gated ? Activation::swiglu : Activation::none,
                               .shape = shape,
                               .ended = m.ended};
  const DeviceTable table = upload(grouped_table(product));
  const GemmBodyKind kind = kind_of(product);
  load_gemm_tiles(kind);
  const GemmLaunch launch{.table = table.table};
  const auto run = [&] { launch_groups(kind, launch, timer.stream); };
  row.name = std::string(model.name) + " T" + std::to_string(tokens) + (skew > 0 ? " zipf1 " : " uniform ") +
             (gated   ? "gemm1+swiglu"
              : first ? "gemm1"
                      : "gemm2");
  row.roof_us = std::max(2e6 * places.rounded * n * k / rates.flops,
                         2e6 * (places.active * n * k + row.rows * (k + cols)) / rates.bytes);
  const int count = std::max(2, static_cast<int>(6000 / row.roof_us));
  for (int turn = 0; turn < turns; ++turn) row.us.push_back(timer.burst(run, count));
  row.error = error_of(places, m, n, k, gated);
  return row;
}

/// The rate of a copy of 1 GiB, bytes read and written.
double copy_rate(const Memory& m, const Timer& timer) {
  constexpr size_t kBytes = 512u << 20;
  const double us =
      timer.burst([&] { CHECK(cudaMemcpyAsync(m.c, m.b, kBytes, cudaMemcpyDeviceToDevice, timer.stream)); }, 8);
  return 2e6 * kBytes / us;
}

}  // namespace

int main(int argc, char** argv) {
  int turns = 5;
  int ranks = 2;
  std::string json;
  CLI::App app("The grouped GEMM of mixture of experts beside its roof");
  app.add_option("--json", json, "Write the rows to a file");
  app.add_option("--turns", turns, "Samples of each")->check(CLI::PositiveNumber);
  app.add_option("--ranks", ranks, "Ranks that share the experts")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  Timer timer;
  CHECK(cudaStreamCreateWithFlags(&timer.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&timer.start));
  CHECK(cudaEventCreate(&timer.stop));
  nlohmann::json all{{"what", "grouped GEMM, bf16, us (median)"}, {"commit", kCommit}, {"ranks", ranks}};
  std::printf("%-40s %7s %6s %9s %9s %7s %9s\n", "", "rows", "most", "us", "roof", "roof/us", "error");
  for (const Model& model : kModels) {
    Memory m;
    const int64_t wide = std::max(model.hidden, 2 * model.ffn);
    const int64_t rows = int64_t{ranks} * 4096 * std::min(model.top_k, model.experts / ranks) + 8 * model.experts;
    const size_t weights = static_cast<size_t>(model.experts / ranks) * 2 * model.ffn * model.hidden;
    CHECK(cudaMalloc(&m.a, rows * wide * 2));
    CHECK(cudaMalloc(&m.b, weights * 2));
    CHECK(cudaMalloc(&m.c, rows * wide * 2));
    CHECK(cudaMalloc(&m.extents, 2 * model.experts * sizeof(int)));
    CHECK(cudaMalloc(&m.ended, sizeof(uint32_t)));
    CHECK(cudaMalloc(&m.rows, 4096 * sizeof(int)));
    CHECK(cudaMalloc(&m.groups, 4096 * sizeof(int)));
    CHECK(cudaMalloc(&m.sums, 2 * sizeof(double)));
    CHECK(cudaMemset(m.ended, 0, sizeof(uint32_t)));
    fill<<<1024, 256>>>(m.a, rows * wide, 1, 1.0F);
    fill<<<1024, 256>>>(m.b, weights, 2, 1.0F / 32);
    CHECK(cudaDeviceSynchronize());
    Rates rates;
    rates.bytes = copy_rate(m, timer);
    for (const int tokens : kTokens) {
      for (const double skew : {0.0, 1.0}) {
        for (const int gemm : {1, 0, 2}) {
          const Row row = measure(model, tokens, skew, ranks, gemm, m, timer, rates, turns);
          const double us = median(row.us);
          std::printf("%-40s %7d %6d %9.1f %9.1f %7.3f %9.1e\n", row.name.c_str(), row.rows, row.most, us, row.roof_us,
                      row.roof_us / us, row.error);
          std::fflush(stdout);
          all["rows"].push_back({{"name", row.name},
                                 {"us", us},
                                 {"roof_us", row.roof_us},
                                 {"rows", row.rows},
                                 {"most_rows", row.most},
                                 {"error", row.error}});
        }
      }
    }
    for (void* memory : {static_cast<void*>(m.a), static_cast<void*>(m.b), static_cast<void*>(m.c),
                         static_cast<void*>(m.extents), static_cast<void*>(m.ended), static_cast<void*>(m.rows),
                         static_cast<void*>(m.groups), static_cast<void*>(m.sums)})
      CHECK(cudaFree(memory));
  }
  if (!json.empty()) std::ofstream(json) << all.dump(1) << "\n";
  return 0;
}
