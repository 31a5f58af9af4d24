// Simulated sub-layers of T3's study: memory traffic in a steady step, the six times, refused machines.
// Built as the target `t3_layer_test`. Sanitized builds simulate less, and print only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "cli/sim_rows.hpp"
#include "studies/t3.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"
#include "unit/cpu_time.hpp"

namespace tilewire {
namespace {

SubLayer fc2_of(const char* model, int tp) {
  const auto found = std::ranges::find(t3_models(), model, &T3Model::name);
  return sub_layers_of(*found, tp)[1];
}

TEST(T3Layer, SixTimesTakeFiveSeconds) {
  const int tp = kTimesCount ? 16 : 4;
  SubLayer layer = fc2_of("T-NLG", tp);
  if (!kTimesCount) layer.m /= 16;
  const double seconds =
      idle_seconds([&] { EXPECT_GT(simulate_sub_layer(layer, load_machine("t3_ring")).fused_mca_ns, 0); });
  std::cout << fmt::format("T-NLG FC-2 on {} devices: {:.0f} ms\n", tp, 1e3 * seconds);
  if (kTimesCount) {
    EXPECT_LT(seconds, 5);
  }
}

TEST(T3Layer, TheLargestTakesEightSeconds) {
  if (!kTimesCount) GTEST_SKIP() << "8 million events";
  const SubLayer layer = fc2_of("MT-NLG", 32);
  Machine machine = load_machine("t3_ring");
  machine.links.dims = {layer.tp};
  machine.controller->arbitration = Arbitration::communication_aware;
  const Config config = cli::track_trigger_choices(machine).front();
  const Plan plan = make_plan(problem_of(layer), team_of(machine, layer.tp), config);
  const double seconds = idle_seconds([&] { EXPECT_GT(simulate(plan, machine).total_ns, 0); });
  std::cout << fmt::format("MT-NLG FC-2, T3-MCA: {:.0f} ms\n", 1e3 * seconds);
  EXPECT_LT(seconds, 8) << "5 s are promised on an idle machine; how idle one is is known to a third or so";
}

// QT30: in the steady state the baseline reads two copies and writes one remotely, T3 reads one.
TEST(T3Layer, ASteadyStepReadsOnceInsteadOfTwice) {
  const auto rs_of = [](int tp) {
    const SubLayer layer{.tp = tp, .m = 256 * tp, .n = 256, .k = 256};
    const SubLayerTimes times = simulate_sub_layer(layer, load_machine("t3_ring"));
    const int64_t chunk = 256 * 256 * 2;
    EXPECT_EQ(times.sequential.rs_reads, (2 * tp - 1) * chunk);
    EXPECT_EQ(times.sequential.rs_writes, tp * chunk);
    EXPECT_EQ(times.t3.rs_reads, (tp - 2) * chunk);
    EXPECT_EQ(times.t3.rs_writes, (tp - 1) * chunk);
    EXPECT_EQ(times.t3.gemm_writes, (tp - 1) * chunk) << "the first stage's go to the neighbour";
    return times;
  };
  const SubLayerTimes four = rs_of(4);
  const SubLayerTimes five = rs_of(5);
  const int64_t step = 256 * 256 * 2;
  EXPECT_EQ(five.sequential.rs_reads - four.sequential.rs_reads, 2 * step);
  EXPECT_EQ(five.t3.rs_reads - four.t3.rs_reads, step);
}

TEST(T3Layer, AMachineWithoutAControllerIsRefused) {
  try {
    static_cast<void>(simulate_sub_layer({.tp = 2}, load_machine("h200x4")));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "machine h200x4: T3's study needs a ring with a memory controller");
  }
}

}  // namespace
}  // namespace tilewire
