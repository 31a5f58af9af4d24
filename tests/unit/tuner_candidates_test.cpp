// The candidates of `auto` in the model's order: what is measured first, what is measured in any case, and the measured
// rows of
// bench/results, whose fastest config must be among the measured ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/json_text.hpp"
#include "core/output_file.hpp"
#include "core/text_file.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/operator.hpp"
#include "tuner/candidates.hpp"
#include "tuner/shipped.hpp"
#include "tuner/tuner.hpp"
#include "tuner/winners.hpp"

namespace tilewire::tuner {
namespace {

Problem problem_of(const std::string& op, int64_t m, int64_t n, int64_t k) {
  return {.op = op, .m = m, .n = n, .k = k, .dtype = DType::bf16, .reduction = Reduction::any};
}

std::vector<Predicted> on(const std::string& target, const Problem& problem) {
  const Target& found = find_target(target);
  return candidates(problem, team_of(found, found.ranks > 0 ? found.ranks : 2), found);
}

double us_of(const Predicted& each) { return each.us.value_or(std::numeric_limits<double>::infinity()); }

TEST(TunerCandidates, ModelsAreOfWholeGpusThatAreKnown) {
  EXPECT_FALSE(model_of(host_target()).has_value());
  const Target h200 = find_target("h200x4");
  ASSERT_TRUE(model_of(h200).has_value());
  EXPECT_EQ(num_devices(*model_of(h200)), 4);
  EXPECT_EQ(model_of(h200)->compute.units, 132);
  EXPECT_LT(model_of(find_target("h100x4"))->memory.bandwidth_GBps, model_of(h200)->memory.bandwidth_GBps);
  Target shared = h200;
  shared.streams = false;
  Target part = h200;
  part.whole_gpu = false;
  Target unknown = h200;
  unknown.name = "gpux4";
  for (const Target& target : {shared, part, unknown}) EXPECT_FALSE(model_of(target).has_value());
}

TEST(TunerCandidates, KernelsForFewRowsAreTheFastestWhateverTheModelSays) {
  const auto fastest = [](Problem problem) {
    problem.norm = Norm{};
    const std::vector<Predicted> list = on("h200x2", problem);
    const auto found = std::ranges::find(list, true, &Predicted::fastest);
    EXPECT_LE(std::ranges::count(list, true, &Predicted::fastest), 1);
    return found == list.end() ? "none" : found->way;
  };
  EXPECT_EQ(fastest(problem_of("gemm_all_reduce", 16, 8192, 8192)), "GEMV, one-shot");
  constexpr const char* kAfterLibrary = "GEMM of the library, rows, one-shot";
  EXPECT_EQ(fastest(problem_of("gemm_all_reduce", 17, 8192, 8192)), kAfterLibrary);
  EXPECT_EQ(fastest(problem_of("gemm_all_reduce", 65, 4096, 8192)), "none");
  Problem by_rows = problem_of("gemm_all_reduce", 4, 8192, 8192);
  by_rows.b_layout = BLayout::kn;
  EXPECT_EQ(fastest(by_rows), kAfterLibrary);
  const auto alone = [](int64_t m, int64_t n, BLayout layout, bool pairs) {
    Problem problem = problem_of("all_gather_gemm", m, n, 8192);
    problem.b_layout = layout;
    if (pairs) problem.epilogue = {{EpilogueKind::swiglu_pairs}};
    const std::vector<Predicted> list = on("h200x1", problem);
    const auto found = std::ranges::find(list, true, &Predicted::fastest);
    EXPECT_LE(std::ranges::count(list, true, &Predicted::fastest), 1);
    return found == list.end() ? "none" : found->way;
  };
  EXPECT_EQ(alone(1, 28672, BLayout::nk, false), "GEMV");
  EXPECT_EQ(alone(16, 8192, BLayout::nk, false), "GEMV");
  EXPECT_EQ(alone(17, 8192, BLayout::nk, false), "none");
  EXPECT_EQ(alone(1, 8192, BLayout::kn, false), "none");
  EXPECT_EQ(alone(16, 14336, BLayout::kn, true), "GEMV");
  EXPECT_EQ(fastest({.op = "all_reduce", .m = 16, .n = 8192, .dtype = DType::bf16}), "rows, one-shot");
  EXPECT_EQ(fastest({.op = "all_reduce", .m = 200, .n = 8192, .dtype = DType::bf16}), "none");
}

TEST(TunerCandidates, TheFastestByTheModelComeBehindTheBaselinesAndTheExceptions) {
  for (const char* op :
       {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all", "gemm_all_to_all_rows"}) {
    for (const int64_t m : {64, 300, 1024, 4096}) {
      const std::vector<Predicted> list = on("h200x2", problem_of(op, m, 4096, 4096));
      const auto is_exception = [](const Predicted& each) { return !each.exception.empty(); };
      EXPECT_EQ(list.front().config.schedule, "sequential");
      EXPECT_EQ(list.front().config.compute, Provider::library) << op << " " << m;
      EXPECT_EQ(most_measured(list, Tuning::full), std::min<size_t>(8, list.size())) << op << " " << m;
      const size_t exceptions = std::ranges::count_if(list, is_exception);
      EXPECT_LE(exceptions, 4U) << op << " " << m;
      EXPECT_EQ(most_measured(list, Tuning::quick), std::min<size_t>(4 + exceptions, list.size())) << op << " " << m;
      // At most two baselines, exceptions, then by time.
      const auto first = std::find_if_not(list.begin() + 2, list.end(), is_exception);
      EXPECT_TRUE(std::is_sorted(first, list.end(),
                                 [](const Predicted& x, const Predicted& y) { return us_of(x) < us_of(y); }));
      for (const Predicted& each : list) {
        EXPECT_EQ(std::ranges::count(list, each.config, &Predicted::config), 1) << op << " " << m;
        // What has no prediction is what no plan can be made of.
        const Target& target = find_target("h200x2");
        const auto makes = [&] {
          static_cast<void>(make_plan(problem_of(op, m, 4096, 4096), team_of(target, 2), each.config));
        };
        if (each.us) continue;
        EXPECT_THROW(makes(), Error) << op << " " << m << " " << json_text(nlohmann::json(each.config));
      }
    }
  }
}

TEST(TunerCandidates, NarrowTilesOfAnExchangeAreMeasured) {
  Problem problem = problem_of("gemm_all_to_all", 1024, 4096, 14336);
  problem.arena = {"c"};
  const std::vector<Predicted> list = on("h200x2", problem);
  const auto end = list.begin() + static_cast<int64_t>(most_measured(list, Tuning::full));
  EXPECT_TRUE(std::any_of(list.begin(), end, [](const Predicted& each) {
    return each.config.tile_n == 128 && each.config.cluster_split_k == 1 && each.config.transport == Transport::tma;
  }));
}

TEST(TunerCandidates, OneGpuMeasuresTheGemvKernelBesideTheLibrary) {
  const Target& one = find_target("h200x1");
  const std::vector<Predicted> list = candidates(problem_of("all_gather_gemm", 4, 4096, 4096), team_of(one, 1), one);
  const auto end = list.begin() + static_cast<int64_t>(most_measured(list, Tuning::full));
  EXPECT_TRUE(std::any_of(list.begin(), end, [](const Predicted& each) { return each.config.tile_m == 16; }));
  EXPECT_TRUE(
      std::any_of(list.begin(), end, [](const Predicted& each) { return each.config.compute == Provider::library; }));
}

TEST(TunerCandidates, TheModelEndsInTime) {
  const Target& target = find_target("h200x8");
  const Problem problem = problem_of("gemm_all_reduce", 4096, 8192, 28672);
  const std::vector<Predicted> none = candidates(problem, team_of(target, 8), target, 0);
  EXPECT_TRUE(std::ranges::none_of(none, [](const Predicted& each) { return each.us.has_value(); }));
  EXPECT_EQ(none.size(), candidates(problem, team_of(target, 8), target).size());
}

TEST(TunerCandidates, WithoutAModelAllAreMeasuredInTheOrderOfTheSchedules) {
  const std::vector<Predicted> list = on("host", problem_of("gemm_reduce_scatter", 256, 256, 256));
  EXPECT_TRUE(std::ranges::none_of(list, [](const Predicted& each) { return each.us.has_value(); }));
  EXPECT_EQ(most_measured(list, Tuning::full), list.size());
}

// If the model's order of candidates is wrong, the wrong ones are measured: of 159 measured rows it misses the fastest
// config
// in few.
TEST(TunerCandidates, TheFastestMeasuredConfigsAreAmongThose) {
  int rows = 0;
  int missed = 0;
  std::string which;
#if defined(TILEWIRE_ASAN)
  const std::vector<std::string> files{"ragged_x2"};  // the simulator takes ten times as long
#else
  const std::vector<std::string> files{"peers_x4", "peers_x2", "others_x4", "others_x2", "ragged_x4", "ragged_x2"};
#endif
  for (const std::string& file : files) {
    const std::string path = TILEWIRE_RESULTS "/" + file + ".json";
    const nlohmann::json result = parse_json(read_text_file(path).text, path);
    for (const nlohmann::json& row : result.at("rows")) {
      if (!row.contains("config")) continue;
      const Problem problem = problem_of(row.at("operator"), row.at("m"), row.at("n"), row.at("k"));
      const std::vector<Predicted> list = on("h200x" + std::to_string(row.at("ranks").get<int>()), problem);
      ++rows;
      const auto measured = list.begin() + static_cast<std::ptrdiff_t>(most_measured(list, Tuning::full));
      const auto is_it = [&](const Predicted& each) { return each.config == row.at("config").get<Config>(); };
      if (std::any_of(list.begin(), measured, is_it)) continue;
      ++missed;
      which += fmt::format("{} {} {} {} {}\n", file, problem.op, problem.m, problem.n, problem.k);
    }
  }
  EXPECT_GE(rows, 20 * static_cast<int>(files.size()));
  EXPECT_LE(missed, rows / 8) << which;
}

/// bench/scripts_test.py compares the tables with bench/results.
TEST(Shipped, EveryRowCanBeMadeAndIsFound) {
  EXPECT_GE(shipped_winners().size(), 150U);
  for (const ShippedWinner& each : shipped_winners()) {
    const Target& target = find_target(each.table);
    const Team team = team_of(target, target.ranks);
    Problem problem = each.problem;
    problem.reduction = Reduction::any;
    EXPECT_GT(num_tasks(make_plan(problem, team, each.config)), 0) << each.table << to_string(problem);
    EXPECT_EQ(problem.arena.size(), all_reduces(problem) ? 1U : 0U) << "as it was measured";
    EXPECT_EQ(find_shipped(target, problem), &each) << each.table << to_string(problem);
  }
}

TEST(Shipped, OtherProblemsAndMachinesHaveNone) {
  const ShippedWinner& any = shipped_winners().front();
  const Target target = find_target(any.table);
  const auto found = [&](auto&& change) {
    Problem problem = any.problem;
    change(problem);
    return find_shipped(target, problem) == &any;
  };
  EXPECT_TRUE(found([](Problem&) {}));
  EXPECT_TRUE(found([](Problem& problem) { problem.dtype = DType::fp16; }));
  EXPECT_TRUE(found([](Problem& problem) { problem.m -= 7; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.m += 1; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.n += 8; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.dtype = DType::fp32; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.b_layout = BLayout::kn; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.arena = {"c"}; })) << "the first row is a gather";
  EXPECT_TRUE(found([](Problem& problem) { problem.out_dtype = problem.dtype; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.out_dtype = DType::fp32; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.gathered_output = true; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.more_n = {64}; }));
  EXPECT_FALSE(found([](Problem& problem) { problem.epilogue = {{.kind = EpilogueKind::relu}}; }));
  Target part = target;
  part.whole_gpu = false;
  EXPECT_EQ(find_shipped(part, any.problem), nullptr);
  EXPECT_EQ(find_shipped(host_target(), any.problem), nullptr);
}

/// Two H200, as far as the choice of a config asks. Both ranks say the same.
class TwoH200 final : public Group {
 public:
  explicit TwoH200(std::string hardware) : hardware_(std::move(hardware)) {}
  [[nodiscard]] const Team& team() const override { return team_; }
  [[nodiscard]] std::string backend() const override { return "cuda"; }
  [[nodiscard]] std::string hardware() const override { return hardware_; }
  [[nodiscard]] Target target() const override { return find_target("h200x2"); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine) override { return {mine, mine}; }
  [[nodiscard]] std::vector<std::string> unsupported(const Plan& /*plan*/) const override { return {}; }
  [[nodiscard]] Tensor allocate(DType /*dtype*/, int64_t /*rows*/, int64_t /*cols*/) override { return {}; }
  void free(const Tensor& /*tensor*/) override {}
  void adopt(const std::vector<std::byte*>& /*at*/, int64_t /*bytes*/) override {}
  [[nodiscard]] std::optional<int64_t> place_of(const Tensor& /*tensor*/) const override { return {}; }
  [[nodiscard]] std::unique_ptr<Program> load(const Plan& /*plan*/) override { return nullptr; }
  void fail_with(const Error& /*error*/) override {}

 private:
  std::string hardware_;
  Team team_ = team_of(find_target("h200x2"), 2);
};

TEST(Shipped, ComeBehindTheSameKeyAndAheadOfOtherRows) {
  const std::string file = ::testing::TempDir() + "shipped_winners.json";
  std::filesystem::remove(file);
  const ShippedWinner& row = *std::ranges::find(shipped_winners(), std::string("h200x2"), &ShippedWinner::table);
  TwoH200 group(row.hardware);
  const auto why = [&](Group& of) { return choose(of, row.problem, {.file = file, .tuning = Tuning::off}).why; };
  EXPECT_TRUE(why(group).starts_with("shipped with tilewire: measured on 2 x NVIDIA H200, 132 SMs")) << why(group);
  TwoH200 other("2 x NVIDIA H200 NVL, 132 SMs");
  EXPECT_TRUE(why(other).starts_with("unmeasured")) << why(other);
  const auto key = [&](int64_t m) {
    Problem problem = row.problem;
    problem.m = m;
    return key_of("cuda", machine_name(row.hardware), 2, problem, true);
  };
  ASSERT_FALSE(remember(file, {.key = key(2 * row.problem.m), .config = row.config, .timings = {}}).has_value());
  EXPECT_TRUE(why(group).starts_with("shipped")) << why(group);
  ASSERT_FALSE(remember(file, {.key = key(row.problem.m), .config = row.config, .timings = {}}).has_value());
  EXPECT_TRUE(why(group).starts_with("remembered from")) << why(group);
  write_output(file, "{");
  EXPECT_NE(why(group).find("note: " + file + " was ignored"), std::string::npos) << why(group);
  EXPECT_TRUE(why(group).starts_with("shipped"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace tilewire::tuner
