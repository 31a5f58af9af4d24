// Interleaved measurements of whole plans and of their parts.
// Called by bench.
#include "cli/measure.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/operator.hpp"
#include "tuner/measure.hpp"

namespace tilewire::cli {
namespace {

tuner::CallTime time_burst(Group& group, const Contender& contender, const RankTensors& tensors, bool graph) {
  const RankTensors& used = contender.tensors ? *contender.tensors : tensors;
  if (contender.calls > 0) tuner::pause_before_burst();
  const Burst burst{.calls = std::max(1, contender.calls), .graph = graph, .trace = contender.traced};
  return tuner::time_calls(group, *contender.program, used, burst);
}

/// One sample in us. If the device has the clock, the first sample sets the number of calls in a burst.
double sample(Group& group, Contender& contender, const RankTensors& tensors) {
  const tuner::CallTime taken = time_burst(group, contender, tensors, contender.graph);
  if (contender.calls == 0 && taken.by_device) contender.calls = tuner::calls_in_burst(taken.us);
  if (taken.by_device) contender.enqueue_us.push_back(taken.enqueue_us);
  return taken.us;
}

}  // namespace

bool choose_graphs(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders, size_t rows,
                   int64_t m) {
  if (!on_gpus(group.team())) return false;
  double fastest_us = 1e30;
  bool by_device = true;
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (!contenders[i].program) continue;
    const double us = sample(group, contenders[i], tensors);
    contenders[i].enqueue_us.clear();
    by_device = by_device && contenders[i].calls > 0;
    if (i < rows) fastest_us = std::min(fastest_us, us);
  }
  const bool graphs = by_device && tuner::wants_graphs(m, fastest_us);
  for (Contender& contender : contenders) contender.graph = graphs;
  return graphs;
}

std::optional<double> eager_enqueue_us(Group& group, const Contender& contender, const RankTensors& tensors) {
  if (!contender.program) return std::nullopt;
  const tuner::CallTime taken = time_burst(group, contender, tensors, false);
  return taken.by_device ? std::optional(taken.enqueue_us) : std::nullopt;
}

Contender contender(Group& group, const std::string& name, const Plan& plan) {
  if (num_tasks(plan) == 0) return {name, nullptr, {}};
  const std::vector<std::string> missing = group.unsupported(plan);
  if (!missing.empty()) {
    fail(ErrorKind::unsupported, "the {} backend cannot do {}", group.backend(), fmt::join(missing, ", "));
  }
  validate(plan);
  try {
    return {name, group.load(plan), {}};
  } catch (const Error& error) {
    // The plan is valid, so only memory can be missing.
    if (error.kind() == ErrorKind::invalid_input) fail(ErrorKind::unsupported, "{}", error.what());
    throw;
  }
}

void measure_in_turn(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders, const Turns& turns,
                     const std::function<void(const std::string&)>& show) {
  for (int turn = -turns.warmup; turn < turns.measured; ++turn) {
    for (Contender& contender : contenders) {
      if (!contender.program) continue;
      show(turn < 0 ? fmt::format("{}, warm-up", contender.name)
                    : fmt::format("{}, turn {} of {}", contender.name, turn + 1, turns.measured));
      const double us = sample(group, contender, tensors);
      if (turn < 0) contender.enqueue_us.clear();
      if (turn >= 0) contender.samples_us.push_back(us);
    }
  }
}

double median_us(const Contender& contender) {
  return contender.samples_us.empty() ? 0 : tuner::median(contender.samples_us);
}

Problem gemm_of_gather(const Problem& problem, int num_ranks) {
  Problem gemm{.op = "gemm_reduce_scatter", .m = problem.m, .dtype = problem.dtype, .out_dtype = problem.out_dtype};
  gemm.n = columns_on(problem, num_ranks, 0).back().end;
  gemm.k = problem.k * num_ranks;
  gemm.b_layout = problem.b_layout;
  return gemm;
}

Config same_tiles(const Config& config) {
  Config same{.schedule = "sequential", .tile_m = config.tile_m, .tile_n = config.tile_n};
  same.cluster_m = config.cluster_m;
  same.cluster_n = config.cluster_n;
  same.cluster_split_k = config.cluster_split_k;
  same.group_m = config.group_m;
  same.compute = config.compute;
  return same;
}

Plan beside_exchange(const Plan& gemm, int64_t bytes) {
  Plan plan = gemm;
  const int n = plan.team.num_ranks;
  if (n < 2 || bytes <= 0) return plan;
  const int64_t each = (bytes / (n - 1) + 255) / 256 * 128;  // elements of 2 bytes
  const int from = static_cast<int>(plan.buffers.size());
  plan.buffers.push_back({.name = "sent", .dtype = DType::bf16, .rows = 1, .cols = each, .scope = Scope::local});
  plan.buffers.push_back(
      {.name = "received", .dtype = DType::bf16, .rows = n, .cols = each, .scope = Scope::symmetric});
  const int ready = num_signals(plan);
  plan.signals.push_back({"exchange_ready", ready, n});
  const int pace = num_signals(plan);
  plan.signals.push_back({"exchange_pace", pace, n});
  for (int rank = 0; rank < n; ++rank) {
    Lane lane{.rank = rank, .engine = Engine::copy, .name = "exchange"};
    Task& begin = lane.tasks.emplace_back();
    for (int phase = 1; phase < n; ++phase) {
      const int peer = (rank + phase) % n;
      begin.posts.push_back({{peer, ready + rank}});
    }
    for (int phase = 1; phase < n; ++phase) {
      const int peer = (rank + phase) % n;
      Task copy{.kind = TaskKind::copy};
      copy.reads = {{.rank = rank, .buffer = from, .rows = 1, .cols = each}};
      copy.writes = {{{.rank = peer, .buffer = from + 1, .row = rank, .rows = 1, .cols = each}}};
      copy.waits = {{{rank, ready + peer}, 1, Purpose::ready}};
      if (phase > 1) copy.waits.push_back({{rank, pace + phase - 1}, 1, Purpose::pace});
      copy.posts = {{{(rank + n - 1) % n, pace + phase}}};
      lane.tasks.push_back(std::move(copy));
    }
    plan.lanes.push_back(std::move(lane));
  }
  return plan;
}

std::optional<double> link_us(const Problem& problem, const Team& team) {
  double slowest = 0;
  for (int from = 0; from < team.num_ranks; ++from) {
    for (int to = 0; to < team.num_ranks; ++to) {
      const double here = link_between(team, from, to).bandwidth_GBps;
      if (from == to) continue;
      if (here <= 0) return std::nullopt;
      slowest = slowest == 0 ? here : std::min(slowest, here);
    }
  }
  if (slowest == 0) return std::nullopt;
  const int64_t bytes = find_operator(problem.op).least_bytes(problem, team.num_ranks);
  return static_cast<double>(bytes) / team.num_ranks / slowest * 1e-3;
}

}  // namespace tilewire::cli
