// Copies by copy engines on `h200x4` against measurements on such hosts: of any size, in lockstep, all at once.
// Built as part of the target `unit_sim`. Measured: docs/simulator.md.
#include <gtest/gtest.h>

#include <algorithm>

#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kCols = 8192;

/// Time in ns from the first copy's start to the last one's end, if `ranks` GPUs gather shards of `mib`.
double gather_ns(const Machine& machine, int ranks, int64_t mib, Config config) {
  const int64_t rows = ranks * mib * kMiB / (2 * kCols);
  const Problem problem{.op = "all_gather_gemm", .m = rows, .n = 128, .k = kCols, .dtype = DType::bf16};
  config.schedule = "sequential";
  config.tile_m = 64;
  const Plan plan = make_plan(problem, team_of(machine, ranks), config);
  const Simulation run = simulate(plan, machine);
  int64_t begin = run.trace.events.back().end_ns;
  int64_t end = 0;
  for (const TraceEvent& event : run.trace.events) {
    if (plan.lanes[event.lane].tasks[event.task].kind != TaskKind::copy) continue;
    begin = std::min(begin, event.start_ns);
    end = std::max(end, event.end_ns);
  }
  return static_cast<double>(end - begin);
}

/// GB/s that each GPU sends.
double gather_rate(int ranks, int64_t mib, const Config& config) {
  return static_cast<double>((ranks - 1) * mib * kMiB) / gather_ns(load_machine("h200x4"), ranks, mib, config);
}

/// GB/s of consecutive copies to one peer, without doorbells, and without the overhead of the first and the last copy.
double copy_rate(int64_t mib) {
  Machine machine = load_machine("h200x4");
  machine.copy.doorbell_ns = 0;
  const Config config{.chunk_rows = mib * kMiB / (2 * kCols)};
  const double ns = gather_ns(machine, 2, 16 * mib, config) - gather_ns(machine, 2, 8 * mib, config);
  return static_cast<double>(8 * mib * kMiB) / ns;
}

TEST(SimCopies, OfAnySizeTakeWhatWasMeasured) {
  for (const auto& [mib, measured] : {std::pair<int64_t, double>{32, 374}, {8, 343}, {4, 315}, {1, 210}})
    EXPECT_NEAR(copy_rate(mib), measured, 0.03 * measured) << mib << " MiB";
}

TEST(SimCopies, InLockstepMeetNobodyAndAllAtOnceDo) {
  for (const auto& [mib, measured] : {std::pair<int64_t, double>{32, 344}, {16, 311}, {8, 269}})
    EXPECT_NEAR(gather_rate(4, mib, {.pacing = Pacing::lockstep}), measured, 0.05 * measured) << mib << " MiB";
  for (const int64_t mib : {32, 16})
    EXPECT_NEAR(gather_rate(4, mib, {.copy_lanes = 3}), 230, 0.05 * 230) << mib << " MiB, all peers at once";
}

}  // namespace
}  // namespace tilewire
