// Every operator x every accepted combination of knobs x dtypes x ranks, against the reference, on CPU ranks.
// Built as the target `operators`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>

#include "operator_names.hpp"
#include "operators/plan_changes.hpp"
#include "operators/run_case.hpp"
#include "operators/tensors.hpp"
#include "operators/verify.hpp"
#include "schedules/variants.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::testing {
namespace {

const std::vector<const char*> kOperators = testing::operator_names();

/// Sanitizers take ten times as long: fewer configs, and large problems of half the size in each dimension.
#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
constexpr size_t kMost = 8;
constexpr int kPart = 2;
#else
constexpr size_t kMost = SIZE_MAX;
constexpr int kPart = 1;
#endif

/// At most `most` of the configs.
std::vector<Config> few(const std::vector<Config>& configs, size_t most, uint64_t seed) {
  const size_t count = std::min(most, kMost);
  if (configs.size() <= count) return configs;
  std::vector<Config> some;
  std::mt19937_64 random(seed);
  std::sample(configs.begin(), configs.end(), std::back_inserter(some), count, random);
  return some;
}

/// All configs, as far as time allows.
std::vector<Config> all_of(const std::vector<Config>& configs, uint64_t seed) { return few(configs, kMost, seed); }

/// The candidates of every schedule that accepts the problem, as far as time allows.
std::vector<Config> accepted_candidates(const Problem& problem, const Team& team, uint64_t seed) {
  std::vector<Config> configs;
  for (const Schedule& schedule : schedules()) {
    for (const Config& config : schedule.candidates(problem, team)) {
      if (!schedule.refuses(problem, team, config)) configs.push_back(config);
    }
  }
  return all_of(configs, seed);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<const char*, int>>& info) {
  return fmt::format("{}_{}_ranks", std::get<0>(info.param), std::get<1>(info.param));
}

class EveryOperator : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  [[nodiscard]] const char* op() const { return std::get<0>(GetParam()); }
  [[nodiscard]] int ranks() const { return std::get<1>(GetParam()); }
  [[nodiscard]] bool has_gemm() const { return find_operator(op()).structure.multiplies; }
};

TEST_P(EveryOperator, AllKnobsAreRight) {
  const Problem problem{.op = op(), .m = 37, .n = 29, .k = 23, .dtype = DType::fp32, .reduction = Reduction::any};
  const Config base{.tile_m = 8, .tile_n = 8, .chunk_rows = 5};
  expect_right(problem, ranks(), all_of(all_variants(problem, {.num_ranks = ranks()}, base), 11),
               {.num_calls = 2, .seed = 11});
}

TEST_P(EveryOperator, RepeatableSumsHaveTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const Problem problem{.op = op(), .m = 33, .n = 40, .k = 64, .dtype = dtype};
    const Config base{.tile_m = 16, .tile_n = 16, .chunk_rows = 16};
    expect_right(problem, ranks(), all_of(all_variants(problem, {.num_ranks = ranks()}, base), 12),
                 {.num_calls = 1, .seed = 12});
  }
}

/// Tiles of shapes that tensor cores take, so that all passes change something.
TEST_P(EveryOperator, LoweredPlansHaveTheSameBits) {
  uint64_t seed = 50;
  for (const int64_t m : {520, 700}) {
    const Problem problem{.op = op(), .m = m, .n = 264, .k = 16, .dtype = DType::bf16};
    const Config base{.tile_m = 128, .tile_n = 64, .chunk_rows = 64};
    expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 16, seed),
                 {.num_calls = 1, .seed = seed, .lowered = true});
    ++seed;
  }
}

TEST_P(EveryOperator, AwkwardShapes) {
  constexpr std::array<std::array<int64_t, 3>, 12> kShapes{{{0, 8, 8},
                                                            {8, 0, 8},
                                                            {8, 8, 0},
                                                            {0, 0, 0},
                                                            {1, 1, 1},
                                                            {1, 40, 3},
                                                            {3, 1, 40},
                                                            {7, 17, 5},
                                                            {16, 16, 16},
                                                            {31, 2, 9},
                                                            {2, 33, 1},
                                                            {64, 5, 7}}};
  uint64_t seed = 100;
  for (const auto& [m, n, k] : kShapes) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const Problem problem{.op = op(), .m = m, .n = n, .k = k, .dtype = dtype, .reduction = Reduction::any};
      const Config base{.tile_m = 8, .tile_n = 8, .chunk_rows = 3};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 12, seed),
                   {.num_calls = 1, .seed = seed});
      ++seed;
    }
  }
}

TEST_P(EveryOperator, LayoutsBiasGatheredAndArena) {
  uint64_t seed = 200;
  for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
    for (const bool arena : {false, true}) {
      Problem problem{.op = op(), .m = 26, .n = 19, .k = 17, .dtype = DType::bf16, .b_layout = layout};
      problem.out_dtype = DType::fp32;
      problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::residual}};
      const bool gathers = find_operator(op()).structure.before == Collective::all_gather;
      problem.gathered_output = gathers;
      if (gathers && layout == BLayout::nk) problem.more_n = {5, 21};
      if (arena) {
        for (const Buffer& buffer : find_operator(op()).buffers(problem, ranks())) problem.arena.push_back(buffer.name);
      }
      const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 40, seed),
                   {.num_calls = 2, .seed = seed, .adopted = arena && layout == BLayout::kn});
      ++seed;
    }
  }
}

/// Tiles that part_slow_tiles sets apart: the host executes the lowered plan to the same bits.
TEST_P(EveryOperator, PartedTilesHaveTheSameBits) {
  if (!find_operator(op()).structure.multiplies) GTEST_SKIP() << "there are no tiles";
  if (ranks() > 3) GTEST_SKIP() << "more ranks change nothing here";
  const Problem problem{.op = op(), .m = 520, .n = 264, .k = 16, .dtype = DType::bf16};
  const auto change = [](Plan& plan) {
    for (Lane& lane : plan.lanes) {
      int tile = 0;
      for (Task& task : lane.tasks) {
        if (task.kind == TaskKind::compute && tile++ % 3 == 1) task.gemm.tile_m = 24;
      }
    }
  };
  expect_right(problem, ranks(), {{.tile_n = 128}}, {.num_calls = 1, .seed = 60, .change = change, .lowered = true});
}

/// LL data: with their signals, and after lowering without.
TEST_P(EveryOperator, DataStandsForSignals) {
  uint64_t seed = 900;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const Problem problem{.op = op(), .m = 36, .n = 24, .k = 16, .dtype = dtype};
    std::vector<Config> configs;
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::one_shot}) {
      const Config config{.tile_m = 8, .tile_n = 8, .transport = Transport::ll, .algorithm = algorithm};
      if (!find_schedule(config.schedule).refuses(problem, {.num_ranks = ranks()}, config)) configs.push_back(config);
    }
    if (configs.empty()) GTEST_SKIP() << "nobody sums";
    expect_right(problem, ranks(), configs, {.num_calls = 3, .seed = seed++, .lowered = true});
  }
}

TEST_P(EveryOperator, EveryStepOfAnEpilogue) {
  if (ranks() > 4) GTEST_SKIP() << "more ranks change nothing here";
  uint64_t seed = 700;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const bool arena : {false, true}) {
      Problem problem{.op = op(), .m = 31, .n = 22, .k = 17, .dtype = dtype, .reduction = Reduction::any};
      problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}, {EpilogueKind::scale, 0.5}};
      problem.epilogue.insert(problem.epilogue.end(), {{EpilogueKind::residual}, {EpilogueKind::relu}});
      if (arena) problem.arena = {has_gemm() ? "c" : "y", "residual"};
      const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 40, seed),
                   {.num_calls = 2, .seed = seed});
      ++seed;
    }
  }
}

TEST_P(EveryOperator, PairsOfColumns) {
  if (op() != std::string("all_gather_gemm")) GTEST_SKIP() << "has no swiglu_pairs";
  uint64_t seed = 1700;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      Problem problem{.op = op(), .m = 31, .n = 22, .k = 17, .dtype = dtype, .b_layout = layout};
      problem.epilogue = {{EpilogueKind::swiglu_pairs}};
      problem.gathered_output = layout == BLayout::nk;
      if (layout == BLayout::kn) problem.more_n = {5, 21};
      const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 30, seed),
                   {.num_calls = 2, .seed = seed, .lowered = true});
      ++seed;
    }
  }
}

TEST_P(EveryOperator, ResidualsInPlace) {
  if (ranks() > 4) GTEST_SKIP() << "more ranks change nothing here";
  Problem problem{.op = op(), .m = 31, .n = 22, .k = 17, .dtype = DType::bf16, .reduction = Reduction::any};
  problem.epilogue = {{EpilogueKind::gelu}, {EpilogueKind::residual}, {EpilogueKind::scale, 0.5}};
  if (leaves_summed_rows(find_operator(op()).structure)) problem.norm = Norm{};
  const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
  expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 60, 800),
               {.num_calls = 2, .seed = 800, .lowered = true, .in_place = true});
}

TEST_P(EveryOperator, NormsOfAwkwardShapes) {
  if (!leaves_summed_rows(find_operator(op()).structure)) GTEST_SKIP() << "takes no norm";
  if (ranks() > 4) GTEST_SKIP() << "more ranks change nothing here";
  uint64_t seed = 770;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{0, 8, 8}, {2, 9, 0}, {3, 1, 40}, {1, 33, 1}}) {
    Problem problem{.op = op(), .m = m, .n = n, .k = k, .dtype = DType::bf16, .norm = Norm{}};
    problem.out_dtype = DType::fp32;
    problem.reduction = Reduction::any;
    if (!has_gemm()) problem.k = 0;
    expect_right(problem, ranks(),
                 few(all_variants(problem, {.num_ranks = ranks()}, {.tile_m = 8, .tile_n = 16}), 8, seed),
                 {.num_calls = 1, .seed = seed, .lowered = true});
    ++seed;
  }
}

TEST_P(EveryOperator, NormsOfTheOutputsRows) {
  if (!leaves_summed_rows(find_operator(op()).structure)) GTEST_SKIP() << "takes no norm";
  if (ranks() > 4) GTEST_SKIP() << "more ranks change nothing here";
  uint64_t seed = 750;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      Problem problem{.op = op(), .m = 31, .n = 22, .k = 17, .dtype = dtype, .norm = Norm{kind, 1e-5}};
      problem.reduction = dtype == DType::fp32 ? Reduction::any : Reduction::repeatable;
      problem.epilogue = {{EpilogueKind::residual}};
      if (kind == NormKind::layer) problem.arena = {has_gemm() ? "c" : "y", "normed"};
      const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 60, seed),
                   {.num_calls = 2, .seed = seed, .lowered = true});
      ++seed;
    }
  }
}

TEST_P(EveryOperator, QuantisedNorms) {
  if (!leaves_summed_rows(find_operator(op()).structure)) GTEST_SKIP() << "takes no norm";
  if (ranks() > 4) GTEST_SKIP() << "more ranks change nothing here";
  uint64_t seed = 790;
  for (const DType out : {DType::fp8_e4m3, DType::int8}) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{31, 24, 17}, {2, 9, 0}, {1, 33, 5}}) {
      Problem problem{.op = op(), .m = m, .n = n, .k = k, .dtype = DType::bf16, .norm = Norm{NormKind::rms, 1e-5, out}};
      if (k > 0) problem.epilogue = {{EpilogueKind::residual}};
      if (!has_gemm()) problem.k = 0;
      const Config base{.tile_m = 8, .tile_n = 16, .chunk_rows = 8};
      expect_right(problem, ranks(), few(all_variants(problem, {.num_ranks = ranks()}, base), 30, seed),
                   {.num_calls = 2, .seed = seed, .lowered = true});
      ++seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, EveryOperator,
                         ::testing::Combine(::testing::ValuesIn(kOperators), ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8)),
                         name_of);

/// The plan as made and lowered for GPUs: library calls and tiles share the work of a rank.
TEST(Operators, TilesBesideCallsOfTheLibrary) {
  uint64_t seed = 700;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{520, 300}, {300, 136}}) {
    Problem problem{.op = "all_gather_gemm", .m = m, .n = 2 * n, .k = 72, .dtype = DType::bf16};
    problem.epilogue = {{EpilogueKind::bias}};
    std::vector<Config> configs;
    for (const Transport transport : {Transport::copy_engine, Transport::store})
      configs.push_back({.chunk_rows = 64, .transport = transport, .compute = Provider::library});
    CaseOptions options{.num_calls = 2, .seed = ++seed, .change = make_tiles_of_calls};
    options.lowered = true;
    expect_right(problem, 2, configs, options);
  }
}

TEST(Operators, WireOfFp32) {
  for (const char* op : {"gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    for (const int ranks : {2, 3, 8}) {
      const Problem problem{.op = op, .m = 24, .n = 24, .k = 48, .dtype = DType::bf16};
      Config base{.tile_m = 8, .tile_n = 8};
      base.wire = DType::fp32;
      expect_right(problem, ranks, all_of(all_variants(problem, {.num_ranks = ranks}, base), 300),
                   {.num_calls = 1, .seed = 300});
    }
  }
}

TEST(Operators, WorkersDoNotChangeBits) {
  for (const char* op : kOperators) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const Problem problem{.op = op, .m = 70, .n = 48, .k = 96, .dtype = dtype};
      std::vector<Config> configs;
      for (const char* schedule : {"sequential", "fused"}) {
        for (const int workers : {1, 2, 4}) {
          Config config{.schedule = schedule, .tile_m = 16, .tile_n = 16, .tile_workers = workers};
          if (find_operator(op).structure.before == Collective::none) config.reduce_workers = workers;
          if (!find_schedule(schedule).refuses(problem, {.num_ranks = 3}, config)) configs.push_back(config);
        }
      }
      expect_right(problem, 3, configs, {.num_calls = 2, .seed = 500});
    }
  }
}

TEST(Operators, CandidatesWithLargerTiles) {
  for (const char* op : kOperators) {
    const Problem problem{.op = op, .m = 300, .n = 520, .k = 200, .dtype = DType::bf16};
    expect_right(problem, 3, accepted_candidates(problem, {.num_ranks = 3}, 400), {.num_calls = 2, .seed = 400});
  }
}

TEST(Operators, LargeCasesBySampledRowsAndFreivalds) {
  for (const char* op : kOperators) {
    const Problem problem{.op = op, .m = 1030 / kPart, .n = 1100 / kPart, .k = 700 / kPart, .dtype = DType::bf16};
    launch(3, {.threads = true}, [&](Group& group) {
      const tilewire::RankTensors tensors(group, problem);
      const ReadRow inputs = random_inputs(problem, 3, 600);
      tensors.fill(inputs);
      const Expected expected(problem, 3, group.team().rank, inputs,
                              {.reference_work = 0, .sample_work = (1 << 20) / (kPart * kPart)});
      for (const Config& config : accepted_candidates(problem, {.num_ranks = 3}, 600)) {
        tensors.poison();
        make_op(group, problem, config).run_and_wait(tensors.inputs(), tensors.outputs());
        const Comparison got = verify(group, expected, tensors.results(), tolerance_of(problem, config));
        EXPECT_TRUE(got.ok()) << op << " " << to_string(config) << ": " << got.text();
        EXPECT_TRUE(!got.ok() || got.elements < problem.m * problem.n) << "compared whole, not sampled";
      }
    });
  }
}

TEST(Operators, AllReduceInTwoPhasesIsTheDirectOne) {
  for (const char* op : {"gemm_all_reduce", "all_reduce"}) {
    const Problem problem{.op = op, .m = 70, .n = 50, .k = 30};
    const Config direct{.tile_m = 16, .tile_n = 16};
    Config two_phase = direct;
    two_phase.algorithm = Algorithm::two_phase;
    Plan plan = make_plan(problem, {.num_ranks = 3}, two_phase);
    EXPECT_EQ(note_of(plan).config, two_phase);
    set_note(plan, {problem, direct});
    EXPECT_EQ(plan, make_plan(problem, {.num_ranks = 3}, direct));
  }
}

}  // namespace
}  // namespace tilewire::testing
