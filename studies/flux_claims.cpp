// Flux's figures and simulated ones: GPT-3's GEMMs on the paper's three clusters.
// Called by claim_points.cpp and tests.
#include <algorithm>
#include <iterator>

#include "studies/claim_points.hpp"
#include "tilewire/trace.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kPcie = "a100_pcie8";
constexpr const char* kA100 = "a100_nvlink8";
constexpr const char* kH800 = "h800_nvlink8";
struct Layer {
  const char* op;
  int64_t n, k;
};
// Section 5.1.
constexpr Layer kLayers[] = {{"all_gather_gemm", 49152, 12288}, {"gemm_reduce_scatter", 12288, 49152}};
constexpr int kRanks = 8;
// Of figure 8: the least and the most rows that the other figures call large.
constexpr int64_t kLeastM = 1024;
constexpr int64_t kMostM = 8192;

using Times = ClaimTimes;
using Value = double (*)(const PointTimes&);

double overlap(const PointTimes& each) {
  return 100 * overlap_efficiency(each.of(kKernel), each.gemm_ns, each.sequential_ns);
}
double naive_over_shifted(const PointTimes& each) { return each.of("naive") / each.of("shifted"); }
double ours_over_gemm(const PointTimes& each) { return each.of(kKernel) / each.gemm_ns; }
double communication_over_ours(const PointTimes& each) { return each.comm_ns / each.of(kKernel); }

std::vector<double> all(const Times& times, const char* machine, int64_t from, int64_t to, Value value) {
  const auto keep = [&](const ClaimPoint& point) {
    return point.machine == machine && point.m >= from && point.m <= to;
  };
  return values_of(times, keep, value);
}
std::vector<double> large(const Times& times, const char* machine) {
  return all(times, machine, kLeastM, kMostM, overlap);
}
std::vector<double> small(const Times& times, const char* machine) {
  return all(times, machine, 0, kLeastM - 1, overlap);
}
std::vector<double> nvlink(const Times& times, Value value) {
  std::vector<double> values = all(times, kA100, kLeastM, kMostM, value);
  std::ranges::copy(all(times, kH800, kLeastM, kMostM, value), std::back_inserter(values));
  return values;
}
std::vector<double> naive(const Times& times, int64_t m) { return all(times, kA100, m, m, naive_over_shifted); }

// The smaller growth of the all-gather's and the reduce-scatter's share, in percentage points.
double least_growth(const Times& times) {
  const std::vector<double> from = naive(times, kLeastM);
  const std::vector<double> to = naive(times, kMostM);
  std::vector<double> growth;
  for (size_t i = 0; i < from.size(); ++i) growth.push_back(100 * (to[i] - from[i]));
  return least(growth);
}

using S = const Times&;

constexpr Claim<Times> kClaims[] = {
    {"QF01", "A100 NVLink: overlap efficiency, most (and QF05)", 96, "%", "GLOCKM",
     [](S s) { return most(large(s, kA100)); }},
    {"QF05", "A100 PCIe: overlap efficiency, least", 41, "%", "GLOCKM", [](S s) { return least(large(s, kPcie)); }},
    {"QF05", "A100 PCIe: overlap efficiency, most", 57, "%", "GLOCKM", [](S s) { return most(large(s, kPcie)); }},
    {"QF05", "A100 NVLink: overlap efficiency, least", 36, "%", "GLOCKM", [](S s) { return least(large(s, kA100)); }},
    {"QF05", "H800 NVLink: overlap efficiency, least", 37, "%", "GLOCKM", [](S s) { return least(large(s, kH800)); }},
    {"QF05", "H800 NVLink: overlap efficiency, most", 93, "%", "GLOCKM", [](S s) { return most(large(s, kH800)); }},
    {"QF08", "A100 PCIe, m 64 and 512: overlap, least", -2, "%", "GLOCK", [](S s) { return least(small(s, kPcie)); }},
    {"QF08", "A100 PCIe, m 64 and 512: overlap, most", 41, "%", "GLOCK", [](S s) { return most(small(s, kPcie)); }},
    {"QF08", "A100 NVLink, m 64 and 512: overlap, least", 14, "%", "GLOCK", [](S s) { return least(small(s, kA100)); }},
    {"QF08", "A100 NVLink, m 64 and 512: overlap, most", 88, "%", "GLOCK", [](S s) { return most(small(s, kA100)); }},
    {"QF08", "H800 NVLink, m 64 and 512: overlap, least", -165, "%", "GLOCK",
     [](S s) { return least(small(s, kH800)); }},
    {"QF08", "H800 NVLink, m 64 and 512: overlap, most", -82, "%", "GLOCK", [](S s) { return most(small(s, kH800)); }},
    {"QF15", "A100 PCIe: overlap efficiency, mean", 40, "%", "GLOCKMA", [](S s) { return average(large(s, kPcie)); }},
    {"QF15", "A100 NVLink: overlap efficiency, mean", 63, "%", "GLOCKMA", [](S s) { return average(large(s, kA100)); }},
    {"QF15", "H800 NVLink: overlap efficiency, mean", 72, "%", "GLOCKMA", [](S s) { return average(large(s, kH800)); }},
    {"QF18", "m 1024: order not shifted is slower, least", 0, "%", "GLON",
     [](S s) { return gain(least(naive(s, kLeastM))); }, ClaimRelation::above},
    {"QF18", "m 8192: order not shifted is slower, least", 0, "%", "GLON",
     [](S s) { return gain(least(naive(s, kMostM))); }, ClaimRelation::above},
    {"QF18", "the same grows from m 1024 to 8192, least", 0, "points", "GLON", least_growth, ClaimRelation::above},
    {"QF22", "NVLink: fused kernel over the GEMM alone, least", 1, "x", "GLOKM",
     [](S s) { return least(nvlink(s, ours_over_gemm)); }},
    {"QF22", "NVLink: fused kernel over the GEMM alone, most", 1, "x", "GLOKM",
     [](S s) { return most(nvlink(s, ours_over_gemm)); }},
    {"QF23", "A100 PCIe: NCCL alone is slower, m 8192, most", 0, "%", "GLOCK",
     [](S s) { return gain(most(all(s, kPcie, kMostM, kMostM, communication_over_ours))); }, ClaimRelation::above},
};

std::vector<NotCovered> not_covered() {
  return {
      {"QF02", "whole models against Megatron-LM and vLLM: batches and what else a layer does are not given"},
      {"QF03", "whole models against TransformerEngine: as QF02"},
      {"QF04",
       "TransformerEngine's GEMMs in as many parts as ranks, passed on from peer to peer: no schedule does that"},
      {"QF06", "TransformerEngine: as QF04"},
      {"QF07", "TransformerEngine: as QF04"},
      {"QF09", "TransformerEngine: as QF04"},
      {"QF10",
       "two nodes: here every rank sends to each rank of the other node itself, over its network card eight times what "
       "Flux does, which passes on within nodes"},
      {"QF11", "whole models against TransformerEngine: as QF02"},
      {"QF12", "whole models: as QF02"},
      {"QF13", "TransformerEngine: as QF04"},
      {"QF14", "decoding: as QF02"},
      {"QF15", "averages of TransformerEngine: as QF04"},
      {"QF16", "whole models: as QF02"},
      {"QF17", "whole models: as QF02"},
      {"QF19", "that pull or push is better depends on the interconnect: without a number"},
      {"QF20", "that the size of a chunk matters: without a number"},
      {"QF21", "that sums in the epilogue gain little: without a number"},
      {"QF24", "TransformerEngine: as QF04"},
      {"QF25", "instructions of A100 and H800, which no machine here describes"},
  };
}

std::vector<ClaimAssumption> assumptions() {
  return {
      {'G', "speed of GEMMs: compute.efficiency, tile_ns; the fastest GEMM is the library's model"},
      {'L',
       "links.bandwidth_GBps, latency_ns, store_efficiency, meeting_efficiency; one PCIe fabric without two sockets"},
      {'O',
       "overheads.launch_ns, signal_ns, library_ns, copy.issue_ns: as on 4 x H200; copy.doorbell_ns = 0 (there 4500)"},
      {'C', "NCCL: all peers at once, with overheads.collective_ns and collective_efficiency = 0.8"},
      {'K',
       "kernels are tilewire's: the fastest candidate of its schedule `fused`, of tiles, with the tiles and pairs that "
       "an H200 has; compute.tile_efficiency: all as fast as the library's GEMM (H200: 0.7 to 1); compute.side_units = "
       "0"},
      {'N', "one kernel: schedule `fused` with its default knobs; tiles as under K"},
      {'M', "m between 1024 and 8192: 2048 and 4096"},
      {'A', "averages: over m from 1024 to 8192 of both operators; the paper does not say of which"},
  };
}

}  // namespace

std::vector<ClaimPoint> flux_points() {
  std::vector<ClaimPoint> points;
  for (const char* machine : {kPcie, kA100, kH800}) {
    for (const int64_t m : {int64_t{64}, int64_t{512}, kLeastM, int64_t{2048}, int64_t{4096}, kMostM}) {
      ClaimPoint point{.machine = machine, .m = m, .ranks = kRanks, .entries = {kernel_entry()}};
      if (machine == kA100 && (m == kLeastM || m == kMostM)) {
        point.entries.push_back(entry("shifted", "fused", {"tile_order=rank_shifted"}));
        point.entries.push_back(entry("naive", "fused", {"tile_order=naive"}));
      }
      for (const Layer& layer : kLayers) {
        point.op = layer.op;
        point.n = layer.n;
        point.k = layer.k;
        points.push_back(point);
      }
    }
  }
  return points;
}

PaperClaims flux_claims(const ClaimTimes& times) {
  return {.paper = "flux",
          .title = "Flux",
          .claims = results_of<Times>(kClaims, times),
          .not_covered = not_covered(),
          .assumptions = assumptions()};
}

}  // namespace tilewire::cli
