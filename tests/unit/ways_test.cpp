// The tables of schedules: candidates on GPUs are accepted and proven, no row is dead, knobs have values that exist.
// Built as part of the target `unit_core`.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include "core/json_text.hpp"
#include "operator_names.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

Team team_of_gpus(int ranks) {
  Team team{.num_ranks = ranks};
  team.devices.assign(ranks, {.copy_engines = 3, .sms = 132});
  return team;
}

TEST(Gpus, EveryChoiceIsAcceptedAndProven) {
  for (const char* op : testing::all_operator_names()) {
    for (const int ranks : {1, 2, 4}) {
      constexpr std::array<std::pair<int64_t, int64_t>, 7> kShapes{
          {{1, 1024}, {64, 1024}, {144, 16384}, {200, 16384}, {500, 1024}, {2048, 1024}, {4096, 1024}}};
      for (const auto& [m, n] : kShapes) {
        const Problem problem = testing::with_experts({.op = op, .m = m, .n = n, .k = 512});
        const Team team = team_of_gpus(ranks);
        for (const Schedule& schedule : schedules()) {
          const auto configs = schedule.candidates(problem, team);
          if (schedule.refuses(problem, team, {.schedule = schedule.name})) continue;
          EXPECT_FALSE(configs.empty());
          for (const Config& config : configs) {
            EXPECT_EQ(schedule.refuses(problem, team, config), std::nullopt) << op << " " << to_string(config);
            const CheckResult result = check(make_plan(problem, team, config));
            EXPECT_TRUE(result.ok()) << op << " " << to_string(config) << ": " << result.violations[0].text;
          }
        }
      }
    }
  }
}

/// Few workers for all owners or for two at a time, and eight rounds.
TEST(Gpus, ChoicesOfWideAndLongProductsAreProven) {
  const Team team = team_of_gpus(4);
  const auto proven = [&](const Problem& problem, auto&& wanted) {
    int found = 0;
    for (const Config& config : find_schedule("fused").candidates(problem, team)) {
      if (!wanted(config)) continue;
      ++found;
      const CheckResult result = check(make_plan(problem, team, config));
      EXPECT_TRUE(result.ok()) << to_string(config) << ": " << result.violations[0].text;
    }
    return found;
  };
  const auto few = [](int owners) {
    return [=](const Config& config) {
      return config.tile_order == TileOrder::in_step && config.tile_m == 256 && config.group_owners == owners;
    };
  };
  Problem gather{.op = "all_gather_gemm", .m = 1024, .n = 49152, .k = 2048};
  EXPECT_EQ(proven(gather, few(2)), 2) << "behind eighths and twelfths of the columns";
  gather.m = 512;
  EXPECT_EQ(proven(gather, few(1)), 2);
  gather.m = 800;
  EXPECT_EQ(proven(gather, few(2)), 0) << "tiles of several owners";
  const Problem scatter{.op = "gemm_reduce_scatter", .m = 1024, .n = 1024, .k = 22528};
  EXPECT_EQ(proven(scatter, [](const Config& config) { return config.rounds == 8; }), 1);
}

/// On 3, 4 and 8 ranks, whole and with tiles of two owners.
TEST(Gpus, RingsOfManyRowsAreProven) {
  for (const int ranks : {3, 4, 8}) {
    for (const int64_t m : {8192, 8200}) {
      Problem problem{.op = "gemm_reduce_scatter", .m = m, .n = 1024, .k = 512, .reduction = Reduction::any};
      int rings = 0;
      for (const Config& config : find_schedule("fused").candidates(problem, team_of_gpus(ranks))) {
        if (config.algorithm != Algorithm::ring) continue;
        ++rings;
        const CheckResult result = check(make_plan(problem, team_of_gpus(ranks), config));
        EXPECT_TRUE(result.ok()) << ranks << " " << to_string(config) << ": " << result.violations[0].text;
      }
      EXPECT_EQ(rings, 2) << "in one round and in sixteen";
      problem.reduction = Reduction::repeatable;
      for (const Config& config : find_schedule("fused").candidates(problem, team_of_gpus(ranks))) {
        EXPECT_NE(config.algorithm, Algorithm::ring);
      }
    }
  }
}

TEST(Gpus, ManyRoundsOfAReduceScatterGroupFewRows) {
  using Rounds = std::vector<std::pair<int, int64_t>>;  // and row tiles that are grouped
  const auto rounds_of = [](const char* op, int ranks) {
    const Problem problem{.op = op, .m = 8192, .n = 8192, .k = 8192, .reduction = Reduction::any};
    Rounds found;
    for (const Config& config : find_schedule("fused").candidates(problem, team_of_gpus(ranks))) {
      if (config.rounds >= 4) found.emplace_back(config.rounds, config.group_m);
    }
    return found;
  };
  EXPECT_EQ(rounds_of("gemm_reduce_scatter", 4), (Rounds{{4, 16}, {32, 4}, {16, 4}})) << "the last is a ring";
  EXPECT_EQ(rounds_of("gemm_reduce_scatter", 2), (Rounds{{4, 16}, {32, 16}}));
  EXPECT_EQ(rounds_of("gemm_all_reduce", 4), (Rounds{{4, 16}, {32, 16}}));
}

TEST(Ways, EveryRowIsACandidateOfSomeProblem) {
  std::set<std::pair<std::string, size_t>> used;
  for (const char* op : testing::all_operator_names()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int64_t m : {1, 64, 96, 256, 512, 800, 1024, 2048, 4096, 8192, 16384}) {
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{8192, 8192}, {49152, 2048}, {1024, 22528}}) {
          Problem problem{.op = op, .m = m, .n = n, .k = k, .dtype = DType::bf16, .reduction = Reduction::any};
          if (!multiplies(problem)) problem.k = 0;
          problem = testing::with_experts(problem);
          for (const Team& team : {team_of_gpus(ranks), Team{.num_ranks = ranks}}) {
            for (const Schedule& schedule : schedules()) {
              for (const Candidate& each : schedule.named_candidates(problem, team))
                used.emplace(schedule.name, each.row);
            }
          }
        }
      }
    }
  }
  for (const Schedule& schedule : schedules()) {
    for (size_t row = 0; row < schedule.ways.size(); ++row)
      EXPECT_TRUE(used.contains({schedule.name, row})) << schedule.name << ": " << schedule.ways[row].name;
  }
}

/// Whether `Config` takes the value of the knob.
bool exists(const std::string& knob, std::string_view value) {
  try {
    nlohmann::json json = Config{};
    json[knob] = json_or_text(std::string(value));
    validate(json.get<Config>());
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Knobs, RowsNameFieldsAndValuesThatExist) {
  for (const Schedule& schedule : schedules()) {
    for (const Knob& knob : schedule.knobs) {
      for (const char* list : {knob.values, knob.tried}) {
        for (const std::string_view value : values_of({.name = knob.name, .applies = knob.applies, .values = list}))
          EXPECT_TRUE(exists(knob.name, value)) << schedule.name << ": " << knob.name << " = " << value;
      }
      EXPECT_TRUE(std::ranges::any_of(testing::all_operator_names(),
                                      [&](const char* op) {
                                        const Problem problem{.op = op};
                                        return schedule.knows(structure_of(problem)) &&
                                               find_knob(schedule.knobs, knob.name, problem) == &knob;
                                      }))
          << schedule.name << ": the row of " << knob.name << " applies to no operator";
    }
  }
}

TEST(Knobs, AValueThatIsNotInTheTableIsRefusedWithThoseThatAre) {
  const Problem problem{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 64};
  const auto why = [&](const Config& config) {
    return find_schedule(config.schedule).refuses(problem, {.num_ranks = 2}, config).value_or("");
  };
  EXPECT_EQ(why({.schedule = "fused", .transport = Transport::ll}),
            "knob transport = ll: for all_gather_gemm want one of: store, copy_engine");
  EXPECT_EQ(why({.schedule = "fused", .wire = DType::fp32}),
            "knob wire = fp32 has no meaning for all_gather_gemm (tilewire info --knobs)");
  EXPECT_EQ(why({.schedule = "fused"}), "");
}

TEST(Gpus, DefaultsAreWhatTensorCoresAndLinksLike) {
  const auto first = [](const char* schedule, const char* op, int64_t m) {
    return find_schedule(schedule).candidates({.op = op, .m = m, .n = 8192, .k = 8192}, team_of_gpus(4)).front();
  };
  const Config gather = first("fused", "all_gather_gemm", 8192);
  EXPECT_EQ(gather.tile_n, 256);
  EXPECT_EQ(gather.cluster_m, 2);
  EXPECT_EQ(gather.group_m, 16);
  EXPECT_EQ(gather.transport, Transport::copy_engine);
  EXPECT_EQ(gather.pacing, Pacing::lockstep);
  EXPECT_EQ(first("fused", "gemm_all_reduce", 64).tile_m, 64);
  EXPECT_EQ(first("sequential", "gemm_reduce_scatter", 512).tile_n, 160);  // two turns, as with 192
  EXPECT_EQ(first("sequential", "gemm_reduce_scatter", 384).tile_n, 192);  // one turn, and two with 160
  const Config on_host =
      find_schedule("fused").candidates({.op = "all_gather_gemm", .m = 8192}, {.num_ranks = 4}).front();
  EXPECT_EQ(on_host.cluster_m, 1);
}

}  // namespace
}  // namespace tilewire
