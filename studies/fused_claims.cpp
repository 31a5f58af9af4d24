// The paper on fused computation-collective operations: GEMV + all-reduce, and GEMM + all-to-all of a mixture of
// experts; figures and simulated ones.
// Called by claim_points.cpp and tests.
#include "studies/claim_points.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kMachine = "mi210x4";
constexpr int kRanks = 4;
constexpr const char* kGemv = "gemv";
// Of figure 9: the paper names only the longest output vector.
constexpr int64_t kOutputs[] = {8192, 16384, 32768, 65536};
constexpr int64_t kDepths[] = {4096, 8192};
constexpr int64_t kLongest = 65536;

// Of figure 10 the paper names no sizes, but two sources of common ones: hidden size and columns between the two
// products of an expert, of Tutel's example and of DeepSpeed-MoE's models of 350M, 1.3B and 6.7B.
struct Layer {
  int64_t hidden, ffn;
};
constexpr Layer kLayers[] = {{2048, 2048}, {1024, 4096}, {2048, 8192}, {4096, 16384}};
constexpr int64_t kTokens[] = {1024, 2048, 4096, 8192};  // over 4 GPUs
constexpr int64_t kTopK = 2;
// Triton's GEMM against the peak of 181 TFLOP/s: ROCm/triton, pull request 376 (October 2023) has 121 and 124 TFLOP/s
// of the tutorial that the paper started from, on an MI2xx, of 4,096 and 8,192 rows, columns and K.
constexpr const char* kTriton = "compute.efficiency=0.68";

using Times = ClaimTimes;
using S = const Times&;

double lower(const PointTimes& each) { return loss(each.of(kGemv) / each.sequential_ns); }

std::vector<double> lower_of(S times, bool longest) {
  return values_of(
      times, [&](const ClaimPoint& point) { return point.copies == 0 && (point.n == kLongest) == longest; }, lower);
}

std::vector<double> all(S times) {
  return values_of(
      times, [](const ClaimPoint& point) { return point.copies == 0; }, lower);
}

double lower_kernel(const PointTimes& each) { return loss(each.of("tiles") / each.sequential_ns); }

// Of rows that go to as many GPUs.
std::vector<double> combines(S times, int copies) {
  return values_of(
      times, [&](const ClaimPoint& point) { return point.copies == copies; }, lower_kernel);
}

constexpr Claim<Times> kClaims[] = {
    {"QA10", "GEMV + all-reduce: lower latency, mean", 13, "%", "NLOCV", [](S s) { return average(all(s)); }},
    {"QA10", "GEMV + all-reduce: lower latency, most", 22, "%", "NLOCV", [](S s) { return most(all(s)); }},
    {"QA11", "the same: 64k outputs gain less than the others", 0, "points", "NLOCV",
     [](S s) { return average(lower_of(s, true)) - average(lower_of(s, false)); }, ClaimRelation::below},
    {"QA12", "GEMM + all-to-all: lower latency, mean", 12, "%", "MTWLOC", [](S s) { return average(combines(s, 1)); }},
    {"QA12", "GEMM + all-to-all: lower latency, most", 20, "%", "MTWLOC", [](S s) { return most(combines(s, 1)); }},
    {"QA12", "the same, each row to two GPUs: mean", 12, "%", "MTDLOC", [](S s) { return average(combines(s, 2)); }},
    {"QA12", "the same, each row to two GPUs: most", 20, "%", "MTDLOC", [](S s) { return most(combines(s, 2)); }},
};

std::vector<NotCovered> not_covered() {
  const char* const embedding = "there is no operator for embeddings and their all-to-all";
  return {
      {"QA01", "all three operators: as QA08, QA10 and QA12"},
      {"QA02", "as QA14, QA10 and QA12"},
      {"QA03", "cited"},
      {"QA04", "cited"},
      {"QA05", "cited"},
      {"QA06", "occupancy of a kernel, which no machine here describes"},
      {"QA07", "how many kernels a split would launch: a count"},
      {"QA08", embedding},
      {"QA09", embedding},
      {"QA13", embedding},
      {"QA14", embedding},
      {"QA15", embedding},
      {"QA16", "occupancy of a kernel, which no machine here describes"},
      {"QA17", "occupancy of a kernel, which no machine here describes"},
      {"QA18", embedding},
      {"QA19", embedding},
      {"QA20", "as QA10 and QA12"},
      {"QA21", "how it was measured: nothing to simulate"},
      {"QA22", "cited"},
  };
}

std::vector<ClaimAssumption> assumptions() {
  return {
      {'N',
       "the shapes of figure 9 are not printed: outputs of 8k, 16k, 32k and 64k, K = 4k and 8k over 4 GPUs (the paper "
       "calls the computation small), 16 bit; the mean is over these eight"},
      {'L', "links.bandwidth_GBps, latency_ns, store_efficiency, unit_bandwidth_GBps"},
      {'O', "overheads.launch_ns, signal_ns, library_ns: as on 4 x H200"},
      {'C',
       "RCCL: all peers at once, with overheads.collective_ns = 1000 (NCCL on 4 x H200) and collective_efficiency "
       "= 0.8"},
      {'V',
       "GEMV: tiles of 64 outputs, two-phase, remote parts first; memory.bandwidth_GBps and unit_bandwidth_GBps bound "
       "them; the GEMV before RCCL is as fast"},
      {'M',
       "the shapes of figure 10 are not printed: 1k, 2k, 4k and 8k tokens over 4 GPUs, two experts each; hidden size x "
       "columns between the products 2k x 2k (Tutel), 1k x 4k, 2k x 8k and 4k x 16k (DeepSpeed-MoE), 16 bit; the mean "
       "is over these 16"},
      {'T',
       "compute.efficiency = 0.68, of the fused kernel and of the GEMM before RCCL: Triton's GEMM of 2023 on an MI2xx "
       "(ROCm/triton, pull request 376)"},
      {'W',
       "each row goes to one GPU, that of its token, as a combine needs: a token's two rows come from two GPUs; RCCL "
       "sends a quarter of the rows to each GPU, the kernel stores its tiles there; the sum of a token's rows is "
       "outside"},
      {'D',
       "each row goes to two GPUs, as the artifact's text has it: twice the bytes; what puts them into RCCL's buffer "
       "twice is free"},
  };
}

}  // namespace

std::vector<ClaimPoint> fused_points() {
  std::vector<ClaimPoint> points;
  for (const int64_t output : kOutputs) {
    for (const int64_t k : kDepths) {
      points.push_back({.machine = kMachine,
                        .op = "gemm_all_reduce",
                        .m = 1,
                        .n = output,
                        .k = k,
                        .ranks = kRanks,
                        .entries = {entry(kGemv, "fused", {"tile_m=1", "tile_n=64", "algorithm=two_phase"})}});
    }
  }
  for (const int copies : {1, 2}) {
    for (const Layer& layer : kLayers) {
      for (const int64_t tokens : kTokens) {
        points.push_back({.machine = kMachine,
                          .op = "gemm_combine",
                          .m = tokens * kTopK,
                          .n = layer.hidden,
                          .k = layer.ffn,
                          .ranks = kRanks,
                          .set = {kTriton},
                          .copies = copies});
      }
    }
  }
  return points;
}

PaperClaims fused_claims(const ClaimTimes& times) {
  return {.paper = "fused_collectives",
          .title = "Fused computation-collective operations",
          .claims = results_of<Times>(kClaims, times),
          .not_covered = not_covered(),
          .assumptions = assumptions()};
}

}  // namespace tilewire::cli
