// FiCCO's figures and simulated ones: the all-gathers and GEMMs of the paper's Table I on eight MI300X.
// Called by claim_points.cpp and tests.
#include <fmt/format.h>

#include <algorithm>

#include "lower/fix_groups.hpp"
#include "studies/claim_points.hpp"

namespace tilewire::cli {
namespace {

constexpr const char* kMachine = "mi300x_mesh8";
constexpr int kRanks = 8;
// Chunks of a shard: one for each GPU (section III-A).
constexpr int64_t kFiner = 8;
constexpr int64_t kTile = 256;
// Experts of a token, as in Mixtral.
constexpr int64_t kTopK = 2;

struct Scenario {
  const char* name;
  int64_t m, n, k;
};

// Table I, sizes over all GPUs. NOTE: g12 has more tiles than a plan may have.
constexpr Scenario kScenarios[] = {
    {"g1", 16384, 16384, 131072},   {"g2", 131072, 16384, 16384},  {"g3", 53248, 16384, 131072},
    {"g4", 131072, 53248, 16384},   {"g5", 8192, 8192, 262144},    {"g6", 262144, 8192, 8192},
    {"g7", 28672, 8192, 262144},    {"g8", 262144, 28672, 8192},   {"g9", 196608, 18432, 16384},
    {"g10", 196608, 106496, 16384}, {"g11", 1048576, 10240, 8192},
};
// One gather of each size of A, 4 to 16 GiB.
constexpr Scenario kGathers[] = {
    {"AG g2", 131072, 0, 16384}, {"AG g9", 196608, 0, 16384}, {"AG g11", 1048576, 0, 8192}};

// All-to-alls to one expert on each GPU. NOTE: g13 has a quarter of its rows, since all have more tiles than a plan may
// have; both times are in proportion to rows.
constexpr Scenario kDispatches[] = {{"g13", 1607680 / 4, 57344, 8192},
                                    {"g14", 147456, 28672, 4096},
                                    {"g15", 327680, 28672, 4096},
                                    {"g16", 229376, 28672, 4096}};
constexpr const char* kEven = "even";
constexpr const char* kSkewed = "skewed";

using Times = ClaimTimes;
using Value = double (*)(const PointTimes&);

bool by_rows(const ClaimPoint& point) { return point.m > point.k; }

double ideal(const PointTimes& each) { return each.sequential_ns / std::max(each.gemm_ns, each.comm_ns); }
double shard(const PointTimes& each) { return each.sequential_ns / each.of("shard"); }
double tiles(const PointTimes& each) { return each.sequential_ns / each.of("tiles"); }
double calls(const PointTimes& each) { return each.sequential_ns / each.of("calls"); }
double chunks_slower(const PointTimes& each) { return each.of("chunks alone") / each.of("shards alone"); }
double chunked(const PointTimes& each) { return each.sequential_ns / each.of("chunks"); }
double shard_by_shard(const PointTimes& each) { return each.sequential_ns / each.of("shards"); }
double units_slower(const PointTimes& each) { return each.of("units") / each.of("tiles"); }

std::vector<double> all(const Times& times, Value value) {
  return values_of(
      times, [](const ClaimPoint& point) { return !point.entries.empty(); }, value);
}
std::vector<double> even(const Times& times, Value value) {
  return values_of(
      times, [](const ClaimPoint& point) { return point.name.ends_with(kEven); }, value);
}
std::vector<double> skewed(const Times& times, Value value) {
  return values_of(
      times, [](const ClaimPoint& point) { return point.name.ends_with(kSkewed); }, value);
}
std::vector<double> rows(const Times& times, Value value) {
  return values_of(
      times, [](const ClaimPoint& point) { return !point.entries.empty() && by_rows(point); }, value);
}
std::vector<double> gathers(const Times& times, Value value) { return values_of(times, is_collective, value); }

// The time of a ring gather over that of the library's gather of the same matrix.
std::vector<double> ring_over_library(const Times& times) {
  std::vector<double> ratios;
  for (const PointTimes& each : times) {
    if (!is_collective(each.point)) continue;
    const auto same = std::ranges::find_if(times, [&](const PointTimes& other) {
      return !other.point.entries.empty() && other.point.m == each.point.m && other.point.k == each.point.k;
    });
    if (same != times.end()) ratios.push_back(each.of("ring") / same->comm_ns);
  }
  return ratios;
}

// What a gather in eight parts loses: each whole gather is followed by an eighth of it.
std::vector<double> eighths(const Times& times) {
  const std::vector<double> direct = gathers(times, [](const PointTimes& each) { return each.of("direct"); });
  std::vector<double> losses;
  for (size_t i = 0; i + 1 < direct.size(); i += 2) losses.push_back(kFiner * direct[i + 1] / direct[i]);
  return losses;
}

// The gain in % of the gain of ideal overlap.
double share_of_ideal(const Times& times, Value value) {
  return 100 * gain(geomean(rows(times, value))) / gain(geomean(rows(times, ideal)));
}

// The gain in % of the gain of ideal overlap, of all-to-alls.
double share_of_dispatch(const std::vector<double>& speedups, const std::vector<double>& ideals) {
  return 100 * gain(geomean(speedups)) / gain(geomean(ideals));
}

// How much longer than with even routing a way takes.
double skew(const Times& times, Value ns) { return geomean(skewed(times, ns)) / geomean(even(times, ns)); }

using S = const Times&;

constexpr Claim<Times> kClaims[] = {
    {"QC01", "ideal overlap over serial, most", 1.7, "x", "SGC", [](S s) { return most(all(s, ideal)); }},
    {"QC02", "shard by shard: slower than serial, most", 3.9, "x", "SGC", [](S s) { return 1 / least(all(s, shard)); }},
    {"QC02", "shard by shard: communication slower", 7, "x", "SCE", [](S s) { return geomean(ring_over_library(s)); }},
    {"QC02", "shard by shard: speedup over serial, most", 1, "x", "SGC", [](S s) { return most(all(s, shard)); },
     ClaimRelation::below},
    {"QC04", "chunks of rows, one kernel: over serial, most", 1.6, "x", "SGCKE",
     [](S s) { return most(rows(s, tiles)); }},
    {"QC04", "chunks of rows, a GEMM call each: most", 1.6, "x", "SGCOE", [](S s) { return most(rows(s, calls)); }},
    {"QC09", "chunks of rows, one kernel: share of the ideal", 46, "%", "SGCKIE",
     [](S s) { return share_of_ideal(s, tiles); }},
    {"QC09", "chunks of rows, a GEMM call each: share", 46, "%", "SGCOIE",
     [](S s) { return share_of_ideal(s, calls); }},
    {"QC11", "GEMMs of chunks slower than of shards, least", 0, "%", "SGO",
     [](S s) { return gain(least(all(s, chunks_slower))); }, ClaimRelation::above},
    {"QC12", "eight all-gathers of an eighth: slower, geomean", 10, "%", "DE",
     [](S s) { return gain(geomean(eighths(s))); }},
    {"QC16", "copies by compute units: slower, geomean", 0, "%", "SGKUE",
     [](S s) { return gain(geomean(rows(s, units_slower))); }, ClaimRelation::above},
    {"QC01", "g13 to g16, even: ideal over serial, most", 1.7, "x", "XGC", [](S s) { return most(even(s, ideal)); },
     ClaimRelation::below},
    {"QC02", "g13 to g16, even: shard by shard, most", 1, "x", "XGCE",
     [](S s) { return most(even(s, shard_by_shard)); }, ClaimRelation::below},
    {"QC04", "g13 to g16, even: a GEMM call each, most", 1.6, "x", "XGCOE", [](S s) { return most(even(s, chunked)); },
     ClaimRelation::below},
    {"QC04", "g13 to g16, even: one kernel, most", 1.6, "x", "XGCKE", [](S s) { return most(even(s, tiles)); },
     ClaimRelation::below},
    {"QC09", "g13 to g16, even: a GEMM call each, share", 46, "%", "XGCOIE",
     [](S s) { return share_of_dispatch(even(s, chunked), even(s, ideal)); }},
    {"QC09", "g13 to g16, even: one kernel, share", 46, "%", "XGCKIE",
     [](S s) { return share_of_dispatch(even(s, tiles), even(s, ideal)); }},
    {"QC01", "g13 to g16, skewed: ideal over serial, most", 0, "x", "XZGC", [](S s) { return most(skewed(s, ideal)); },
     ClaimRelation::none},
    {"QC02", "g13 to g16, skewed: shard by shard, most", 0, "x", "XZGCE",
     [](S s) { return most(skewed(s, shard_by_shard)); }, ClaimRelation::none},
    {"QC04", "g13 to g16, skewed: a GEMM call each, most", 0, "x", "XZGCOE",
     [](S s) { return most(skewed(s, chunked)); }, ClaimRelation::none},
    {"QC04", "g13 to g16, skewed: one kernel, most", 0, "x", "XZGCKE", [](S s) { return most(skewed(s, tiles)); },
     ClaimRelation::none},
    {"QC01", "g13 to g16, skewed: serial over even, geomean", 0, "x", "XZGC",
     [](S s) { return skew(s, [](const PointTimes& each) { return each.sequential_ns; }); }, ClaimRelation::none},
    {"QC04", "g13 to g16, skewed: one kernel over even, geomean", 0, "x", "XZGCKE",
     [](S s) { return skew(s, [](const PointTimes& each) { return each.of("tiles"); }); }, ClaimRelation::none},
};

std::vector<NotCovered> not_covered() {
  return {
      {"QC03", "the size of a chunk, an input here"},
      {"QC05", "chunks of columns: here a tile or a call begins when all of its columns have come"},
      {"QC06",
       "which of four schedules is chosen: three of them, with one GEMM for a step's chunks, are no schedules here"},
      {"QC07", "the 16 synthetic shapes are not given"},
      {"QC08", "as QC06"},
      {"QC09", "52 %, which has chunks of columns: as QC05"},
      {"QC10", "share after adjusting for losses of decomposition and contention: as QC13"},
      {"QC11",
       "GEMMs of parts of K, which add to C: no call here does that; that losses grow as shapes get leaner: without a "
       "number"},
      {"QC13", "a GEMM beside a gather that it does not wait for: no plan does that"},
      {"QC14", "as QC13"},
      {"QC15", "variation from run to run, which a simulation does not have"},
      {"QC17", "that overlap gains most where GEMM and communication are balanced follows from what ideal means"},
      {"QC18", "the links, an input here"},
      {"QC19", "cited"},
      {"QC20", "how many schedules there are: a count"},
  };
}

std::vector<ClaimAssumption> assumptions() {
  return {
      {'S',
       "Table I's sizes are of all GPUs, N is divided among them, A is gathered, 16 bit; without g12 (more than 2^20 "
       "tiles)"},
      {'X',
       "g13 to g16: an all-to-all sends rows to one expert on each GPU, which has all of N; M / 8 rows come to each, "
       "an "
       "eighth of them from each GPU; g13 with a quarter of its rows; what the paper says of all scenarios is said of "
       "these, too"},
      {'Z',
       "skewed: the experts take 1, 1/2, ... 1/8 of what the first one takes; the library's all-to-all is padded to "
       "the "
       "most rows; the paper says nothing about skew"},
      {'G', "speed of GEMMs: compute.efficiency, tile_ns; hipBLASLt is the library's model"},
      {'C', "RCCL: all peers at once, with overheads.collective_ns and collective_efficiency = 0.8"},
      {'K',
       "one kernel of 256 x 256 tiles, each of which waits for its chunk, in the order in which chunks come; FiCCO "
       "calls a library for the chunks of a step, gathers them before and scatters after it"},
      {'O',
       "a call of the library for each chunk, in the order of peers, and one for the own shard: FiCCO's "
       "hetero-unfused-1D"},
      {'I', "share of what the ideal gains, by geometric means; 46 % is read as that of chunks of rows"},
      {'E',
       "copy.engines = 7, one for each peer; links.bandwidth_GBps, store_efficiency, unit_bandwidth_GBps and memory.* "
       "as "
       "data sheets have them, or assumed; copy.doorbell_ns = 0"},
      {'D', "overheads.launch_ns, signal_ns and copy.issue_ns of a copy, as on 4 x H200 or assumed"},
      {'U', "compute units that copy are taken from the tiles as tilewire does, not as RCCL's kernels do"},
  };
}

// Library calls one after another, without the communication that they wait for.
ClaimEntry gemms(const char* name, const std::vector<std::string>& set) {
  return {.name = name, .plan = ClaimPlan::gemms, .schedule = "fused", .set = set};
}

std::vector<ClaimEntry> entries_of(const Scenario& scenario) {
  const std::string chunk = fmt::format("chunk_rows={}", scenario.m / kRanks / kFiner);
  const std::vector<std::string> plain{"cluster_m=1", "cluster_n=1", "pacing=unpaced"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plain.begin(), plain.end());
    return more;
  };
  const std::vector<std::string> call{"group_m=1", "tile_m=128", "tile_n=256", "compute=library",
                                      "transport=copy_engine"};
  std::vector<std::string> ring = with(call);
  ring.emplace_back("algorithm=ring");
  // One lane for each peer, so that all links are busy.
  const std::string lanes = fmt::format("copy_lanes={}", kRanks - 1);
  std::vector<std::string> calls = with(call);
  calls.insert(calls.end(), {chunk, lanes});
  std::vector<ClaimEntry> entries{entry("shard", "fused", ring), gemms("shards alone", ring),
                                  gemms("chunks alone", calls)};
  if (scenario.m <= scenario.k) return entries;
  // As many rounds as chunks; a group has the row tiles of a chunk.
  const auto tiled = [&](const char* transport) {
    return with({fmt::format("tile_m={}", kTile), fmt::format("tile_n={}", kTile), chunk, lanes,
                 fmt::format("rounds={}", kFiner),
                 fmt::format("group_m={}", std::max<int64_t>(1, scenario.m / kRanks / kFiner / kTile)),
                 std::string("transport=") + transport});
  };
  entries.push_back(entry("calls", "fused", calls));
  entries.push_back(entry("tiles", "fused", tiled("copy_engine")));
  entries.push_back(entry("units", "fused", tiled("store")));
  return entries;
}

// Rows of one expert on each GPU.
std::vector<int64_t> rows_of_experts(int64_t rows, bool is_even) {
  RouteParams route{.experts = kRanks};
  for (int64_t expert = 0; expert < kRanks; ++expert) route.groups.push_back({.expert = expert});
  Task task{.route = route};
  task.reads = {{.rows = rows / kTopK, .cols = kTopK}};
  return is_even ? expected_rows(task) : zipf_rows(task);
}

}  // namespace

std::vector<ClaimPoint> ficco_points() {
  std::vector<ClaimPoint> points;
  for (const Scenario& each : kScenarios) {
    points.push_back({.name = each.name,
                      .machine = kMachine,
                      .op = "all_gather_gemm",
                      .m = each.m,
                      .n = each.n,
                      .k = each.k,
                      .ranks = kRanks,
                      .entries = entries_of(each)});
  }
  for (const Scenario& each : kGathers) {
    for (const int64_t parts : {int64_t{1}, kFiner}) {
      points.push_back({.name = each.name,
                        .machine = kMachine,
                        .op = "all_gather",
                        .m = each.m / parts,
                        .k = each.k,
                        .ranks = kRanks});
    }
  }
  for (const Scenario& each : kDispatches) {
    for (const bool is_even : {true, false}) {
      points.push_back({.name = std::string(each.name) + " " + (is_even ? kEven : kSkewed),
                        .machine = kMachine,
                        .op = "dispatch_gemm",
                        .m = each.m,
                        .n = each.n,
                        .k = each.k,
                        .ranks = kRanks,
                        .rows = rows_of_experts(each.m, is_even)});
    }
  }
  return points;
}

PaperClaims ficco_claims(const ClaimTimes& times) {
  return {.paper = "ficco",
          .title = "FiCCO",
          .claims = results_of<Times>(kClaims, times),
          .not_covered = not_covered(),
          .assumptions = assumptions()};
}

}  // namespace tilewire::cli
