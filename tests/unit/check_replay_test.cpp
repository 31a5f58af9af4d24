// Accepted plans give right results in random interleavings of several calls, also after random damage; and the
// interleavings do find damage. Built as the target `unit_check`. TILEWIRE_SEED repeats a run.
#include "check_replay.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "check_plans.hpp"
#include "core/implied_order.hpp"
#include "lower/passes.hpp"
#include "operator_names.hpp"
#include "schedules/variants.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

using namespace check_plans;
using Random = std::mt19937_64;

constexpr int kCalls = 4;
constexpr int kRounds = 600;

uint64_t seed() {
  const char* given = std::getenv("TILEWIRE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

int below(Random& random, int64_t end) { return static_cast<int>(random() % static_cast<uint64_t>(end)); }

Plan random_plan(Random& random) {
  switch (below(random, 8)) {
    case 0:
      return gather_plan();
    case 1:
      return scatter_plan(2 + below(random, 3));
    case 2:
      return accumulate_plan();
    case 3:
      return counter_plan();
    case 4:
      return barrier_plan(2 + below(random, 3));
    default:
      break;
  }
  const auto ops = testing::all_operator_names();
  Problem problem{.op = ops[below(random, std::ssize(ops))],
                  .m = 1 + below(random, 12),
                  .n = 1 + below(random, 8),
                  .k = 1 + below(random, 6)};
  problem = testing::with_experts(problem, {.count = 3, .top_k = 2, .ffn = 4});
  problem.reduction = below(random, 2) == 0 ? Reduction::any : Reduction::repeatable;
  for (const Buffer& buffer : find_operator(problem.op).buffers(problem, 1)) {
    if (below(random, 3) == 0) problem.arena.push_back(buffer.name);
  }
  const Team team{.num_ranks = 2 + below(random, 3)};
  if (below(random, 6) == 0) {
    // Where a library can do the collective, it does.
    problem.reduction = Reduction::any;
    if (structure_of(problem).multiplies && !problem.experts) problem.epilogue = {{EpilogueKind::bias}};
    problem.m *= team.num_ranks;
    problem.k = std::max<int64_t>(problem.k, team.num_ranks);
    Config config{.schedule = "sequential", .collective = Provider::library};
    if (structure_of(problem).multiplies) config.compute = Provider::library;
    if (!find_schedule(config.schedule).refuses(problem, team, config)) return make_plan(problem, team, config);
  }
  const std::vector<Config> configs = all_variants(problem, team, {.tile_m = 4, .tile_n = 4, .chunk_rows = 3});
  return make_plan(problem, team, configs[below(random, std::ssize(configs))]);
}

/// Merge two signals into one counter, to which several ranks post.
std::string merge_signals(Plan& plan, Random& random) {
  const int signals = num_signals(plan);
  const int from = below(random, signals);
  const int to = below(random, signals);
  for (Lane& each : plan.lanes) {
    for (Task& one : each.tasks) {
      for (Post& post : one.posts) post.signal.index = post.signal.index == from ? to : post.signal.index;
      for (Wait& wait : one.waits) wait.signal.index = wait.signal.index == from ? to : wait.signal.index;
    }
  }
  const std::vector<int64_t> totals = signal_totals(plan);
  for (Lane& each : plan.lanes) {
    for (Task& one : each.tasks) {
      for (Wait& wait : one.waits) {
        if (wait.signal.index == to) wait.at_least = totals[wait.signal.rank * signals + to];
      }
    }
  }
  return fmt::format("signals {} and {} merged", from, to);
}

/// Let a task write something to a second place, and a lane read it after a post of another task of that rank.
std::string write_more(Plan& plan, const Lane& lane, Task& task, Random& random) {
  if (task.kind == TaskKind::sync || task.writes.empty() || lane.engine == Engine::library) return "";
  const int rank = below(random, plan.team.num_ranks);
  const Write& write = task.writes[below(random, std::ssize(task.writes))];
  const int more = static_cast<int>(plan.buffers.size());
  const auto add_buffer = [&](const char* name, Scope scope) {
    const DType dtype = plan.buffers[write.to.buffer].dtype;
    plan.buffers.push_back(
        {.name = name, .dtype = dtype, .rows = write.to.rows, .cols = write.to.cols, .scope = scope});
  };
  add_buffer("more", Scope::symmetric);
  add_buffer("sink", Scope::local);
  Write again = write;
  again.mode = WriteMode::store;
  again.to = {rank, more, 0, write.to.rows, 0, write.to.cols};
  const Region from = again.to;
  Region to = from;
  to.buffer = more + 1;
  task.writes.push_back(again);
  std::vector<Task*> of_rank;
  for (Lane& each : plan.lanes) {
    for (Task& one : each.tasks) {
      if (each.rank == rank) of_rank.push_back(&one);
    }
  }
  const Signal told{rank, num_signals(plan)};
  plan.signals.push_back({"told", told.index, 1});
  of_rank[below(random, std::ssize(of_rank))]->posts.push_back({told});
  Lane late{.rank = rank, .engine = Engine::tiles, .name = "late"};
  late.tasks.push_back({.kind = TaskKind::copy, .reads = {from}, .writes = {{to}}, .waits = {{told}}});
  plan.lanes.push_back(late);
  return "writes more; ";
}

/// Make a workspace buffer LL data, or make an LL buffer a normal one, or change the number of its copies.
std::string flip_ll(Plan& plan, Random& random) {
  std::vector<Buffer*> workspace;
  for (Buffer& buffer : plan.buffers) {
    if (buffer.scope == Scope::symmetric && buffer.dtype != DType::int32) workspace.push_back(&buffer);
  }
  if (workspace.empty()) return "";
  Buffer& buffer = *workspace[below(random, std::ssize(workspace))];
  if (!buffer.ll || below(random, 2) == 0) buffer.ll = !buffer.ll;
  buffer.copies = buffer.ll ? 3 - buffer.copies : 1;
  if (buffer.ll) buffer.shared = false;
  return fmt::format("{}: {}, {} copies; ", buffer.name, buffer.ll ? "LL data" : "no LL data", buffer.copies);
}

/// Make one change to one task; returns its description.
std::string damage(Plan& plan, Random& random) {
  Lane& lane = plan.lanes[below(random, std::ssize(plan.lanes))];
  if (lane.tasks.empty() || num_signals(plan) == 0) return "";
  const int index = below(random, std::ssize(lane.tasks));
  Task& task = lane.tasks[index];
  const std::string where = fmt::format("task {} of lane {} on rank {}", index, lane.name, lane.rank);
  switch (below(random, 10)) {
    case 0:
      if (task.waits.empty()) return "";
      task.waits.erase(task.waits.begin() + below(random, std::ssize(task.waits)));
      return where + ": dropped wait";
    case 1: {
      if (task.waits.empty()) return "";
      int64_t& at_least = task.waits[below(random, std::ssize(task.waits))].at_least;
      if (at_least == 1) return "";
      --at_least;
      return where + ": lowered threshold";
    }
    case 2:
      std::swap(task, lane.tasks[below(random, std::ssize(lane.tasks))]);
      return where + ": swapped with another";
    case 3:
      lane.engine = lane.engine == Engine::tiles ? Engine::copy : Engine::tiles;
      return fmt::format("lane {} on rank {}: other engine", lane.name, lane.rank);
    case 4: {
      if (task.posts.empty()) return "";
      Post& post = task.posts[below(random, std::ssize(task.posts))];
      post.add += 1;
      return where + ": posts one more";
    }
    case 5:
      return merge_signals(plan, random);
    case 6:
      lane.stage = below(random, 3);
      return fmt::format("lane {} on rank {}: stage {}", lane.name, lane.rank, lane.stage);
    case 7:
      return where + ": " + write_more(plan, lane, task, random);
    case 8:
      return flip_ll(plan, random);
    default: {
      Task moved = task;
      lane.tasks.erase(lane.tasks.begin() + index);
      plan.lanes.push_back({.rank = lane.rank, .engine = Engine::copy, .name = "moved", .tasks = {moved}});
      return where + ": moved to a lane of its own";
    }
  }
}

/// Change a plan as lowering does: stages, and LL data instead of signals.
void lower_some(Plan& plan, Random& random) {
  const Target target = gpu_target("h200", plan.team.num_ranks, 132);
  if (below(random, 2) == 0) static_cast<void>(lowering::stage_gemm_call(plan, target));
  if (below(random, 2) == 0) static_cast<void>(lowering::elide_signals(plan, target));
  if (below(random, 2) == 0) static_cast<void>(lowering::double_buffer(plan, target));
}

TEST(CheckReplay, WhatIsAcceptedGoesRight) {
  const uint64_t first = seed();
  SCOPED_TRACE(fmt::format("TILEWIRE_SEED={}", first));
  Random random(first);
  int accepted = 0;
  int refused = 0;
  int shown = 0;  // refused, and an interleaving shows the reason
  int implied = 0;
  for (int round = 0; round < kRounds; ++round) {
    Plan plan = random_plan(random);
    std::string damages;
    for (int count = below(random, 3); count > 0; --count) damages += damage(plan, random) + "; ";
    lower_some(plan, random);
    for (int count = below(random, 2); count > 0; --count) damages += damage(plan, random) + "; ";
    const CheckResult result = check(plan);
    if (!result.ok()) {
      // Progress and coverage are what the replay takes for granted.
      const bool race_only =
          std::ranges::all_of(result.violations, [](const Violation& v) { return v.rule == Rule::race; });
      refused += race_only;
      for (int i = 0; race_only && i < 3; ++i) {
        if (replay(plan, kCalls, random)) {
          ++shown;
          break;
        }
      }
      continue;
    }
    ++accepted;
    implied += has_implied_order(plan) ? 1 : 0;
    for (int i = 0; i < 3; ++i) {
      const auto wrong = replay(plan, kCalls, random);
      ASSERT_FALSE(wrong) << *wrong << "\nround " << round << ": " << damages << "\n" << to_string(plan);
    }
  }
  std::cout << fmt::format(
      "{} accepted, {} with LL data or stages, {} refused for races, {} of them shown by an interleaving\n", accepted,
      implied, refused, shown);
  EXPECT_GT(accepted, kRounds / 4);
  EXPECT_GT(implied, kRounds / 100);
  EXPECT_GT(refused, kRounds / 20);
  EXPECT_GT(shown, refused / 4);
}

}  // namespace
}  // namespace tilewire
