// make_op and Op: agreement of the ranks, the tuner's choice, checks before a call, callers' plans.
#include "tilewire/op.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "operators/tensors.hpp"
#include "operators/verify.hpp"
#include "ranks/plans.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::want;

const Problem kProblem{.op = "gemm_reduce_scatter", .m = 96, .n = 64, .k = 80, .dtype = DType::fp32};
const Config kFused{.schedule = "fused", .tile_m = 32, .tile_n = 32};

/// Random inputs, a call, and the comparison of all ranks' outputs with the reference.
void run_and_verify(Group& group, Op& op) {
  const int num_ranks = group.team().num_ranks;
  const Problem& problem = op.problem();
  const RankTensors tensors(group, problem);
  const ReadRow read = random_inputs(problem, num_ranks, 7);
  tensors.fill(read);
  tensors.poison();
  op.run_and_wait(tensors.inputs(), tensors.outputs());
  const Expected expected(problem, num_ranks, group.team().rank, read);
  const Comparison comparison = verify(group, expected, tensors.results(), tolerance_of(problem, op.config()));
  want(comparison.ok() && comparison.elements > 0, "{}: {}", op.explain(), comparison.first);
}

/// A folder for the tuner's file. Ranks are threads, so that expectations on them count for the test.
class Ops : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tilewire_op_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    options_.tuner_file = (folder_ / "tuner.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static void on_ranks(int num_ranks, const std::function<void(Group&)>& body) {
    launch(num_ranks, testing::small_launch(true), body);
  }

  fs::path folder_;
  OpOptions options_;
};

TEST_F(Ops, AGivenConfigIsUsedAndExplained) {
  on_ranks(3, [&](Group& group) {
    Op op = make_op(group, kProblem, kFused, options_);
    EXPECT_EQ(op.config(), kFused);
    EXPECT_NE(op.explain().find("gemm_reduce_scatter with fused"), std::string::npos) << op.explain();
    EXPECT_NE(op.explain().find("given by the caller"), std::string::npos) << op.explain();
    run_and_verify(group, op);
    run_and_verify(group, op);
    EXPECT_FALSE(op.last_status().has_value());
  });
  EXPECT_TRUE(fs::is_empty(folder_)) << "a given config is not remembered";
}

TEST_F(Ops, RanksThatAskForDifferentThingsAreNamedWithTheFields) {
  on_ranks(3, [&](Group& group) {
    Problem problem = kProblem;
    if (group.team().rank == 2) {
      problem.m = 100;
      problem.dtype = DType::fp16;
    }
    const Error error = error_of([&] { static_cast<void>(make_op(group, problem, kFused, options_)); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    const std::string text = error.what();
    EXPECT_NE(text.find("ranks 0 and 2"), std::string::npos) << text;
    EXPECT_NE(text.find("m = 96 and 100"), std::string::npos) << text;
    EXPECT_NE(text.find("dtype = \"fp32\" and \"fp16\""), std::string::npos) << text;
    EXPECT_EQ(text.find("n = "), std::string::npos) << text;

    Config config = kFused;
    if (group.team().rank == 1) config.tile_m = 64;
    const std::string knob = error_of([&] { static_cast<void>(make_op(group, kProblem, config, options_)); }).what();
    EXPECT_NE(knob.find("ranks 0 and 1"), std::string::npos) << knob;
    EXPECT_NE(knob.find("config.tile_m = 32 and 64"), std::string::npos) << knob;

    const auto maybe = group.team().rank == 1 ? std::nullopt : std::optional(kFused);
    const std::string automatic =
        error_of([&] { static_cast<void>(make_op(group, kProblem, maybe, options_)); }).what();
    EXPECT_NE(automatic.find("config = \"given\" and \"auto\""), std::string::npos) << automatic;

    Op op = make_op(group, kProblem, kFused, options_);
    run_and_verify(group, op);
  });
}

TEST_F(Ops, BrokenRulesAreErrorsOnEveryRankBeforeAnythingIsAllocated) {
  on_ranks(2, [&](Group& group) {
    const auto kind_of = [&](const Problem& problem, const Config& config) {
      return error_of([&] { static_cast<void>(make_op(group, problem, config, options_)); }).kind();
    };
    Problem problem = kProblem;
    problem.m = -1;
    EXPECT_EQ(kind_of(problem, kFused), ErrorKind::invalid_input);
    problem.m = int64_t{1} << 62;
    EXPECT_EQ(kind_of(problem, kFused), ErrorKind::invalid_input);
    problem = kProblem;
    problem.op = "gemm_all_redcue";
    EXPECT_EQ(kind_of(problem, kFused), ErrorKind::invalid_input);
    Config config = kFused;
    config.tile_m = 0;
    EXPECT_EQ(kind_of(kProblem, config), ErrorKind::invalid_input);
    config = kFused;
    config.transport = Transport::tma;
    EXPECT_EQ(kind_of(kProblem, config), ErrorKind::unsupported);
  });
}

TEST_F(Ops, TensorsAreCheckedByTheNameOfTheirBuffer) {
  on_ranks(2, [&](Group& group) {
    Op op = make_op(group, kProblem, kFused, options_);
    const RankTensors tensors(group, kProblem);
    tensors.fill(random_inputs(kProblem, 2, 1));
    std::vector<Tensor> inputs(tensors.inputs().begin(), tensors.inputs().end());
    std::vector<Tensor> outputs(tensors.outputs().begin(), tensors.outputs().end());
    const auto refusal = [&] {
      const Error error = error_of([&] { op.run(inputs, outputs); });
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_TRUE(op.last_status().has_value());
      return std::string(error.what());
    };
    const auto expect_words = [](const std::string& text, const std::string& words) {
      EXPECT_NE(text.find(words), std::string::npos) << text;
    };
    inputs[0].dtype = DType::bf16;
    expect_words(refusal(), "input a is bf16, must be fp32");
    inputs[0] = tensors.inputs()[0];
    inputs[1].rows += 1;
    expect_words(refusal(), "input b is 65 x 40, must be 64 x 40");
    inputs[1] = tensors.inputs()[1];
    inputs[1].row_stride = 3;
    expect_words(refusal(), "input b has rows of 40 elements 3 apart");
    inputs.pop_back();
    expect_words(refusal(), "input b is missing");
    inputs.push_back(tensors.inputs()[1]);
    outputs[0].data = nullptr;
    expect_words(refusal(), "output c has no memory");
    outputs[0] = tensors.outputs()[0];
    outputs.push_back(outputs[0]);
    expect_words(refusal(), "2 tensors were given as output");
    outputs.pop_back();
    op.run(inputs, outputs);
    EXPECT_FALSE(op.last_status().has_value());
  });
}

TEST_F(Ops, AutoMeasuresAgreesAndRemembers) {
  std::string first;
  on_ranks(4, [&](Group& group) {
    Op op = make_op(group, kProblem, std::nullopt, options_);
    const auto all = group.all_gather(to_string(op.config()) + op.explain());
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1U) << "all ranks agree";
    EXPECT_NE(op.explain().find("measured"), std::string::npos) << op.explain();
    EXPECT_NE(op.explain().find("sequential"), std::string::npos) << op.explain();
    if (group.team().rank == 0) first = to_string(op.config());
    run_and_verify(group, op);
  });
  on_ranks(4, [&](Group& group) {
    Op op = make_op(group, kProblem, std::nullopt, options_);
    EXPECT_NE(op.explain().find("remembered from " + options_.tuner_file), std::string::npos) << op.explain();
    EXPECT_EQ(to_string(op.config()), first);
    run_and_verify(group, op);
  });
  on_ranks(2, [&](Group& group) {
    const Op op = make_op(group, kProblem, std::nullopt, options_);
    EXPECT_EQ(op.explain().find("remembered"), std::string::npos) << "other ranks, other key: " << op.explain();
  });
}

TEST_F(Ops, ARememberedWinnerIsWhatRuns) {
  on_ranks(2, [&](Group& group) { static_cast<void>(make_op(group, kProblem, std::nullopt, options_)); });
  nlohmann::json file = nlohmann::json::parse(std::ifstream(options_.tuner_file));
  file["winners"][0]["config"] = {{"schedule", "sequential"}, {"tile_m", 48}, {"tile_n", 16}};
  std::ofstream(options_.tuner_file) << file;
  on_ranks(2, [&](Group& group) {
    EXPECT_EQ(make_op(group, kProblem, std::nullopt, options_).config().tile_m, 48);
    Problem same_bucket = kProblem;
    same_bucket.m = 128;
    EXPECT_EQ(make_op(group, same_bucket, std::nullopt, options_).config().tile_m, 48);
  });
  file["winners"][0]["config"] = {{"schedule", "two_stream"}};
  std::ofstream(options_.tuner_file) << file;
  on_ranks(2, [&](Group& group) {
    const Op op = make_op(group, kProblem, std::nullopt, options_);
    EXPECT_NE(op.config().schedule, "two_stream") << "it cannot reduce-scatter";
    EXPECT_NE(op.explain().find("does not fit"), std::string::npos) << op.explain();
  });
}

TEST_F(Ops, AgainMeasuresThoughAWinnerIsKnown) {
  on_ranks(2, [&](Group& group) { static_cast<void>(make_op(group, kProblem, std::nullopt, options_)); });
  nlohmann::json file = nlohmann::json::parse(std::ifstream(options_.tuner_file));
  file["winners"][0]["config"] = {{"schedule", "sequential"}, {"tile_m", 48}, {"tile_n", 16}};
  std::ofstream(options_.tuner_file) << file;
  OpOptions again = options_;
  again.tuning = Tuning::again;
  on_ranks(2, [&](Group& group) {
    const Op op = make_op(group, kProblem, std::nullopt, again);
    EXPECT_NE(op.config().tile_m, 48) << "no candidate";
    EXPECT_NE(op.explain().find("measured, medians"), std::string::npos) << op.explain();
  });
  on_ranks(2, [&](Group& group) {
    EXPECT_NE(make_op(group, kProblem, std::nullopt, options_).config().tile_m, 48) << "replaced in the file";
  });
}

TEST_F(Ops, FinalistsAreListedApartFromFirstLooks) {
  on_ranks(2, [&](Group& group) { static_cast<void>(make_op(group, kProblem, std::nullopt, options_)); });
  nlohmann::json file = nlohmann::json::parse(std::ifstream(options_.tuner_file));
  const auto explained = [&](const nlohmann::json& timings) {
    file["winners"][0]["timings"] = timings;
    std::ofstream(options_.tuner_file) << file;
    std::string text;
    on_ranks(2, [&](Group& group) {
      const Op op = make_op(group, kProblem, std::nullopt, options_);
      if (group.team().rank == 0) text = op.explain();
    });
    return text.substr(std::min(text.size(), text.find("rank:")));
  };
  const auto timing = [](const char* schedule, double us, int samples) {
    return nlohmann::json{{"config", {{"schedule", schedule}}}, {"us", us}, {"samples", samples}};
  };
  EXPECT_TRUE(explained({timing("fused", 48.5, 8), timing("sequential", 50, 8), timing("two_stream", 41.3, 1)})
                  .starts_with("rank:\n final, 2 in turn:"
                               "\n        48.5 us  fused (8 samples)\n        50.0 us  sequential (8 samples)"
                               "\n first look only (one sample each, not compared):"
                               "\n        41.3 us  two_stream (1 sample)"));
  EXPECT_TRUE(explained(nlohmann::json::array({timing("sequential", 50, 1)}))
                  .starts_with("rank:\n one look each:\n        50.0 us  sequential (1 sample)"));
}

TEST_F(Ops, ACorruptTunerFileIsIgnoredAndSaid) {
  std::ofstream(options_.tuner_file) << "{\"format\": 1, \"winners\": [{";
  on_ranks(2, [&](Group& group) {
    const Op op = make_op(group, kProblem, std::nullopt, options_);
    EXPECT_NE(op.explain().find("was ignored: its content: malformed JSON"), std::string::npos) << op.explain();
  });
}

TEST_F(Ops, TheTraceOfAllRanksHoldsEveryTaskOnce) {
  options_.trace = true;
  on_ranks(3, [&](Group& group) {
    Op op = make_op(group, kProblem, kFused, options_);
    run_and_verify(group, op);
    const Trace trace = op.gather_trace();
    EXPECT_EQ(std::ssize(trace.events), num_tasks(op.plan()));
    std::set<std::pair<int, int64_t>> tasks;
    for (const TraceEvent& event : trace.events) {
      tasks.insert({event.lane, event.task});
      EXPECT_LE(event.taken_ns, event.start_ns);
      EXPECT_LE(event.start_ns, event.end_ns);
    }
    EXPECT_EQ(std::ssize(tasks), num_tasks(op.plan()));
    const auto in_order = [](const TraceEvent& x, const TraceEvent& y) {
      return std::pair(x.lane, x.taken_ns) < std::pair(y.lane, y.taken_ns);
    };
    EXPECT_TRUE(std::is_sorted(trace.events.begin(), trace.events.end(), in_order));
    const auto all = group.all_gather(to_string(trace));
    EXPECT_EQ(all[0], all[2]);
  });
}

TEST_F(Ops, APlanFromACallerRuns) {
  on_ranks(2, [&](Group& group) {
    Op op = make_op(group, make_plan(kProblem, group.team(), kFused), options_);
    EXPECT_NE(op.explain().find("the plan was given by the caller"), std::string::npos) << op.explain();
    run_and_verify(group, op);
  });
}

TEST_F(Ops, APlanThatIsNotProvenIsNeverExecuted) {
  options_.check = false;  // a caller's plan is checked all the same
  on_ranks(2, [&](Group& group) {
    Plan plan = make_plan(kProblem, group.team(), kFused);
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (task.kind == TaskKind::reduce) task.waits.clear();
      }
    }
    const Error error = error_of([&] { static_cast<void>(make_op(group, plan, options_)); });
    EXPECT_EQ(error.kind(), ErrorKind::refused_plan) << error.what();

    plan = make_plan(kProblem, group.team(), kFused);
    plan.lanes[0].tasks[0].posts.push_back({.signal = {.rank = 9, .index = 0}});
    EXPECT_EQ(error_of([&] { static_cast<void>(make_op(group, plan, options_)); }).kind(), ErrorKind::invalid_input);

    plan = make_plan(kProblem, Team{.num_ranks = 3}, kFused);
    const std::string text = error_of([&] { static_cast<void>(make_op(group, plan, options_)); }).what();
    EXPECT_NE(text.find("the plan is for 3 ranks, the team has 2"), std::string::npos) << text;
  });
}

TEST_F(Ops, RanksWithDifferentPlansAreNamed) {
  on_ranks(2, [&](Group& group) {
    Plan plan = make_plan(kProblem, group.team(), kFused);
    if (group.team().rank == 1) plan.lanes[0].name += "x";
    const std::string text = error_of([&] { static_cast<void>(make_op(group, plan, options_)); }).what();
    EXPECT_NE(text.find("ranks 0 and 1 make different requests: plan (hash)"), std::string::npos) << text;
  });
}

TEST_F(Ops, CallersTensorsInTheArenaAreReadInPlace) {
  on_ranks(2, [&](Group& group) {
    Problem problem{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 32, .dtype = DType::fp32, .arena = {"a"}};
    Op op = make_op(group, problem, kFused, options_);
    run_and_verify(group, op);
    Op automatic = make_op(group, problem, std::nullopt, options_);
    run_and_verify(group, automatic);
  });
}

}  // namespace
}  // namespace tilewire
