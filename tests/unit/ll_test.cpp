// The signals that LL data replace, the plans that cannot have LL data, and the checker's rules for them.
// Built as part of the target `unit_core`.
#include "check/ll.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/ll.hpp"
#include "lower/passes.hpp"
#include "tilewire/check.hpp"
#include "tilewire/error.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/sim/sim.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

Plan with_ll(const char* op, Config config = {}) {
  config.tile_m = 64;
  config.tile_n = 128;
  config.transport = Transport::ll;
  return make_plan({.op = op, .m = 64, .n = 1024, .k = 512, .dtype = DType::bf16}, {.num_ranks = 4}, config);
}

int64_t waits_of(const Plan& plan, Purpose purpose) {
  int64_t count = 0;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) count += std::ranges::count(task.waits, purpose, &Wait::purpose);
  }
  return count;
}

std::string elide(Plan& plan) {
  const std::string note = lowering::elide_signals(plan, gpu_target("h200", plan.team.num_ranks, 132));
  const CheckResult proof = check(plan);
  EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
  return note;
}

TEST(LlData, StandsForEverySignalButReadiness) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
      if (op == std::string("gemm_reduce_scatter") && algorithm != Algorithm::direct) continue;
      Plan plan = with_ll(op, {.algorithm = algorithm});
      const int64_t by_signal = waits_of(plan, Purpose::data);
      const int64_t for_owners = waits_of(plan, Purpose::ready);
      const std::string note = elide(plan);
      EXPECT_EQ(note.rfind("polling of LL data replaces " + std::to_string(by_signal) + " waits and ", 0), 0u) << note;
      EXPECT_EQ(waits_of(plan, Purpose::data), 0) << op;
      EXPECT_EQ(waits_of(plan, Purpose::ready), for_owners) << op;
      EXPECT_EQ(elide(plan), "no signal that polling of LL data could replace");
    }
  }
}

TEST(LlData, PartsOfKAreSummedBySignals) {
  Plan plan = with_ll("gemm_all_reduce", {.split_k = 2});
  const int64_t before = waits_of(plan, Purpose::data);
  elide(plan);
  EXPECT_GT(waits_of(plan, Purpose::data), 0);
  EXPECT_LT(waits_of(plan, Purpose::data), before);
}

TEST(LlData, OtherTransportsHaveNone) {
  Plan plan = with_ll("gemm_all_reduce");
  for (Buffer& buffer : plan.buffers) buffer.ll = false;
  const Plan before = plan;
  EXPECT_EQ(elide(plan), "no LL data");
  EXPECT_TRUE(plan == before);
}

TEST(LlData, OnlyStagedPartsThatAreSummedAsTheyCome) {
  const auto refused = [](const char* op, Config config) {
    config.transport = Transport::ll;
    return find_schedule(config.schedule)
        .refuses({.op = op, .m = 64, .n = 64, .k = 64, .reduction = Reduction::any}, {.num_ranks = 2}, config)
        .has_value();
  };
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    EXPECT_FALSE(refused(op, {}));
    EXPECT_TRUE(refused(op, {.reduce_mode = ReduceMode::pull}));
    EXPECT_TRUE(refused(op, {.reduce_mode = ReduceMode::accumulate}));
    EXPECT_TRUE(refused(op, {.reduce_when = ReduceWhen::after}));
    EXPECT_TRUE(refused(op, {.algorithm = Algorithm::ring}));
    EXPECT_TRUE(refused(op, {.schedule = "sequential"}));
  }
  EXPECT_FALSE(refused("gemm_all_reduce", {.algorithm = Algorithm::one_shot}));
  EXPECT_TRUE(refused("gemm_all_reduce", {.schedule = "two_stream"}));
  EXPECT_TRUE(refused("all_gather_gemm", {}));
}

TEST(LlData, TwoCopiesNeedNoHandshake) {
  const Target target = gpu_target("h200", 4, 132);
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
      if (op == std::string("gemm_reduce_scatter") && algorithm != Algorithm::direct) continue;
      Plan plan = with_ll(op, {.algorithm = algorithm});
      elide(plan);
      const int64_t handshakes = waits_of(plan, Purpose::ready);
      EXPECT_EQ(lowering::double_buffer(plan, target),
                "LL data have two copies; " + std::to_string(handshakes) + " waits for ready handshakes go");
      EXPECT_EQ(waits_of(plan, Purpose::ready), 0) << op;
      for (const Buffer& buffer : plan.buffers) {
        EXPECT_EQ(buffer.copies, buffer.ll ? 2 : 1) << buffer.name;
        EXPECT_EQ(workspace_bytes(buffer), buffer.copies * copy_bytes(buffer));
      }
      const CheckResult proof = check(plan);
      EXPECT_TRUE(proof.ok()) << proof.violations[0].text;
      EXPECT_EQ(lowering::double_buffer(plan, target), "no ready handshakes before LL data");
      for (Buffer& buffer : plan.buffers) buffer.copies = 1;
      EXPECT_NE(check(plan).violations.at(0).text.find("without its ready handshake"), std::string::npos);
    }
  }
}

/// A plan in which no rank but 0 has rows of the result.
Plan with_one_owner() {
  Plan plan = make_plan({.op = "gemm_reduce_scatter", .m = 1, .n = 128, .k = 512, .dtype = DType::bf16},
                        {.num_ranks = 3}, {.tile_m = 64, .tile_n = 128, .transport = Transport::ll});
  elide(plan);
  return plan;
}

TEST(LlData, TwoCopiesNeedDataFromAllRanks) {
  Plan plan = with_one_owner();
  const Target target = gpu_target("h200", 3, 132);
  EXPECT_EQ(lowering::double_buffer(plan, target),
            "rank 1 gets no LL data from rank 0, so its call may end before that of rank 0 begins");
  for (Buffer& buffer : plan.buffers) {
    if (buffer.ll) buffer.copies = 2;
  }
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks)
      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
  }
  const CheckResult result = check(plan);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.violations[0].rule, Rule::race);
  EXPECT_NE(result.violations[0].text.find("rank 1's call may end before rank 0 has begun it"), std::string::npos)
      << result.violations[0].text;
}

/// Three ranks. Rank 1 passes row 0, which it gets from rank 0, to rank 0, and row 1, which it gets from rank 2, to
/// rank 2: by one copy, or by two.
Plan with_echoes(bool by_one_copy) {
  const Buffer row{.rows = 2, .cols = 4, .scope = Scope::symmetric, .ll = true, .copies = 2};
  Plan plan{.op = "echo", .team = {.num_ranks = 3}, .buffers = {row, row}, .signals = {}, .lanes = {}};
  plan.buffers[0].name = "there";
  plan.buffers[1].name = "back";
  plan.buffers.push_back({.name = "sink", .rows = 2, .cols = 4, .scope = Scope::local});
  const auto region = [](int rank, int buffer, int64_t first, int64_t rows) {
    return Region{.rank = rank, .buffer = buffer, .row = first, .rows = rows, .cols = 4};
  };
  for (const int rank : {0, 2}) {
    const int64_t mine = rank / 2;
    Lane lane{.rank = rank, .engine = Engine::tiles, .name = "ends"};
    lane.tasks.push_back({.kind = TaskKind::fill, .writes = {{.to = region(1, 0, mine, 1)}}});
    lane.tasks.push_back(
        {.kind = TaskKind::copy, .reads = {region(rank, 1, mine, 1)}, .writes = {{.to = region(rank, 2, mine, 1)}}});
    plan.lanes.push_back(lane);
  }
  Lane lane{.rank = 1, .engine = Engine::tiles, .name = "echo"};
  if (by_one_copy) {
    lane.tasks.push_back({.kind = TaskKind::copy,
                          .reads = {region(1, 0, 0, 2)},
                          .writes = {{.to = region(0, 1, 0, 1)}, {.to = region(2, 1, 1, 1), .first_row = 1}}});
  } else {
    for (const int64_t each : {0, 1})
      lane.tasks.push_back({.kind = TaskKind::copy,
                            .reads = {region(1, 0, each, 1)},
                            .writes = {{.to = region(2 * static_cast<int>(each), 1, each, 1)}}});
  }
  plan.lanes.push_back(lane);
  return plan;
}

TEST(LlData, DataTellNothingAboutTheDataBeforeThem) {
  for (const bool by_one_copy : {true, false}) {
    const CheckResult result = check(with_echoes(by_one_copy), Specification{});
    ASSERT_FALSE(result.ok());
    EXPECT_TRUE(std::ranges::any_of(result.violations, [](const Violation& each) {
      return each.text.find("rank 0's call may end before rank 2 has begun it") != std::string::npos;
    })) << result.violations[0].text;
  }
}

TEST(LlData, CopiesThatMakeNoSenseAreRefused) {
  const auto refusal = [](const auto& change) {
    Plan plan = with_ll("all_reduce");
    for (Buffer& buffer : plan.buffers) {
      if (buffer.ll) change(buffer);
    }
    try {
      validate(plan);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](Buffer& buffer) { buffer.copies = 3; }), "buffer staged: copies = 3, want 1, or 2 of LL data");
  EXPECT_EQ(refusal([](Buffer& buffer) { buffer.copies = 0; }), "buffer staged: copies = 0, want 1, or 2 of LL data");
  EXPECT_EQ(refusal([](Buffer& buffer) { buffer.ll = false, buffer.copies = 2; }),
            "buffer staged: copies = 2, want 1, or 2 of LL data");
  EXPECT_EQ(refusal([](Buffer& buffer) { buffer.shared = true; }),
            "buffer staged: `shared` needs scope symmetric and ll = false");
  EXPECT_EQ(refusal([](Buffer& buffer) { buffer.copies = 2; }), "");
}

/// The checker's first violation after `damage` to the first task of rank 1 for which `wanted` holds.
Violation found_after(const std::function<bool(const Lane&, const Task&)>& wanted,
                      const std::function<void(Plan&, Lane&, Task&)>& damage, bool elided = false) {
  Plan plan = with_ll("gemm_all_reduce");
  if (elided) elide(plan);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (lane.rank != 1 || !wanted(lane, task)) continue;
      damage(plan, lane, task);
      const CheckResult result = check(plan);
      return result.ok() ? Violation{Rule::unsupported, "nothing"} : result.violations[0];
    }
  }
  return {Rule::unsupported, "no such task"};
}

bool sums(const Lane&, const Task& task) { return task.kind == TaskKind::reduce; }
bool lands(const Lane& lane, const Task&) { return lane.name == "land"; }
bool makes(const Lane&, const Task& task) { return task.kind == TaskKind::compute; }

TEST(LlData, PlansThatCannotHaveItAreRefusedInWords) {
  const auto refusal = [](const auto& wanted, const auto& damage) {
    const Violation found = found_after(wanted, damage);
    EXPECT_EQ(found.rule, Rule::structure);
    return found.text;
  };
  EXPECT_EQ(refusal(lands, [](Plan&, Lane& lane, Task&) { lane.engine = Engine::copy; }),
            "LL data: a copy of lane land of rank 1 reads LL data without polling");
  EXPECT_EQ(refusal(sums,
                    [](Plan& plan, Lane&, Task& task) {
                      task.reads[0].buffer = static_cast<int>(plan.buffers.size() - 1);
                      plan.buffers.back().scope = Scope::local;
                      plan.buffers.back().ll = false;
                    }),
            "LL data: a reduce of lane reduce of rank 1 reads LL data without polling");
  EXPECT_EQ(
      refusal(sums, [](Plan&, Lane&,
                       Task& task) { task.epilogue = {{.kind = EpilogueKind::residual, .operand = task.reads[0]}}; }),
      "LL data: a reduce of lane reduce of rank 1 reads LL data without polling");
  EXPECT_EQ(refusal(makes, [](Plan&, Lane& lane, Task&) { lane.engine = Engine::library; }),
            "LL data: a lane of engine library of rank 1 writes staged");
  EXPECT_EQ(refusal(makes, [](Plan&, Lane&, Task& task) { task.writes[0].mode = WriteMode::accumulate; }),
            "LL data: staged is added to");
  EXPECT_EQ(refusal(makes, [](Plan&, Lane&, Task& task) { task.waits.clear(); }),
            "LL data: rank 1 writes staged of rank 2 without its ready handshake");
  EXPECT_EQ(refusal(sums,
                    [](Plan&, Lane&, Task& task) {
                      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
                    }),
            "LL data: rank 1 writes result of rank 2 without its ready handshake");
  EXPECT_EQ(refusal(sums, [](Plan&, Lane&, Task& task) { task.reads[1] = task.reads[0]; }),
            "LL data: staged of rank 1 is read twice, from row 0 column 0 on");
  EXPECT_EQ(refusal(sums, [](Plan&, Lane&, Task& task) { task.reads.pop_back(); }),
            "LL data: staged of rank 1: 8192 more elements are written than read");
  EXPECT_EQ(refusal(sums, [](Plan& plan, Lane&, Task&) { plan.buffers.back().dtype = DType::int32; })
                .find("LL data is symmetric workspace of a floating type"),
            std::string("buffer result: ").size());
}

/// Without signals the data themselves give the order, and the checker sees it: a sum that waits for its own result.
TEST(LlData, WaitsForItselfAreFound) {
  const Violation found = found_after(
      sums,
      [](Plan& plan, Lane&, Task& task) {
        const int last = num_signals(plan);
        plan.signals.push_back({"summed", last, 1});
        task.posts.push_back({{1, last}});
        const std::vector<Region> parts = task.reads;
        const auto is_part = [&](const Write& write) { return std::ranges::find(parts, write.to) != parts.end(); };
        for (Lane& lane : plan.lanes) {
          for (Task& writer : lane.tasks) {
            if (lane.rank == 1 && std::ranges::any_of(writer.writes, is_part)) writer.waits.push_back({{1, last}});
          }
        }
      },
      true);
  EXPECT_EQ(found.rule, Rule::progress) << found.text;
  EXPECT_NE(found.text.find("LL data"), std::string::npos) << found.text;
}

/// A reader of LL data has seen only these data: other writes of the same writer may arrive later.
TEST(LlData, OrdersNothingButItself) {
  for (const bool by_data : {true, false}) {
    Plan plan = with_ll("gemm_all_reduce");
    if (by_data) elide(plan);
    // A tile of rank 0 writes its result to rank 1 once more, where a lane reads it when the sum of the tile is made.
    const int more = static_cast<int>(plan.buffers.size());
    plan.buffers.push_back({.name = "more", .dtype = DType::bf16, .rows = 64, .cols = 128, .scope = Scope::symmetric});
    plan.buffers.push_back({.name = "sink", .dtype = DType::bf16, .rows = 64, .cols = 128, .scope = Scope::local});
    const int summed = num_signals(plan);
    plan.signals.push_back({"summed", summed, 1});
    Region part{};
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (lane.rank != 0 || part.rows > 0 || task.kind != TaskKind::compute) continue;
        for (const Write& write : std::vector(task.writes)) {
          if (write.to.rank != 1) continue;
          part = write.to;
          Write again = write;
          again.to = {1, more, 0, part.rows, 0, part.cols};
          task.writes.push_back(again);
        }
      }
    }
    ASSERT_GT(part.rows, 0);
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (std::ranges::find(task.reads, part) != task.reads.end()) task.posts.push_back({{1, summed}});
      }
    }
    Task copy{.kind = TaskKind::copy, .reads = {{1, more, 0, part.rows, 0, part.cols}}, .waits = {{{1, summed}}}};
    copy.writes = {{.to = {1, more + 1, 0, part.rows, 0, part.cols}}};
    plan.lanes.push_back({.rank = 1, .engine = Engine::serial, .name = "late", .tasks = {copy}});
    const CheckResult result = check(plan);
    ASSERT_EQ(result.ok(), !by_data) << (result.ok() ? "" : result.violations[0].text);
    if (by_data) {
      EXPECT_EQ(result.violations[0].rule, Rule::race) << result.violations[0].text;
    } else {
      const Plan before = plan;
      EXPECT_EQ(elide(plan).rfind("signals of LL data also order other data: ", 0), 0U) << elide(plan);
      EXPECT_TRUE(plan == before);
    }
  }
}

TEST(LlData, TheSimulatorKeepsTheOrder) {
  Plan plan = with_ll("gemm_all_reduce");
  const Machine machine = load_machine("h200x4");
  const double with_signals = simulate(plan, machine).total_ns;
  Plan lowered = lower(plan, gpu_target("h200", 4, 132)).plan;
  const double without = simulate(lowered, machine).total_ns;
  EXPECT_NEAR(without / with_signals, 1, 0.2);
  lowered.target.clear();
  EXPECT_EQ(simulate(lowered, machine).total_ns, without) << "whatever the plan is lowered for";
}

}  // namespace
}  // namespace tilewire
