// A plan against the table of a backend's features: each feature that is not in the table is named.
#include "backends/known.hpp"

#include <gtest/gtest.h>

#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

using Names = std::vector<std::string>;

/// A table with few features.
Known little() {
  return {.kinds = {TaskKind::compute, TaskKind::copy, TaskKind::sync},
          .bodies = {Body::gemm},
          .collectives = {},
          .epilogue = {EpilogueKind::bias},
          .engines = {Engine::tiles},
          .vias = {Via::automatic},
          .b_layouts = {BLayout::nk},
          .numbers = {DType::bf16},
          .moved = {DType::bf16, DType::int32},
          .added = {}};
}

/// A plan with one product, all of whose features `little` has.
Plan product() {
  Plan plan{.op = "all_gather_gemm"};
  for (const char* name : {"a", "b", "c", "numbers"}) {
    plan.buffers.push_back({.name = name, .dtype = DType::bf16, .rows = 4, .cols = 4, .scope = Scope::local});
  }
  plan.buffers[3].dtype = DType::int32;
  const auto all = [](int buffer) { return Region{.buffer = buffer, .rows = 4, .cols = 4}; };
  plan.lanes = {{.tasks = {{.kind = TaskKind::compute, .reads = {all(0), all(1)}, .writes = {{.to = all(2)}}}}}};
  return plan;
}

TEST(Known, APlanOfKnownPartsIsTaken) { EXPECT_EQ(unknown_parts(little(), product()), Names{}); }

TEST(Known, EachUnknownPartIsNamed) {
  const auto expect = [](const char* name, const std::function<void(Plan&, Task&)>& change) {
    Plan plan = product();
    change(plan, plan.lanes[0].tasks[0]);
    EXPECT_EQ(unknown_parts(little(), plan), Names{name});
  };
  expect("body = pool", [](Plan&, Task& task) { task.body = Body::pool; });
  expect("gemm_call", [](Plan&, Task& task) { task.kind = TaskKind::gemm_call; });
  expect("numbers of fp16", [](Plan& plan, Task&) { plan.buffers[1].dtype = DType::fp16; });
  expect("numbers of int32", [](Plan& plan, Task&) { plan.buffers[2].dtype = DType::int32; });
  expect("epilogue = gelu", [](Plan&, Task& task) { task.epilogue = {{.kind = EpilogueKind::gelu}}; });
  expect("accumulate into bf16", [](Plan&, Task& task) { task.writes[0].mode = WriteMode::accumulate; });
  expect("engine = library", [](Plan& plan, Task&) { plan.lanes[0].engine = Engine::library; });
  expect("LL buffers", [](Plan& plan, Task&) { plan.buffers[2].ll = true; });
  expect("via = tma", [](Plan&, Task& task) { task.writes[0].via = Via::tma; });
  expect("b_layout = kn", [](Plan&, Task& task) { task.gemm.b_layout = BLayout::kn; });
  expect("clusters of 2 x 1", [](Plan&, Task& task) { task.gemm.cluster_m = 2; });
  expect("cluster_split_k = 2", [](Plan&, Task& task) { task.gemm.cluster_split_k = 2; });
  expect("several kernels", [](Plan& plan, Task&) { plan.lanes[0].kernel = 1; });
  expect("a team of several nodes", [](Plan& plan, Task&) { plan.team.devices = {{.node = 0}, {.node = 1}}; });
}

TEST(Known, CopiesAndIndicesHaveTypesOfTheirOwn) {
  Plan plan = product();
  Task& task = plan.lanes[0].tasks[0];
  task.kind = TaskKind::copy;
  task.reads = {{.buffer = 3, .rows = 4, .cols = 4}};
  task.writes[0].to.buffer = 3;
  EXPECT_EQ(unknown_parts(little(), plan), Names{});
  plan.buffers[3].dtype = DType::fp32;
  EXPECT_EQ(unknown_parts(little(), plan), Names{"copies of fp32"});
  Known pools = little();
  pools.bodies = {Body::pool};
  plan = product();
  plan.lanes[0].tasks[0].body = Body::pool;
  plan.lanes[0].tasks[0].reads[1].buffer = 3;
  EXPECT_EQ(unknown_parts(pools, plan), Names{});
}

TEST(Known, ALibrarysCollectiveIsNamed) {
  Known library = little();
  library.kinds.push_back(TaskKind::collective_call);
  library.collectives = {Collective::all_gather};
  Plan plan = product();
  Task& task = plan.lanes[0].tasks[0];
  task.kind = TaskKind::collective_call;
  task.reads.pop_back();
  task.collective = Collective::all_gather;
  EXPECT_EQ(unknown_parts(library, plan), Names{});
  task.collective = Collective::all_to_all;
  EXPECT_EQ(unknown_parts(library, plan), Names{"a library's all_to_all"});
}

}  // namespace
}  // namespace tilewire
