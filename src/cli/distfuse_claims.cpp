// The figures of DistFuse beside ours: two GEMMs of Llama 3-70B and their all-reduces on four A100.
// Called by claim_points.cpp and tests.
#include "cli/claim_points.hpp"
#include "core/text.hpp"
#include "tilewire/trace.hpp"

namespace tilewire::cli {
namespace {

// Four of its devices. K is of all ranks: 910 TFLOP/s of one A100 otherwise.
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
double speedup(const PointTimes& each) { return gain(each.sequential_ns / each.of("auto")); }
double apart_slower(const PointTimes& each) { return gain(each.of("apart") / each.sequential_ns); }
double hidden(const PointTimes& each) {
  return 100 * overlap_efficiency(each.of("auto"), each.gemm_ns, each.sequential_ns);
}

using S = const Times&;

constexpr Claim<Times> kClaims[] = {
    {"QD01", "all-reduce hidden, mean of both layers", 44.3, "%", "SGLOCKH",
     [](S s) { return (hidden(attention(s)) + hidden(down(s))) / 2; }},
    {"QD02", "attention score: PyTorch", 387, "us", "SGLOC", [](S s) { return us(attention(s).sequential_ns); }},
    {"QD02", "attention score: with overlap", 333.8, "us", "SGLOK", [](S s) { return us(attention(s).of("auto")); }},
    {"QD02", "attention score: overlap over PyTorch", 15.9, "%", "SGLOCK", [](S s) { return speedup(attention(s)); }},
    {"QD03", "down projection: PyTorch", 764.5, "us", "SGLOC", [](S s) { return us(down(s).sequential_ns); }},
    {"QD03", "down projection: with overlap", 621.6, "us", "SGLOK", [](S s) { return us(down(s).of("auto")); }},
    {"QD03", "down projection: overlap over PyTorch", 23, "%", "SGLOCK", [](S s) { return speedup(down(s)); }},
    {"QD04", "attention score: what overlap gains", 20.5, "%", "SGLOKT",
     [](S s) { return gain(attention(s).of("apart") / attention(s).of("auto")); }},
    {"QD05", "attention score: slower without overlap", 4.2, "%", "SGLOCKT",
     [](S s) { return apart_slower(attention(s)); }},
    {"QD05", "down projection: slower without overlap", 0.9, "%", "SGLOCKT", [](S s) { return apart_slower(down(s)); }},
    {"QD06", "all-reduce alone: slower than NCCL's", 6, "%", "SLOCK",
     [](S s) { return gain(all_reduce(s).of("auto") / all_reduce(s).comm_ns); }},
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
      {'O', "overheads.launch_ns, signal_ns, library_ns: as on 4 x H200"},
      {'C', "NCCL: all peers at once, with overheads.collective_ns and collective_efficiency = 0.8"},
      {'K', "kernels are tilewire's, the fastest candidate of all its schedules, and what an H200 does"},
      {'H',
       "hidden: of what the all-reduce adds to the GEMM when one follows the other; the paper does not say of what"},
      {'T', "without overlap: `two_stream` whose second lane waits for all tiles, on its default tiles"},
  };
}

ClaimPoint point(const char* name, const char* op, int64_t k, std::vector<Entry> entries) {
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
  const std::vector<Entry> entries{auto_entry(), entry("apart", "two_stream", {"release=all"})};
  return {point("attention", "gemm_all_reduce", kAttentionK, entries),
          point("down", "gemm_all_reduce", kDownK, entries), point("all-reduce", "all_reduce", 0, {auto_entry()})};
}

PaperClaims distfuse_claims(const ClaimTimes& times) {
  return {.paper = "distfuse",
          .title = "DistFuse",
          .claims = results_of<Times>(kClaims, times),
          .not_covered = not_covered(),
          .assumptions = assumptions()};
}

}  // namespace tilewire::cli
