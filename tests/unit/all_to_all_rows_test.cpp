// GEMM + AllToAll of rows: shapes, the destinations and times of stores, and that the checker tells apart the B of each
// rank. Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/in_place.hpp"
#include "every.hpp"
#include "schedules/variants.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

constexpr const char* kAllToAllRows = "gemm_all_to_all_rows";

Problem rows_problem(int64_t m = 64, int64_t n = 48) { return {.op = kAllToAllRows, .m = m, .n = n, .k = 32}; }

Plan proven_rows(const Problem& problem, int ranks, const Config& config) {
  Plan plan = make_plan(problem, {.num_ranks = ranks}, config);
  require_proven(plan);
  return plan;
}

const Buffer& buffer_named(const std::vector<Buffer>& buffers, const std::string& name) {
  return *std::ranges::find(buffers, name, &Buffer::name);
}

std::vector<const Task*> products_on(const Plan& plan, int rank) {
  std::vector<const Task*> found;
  for (const Lane& lane : plan.lanes) {
    for (const Task& task : lane.tasks) {
      if (lane.rank == rank && task.kind == TaskKind::compute) found.push_back(&task);
    }
  }
  return found;
}

std::string why_refused(const Problem& problem, const Config& config, int ranks = 4) {
  return find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks}, config).value_or("");
}

/// 7 rows on 3 ranks: 3, 3 and 1, of which each rank gets 1, 1 and 1; 1, 1 and 1; 1, 0 and 0.
TEST(AllToAllRows, ShapesFollowTheCeilingRuleTwice) {
  Problem problem = rows_problem(7, 5);
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::residual}};
  const std::vector<Buffer> buffers = find_operator(kAllToAllRows).buffers(problem, 3);
  const auto rows = [&](const char* name) {
    std::vector<int64_t> each;
    for (int rank = 0; rank < 3; ++rank) each.push_back(shape_on(buffer_named(buffers, name), rank).rows);
    return each;
  };
  EXPECT_EQ(rows("a"), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(rows("b"), (std::vector<int64_t>{5, 5, 5}));
  EXPECT_EQ(rows("bias"), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(rows("residual"), (std::vector<int64_t>{3, 3, 1})) << "of the rank that makes the rows";
  EXPECT_EQ(rows("c"), (std::vector<int64_t>{3, 2, 2}));
  for (const Buffer& buffer : buffers) {
    const bool of_a = buffer.name == "a" || buffer.name == "b";
    EXPECT_EQ(shape_on(buffer, 1).cols, of_a ? 32 : 5) << buffer.name;
  }
  EXPECT_EQ(specification_of(problem, 3).least_bytes, (7 - 2) * 5 * 2) << "ranks 0 and 1 keep a row each";
}

TEST(AllToAllRows, EachBlockOfTheOutputNamesItsMaker) {
  std::vector<Meaning> of_c;
  for (const Meaning& meaning : find_operator(kAllToAllRows).meanings(rows_problem(7, 5), 3)) {
    if (meaning.role == Role::partial && meaning.rank == 1) of_c.push_back(meaning);
  }
  const auto block = [](int64_t row, int64_t col, Range rows) {
    return Meaning{
        .buffer = 2, .rank = 1, .role = Role::partial, .row = row, .col = col, .terms = {0, 32}, .rows = rows};
  };
  EXPECT_EQ(of_c, (std::vector<Meaning>{block(1, 0, {0, 1}), block(4, 5, {1, 2})}));
}

TEST(AllToAllRows, TilesGoStraightToTheRowsOfTheirMaker) {
  Problem problem = rows_problem();
  problem.arena = {"c"};
  const Plan plan = proven_rows(problem, 4, {.tile_m = 4, .tile_n = 16});
  for (const Buffer& buffer : plan.buffers) EXPECT_NE(buffer.scope, Scope::symmetric) << buffer.name;
  std::vector<int> owners;
  for (const Task* tile : products_on(plan, 1)) {
    ASSERT_EQ(tile->writes.size(), 1U);
    const Region& to = tile->writes[0].to;
    EXPECT_EQ(plan.buffers[to.buffer].name, "c");
    EXPECT_EQ(to.row, 4) << "behind the rows of rank 0";
    EXPECT_EQ(to.col, tile->reads[1].row);
    EXPECT_EQ(tile->reads[0].row / 4, to.rank) << "block r of a rank's rows is for rank r";
    EXPECT_EQ(tile->reads[1].rank, 1) << "its own B";
    owners.push_back(to.rank);
  }
  EXPECT_EQ(owners, (std::vector<int>{2, 2, 2, 3, 3, 3, 0, 0, 0, 1, 1, 1})) << "peers first, oneself last";
}

TEST(AllToAllRows, MovesWhatItMust) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const bool arena : {false, true}) {
      Problem problem = rows_problem(61, 20);
      if (arena) problem.arena = {"c"};
      const std::vector<Config> variants =
          all_variants(problem, {.num_ranks = ranks}, {.tile_m = 4, .tile_n = 8, .chunk_rows = 3});
      EXPECT_GT(variants.size(), 3U);
      for (const Config& config : testing::every(variants)) {
        const CheckResult result = check(proven_rows(problem, ranks, config));
        EXPECT_EQ(result.total_bytes, result.least_bytes) << ranks;
      }
    }
  }
}

TEST(AllToAllRows, OfTheLibraryAreOneProductAndOneCollective) {
  const Config config{.schedule = "sequential", .compute = Provider::library, .collective = Provider::library};
  const Plan plan = proven_rows(rows_problem(), 4, config);
  for (const Lane& lane : plan.lanes) {
    ASSERT_EQ(lane.tasks.size(), 2U);
    EXPECT_EQ(result_shape(lane.tasks[0]), (Shape{16, 48}));
    EXPECT_EQ(lane.tasks[1].collective, Collective::all_to_all);
  }
  EXPECT_EQ(why_refused(rows_problem(64, 47), config), "") << "columns are not cut";
  EXPECT_NE(why_refused(rows_problem(63), config).find("63 rows on 4 ranks"), std::string::npos);
  EXPECT_NE(why_refused(rows_problem(68), config).find("68 rows on 4 ranks"), std::string::npos)
      << "17 rows for 4 ranks";
}

/// With equal shapes, too: peers store rows of the output before the rank has read its residual.
TEST(AllToAllRows, TheResidualIsInPlaceOnARankAlone) {
  Problem problem = rows_problem();
  problem.epilogue = {{EpilogueKind::residual}};
  EXPECT_TRUE(in_place_pairs(make_plan(problem, {.num_ranks = 4}, {})).empty());
  EXPECT_EQ(in_place_pairs(make_plan(problem, {.num_ranks = 1}, {})).size(), 1U);
}

/// Block r is made with the B of its maker: rows that change places at their owner are refused.
TEST(AllToAllRows, RowsOfAnotherMakerAreRefused) {
  Problem problem = rows_problem();
  problem.arena = {"c"};
  const Config config{.tile_m = 4, .tile_n = 48};
  Plan plan = proven_rows(problem, 4, config);
  std::vector<Write*> of_rank_3;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      if (task.kind == TaskKind::compute && lane.rank < 2 && task.writes[0].to.rank == 3)
        of_rank_3.push_back(task.writes.data());
    }
  }
  ASSERT_EQ(of_rank_3.size(), 2U);
  std::swap(of_rank_3[0]->to.row, of_rank_3[1]->to.row);
  const CheckResult result = check(plan);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.violations[0].rule, Rule::coverage);
  EXPECT_NE(result.violations[0].text.find("it must hold"), std::string::npos) << result.violations[0].text;
}

TEST(AllToAllRows, EveryRowOfTheOutputNeedsOneMeaning) {
  const Plan plan = proven_rows(rows_problem(), 2, {});
  const auto text = [&](const std::function<void(Meaning&)>& change) {
    Specification wanted = specification_of(rows_problem(), 2);
    change(*std::ranges::find(wanted.meanings, Role::partial, &Meaning::role));
    const CheckResult result = check(plan, wanted);
    return result.ok() ? "" : result.violations[0].text;
  };
  EXPECT_EQ(text([](Meaning&) {}), "");
  EXPECT_NE(text([](Meaning& first) { first.rows.end -= 1; }).find("no meaning is given for c on rank 0, from row 15"),
            std::string::npos);
  EXPECT_NE(text([](Meaning& first) { first.rows.end += 1; }).find("given twice"), std::string::npos);
  EXPECT_NE(text([](Meaning& first) { first.rows = {40, 50}; }).find("rows that it does not have"), std::string::npos);
  EXPECT_NE(text([](Meaning& first) { first.col = 1; }).find("it must hold"), std::string::npos);
}

TEST(AllToAllRows, WhatHasNoMeaningIsRefused) {
  EXPECT_NE(why_refused(rows_problem(), {.schedule = "two_stream"}).find("it knows only"), std::string::npos);
  EXPECT_NE(why_refused(rows_problem(), {.schedule = "track_trigger"}).find("it knows only"), std::string::npos);
  EXPECT_NE(why_refused(rows_problem(), {.transport = Transport::ll}).find("transport = ll"), std::string::npos);
  EXPECT_NE(why_refused(rows_problem(), {.wire = DType::fp32}).find("wire"), std::string::npos);
  const auto refused = [](const std::function<void(Problem&)>& change) {
    Problem problem = rows_problem();
    change(problem);
    try {
      validate(problem, 4);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused([](Problem& p) { p.norm = Norm{}; }).find("norm"), std::string::npos);
  EXPECT_NE(refused([](Problem& p) { p.more_n = {4}; }).find("more_n"), std::string::npos);
  EXPECT_NE(refused([](Problem& p) { p.gathered_output = true; }).find("gathered_output"), std::string::npos);
  EXPECT_NE(refused([](Problem& p) { p.experts = Experts{}; }).find("experts"), std::string::npos);
}

}  // namespace
}  // namespace tilewire
