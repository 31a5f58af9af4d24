// Calls of a vendor's collectives: the plans of `sequential` with such calls, and the checker's rules for them. Sound
// plans are
// accepted; each spoiled plan is refused for its reason. Built as the target `unit_check`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "check_plans.hpp"
#include "check_replay.hpp"
#include "operator_names.hpp"
#include "tilewire/json.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire {
namespace {

using namespace check_plans;

const std::vector<const char*> kOperators = testing::operator_names(
    [](const Structure& structure) { return !structure.by_columns || structure.after == Collective::all_to_all; });
constexpr const char* kGather = "all_gather_gemm";
constexpr const char* kScatter = "gemm_reduce_scatter";
constexpr const char* kReduce = "gemm_all_reduce";

Problem problem_of(const char* op) {
  return {.op = op, .m = 48, .n = 40, .k = 24, .dtype = DType::bf16, .reduction = Reduction::any};
}

Config library_of(const char* op) {
  Config config{.schedule = "sequential", .collective = Provider::library};
  if (op != std::string("all_reduce")) config.compute = Provider::library;
  return config;
}

Plan plan_of(const char* op, int ranks = 4) { return make_plan(problem_of(op), {.num_ranks = ranks}, library_of(op)); }

Plan with_bias(const char* op, int ranks = 4) {
  Problem problem = problem_of(op);
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::relu}};
  return make_plan(problem, {.num_ranks = ranks}, library_of(op));
}

/// Lane number `index` of a rank.
Lane& lane_of(Plan& plan, int rank, int index = 0) {
  for (Lane& lane : plan.lanes) {
    if (lane.rank == rank && index-- == 0) return lane;
  }
  throw Error(ErrorKind::internal, "no such lane");
}

Task& call_of(Plan& plan, int rank) {
  return *std::ranges::find(lane_of(plan, rank).tasks, TaskKind::collective_call, &Task::kind);
}

std::vector<TaskKind> kinds_of(const Lane& lane) {
  std::vector<TaskKind> kinds;
  for (const Task& task : lane.tasks) kinds.push_back(task.kind);
  return kinds;
}

// ---- the schedule ------------------------------------------------------------------------------------

TEST(LibraryCollectives, AreOneCallBeforeOrAfterTheGemm) {
  using enum TaskKind;
  Plan gather = plan_of("all_gather_gemm");
  EXPECT_EQ(gather.lanes.size(), 4U);
  EXPECT_EQ(kinds_of(gather.lanes[1]), (std::vector{collective_call, gemm_call}));
  EXPECT_EQ(call_of(gather, 1).collective, Collective::all_gather);
  EXPECT_EQ(gather.lanes[1].engine, Engine::library);
  Plan scatter = plan_of("gemm_reduce_scatter");
  EXPECT_EQ(kinds_of(scatter.lanes[1]), (std::vector{gemm_call, collective_call}));
  EXPECT_EQ(call_of(scatter, 1).writes[0].to.rows, 12);
  EXPECT_EQ(kinds_of(plan_of("gemm_all_reduce").lanes[0]), (std::vector{gemm_call, collective_call}));
  EXPECT_EQ(kinds_of(plan_of("all_reduce").lanes[0]), (std::vector{collective_call}));
  EXPECT_EQ(num_signals(gather) + num_signals(scatter), 0) << "the calls themselves are what ranks wait for";
}

TEST(LibraryCollectives, EpiloguesAndOtherTypesComeAfterTheSum) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce"}) {
    Plan plan = with_bias(op);
    EXPECT_EQ(plan.lanes.size(), 8U);
    EXPECT_EQ(lane_of(plan, 1, 1).engine, Engine::reduce);
    EXPECT_TRUE(lane_of(plan, 1).tasks[0].epilogue.empty());
    for (const Task& task : lane_of(plan, 1, 1).tasks) EXPECT_EQ(task.epilogue.size(), 2U);
    Config wide = library_of(op);
    wide.wire = DType::fp32;
    Plan summed_wide = make_plan(problem_of(op), {.num_ranks = 4}, wide);
    EXPECT_EQ(summed_wide.buffers[call_of(summed_wide, 0).reads[0].buffer].dtype, DType::fp32);
    expect_accepted(summed_wide);
  }
  Plan gather = with_bias("all_gather_gemm");
  EXPECT_EQ(lane_of(gather, 0).tasks[1].epilogue.size(), 2U) << "a product that is no sum has its own";
}

TEST(LibraryCollectives, RefuseByNameWhatTheyCannotDo) {
  const auto reason = [](const char* op, const std::function<void(Problem&, Config&)>& change, int ranks = 4) {
    Problem problem = problem_of(op);
    Config config = library_of(op);
    change(problem, config);
    return find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks}, config).value_or("");
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  for (const char* op : kOperators) EXPECT_EQ(reason(op, [](auto&, auto&) {}), "");
  expect(reason(kScatter, [](auto& p, auto&) { p.reduction = Reduction::repeatable; }), "needs reduction = any");
  expect(reason("all_reduce", [](auto& p, auto&) { p.reduction = Reduction::repeatable; }), "needs reduction = any");
  EXPECT_EQ(reason(kGather, [](auto& p, auto&) { p.reduction = Reduction::repeatable; }), "");
  expect(reason(kGather, [](auto& p, auto&) { p.m = 50; }), "equal shares: 50 rows on 4 ranks are not");
  expect(reason(kScatter, [](auto& p, auto&) { p.m = 50; }), "equal shares");
  EXPECT_EQ(reason("gemm_all_reduce", [](auto& p, auto&) { p.m = 50; }), "");
  expect(reason(kGather, [](auto& p, auto&) { p.k = 0; }), "m, n or k is 0");
  expect(reason(kScatter, [](auto& p, auto&) { p.k = 5; }), "no part of K");
  expect(reason(
             kGather, [](auto&, auto&) {}, 1),
         "one rank");
  expect(reason(kGather, [](auto&, auto& c) { c.compute = Provider::tiles; }), "compute = library");
  expect(reason("all_reduce", [](auto&, auto& c) { c.compute = Provider::library; }), "no GEMM");
  expect(reason(kGather, [](auto&, auto& c) { c.tile_m = 64; }), "tile_m");
  expect(reason(kGather, [](auto&, auto& c) { c.pacing = Pacing::lockstep; }), "pacing");
  expect(reason(kScatter, [](auto&, auto& c) { c.chunk_rows = 4; }), "chunk_rows");
  expect(reason(kScatter, [](auto&, auto& c) { c.reduce_workers = 4; }), "reduce_workers");
  expect(reason("all_reduce", [](auto&, auto& c) { c.wire = DType::fp32; }), "wire");
  expect(reason(kScatter, [](auto&, auto& c) { c.schedule = "fused", c.transport = Transport::copy_engine; }),
         "collective = library");
  expect(reason("gemm_all_reduce", [](auto&, auto& c) { c.schedule = "two_stream"; }), "library");
}

TEST(LibraryCollectives, AreChoicesOnGpusWhereTheyAreAllowed) {
  Team team{.num_ranks = 4};
  team.devices.assign(4, {.copy_engines = 3, .sms = 132});
  const auto has = [&](const Problem& problem) {
    const auto configs = find_schedule("sequential").candidates(problem, team);
    return std::ranges::count(configs, Provider::library, &Config::collective) == 1;
  };
  EXPECT_FALSE(has(problem_of("gemm_all_to_all"))) << "GPUs call none";
  for (const char* op : kOperators) {
    if (find_operator(op).structure.after == Collective::all_to_all) continue;
    Problem problem = problem_of(op);
    EXPECT_TRUE(has(problem)) << op;
    problem.reduction = Reduction::repeatable;
    const Collective after = find_operator(op).structure.after;
    const bool sums = after == Collective::reduce_scatter || after == Collective::all_reduce;
    EXPECT_EQ(has(problem), !sums) << op;
    problem = problem_of(op);
    problem.m = 50;
    EXPECT_EQ(has(problem), after == Collective::all_reduce) << op;
  }
}

TEST(LibraryCollectives, GoToJsonAndBack) {
  for (const char* op : kOperators) {
    const Plan plan = plan_of(op);
    const nlohmann::json json = plan;
    EXPECT_EQ(json["note"]["config"]["collective"], "library");
    EXPECT_EQ(json.get<Plan>(), plan);
  }
}

// ---- accepted ----------------------------------------------------------------------------------------

TEST(CheckCollectives, AcceptsThePlansOfSequential) {
  for (const char* op : kOperators) {
    for (const int ranks : {2, 3, 4, 8}) {
      SCOPED_TRACE(fmt::format("{} on {}", op, ranks));
      if (find_schedule("sequential").refuses(problem_of(op), {.num_ranks = ranks}, library_of(op))) {
        EXPECT_EQ(find_operator(op).structure.after, Collective::all_to_all) << "only its shares are unequal here";
        continue;
      }
      expect_accepted(plan_of(op, ranks));
      const CheckResult result = check(plan_of(op, ranks));
      EXPECT_EQ(result.total_bytes, result.least_bytes);
      if (op != std::string("all_reduce")) expect_accepted(with_bias(op, ranks));
    }
  }
}

/// Two ranks: after the product, a library sum of two numbers for each of four columns. Buffer `token`: row 0 is a
/// rank's contribution, row 1 the sum. The library's lane waits for `filled`, and posts `met`.
Plan with_token(Scope scope) {
  Plan plan = plan_of("all_gather_gemm", 2);
  const int token = static_cast<int>(plan.buffers.size());
  plan.buffers.push_back({.name = "token", .rows = 2, .cols = 4, .scope = scope});
  plan.buffers.push_back({.name = "mail", .rows = 1, .cols = 4, .scope = Scope::symmetric});
  plan.buffers.push_back({.name = "box", .rows = 1, .cols = 4, .scope = Scope::local});
  plan.signals = {{"filled", 0, 1}, {"met", 1, 1}, {"mailed", 2, 1}};
  for (int rank = 0; rank < 2; ++rank) {
    Task call{.kind = TaskKind::collective_call, .collective = Collective::all_reduce};
    call.reads = {part(rank, token, 0, 1, 0, 4)};
    call.writes = {{part(rank, token, 1, 1, 0, 4)}};
    call.waits = {{{rank, 0}}};
    call.posts = {{{rank, 1}}};
    lane_of(plan, rank).tasks.push_back(call);
  }
  return plan;
}

/// Write a rank's contribution.
Task fill_of(const Plan& plan, int rank) {
  const int token = static_cast<int>(plan.buffers.size()) - 3;
  return {.kind = TaskKind::fill, .writes = {{part(rank, token, 0, 1, 0, 4)}}, .posts = {{{rank, 0}}}};
}

/// After the sum each rank sends its row to the other. The end of its own collective call proves that the other has
/// begun.
Plan mail_plan() {
  Plan plan = with_token(Scope::local);
  for (int rank = 0; rank < 2; ++rank) {
    Lane lane{.rank = rank, .engine = Engine::copy, .name = "mail"};
    lane.tasks.push_back(fill_of(plan, rank));
    const int token = static_cast<int>(plan.buffers.size()) - 3;
    lane.tasks.push_back({.kind = TaskKind::copy,
                          .reads = {part(rank, token, 0, 1, 0, 4)},
                          .writes = {{part(1 - rank, token + 1, 0, 1, 0, 4)}},
                          .waits = {{{rank, 1}}},
                          .posts = {{{1 - rank, 2}}}});
    lane.tasks.push_back({.kind = TaskKind::copy,
                          .reads = {part(rank, token + 1, 0, 1, 0, 4)},
                          .writes = {{part(rank, token + 2, 0, 1, 0, 4)}},
                          .waits = {{{rank, 2}}}});
    plan.lanes.push_back(lane);
  }
  return plan;
}

TEST(CheckCollectives, ACallEndsWhenAllHaveBegun) {
  expect_accepted(mail_plan());
  Plan plan = mail_plan();
  plan.lanes[2].tasks[1].waits.clear();
  expect_refused(plan, Rule::race, {"across calls", "task 1 of lane mail on rank 0", "rank 1 mail"});
}

/// Rank 1 writes rank 0's contribution: in its next call perhaps before rank 0's collective call has read it.
Plan early_fill_plan() {
  Plan plan = with_token(Scope::symmetric);
  for (int rank = 0; rank < 2; ++rank) {
    plan.lanes.push_back({.rank = rank, .engine = Engine::copy, .name = "fill", .tasks = {fill_of(plan, 1 - rank)}});
  }
  return plan;
}

TEST(CheckCollectives, TheEndOfOnesCallSaysNothingOfAnothers) {
  expect_refused(early_fill_plan(), Rule::race,
                 {"across calls", "(collective_call) reads rank 0 token rows 0..1", "(fill)"});
}

TEST(CheckCollectives, InterleavingsAgree) {
  std::mt19937_64 random(1);
  int shown = 0;
  for (int round = 0; round < 100; ++round) {
    const auto wrong = replay(mail_plan(), 4, random);
    EXPECT_FALSE(wrong) << *wrong;
    shown += replay(early_fill_plan(), 4, random).has_value();
  }
  EXPECT_GT(shown, 0);
}

// ---- refused -----------------------------------------------------------------------------------------

struct Spoiled {
  const char* name;
  const char* op;
  Rule rule;
  std::vector<const char*> parts;
  std::function<void(Plan&)> spoil;
};

/// The ranks' calls do not match.
std::vector<Spoiled> spoiled_meetings() {
  constexpr Rule kRule = Rule::structure;
  const auto drop_call = [](Plan& p) {
    std::erase_if(lane_of(p, 1).tasks, [](const Task& t) { return t.kind == TaskKind::collective_call; });
  };
  const auto call_twice = [](Plan& p) { lane_of(p, 1).tasks.push_back(Task(call_of(p, 1))); };
  const auto scatter = [](Plan& p) {
    call_of(p, 1).collective = Collective::reduce_scatter;
    call_of(p, 1).writes[0].to.rows /= 4;
  };
  const auto shrink = [](Plan& p) { call_of(p, 1).reads[0].rows = call_of(p, 1).writes[0].to.rows = 47; };
  const auto two_lanes = [](Plan& p) {
    p.lanes.push_back({.rank = 1, .engine = Engine::library, .name = "second", .tasks = {call_of(p, 1)}});
  };
  return {{"no call", kGather, kRule, {"rank 1 has no matching call"}, drop_call},
          {"one call too many", kReduce, kRule, {"rank 0 has no matching call"}, call_twice},
          {"another collective", kReduce, kRule, {"is reduce_scatter of", "is all_reduce of"}, scatter},
          {"another size", kReduce, kRule, {"is all_reduce of 47 x 40 bf16", "is all_reduce of 48 x 40 bf16"}, shrink},
          {"in two lanes", kReduce, kRule, {"are in two lanes"}, two_lanes}};
}

/// One call is not a call that a library makes.
std::vector<Spoiled> spoiled_calls() {
  constexpr Rule kRule = Rule::structure;
  const auto none = [](Plan& p) { call_of(p, 2).collective = Collective::none; };
  const auto to_all = [](Plan& p) {
    call_of(p, 1).collective = Collective::all_to_all, call_of(p, 1).reads[0].rows -= 1;
  };
  const auto misfit = [](Plan& p) { call_of(p, 1).reads[0].rows = 44; };
  const auto elsewhere = [](Plan& p) { call_of(p, 1).reads[0].rank = 2; };
  const auto half = [](Plan& p) { call_of(p, 1).reads[0].cols = call_of(p, 1).writes[0].to.cols = 20; };
  const auto empty = [](Plan& p) { call_of(p, 1).reads[0].rows = call_of(p, 1).writes[0].to.rows = 0; };
  const auto pool = [](Plan& p) { lane_of(p, 1).engine = Engine::tiles; };
  const auto add = [](Plan& p) { call_of(p, 1).writes[0].mode = WriteMode::accumulate; };
  const auto more = [](Plan& p) { call_of(p, 1).writes.push_back(call_of(p, 1).writes[0]); };
  return {{"no collective", kReduce, kRule, {"collective = none"}, none},
          {"all to all of parts", kReduce, kRule, {"has no 4 equal parts"}, to_all},
          {"sizes that do not fit", kScatter, kRule, {"reduce_scatter of", "on 4 ranks does not give"}, misfit},
          {"another rank's memory", kGather, kRule, {"is memory of another rank"}, elsewhere},
          {"part of the columns", kGather, kRule, {"is not whole rows"}, half},
          {"nothing", kReduce, kRule, {"is empty"}, empty},
          {"another engine", kGather, kRule, {"a collective_call needs a lane of engine library"}, pool},
          {"adds", kReduce, kRule, {"a collective_call stores its whole result"}, add},
          {"two results", kReduce, kRule, {"2 writes, want 1"}, more}};
}

/// The order with tasks before, beside and after the call is wrong.
std::vector<Spoiled> spoiled_orders() {
  const auto reverse = [](Plan& p) { std::ranges::reverse(lane_of(p, 1).tasks); };
  const auto beside = [](Plan& p) {
    auto& tasks = lane_of(p, 1).tasks;
    Lane lane{.rank = 1, .engine = Engine::copy, .name = "beside", .tasks = {tasks[0]}};
    tasks.erase(tasks.begin());
    p.lanes.insert(p.lanes.begin(), lane);
  };
  const auto shift = [](Plan& p) {
    p.buffers[call_of(p, 1).writes[0].to.buffer].rows += 1;
    call_of(p, 1).writes[0].to.row += 1;
  };
  const auto await_end = [](Plan& p) {
    p.signals.push_back({"end", 0, 1});
    call_of(p, 0).waits = {{{0, 0}}};
    call_of(p, 1).posts = {{{0, 0}}};
  };
  return {{"before the product", kScatter, Rule::coverage, {"which nothing has written"}, reverse},
          {"after the product", kGather, Rule::coverage, {"which nothing has written"}, reverse},
          {"beside the product", kScatter, Rule::race, {"the two are unordered"}, beside},
          {"shifted rows", kGather, Rule::coverage, {"which nothing has written"}, shift},
          {"waits for another's end", kReduce, Rule::progress, {"deadlock", "waits for"}, await_end}};
}

TEST(CheckCollectives, RefusesWhatIsSpoiled) {
  for (const auto& list : {spoiled_meetings(), spoiled_calls(), spoiled_orders()}) {
    for (const Spoiled& one : list) {
      SCOPED_TRACE(one.name);
      Plan plan = plan_of(one.op);
      one.spoil(plan);
      const CheckResult result = check(plan);
      for (const char* part : one.parts) expect_refused(result, one.rule, {part});
    }
  }
}

TEST(CheckCollectives, ADroppedWaitOfTheFinishIsARace) {
  Plan plan = with_bias("gemm_reduce_scatter");
  lane_of(plan, 2, 1).tasks[0].waits.clear();
  expect_refused(plan, Rule::race, {"lane finish on rank 2", "the two are unordered"});
}

TEST(CheckCollectives, CallsInAnotherOrderDoNotFit) {
  Plan plan = mail_plan();
  auto& tasks = lane_of(plan, 1).tasks;
  std::swap(tasks.front(), tasks.back());
  expect_refused(plan, Rule::structure, {"is all_gather of", "is all_reduce of"});
}

}  // namespace
}  // namespace tilewire
