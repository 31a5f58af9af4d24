// The checker on small hand-written plans: sound plans are accepted; violations of each rule are refused with the names
// of
// the tasks. Built as the target `unit_check`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "check_plans.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

using namespace check_plans;

// ---- accepted ----------------------------------------------------------------------------------------

TEST(Check, AcceptsAGatherWithAHandshake) {
  expect_accepted(gather_plan());
  const CheckResult result = check(gather_plan());
  EXPECT_EQ(result.traffic, (std::vector<LinkTraffic>{{0, 1, 12}, {1, 0, 12}}));
  EXPECT_EQ(result.total_bytes, 24);
  EXPECT_EQ(result.least_bytes, 24);
}

TEST(Check, AcceptsAScatterOnAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3, 8, 64, 65, 130}) {
    SCOPED_TRACE(num_ranks);
    expect_accepted(scatter_plan(num_ranks));
    EXPECT_EQ(check(scatter_plan(num_ranks)).total_bytes, num_ranks * (num_ranks - 1) * 16);
  }
}

TEST(Check, AcceptsAccumulationAfterAFill) { expect_accepted(accumulate_plan()); }

TEST(Check, AcceptsThresholdsBelowTheTotalOnASerialLane) { expect_accepted(counter_plan()); }

TEST(Check, AcceptsABarrierWhosePostsJustifyEachOther) { expect_accepted(barrier_plan(3)); }

TEST(Check, AcceptsADroppedPaceWait) {
  Plan plan = gather_plan();
  const Signal pace{1, 3};
  plan.signals.push_back({"pace", 3, 1});
  plan.lanes[1].tasks[0].posts.push_back({pace});
  plan.lanes[3].tasks[0].waits.push_back({pace, 1, Purpose::pace});
  expect_accepted(plan);
  plan.lanes[3].tasks[0].waits.pop_back();
  expect_accepted(plan);
}

TEST(Check, AcceptsEmptyBuffersAndAnEmptySum) {
  Plan plan = scatter_plan(2);
  change_problem(plan, [](Problem& problem) { problem.k = 0; });
  for (int buffer : {0, 1}) plan.buffers[buffer].cols = 0;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute) task.reads[0].cols = task.reads[1].cols = 0;
    }
  }
  expect_accepted(plan);
}

// ---- structure ---------------------------------------------------------------------------------------

TEST(CheckStructure, RefusesAnIndexThatPointsNowhere) {
  Plan plan = gather_plan();
  plan.lanes[1].tasks[0].writes[0].to.row = 3;
  expect_refused(plan, Rule::structure, {"task 0 of lane copy on rank 0", "rank 1 gathered rows 3..5"});
}

TEST(CheckStructure, RefusesAnUnknownOperatorUnlessMeaningsAreGiven) {
  Plan plan = gather_plan();
  change_problem(plan, [](Problem& problem) { problem.op = "gather"; });
  expect_refused(plan, Rule::structure, {"unknown operator 'gather'"});
  expect_refused(check(plan, Specification{}), Rule::structure, {"no meaning is given for a on rank 0"});
}

TEST(CheckStructure, RefusesTooManyRanksOnce) {
  const CheckResult result = check(Plan{.team = {.num_ranks = 1025}}, Specification{});
  expect_refused(result, Rule::unsupported, {"1025 ranks: the checker knows at most 1024"});
  EXPECT_EQ(result.violations.size(), 1U);
}

TEST(CheckStructure, RefusesBuffersThatAreNotTheOperators) {
  Plan plan = gather_plan();
  plan.buffers[2].dtype = DType::fp16;
  expect_refused(plan, Rule::structure, {"its buffer c is not all_gather_gemm's"});
}

TEST(CheckStructure, RefusesAWriteToAnInput) {
  Plan plan = gather_plan();
  plan.lanes[1].tasks[0].writes[0].to = part(0, 0, 0, 2, 0, 3);
  expect_refused(plan, Rule::structure, {"task 0 of lane copy on rank 0", "rank 0 a rows 0..2", "an input"});
}

TEST(CheckStructure, RefusesPrivateMemoryOfAPeer) {
  Plan plan = gather_plan();
  plan.buffers[3].scope = Scope::local;
  expect_refused(plan, Rule::structure, {"task 0 of lane copy on rank 0", "rank 1 gathered", "neither symmetric"});
  plan = gather_plan();
  plan.lanes[0].tasks[2].reads[0] = part(1, 0, 0, 2, 0, 3);
  expect_refused(plan, Rule::structure, {"task 2 of lane tiles on rank 0 (compute)", "reads rank 1 a rows 0..2"});
}

TEST(CheckStructure, FollowsTheReachOfLinks) {
  Plan copies = gather_plan();
  Plan stores = scatter_plan(2);
  copies.team.links.assign(4, {.reach = Reach::copy});
  stores.team.links = copies.team.links;
  expect_accepted(copies);
  expect_refused(stores, Rule::structure, {"task 1 of lane tiles on rank 0", "has reach copy"});
  copies.team.links.assign(4, {.reach = Reach::none});
  expect_refused(copies, Rule::structure, {"task 0 of lane tiles on rank 0", "posts to ready", "no link"});
}

TEST(CheckStructure, RefusesAWaitForARemoteSignal) {
  Plan plan = gather_plan();
  plan.lanes[0].tasks[2].waits[0].signal.rank = 1;
  expect_refused(plan, Rule::structure, {"task 2 of lane tiles on rank 0", "arrived on rank 1", "its own signals"});
}

TEST(CheckStructure, RefusesShapesThatDoNotFit) {
  Plan plan = scatter_plan(2);
  plan.lanes[1].tasks[0].reads[1].rows = 1;
  expect_refused(plan, Rule::structure, {"task 0 of lane reduce on rank 0", "of different shapes"});
  plan = scatter_plan(2);
  plan.lanes[0].tasks[1].reads[0].cols = 1;
  expect_refused(plan, Rule::structure, {"task 1 of lane tiles on rank 0", "K is 1 and 2"});
  plan = gather_plan();
  plan.buffers[3].dtype = DType::fp32;
  expect_refused(plan, Rule::structure, {"task 0 of lane copy on rank 0", "dtypes bf16 and fp32 differ"});
}

TEST(CheckStructure, RefusesAnEpilogueThatIsNotTheProblems) {
  Plan plan = scatter_plan(2);
  change_problem(plan, [](Problem& problem) { problem.epilogue.push_back({EpilogueKind::relu}); });
  expect_refused(plan, Rule::structure, {"task 0 of lane reduce on rank 0", "is not the problem's"});
}

/// Columns 2i - 1 and 2i are up and gate of different columns.
TEST(CheckCoverage, RefusesPairsThatAreNone) {
  for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
    Problem problem{.op = "all_gather_gemm", .m = 32, .n = 32, .k = 8, .b_layout = layout};
    problem.epilogue = {{EpilogueKind::swiglu_pairs}};
    Plan plan = make_plan(problem, {.num_ranks = 2}, {.tile_m = 8, .tile_n = 8});
    EXPECT_TRUE(check(plan).ok());
    Task* tile = nullptr;
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (!task.epilogue.empty() && task.reads[1].row + task.reads[1].col == 0) tile = &task;
      }
    }
    ASSERT_NE(tile, nullptr);
    (layout == BLayout::nk ? tile->reads[1].row : tile->reads[1].col) = 1;
    expect_refused(plan, Rule::coverage, {"that are no pair"});
    tile->kind = TaskKind::gemm_call;
    EXPECT_THROW(validate(plan), Error);
  }
}

/// A residual as large as the result, but read at another place.
TEST(CheckCoverage, RefusesAResidualOfOtherElements) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 32, .n = 16, .k = 8, .epilogue = {{EpilogueKind::residual}}};
  const Config config{.tile_m = 8, .tile_n = 8};
  const auto damaged = [&](auto&& damage) {
    Plan plan = make_plan(problem, {.num_ranks = 2}, config);
    EXPECT_TRUE(check(plan).ok());
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (lane.rank == 1 && !task.epilogue.empty() && task.epilogue[0].operand->row == 0)
          damage(*task.epilogue[0].operand);
      }
    }
    return plan;
  };
  expect_refused(damaged([](Region& region) { region.row = 8; }), Rule::coverage,
                 {"adds residual rows", "different elements"});
  expect_refused(damaged([](Region& region) { region.rows = 4; }), Rule::structure, {"as residual to 8 x 8"});
}

TEST(CheckStructure, RefusesPostsThatOverflow) {
  Plan plan = gather_plan();
  for (Post& post : plan.lanes[1].tasks[0].posts) post.add = int64_t{1} << 62;
  expect_refused(plan, Rule::structure, {"posts add up to more than"});
}

// ---- progress ----------------------------------------------------------------------------------------

TEST(CheckProgress, NamesEveryBlockedLane) {
  Plan plan = gather_plan();
  plan.lanes[1].tasks[0].posts.clear();
  expect_refused(
      plan, Rule::progress,
      {"task 2 of lane tiles on rank 1 (compute)", "arrived on rank 1 to reach 1", "stays at 0", "add up to 0 only"});
}

TEST(CheckProgress, RefusesAThresholdOutOfReach) {
  Plan plan = scatter_plan(3);
  plan.lanes[1].tasks[0].waits[0].at_least = 4;
  expect_refused(plan, Rule::progress, {"task 0 of lane reduce on rank 0", "stays at 3", "add up to 3 only"});
}

TEST(CheckProgress, RefusesACycleOfLanes) {
  Plan plan = gather_plan();
  // Each rank posts its ready signal only after the other's rows have arrived.
  for (const int lane : {0, 2}) std::swap(plan.lanes[lane].tasks[0], plan.lanes[lane].tasks[2]);
  expect_refused(plan, Rule::progress, {"task 0 of lane tiles on rank 0", "stays at 0"});
  expect_refused(plan, Rule::progress, {"task 0 of lane copy on rank 1", "ready[0] on rank 1 to reach 1"});
}

// ---- coverage ----------------------------------------------------------------------------------------

TEST(CheckCoverage, RefusesAMissingContribution) {
  Plan plan = scatter_plan(2);
  plan.lanes[1].tasks[0].reads.pop_back();
  expect_refused(plan, Rule::coverage,
                 {"rank 0 c rows 0..2 cols 0..2", "contributions 0..2", "contributions 0..4",
                  "task 0 of lane reduce on rank 0", "are missing"});
}

TEST(CheckCoverage, RefusesAContributionCountedTwice) {
  Plan plan = scatter_plan(2);
  plan.lanes[1].tasks[0].reads[1] = plan.lanes[1].tasks[0].reads[0];
  expect_refused(plan, Rule::coverage, {"task 0 of lane reduce on rank 0", "a contribution is counted twice"});
}

TEST(CheckCoverage, RefusesSumsOfDifferentElements) {
  Plan plan = scatter_plan(2);
  plan.lanes[0].tasks[2].reads[0].row = 2;
  expect_refused(plan, Rule::coverage, {"task 0 of lane reduce on rank 0", "different elements"});
}

TEST(CheckCoverage, RefusesAHoleInAnOutput) {
  Plan plan = gather_plan();
  plan.lanes[0].tasks[1].writes[0].to.rows = 1;
  expect_refused(plan, Rule::coverage, {"rank 0 c rows 1..2 cols 0..2", "is never written"});
}

TEST(CheckCoverage, RefusesAnElementStoredTwice) {
  Plan plan = gather_plan();
  plan.lanes[0].tasks[2].writes[0].to.row = 1;
  plan.lanes[0].tasks[2].writes[0].to.rows = 2;
  expect_refused(
      plan, Rule::coverage,
      {"task 2 of lane tiles on rank 0", "rank 0 c rows 1..2", "task 1 of lane tiles on rank 0", "written already"});
}

TEST(CheckCoverage, RefusesAReadOfWhatNobodyWrote) {
  Plan plan = gather_plan();
  plan.lanes[3].tasks[0].writes[0].to.rows = 1;
  plan.lanes[3].tasks[0].reads[0].rows = 1;
  expect_refused(plan, Rule::coverage,
                 {"task 2 of lane tiles on rank 0", "reads rank 0 gathered rows 3..4", "nothing has written"});
}

TEST(CheckCoverage, RefusesRowsInTheWrongPlace) {
  Plan plan = gather_plan();
  for (const int rank : {0, 1}) plan.lanes[2 * rank].tasks[1].writes[0].to.row = 2 * (1 - rank);
  for (const int rank : {0, 1}) plan.lanes[2 * rank].tasks[2].writes[0].to.row = 2 * rank;
  expect_refused(plan, Rule::coverage, {"rank 0 c rows 0..2", "holds the sum", "output rows 2..4", "must hold"});
}

TEST(CheckCoverage, RefusesAccumulationOntoNothing) {
  Plan plan = accumulate_plan();
  plan.lanes[1].tasks[0].kind = TaskKind::sync;
  plan.lanes[1].tasks[0].writes.clear();
  expect_refused(plan, Rule::coverage, {"lane tiles on rank", "rank 0 sum rows 0..2", "neither filled nor written"});
}

TEST(CheckCoverage, RefusesAFillWithAnotherValue) {
  Plan plan = accumulate_plan();
  plan.lanes[1].tasks[0].value = 1;
  expect_refused(plan, Rule::coverage, {"reads a constant where it needs a sum"});
}

TEST(CheckCoverage, RefusesAnEpilogueTooEarlyOrNotAtAll) {
  Plan plan = scatter_plan(2);
  plan.lanes[0].tasks[2].epilogue = plan.lanes[1].tasks[0].epilogue;
  expect_refused(plan, Rule::coverage, {"task 0 of lane reduce on rank 0", "which is finished"});
  plan = scatter_plan(2);
  plan.lanes[1].tasks[0].epilogue.clear();
  expect_refused(plan, Rule::coverage, {"rank 0 c", "must hold the finished sum"});
}

TEST(CheckCoverage, RefusesABiasOfOtherColumns) {
  Plan plan = scatter_plan(2);
  Task right = plan.lanes[1].tasks[0];
  Task& left = plan.lanes[1].tasks[0];
  for (Task* task : {&left, &right}) {
    const int64_t col = task == &left ? 0 : 1;
    for (Region& read : task->reads) read.col = col, read.cols = 1;
    task->writes[0].to.col = col, task->writes[0].to.cols = 1;
    task->epilogue[0].operand->cols = 1;
  }
  right.epilogue[0].operand->col = 1;
  plan.lanes[1].tasks.push_back(right);
  expect_accepted(plan);
  plan.lanes[1].tasks[1].epilogue[0].operand->col = 0;
  expect_refused(plan, Rule::coverage, {"task 1 of lane reduce on rank 0", "bias", "different columns"});
}

TEST(CheckCoverage, RefusesDifferentPartsOfK) {
  Plan plan = scatter_plan(2);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute) task.reads[0].cols = task.reads[1].cols = 1;
    }
  }
  plan.lanes[0].tasks[1].reads[0].col = 1;
  expect_refused(plan, Rule::coverage, {"task 1 of lane tiles on rank 0", "K 1..2 of A with K 0..1 of B"});
}

// ---- races -------------------------------------------------------------------------------------------

TEST(CheckRaces, RefusesADroppedDataWait) {
  Plan plan = gather_plan();
  plan.lanes[0].tasks[2].waits.clear();
  expect_refused(plan, Rule::race,
                 {"task 0 of lane copy on rank 1 (copy) stores rank 0 gathered rows 2..4",
                  "task 2 of lane tiles on rank 0 (compute) reads rank 0 gathered rows 2..4"});
}

TEST(CheckRaces, RefusesADroppedHandshake) {
  Plan plan = gather_plan();
  plan.lanes[1].tasks[0].waits.clear();
  expect_refused(
      plan, Rule::race,
      {"across calls", "task 2 of lane tiles on rank 1", "task 0 of lane copy on rank 0", "that rank 1 has begun"});
  plan = accumulate_plan();
  for (const int lane : {0, 2}) plan.lanes[lane].tasks[0].waits.clear();
  expect_refused(plan, Rule::race, {"task 0 of lane copy on rank 1 (fill)", "task 0 of lane tiles on rank 0"});
}

TEST(CheckRaces, RefusesADroppedHandshakeBetweenManyRanks) {
  for (const int rank : {3, 63, 64, 99}) {
    Plan plan = scatter_plan(100);
    plan.lanes[2 * rank].tasks[1].waits.clear();
    const std::string owner = "reads rank " + std::to_string((rank + 1) % 100) + " staged";
    expect_refused(plan, Rule::race, {"across calls", "(compute) stores", owner.c_str(), "has begun"});
  }
}

TEST(CheckRaces, RefusesALoweredThreshold) {
  Plan plan = scatter_plan(3);
  plan.lanes[1].tasks[0].waits[0].at_least = 2;
  expect_refused(plan, Rule::race,
                 {"task 0 of lane reduce on rank 0 (reduce) reads rank 0 staged", "(compute) stores"});
}

TEST(CheckRaces, RefusesACounterOfAPoolThatPromisesNoOrder) {
  Plan plan = counter_plan();
  plan.lanes[1].engine = plan.lanes[3].engine = Engine::tiles;
  expect_refused(plan, Rule::race, {"task 0 of lane copy on rank 1", "task 2 of lane tiles on rank 0"});
}

TEST(CheckRaces, RefusesACounterThatTheNextCallCanFill) {
  // Rank 0's counter expects a post of rank 1 and one of rank 2. Rank 2 waits for nothing of rank 0, so two of its
  // calls could
  // reach the threshold before rank 1 has stored anything.
  Plan plan = scatter_plan(3);
  expect_accepted(plan);
  for (Task& task : plan.lanes[4].tasks) task.waits.clear();
  expect_refused(plan, Rule::race, {"task 0 of lane reduce on rank 0", "lane tiles on rank 1"});
}

TEST(CheckRaces, RefusesACallThatEndsBeforeItsInputIsRead) {
  // The peer pulls from this rank's input in the arena, and no signal says that it has finished.
  Plan plan = gather_plan();
  plan.buffers[0].in_arena = true;
  change_problem(plan, [](Problem& problem) { problem.arena = {"a"}; });
  for (const int rank : {0, 1}) {
    Task& copy = plan.lanes[2 * rank + 1].tasks[0];
    copy.reads[0] = part(1 - rank, 0, 0, 2, 0, 3);
    copy.writes[0].to = part(rank, 3, 2 * (1 - rank), 2, 0, 3);
    copy.posts[0].signal.rank = rank;
  }
  expect_refused(plan, Rule::race,
                 {"task 0 of lane copy on rank 1 (copy) reads rank 0 a", "may end before this access"});
  plan.signals.push_back({"taken", 3, 1});
  for (const int rank : {0, 1}) {
    plan.lanes[2 * rank + 1].tasks[0].posts.push_back({{1 - rank, 3}});
    plan.lanes[2 * rank].tasks.push_back({.kind = TaskKind::sync, .waits = {{{rank, 3}, 1}}});
  }
  expect_accepted(plan);
  plan.lanes[1].tasks[0].waits.clear();
  expect_refused(plan, Rule::race,
                 {"task 0 of lane copy on rank 0 (copy) reads rank 1 a", "may begin after this access"});
}

TEST(CheckRaces, RefusesATaskThatReadsWhatItWrites) {
  Plan plan = accumulate_plan();
  plan.lanes[1].tasks[1] = {.kind = TaskKind::reduce,
                            .reads = {part(0, 3, 0, 2, 0, 2)},
                            .writes = {{part(0, 3, 0, 2, 0, 2), 0, WriteMode::accumulate}},
                            .waits = plan.lanes[1].tasks[1].waits};
  expect_refused(plan, Rule::race, {"task 1 of lane copy on rank 0 (reduce) reads rank 0 sum", "accumulates into"});
}

// ---- shared workspace --------------------------------------------------------------------------------

TEST(CheckShared, AcceptsWorkspaceThatIsTouchedDuringItsRanksCallsAlone) {
  Plan plan = gather_plan();
  plan.buffers[3].shared = true;
  expect_accepted(plan);
}

TEST(CheckShared, RefusesAWriteThatMayComeBeforeOrAfterItsRanksCall) {
  Plan plan = gather_plan();
  plan.buffers[3].shared = true;
  plan.lanes[1].tasks[0].waits.clear();
  expect_refused(plan, Rule::race,
                 {"task 0 of lane copy on rank 0 (copy) accesses shared workspace rank 1 gathered",
                  "possibly before rank 1's call has begun"});
  plan = gather_plan();
  plan.buffers[3].shared = true;
  plan.lanes[0].tasks[2].waits.clear();
  expect_refused(plan, Rule::race,
                 {"task 0 of lane copy on rank 1 (copy) accesses shared workspace rank 0 gathered",
                  "possibly after rank 0's call has ended"});
}

TEST(CheckShared, OwnersThatBroadcastKeepWhatTheirPeersSendToThemselves) {
  const Problem problem{.op = "gemm_all_reduce", .m = 128, .n = 128, .k = 128};
  Plan plan = make_plan(problem, {.num_ranks = 2}, {.schedule = "fused", .tile_m = 64, .tile_n = 64});
  const auto staged = std::ranges::find(plan.buffers, "staged", &Buffer::name);
  ASSERT_NE(staged, plan.buffers.end());
  EXPECT_FALSE(staged->shared);
  EXPECT_TRUE(plan.buffers.back().shared) << plan.buffers.back().name;
  expect_accepted(plan);
  staged->shared = true;
  expect_refused(plan, Rule::race, {"accesses shared workspace", "staged", "possibly before rank"});
}

TEST(CheckShared, OnlySymmetricWorkspaceWithoutFlagsIsShared) {
  for (const int buffer : {0, 2}) {
    Plan plan = gather_plan();
    plan.buffers[buffer].shared = true;
    expect_refused(plan, Rule::structure, {"`shared` needs scope symmetric and ll = false"});
  }
}

// ---- results -----------------------------------------------------------------------------------------

TEST(Check, GivesTheFirstOfEachRuleFirstAndAtMostTwenty) {
  Plan plan = scatter_plan(8);
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) task.waits.clear();
  }
  const CheckResult result = check(plan);
  ASSERT_EQ(result.violations.size(), 20U);
  EXPECT_NE(result.violations[0].rule, result.violations[1].rule);
}

TEST(Check, RequireProvenThrowsTheWords) {
  Plan plan = gather_plan();
  require_proven(plan);
  plan.lanes[0].tasks[2].waits.clear();
  try {
    require_proven(plan);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::refused_plan);
    EXPECT_NE(std::string(error.what()).find("race: "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tilewire
