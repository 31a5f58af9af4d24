// Small hand-written plans for the tests of the checker.
// Called by check_*_test.cpp.
#include "check_plans.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::check_plans {
namespace {

Plan start(const Problem& problem, int num_ranks, const Buffer& workspace, std::vector<SignalBlock> signals) {
  Plan plan{.team = {.num_ranks = num_ranks}};
  set_note(plan, {problem, {}});
  plan.buffers = find_operator(problem.op).buffers(problem, num_ranks);
  plan.buffers.push_back(workspace);
  plan.signals = std::move(signals);
  for (int rank = 0; rank < num_ranks; ++rank) {
    plan.lanes.push_back({.rank = rank, .engine = Engine::tiles, .name = "tiles"});
    plan.lanes.push_back({.rank = rank, .engine = Engine::copy, .name = "copy"});
  }
  return plan;
}

/// Tell all peers that `rank` has begun: post to ready[rank] on each of them.
Task say_ready(const Plan& plan, int rank) {
  Task task{.kind = TaskKind::sync};
  for (int peer = 0; peer < plan.team.num_ranks; ++peer) {
    if (peer != rank) task.posts.push_back({signal_of(plan, "ready", peer, rank)});
  }
  return task;
}

Wait ready(const Plan& plan, int rank, int peer) { return {signal_of(plan, "ready", rank, peer), 1, Purpose::ready}; }

/// A plan that gathers A in chunks of `rows` rows by copy lanes; `counts`: chunks share one signal.
Plan gathering(int64_t m, int64_t rows, bool counts) {
  const Problem problem{.op = "all_gather_gemm", .m = m, .n = 4, .k = 3};
  const int chunks = static_cast<int>(m / 2 / rows);
  Plan plan = start(problem, 2, {.name = "gathered", .rows = m, .cols = 3, .scope = Scope::symmetric},
                    {{"ready", 0, 2}, {"arrived", 2, chunks}});
  plan.buffers[3].dtype = problem.dtype;
  for (int rank = 0; rank < 2; ++rank) {
    const int peer = 1 - rank;
    auto& tiles = plan.lanes[2 * rank].tasks;
    auto& copies = plan.lanes[2 * rank + 1].tasks;
    const Region b = part(rank, 1, 0, 2, 0, 3);
    tiles.push_back(say_ready(plan, rank));
    tiles.push_back({.kind = TaskKind::compute,
                     .reads = {part(rank, 0, 0, m / 2, 0, 3), b},
                     .writes = {{part(rank, 2, m / 2 * rank, m / 2, 0, 2)}}});
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int64_t from = m / 2 * peer + chunk * rows;
      const int index = counts ? 0 : chunk;
      tiles.push_back({.kind = TaskKind::compute,
                       .reads = {part(rank, 3, from, rows, 0, 3), b},
                       .writes = {{part(rank, 2, from, rows, 0, 2)}},
                       .waits = {{signal_of(plan, "arrived", rank, index), counts ? chunk + 1 : 1}}});
      copies.push_back({.kind = TaskKind::copy,
                        .reads = {part(rank, 0, chunk * rows, rows, 0, 3)},
                        .writes = {{part(peer, 3, m / 2 * rank + chunk * rows, rows, 0, 3)}},
                        .waits = {ready(plan, rank, peer)},
                        .posts = {{signal_of(plan, "arrived", peer, index)}}});
    }
  }
  return plan;
}

}  // namespace

Region part(int rank, int buffer, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return {.rank = rank, .buffer = buffer, .row = row, .rows = rows, .col = col, .cols = cols};
}

Signal signal_of(const Plan& plan, const std::string& block, int rank, int index) {
  return {rank, std::ranges::find(plan.signals, block, &SignalBlock::name)->first + index};
}

Plan gather_plan() { return gathering(4, 2, false); }

Plan counter_plan() { return gathering(8, 2, true); }

Plan scatter_plan(int num_ranks) {
  const Problem problem{.op = "gemm_reduce_scatter",
                        .m = 2 * num_ranks,
                        .n = 2,
                        .k = 2 * num_ranks,
                        .dtype = DType::fp32,
                        .epilogue = {{EpilogueKind::bias}}};
  Plan plan = start(problem, num_ranks, {.name = "staged", .rows = 2 * num_ranks, .cols = 2, .scope = Scope::symmetric},
                    {{"ready", 0, num_ranks}, {"arrived", num_ranks, 1}});
  for (int rank = 0; rank < num_ranks; ++rank) {
    auto& tiles = plan.lanes[2 * rank].tasks;
    tiles.push_back(say_ready(plan, rank));
    for (int step = 1; step <= num_ranks; ++step) {
      const int owner = (rank + step) % num_ranks;
      tiles.push_back({.kind = TaskKind::compute,
                       .reads = {part(rank, 0, 2 * owner, 2, 0, 2), part(rank, 1, 0, 2, 0, 2)},
                       .writes = {{part(owner, 4, 2 * rank, 2, 0, 2)}},
                       .posts = {{signal_of(plan, "arrived", owner)}}});
      if (owner != rank) tiles.back().waits = {ready(plan, rank, owner)};
    }
    plan.lanes[2 * rank + 1].engine = Engine::reduce;
    plan.lanes[2 * rank + 1].name = "reduce";
    Task sum{.kind = TaskKind::reduce,
             .writes = {{part(rank, 3, 0, 2, 0, 2)}},
             .waits = {{signal_of(plan, "arrived", rank), num_ranks}},
             .epilogue = {{EpilogueKind::bias, 1, part(rank, 2, 0, 1, 0, 2)}}};
    for (int slot = 0; slot < num_ranks; ++slot) sum.reads.push_back(part(rank, 4, 2 * slot, 2, 0, 2));
    plan.lanes[2 * rank + 1].tasks.push_back(sum);
  }
  return plan;
}

Plan accumulate_plan() {
  const Problem problem{
      .op = "gemm_reduce_scatter", .m = 4, .n = 2, .k = 4, .dtype = DType::fp32, .reduction = Reduction::any};
  Plan plan = start(problem, 2, {.name = "sum", .rows = 2, .cols = 2, .scope = Scope::symmetric},
                    {{"ready", 0, 2}, {"arrived", 2, 1}});
  for (int rank = 0; rank < 2; ++rank) {
    Task fill = say_ready(plan, rank);
    fill.kind = TaskKind::fill;
    fill.writes = {{part(rank, 3, 0, 2, 0, 2)}};
    fill.posts.push_back({signal_of(plan, "ready", rank, rank)});
    plan.lanes[2 * rank + 1].tasks = {fill,
                                      {.kind = TaskKind::copy,
                                       .reads = {part(rank, 3, 0, 2, 0, 2)},
                                       .writes = {{part(rank, 2, 0, 2, 0, 2)}},
                                       .waits = {{signal_of(plan, "arrived", rank), 2}}}};
    for (const int owner : {1 - rank, rank}) {
      plan.lanes[2 * rank].tasks.push_back({.kind = TaskKind::compute,
                                            .reads = {part(rank, 0, 2 * owner, 2, 0, 2), part(rank, 1, 0, 2, 0, 2)},
                                            .writes = {{part(owner, 3, 0, 2, 0, 2), 0, WriteMode::accumulate}},
                                            .waits = {ready(plan, rank, owner)},
                                            .posts = {{signal_of(plan, "arrived", owner)}}});
    }
  }
  return plan;
}

Plan barrier_plan(int num_ranks) {
  Plan plan = scatter_plan(num_ranks);
  const int first = signal_of(plan, "ready", 0).index;
  const auto is_ready = [&](const Signal& signal) { return signal.index < first + num_ranks; };
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      for (Post& post : task.posts) {
        if (is_ready(post.signal)) post.signal.index = first;
      }
      for (Wait& wait : task.waits) {
        if (is_ready(wait.signal)) wait = {{lane.rank, first}, num_ranks - 1, Purpose::ready};
      }
    }
  }
  return plan;
}

void change_problem(Plan& plan, const std::function<void(Problem&)>& change) {
  PlanNote note = note_of(plan);
  change(note.problem);
  set_note(plan, note);
}

std::string words(const CheckResult& result) {
  std::string text;
  for (const Violation& violation : result.violations)
    text += fmt::format("[{}] {}\n", to_string(violation.rule), violation.text);
  return text;
}

void expect_accepted(const Plan& plan) {
  const CheckResult result = check(plan);
  EXPECT_TRUE(result.ok()) << words(result);
}

void expect_refused(const CheckResult& result, Rule rule, std::initializer_list<const char*> parts) {
  const bool found = std::ranges::any_of(result.violations, [&](const Violation& violation) {
    return violation.rule == rule &&
           std::ranges::all_of(parts, [&](const char* part) { return violation.text.find(part) != std::string::npos; });
  });
  std::string wanted;
  for (const char* part : parts) wanted += std::string(" | ") + part;
  EXPECT_TRUE(found) << "want " << to_string(rule) << wanted << "\nhave\n" << words(result);
  EXPECT_LE(result.violations.size(), 20U);
}

void expect_refused(const Plan& plan, Rule rule, std::initializer_list<const char*> parts) {
  expect_refused(check(plan), rule, parts);
}

}  // namespace tilewire::check_plans
