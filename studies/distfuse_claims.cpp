// DistFuse's figures and simulated ones: two GEMMs of Llama 3-70B and their all-reduces on four A100.
// Called by claim_points.cpp and tests.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/text.hpp"
#include "studies/claim_points.hpp"
#include "tilewire/trace.hpp"

namespace tilewire::cli {
namespace {

// Four of the machine's devices. K is over all ranks: otherwise one A100 would reach 910 TFLOP/s.
constexpr const char* kMachine = "a100_nvlink8";
constexpr int kRanks = 4;
constexpr int64_t kRows = 1024;
constexpr int64_t kCols = 8192;
constexpr int64_t kAttentionK = 8192;
constexpr int64_t kDownK = 28672;

using Times = ClaimTimes;

const PointTimes& layer(const Times& times, const std::string& name) {
  for (const PointTimes& each : times) {
    if (each.point.name == name) return each;
  }
  fail(ErrorKind::internal, "DistFuse: '{}' was not simulated", name);
}
const PointTimes& attention(const Times& times) { return layer(times, "attention"); }
const PointTimes& down(const Times& times) { return layer(times, "down"); }
const PointTimes& all_reduce(const Times& times) { return layer(times, "all-reduce"); }

double us(double ns) { return ns * 1e-3; }
double speedup(const PointTimes& each) { return gain(each.sequential_ns / each.of(kKernel)); }
// The fastest entry of `two_stream` whose name begins with `name`.
double fastest(const PointTimes& each, const std::string& name) {
  double least_ns = std::numeric_limits<double>::infinity();
  for (const auto& [entry, ns] : each.ns) {
    if (entry.starts_with(name)) least_ns = std::min(least_ns, ns);
  }
  return least_ns;
}
double apart_slower(const PointTimes& each) { return gain(fastest(each, "apart") / each.sequential_ns); }
double hidden(const PointTimes& each) {
  return 100 * overlap_efficiency(each.of(kKernel), each.gemm_ns, each.sequential_ns);
}

using S = const Times&;

constexpr Claim<Times> kClaims[] = {
    {"QD01", "all-reduce hidden, mean of both layers", 44.3, "%", "SGLOCKH",
     [](S s) { return (hidden(attention(s)) + hidden(down(s))) / 2; }},
    {"QD02", "attention score: PyTorch", 387, "us", "SGLOC", [](S s) { return us(attention(s).sequential_ns); }},
    {"QD02", "attention score: without overlap", 403.4, "us", "SGLOT",
     [](S s) { return us(fastest(attention(s), "apart")); }},
    {"QD02", "attention score: with overlap", 333.8, "us", "SGLOK", [](S s) { return us(attention(s).of(kKernel)); }},
    {"QD02", "attention score: overlap over PyTorch", 15.9, "%", "SGLOCK", [](S s) { return speedup(attention(s)); }},
    {"QD03", "down projection: PyTorch", 764.5, "us", "SGLOC", [](S s) { return us(down(s).sequential_ns); }},
    {"QD03", "down projection: without overlap", 771.1, "us", "SGLOT",
     [](S s) { return us(fastest(down(s), "apart")); }},
    {"QD03", "down projection: with overlap", 621.6, "us", "SGLOK", [](S s) { return us(down(s).of(kKernel)); }},
    {"QD03", "down projection: overlap over PyTorch", 23, "%", "SGLOCK", [](S s) { return speedup(down(s)); }},
    {"QD04", "attention score: what overlap gains", 20.5, "%", "SGLOT",
     [](S s) { return gain(fastest(attention(s), "apart") / fastest(attention(s), "beside")); }},
    {"QD05", "attention score: slower without overlap", 4.2, "%", "SGLOCT",
     [](S s) { return apart_slower(attention(s)); }},
    {"QD05", "down projection: slower without overlap", 0.9, "%", "SGLOCT", [](S s) { return apart_slower(down(s)); }},
    {"QD06", "all-reduce alone: slower than NCCL's", 6, "%", "SLOCK",
     [](S s) { return gain(all_reduce(s).of(kKernel) / all_reduce(s).comm_ns); }},
};

std::vector<NotCovered> not_covered() {
  return {
      {"QD07", "vLLM: batches and what else a layer does are not given"},
      {"QD08", "share of communication in a block: what else a block does is not given"},
      {"QD09", "overlap needs more CTAs than SMs: a rule, not a figure"},
      {"QD10", "what a compiler makes of one kernel, which no machine here describes"},
      {"QD11", "that two streams overlap on all hardware: without a number"},
      {"QD12", "the links, an input here"},
      {"QD13", "cited"},
      {"QD14", "cited"},
  };
}

std::vector<ClaimAssumption> assumptions() {
  return {
      {'S', "4 of the 8 devices of a100_nvlink8, 16 bit, K divided among them: the paper's setup is lost"},
      {'G', "speed of GEMMs: compute.efficiency, tile_ns; PyTorch's is the library's model"},
      {'L', "links.bandwidth_GBps, latency_ns, store_efficiency, meeting_efficiency"},
      {'O', "overheads.launch_ns, signal_ns, library_ns: as on 4 x H200; copy.doorbell_ns = 0 (there 4500)"},
      {'C', "NCCL: all peers at once, with overheads.collective_ns and collective_efficiency = 0.8"},
      {'K',
       "kernels are tilewire's: the fastest candidate of its schedule `fused`, of tiles, with the tiles and pairs that "
       "an H200 has; compute.tile_efficiency: all as fast as the library's GEMM (H200: 0.7 to 1); compute.side_units = "
       "0"},
      {'H',
       "hidden: of what the all-reduce adds to the GEMM when one follows the other; the paper does not say of what"},
      {'T',
       "without overlap: `two_stream` whose second lane waits for all tiles, the fastest of three shapes of them; with "
       "overlap: the same without that wait; tiles and sums as fast as under K"},
  };
}

ClaimPoint point(const char* name, const char* op, int64_t k, std::vector<ClaimEntry> entries) {
  return {.name = name,
          .machine = kMachine,
          .op = op,
          .m = kRows,
          .n = kCols,
          .k = k,
          .ranks = kRanks,
          .entries = std::move(entries)};
}

}  // namespace

std::vector<ClaimPoint> distfuse_points() {
  std::vector<ClaimEntry> entries{kernel_entry()};
  for (const auto& [m, n] : {std::pair{128, 256}, {128, 128}, {64, 256}}) {
    const std::string tile = fmt::format("{}x{}", m, n);
    const std::vector<std::string> set{fmt::format("tile_m={}", m), fmt::format("tile_n={}", n), "cluster_m=1"};
    std::vector<std::string> waits = set;
    waits.emplace_back("release=all");
    entries.push_back(entry("beside " + tile, "two_stream", set));
    entries.push_back(entry("apart " + tile, "two_stream", waits));
  }
  return {point("attention", "gemm_all_reduce", kAttentionK, entries),
          point("down", "gemm_all_reduce", kDownK, entries), point("all-reduce", "all_reduce", 0, {kernel_entry()})};
}

PaperClaims distfuse_claims(const ClaimTimes& times) {
  return {.paper = "distfuse",
          .title = "DistFuse",
          .claims = results_of<Times>(kClaims, times),
          .not_covered = not_covered(),
          .assumptions = assumptions()};
}

}  // namespace tilewire::cli
