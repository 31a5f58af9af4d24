// One sub-layer of T3's study: isolated kernels, and the GEMM fused with its reduce-scatter by track and trigger.
// Called by t3_study.cpp, t3_verb.cpp and tests.
#include "studies/t3.hpp"

#include <algorithm>
#include <utility>

#include "cli/sim_rows.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "schedules/mapped_plan.hpp"
#include "schedules/parts.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {
namespace {

// The config of `track_trigger`.
Config mapped_config(const Machine& ring) { return cli::track_trigger_choices(ring).front(); }

// The same, but the whole result of the GEMM is in memory before the first send.
Config one_after_the_other(const Machine& ring) {
  Config config = mapped_config(ring);
  config.schedule = "fused";
  config.transport = Transport::copy_engine;
  config.copy_lanes = 1;
  return config;
}

// T3 does not say which kernel clears the memory of the updates. Assumed: it is clear when the call begins.
Plan cleared(Plan plan) {
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::fill) task = {.kind = TaskKind::sync, .waits = task.waits, .posts = task.posts};
    }
  }
  return plan;
}

// As ring_reduce_scatter, but the first chunk is in memory, too, and DMA sends it.
OutputMap all_by_dma(int num_ranks) {
  OutputMap map = ring_reduce_scatter(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int next = (rank + 1) % num_ranks;
    map.dma_map(rank, (rank - 1 + num_ranks) % num_ranks, next, 1);
  }
  return map;
}

Machine ring_of(const SubLayer& layer, Machine machine) {
  require(machine.links.topology == Topology::ring && machine.controller,
          "machine {}: T3's study needs a ring with a memory controller", machine.name);
  machine.links.dims = {layer.tp};
  return machine;
}

TrafficOverTime traffic_of(const Plan& plan, const Machine& ring, double interval_ns) {
  Simulation run = simulate(plan, ring, {.interval_ns = interval_ns});
  TrafficOverTime traffic{.total_ns = run.total_ns, .intervals = std::move(run.traffic)};
  for (const TraceEvent& event : run.trace.events) {
    const Lane& lane = plan.lanes[event.lane];
    if (lane.rank != 0 || !computes(lane.tasks[event.task])) continue;
    traffic.gemm_ns = std::max(traffic.gemm_ns, static_cast<double>(event.end_ns));
  }
  return traffic;
}

}  // namespace

Problem problem_of(const SubLayer& layer) {
  return {.op = "gemm_reduce_scatter",
          .m = layer.m,
          .n = layer.n,
          .k = layer.k * layer.tp,
          .dtype = DType::fp16,
          .reduction = Reduction::any,
          .arena = {"c"}};
}

SubLayerTimes simulate_sub_layer(const SubLayer& layer, const Machine& machine) {
  Machine ring = ring_of(layer, machine);
  const Team team = team_of(ring, layer.tp);
  const Problem problem = problem_of(layer);
  const int64_t shard_bytes = layer.m * layer.n / layer.tp * bytes_of(DType::fp16);
  Simulation gemm;
  Simulation rs;
  Simulation mca;
  SubLayerTimes times;
  // NOTE: one plan at a time: for 32 devices each takes 100 MB.
  {
    const Plan sequential = make_plan(problem, team, one_after_the_other(ring));
    gemm = simulate(gemm_only(sequential), ring);
    gemm.trace = {};
    rs = simulate(communication_only(sequential), ring);
    rs.trace = {};
  }
  const Simulation ag =
      simulate(collective_plan(Collective::all_gather, CollectiveAlgorithm::ring, shard_bytes, ring), ring);
  const Config mapped = mapped_config(ring);
  times.rs_near_ns =
      simulate(communication_only(cleared(make_mapped_plan(problem, team, mapped, all_by_dma(layer.tp)))), ring)
          .total_ns;
  {
    const Plan fused = cleared(make_plan(problem, team, mapped));
    ring.controller->arbitration = Arbitration::round_robin;
    times.fused_ns = simulate(fused, ring).total_ns;
    ring.controller->arbitration = Arbitration::communication_aware;
    mca = simulate(fused, ring);
  }
  times.gemm_ns = gemm.total_ns;
  times.rs_ns = rs.total_ns;
  times.ag_ns = ag.total_ns;
  times.fused_mca_ns = mca.total_ns;
  const MemoryLoad& together = mca.memory.front();
  times.sequential = {.gemm_reads = gemm.memory.front().read_bytes,
                      .gemm_writes = gemm.memory.front().written_bytes,
                      .rs_reads = rs.memory.front().read_bytes,
                      .rs_writes = rs.memory.front().written_bytes,
                      .ag_reads = ag.memory.front().read_bytes,
                      .ag_writes = ag.memory.front().written_bytes};
  times.t3 = times.sequential;
  times.t3.gemm_reads = together.read_bytes - together.communication_read_bytes;
  times.t3.gemm_writes = together.written_bytes - together.communication_written_bytes;
  times.t3.rs_reads = together.communication_read_bytes;
  times.t3.rs_writes = together.communication_written_bytes;
  return times;
}

SubLayerTraffic simulate_traffic(const SubLayer& layer, const Machine& machine, double interval_ns) {
  Machine ring = ring_of(layer, machine);
  const Team team = team_of(ring, layer.tp);
  const Problem problem = problem_of(layer);
  SubLayerTraffic traffic{.interval_ns = interval_ns};
  traffic.gemm = traffic_of(gemm_only(make_plan(problem, team, one_after_the_other(ring))), ring, interval_ns);
  const Plan fused = cleared(make_plan(problem, team, mapped_config(ring)));
  ring.controller->arbitration = Arbitration::round_robin;
  traffic.t3 = traffic_of(fused, ring, interval_ns);
  ring.controller->arbitration = Arbitration::communication_aware;
  traffic.t3_mca = traffic_of(fused, ring, interval_ns);
  return traffic;
}

}  // namespace tilewire
