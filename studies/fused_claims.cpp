// The paper on fused computation-collective operations: GEMV + all-reduce, figures and simulated ones.
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

using Times = ClaimTimes;
using S = const Times&;

double lower(const PointTimes& each) { return loss(each.of(kGemv) / each.sequential_ns); }

std::vector<double> lower_of(S times, bool longest) {
  return values_of(
      times, [&](const ClaimPoint& point) { return (point.n == kLongest) == longest; }, lower);
}

std::vector<double> all(S times) {
  return values_of(
      times, [](const ClaimPoint&) { return true; }, lower);
}

constexpr Claim<Times> kClaims[] = {
    {"QA10", "GEMV + all-reduce: lower latency, mean", 13, "%", "NLOCV", [](S s) { return average(all(s)); }},
    {"QA10", "GEMV + all-reduce: lower latency, most", 22, "%", "NLOCV", [](S s) { return most(all(s)); }},
    {"QA11", "the same: 64k outputs gain less than the others", 0, "points", "NLOCV",
     [](S s) { return average(lower_of(s, true)) - average(lower_of(s, false)); }, ClaimRelation::below},
};

std::vector<NotCovered> not_covered() {
  const char* const embedding = "there is no operator for embeddings and their all-to-all";
  const char* const all_to_all = "the sizes of the GEMM and its all-to-all are not given";
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
      {"QA12", all_to_all},
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
