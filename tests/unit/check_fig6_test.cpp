// Embedding and all-to-all, the worked example of the fused-operator paper: 2 nodes, 4 tables per node, a batch of 4,
// 16
// work-groups per node on 2 workers. WG 20 and WG 30 of node 0 make slice A for node 1. Built as the target
// `unit_check`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "check_plans.hpp"

namespace tilewire {
namespace {

using namespace check_plans;

constexpr int kNodes = 2;
constexpr int kTables = 4;       // a node
constexpr int kBatch = 4;        // 2 samples end on each node
constexpr int kVocabulary = 10;  // rows of a table
constexpr int kLookups = 3;      // of a sample in a table
constexpr int kDim = 2;          // of an embedding vector
constexpr int kSlices = 8;       // a node: 2 halves of the batch x 4 tables
constexpr int kTablesBuffer = 0, kIndices = 1, kOutput = 2, kSend = 3;

/// Work-group ij: sample i, table j.
struct WorkGroup {
  int i;
  int j;

  bool operator==(const WorkGroup&) const = default;
  [[nodiscard]] int node() const { return i / 2; }  ///< the destination of its vector
  [[nodiscard]] int slice() const { return node() * kTables + j; }
};

/// Remote slices first; the two work-groups of a slice together.
std::vector<WorkGroup> order_of(int node) {
  std::vector<WorkGroup> order;
  for (const int target : {1 - node, node}) {
    for (int j = 0; j < kTables; ++j) {
      for (int i = 2 * target; i < 2 * target + 2; ++i) order.push_back({i, j});
    }
  }
  return order;
}

Plan fig6_plan() {
  Plan plan{.op = "embedding_all_to_all", .team = {.num_ranks = kNodes}};
  plan.buffers = {
      {.name = "tables", .rows = kVocabulary, .cols = kTables * kDim, .scope = Scope::input},
      {.name = "indices", .dtype = DType::int32, .rows = kBatch, .cols = kTables * kLookups, .scope = Scope::input},
      {.name = "pooled", .rows = 2, .cols = kNodes * kTables * kDim, .scope = Scope::output, .in_arena = true},
      {.name = "send", .rows = 2, .cols = kTables * kDim, .scope = Scope::local}};
  plan.signals = {{"ready", 0, 1}, {"done", 1, kSlices}, {"slice_ready", 1 + kSlices, 2 * kSlices}};
  for (int node = 0; node < kNodes; ++node) {
    Lane tiles{.rank = node, .engine = Engine::tiles, .name = "work-groups", .workers = 2};
    Lane puts{.rank = node, .engine = Engine::copy, .name = "puts"};
    puts.tasks.push_back({.kind = TaskKind::sync, .posts = {{{1 - node, 0}}}});
    for (const WorkGroup& wg : order_of(node)) {
      const bool remote = wg.node() != node;
      const Region to = remote ? part(node, kSend, wg.i % 2, 1, kDim * wg.j, kDim)
                               : part(node, kOutput, wg.i % 2, 1, kDim * (node * kTables + wg.j), kDim);
      tiles.tasks.push_back({.kind = TaskKind::compute,
                             .body = Body::pool,
                             .reads = {part(node, kTablesBuffer, 0, kVocabulary, kDim * wg.j, kDim),
                                       part(node, kIndices, wg.i, 1, kLookups * wg.j, kLookups)},
                             .writes = {{to}},
                             .posts = {{signal_of(plan, "done", node, wg.slice())}}});
      if (!remote || wg.i % 2 == 0) continue;
      puts.tasks.push_back({.kind = TaskKind::copy,
                            .reads = {part(node, kSend, 0, 2, kDim * wg.j, kDim)},
                            .writes = {{part(wg.node(), kOutput, 0, 2, kDim * (node * kTables + wg.j), kDim)}},
                            .waits = {{signal_of(plan, "done", node, wg.slice()), 2}, {{node, 0}, 1, Purpose::ready}},
                            .posts = {{signal_of(plan, "slice_ready", wg.node(), node * kSlices + wg.slice())}}});
    }
    // Before a node leaves, it polls the slices that it expects.
    Task leave{.kind = TaskKind::sync};
    for (int j = 0; j < kTables; ++j)
      leave.waits.push_back({signal_of(plan, "slice_ready", node, (1 - node) * kSlices + node * kTables + j)});
    tiles.tasks.push_back(leave);
    plan.lanes.push_back(tiles);
    plan.lanes.push_back(puts);
  }
  return plan;
}

Specification wanted() {
  std::vector<Meaning> all;
  for (int node = 0; node < kNodes; ++node) {
    all.push_back({.buffer = kTablesBuffer, .rank = node, .role = Role::b, .col = node * kTables * kDim});
    all.push_back({.buffer = kIndices, .rank = node, .role = Role::indices});
    all.push_back({.buffer = kOutput, .rank = node, .role = Role::partial, .row = 2 * node, .terms = {0, 1}});
  }
  return {.meanings = std::move(all)};
}

std::string group_name(const Task& task) {
  return fmt::format("{}{}", task.reads[1].row, task.reads[1].col / kLookups);
}

TEST(Fig6, IsProven) {
  const CheckResult result = check(fig6_plan(), wanted());
  EXPECT_TRUE(result.ok()) << words(result);
  // Half of each node's vectors cross the link.
  EXPECT_EQ(result.total_bytes, kNodes * 8 * kDim * 4);
  EXPECT_EQ(result.least_bytes, 0);
}

TEST(Fig6, RemoteSlicesComeFirst) {
  const Plan plan = fig6_plan();
  const Lane& lane = plan.lanes[0];
  std::vector<std::string> order;
  for (const Task& task : lane.tasks) {
    if (task.kind == TaskKind::compute) order.push_back(group_name(task));
  }
  EXPECT_EQ(order, (std::vector<std::string>{"20", "30", "21", "31", "22", "32", "23", "33",  //
                                             "00", "10", "01", "11", "02", "12", "03", "13"}));
  EXPECT_EQ(lane.workers, 2);
  EXPECT_EQ(std::ssize(order) / lane.workers, 8) << "work-groups a worker";
}

TEST(Fig6, SliceAWaitsForBothOfItsWorkGroups) {
  const Plan plan = fig6_plan();
  const Task& put = plan.lanes[1].tasks[1];
  const Signal slice_a = signal_of(plan, "done", 0, WorkGroup{2, 0}.slice());
  EXPECT_EQ(put.waits[0], (Wait{slice_a, 2}));
  std::vector<std::string> makers;
  for (const Task& task : plan.lanes[0].tasks) {
    if (std::ranges::find(task.posts, Post{slice_a}) != task.posts.end()) makers.push_back(group_name(task));
  }
  EXPECT_EQ(makers, (std::vector<std::string>{"20", "30"}));
  EXPECT_EQ(put.writes[0].to.rank, 1);
}

TEST(Fig6, ASliceSentTooEarlyIsRefused) {
  Plan plan = fig6_plan();
  plan.lanes[1].tasks[1].waits[0].at_least = 1;
  expect_refused(
      check(plan, wanted()), Rule::race,
      {"lane work-groups on rank 0 (compute) stores rank 0 send", "task 1 of lane puts on rank 0 (copy) reads"});
}

TEST(Fig6, ANodeThatLeavesTooEarlyIsRefused) {
  Plan plan = fig6_plan();
  plan.lanes[0].tasks.back().waits.pop_back();
  expect_refused(check(plan, wanted()), Rule::race,
                 {"lane puts on rank 1 (copy) writes rank 0 pooled", "may end before this access"});
}

TEST(Fig6, ATableOfOtherColumnsIsRefused) {
  Plan plan = fig6_plan();
  std::swap(plan.lanes[0].tasks[0].reads[0].col, plan.lanes[0].tasks[2].reads[0].col);
  expect_refused(check(plan, wanted()), Rule::coverage, {"rank 1 pooled", "must hold the sum of contributions 0..1"});
  plan = fig6_plan();
  plan.lanes[0].tasks[0].reads[0].row = 1;
  plan.lanes[0].tasks[0].reads[0].rows = kVocabulary - 1;
  expect_refused(check(plan, wanted()), Rule::structure, {"task 0 of lane work-groups", "must read all 10 rows"});
}

}  // namespace
}  // namespace tilewire
