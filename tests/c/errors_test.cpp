// Error paths of the C interface: each has a status, and a text that names the rule and the value.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tilewire/c.h"

namespace {

const char* const kProblem = R"({"op": "all_reduce", "m": 4, "n": 3, "dtype": "fp32"})";

/// The text of a failed call, "invalid_input: ...", as one string to compare.
std::string failure(tilewire_status status) {
  if (status == TILEWIRE_OK) return "ok";
  EXPECT_EQ(status, tilewire_last_error_status());
  return std::string(tilewire_status_name(status)) + ": " + tilewire_last_error();
}

void expect_failure(tilewire_status status, const std::string& start, const std::string& part) {
  const std::string text = failure(status);
  EXPECT_EQ(text.substr(0, start.size()), start) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

using Body = std::function<tilewire_status(tilewire_group*)>;

tilewire_status call_body(tilewire_group* group, void* user) { return (*static_cast<Body*>(user))(group); }

/// Ranks as threads, with small arenas.
tilewire_status on_ranks(int num_ranks, Body body, double timeout_s = 30) {
  const tilewire_launch_options options{
      .size = sizeof options, .backend = nullptr, .threads = 1, .arena_bytes = 1 << 20, .timeout_s = timeout_s};
  return tilewire_launch(num_ranks, &options, call_body, &body);
}

tilewire_tensor dense(void* data, tilewire_dtype dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols};
}

/// A team of this process alone.
class OfOne : public ::testing::Test {
 protected:
  void SetUp() override {
    tilewire_join_options options{.size = sizeof options};
    ASSERT_EQ(tilewire_join_options_default(&options), TILEWIRE_OK);
    const std::string job = "c_errors." + std::to_string(getpid());
    options.job = job.c_str();
    options.arena_bytes = 1 << 20;
    ASSERT_EQ(tilewire_join("host", &options, &group_), TILEWIRE_OK) << tilewire_last_error();
  }
  void TearDown() override {
    EXPECT_EQ(tilewire_free_op(op_), TILEWIRE_OK);
    EXPECT_EQ(tilewire_leave(group_), TILEWIRE_OK) << tilewire_last_error();
  }

  void make_op() {
    ASSERT_EQ(tilewire_make_op(group_, kProblem, "sequential", &op_), TILEWIRE_OK) << tilewire_last_error();
  }

  tilewire_group* group_ = nullptr;
  tilewire_op* op_ = nullptr;
};

TEST(CErrors, NamesOfStatuses) {
  EXPECT_STREQ(tilewire_status_name(TILEWIRE_OK), "ok");
  EXPECT_STREQ(tilewire_status_name(TILEWIRE_INVALID_INPUT), "invalid_input");
  EXPECT_STREQ(tilewire_status_name(TILEWIRE_INTERNAL), "internal");
  EXPECT_STREQ(tilewire_status_name(-1), "unknown");
  EXPECT_STREQ(tilewire_status_name(8), "unknown");
}

TEST(CErrors, NullPointersAreNamed) {
  tilewire_join_options options{.size = sizeof options};
  tilewire_tensor tensor{};
  tilewire_status status = TILEWIRE_OK;
  tilewire_group* group = nullptr;
  tilewire_op* op = nullptr;
  const auto null = [](tilewire_status result, const std::string& what) {
    EXPECT_EQ(failure(result), "invalid_input: " + what + " is a null pointer");
  };
  null(tilewire_check_backend(nullptr), "tilewire_check_backend: backend");
  null(tilewire_join_options_default(nullptr), "tilewire_join_options_default: options");
  null(tilewire_join_options_from_env(nullptr), "tilewire_join_options_from_env: options");
  null(tilewire_join(nullptr, &options, &group), "tilewire_join: backend");
  null(tilewire_join("host", nullptr, &group), "tilewire_join: options");
  null(tilewire_join("host", &options, nullptr), "tilewire_join: group");
  null(tilewire_launch(1, nullptr, nullptr, nullptr), "tilewire_launch: body");
  null(tilewire_barrier(nullptr), "tilewire_barrier: group");
  null(tilewire_fail(nullptr, TILEWIRE_INTERNAL, "text"), "tilewire_fail: group");
  null(tilewire_allocate(nullptr, TILEWIRE_FP32, 1, 1, &tensor), "tilewire_allocate: group");
  null(tilewire_allocate(nullptr, TILEWIRE_FP32, 1, 1, nullptr), "tilewire_allocate: tensor");
  null(tilewire_free(nullptr, &tensor), "tilewire_free: group");
  null(tilewire_copy(nullptr, &tensor, &tensor, 1), "tilewire_copy: group");
  null(tilewire_make_op(nullptr, kProblem, nullptr, &op), "tilewire_make_op: group");
  null(tilewire_make_op(nullptr, kProblem, nullptr, nullptr), "tilewire_make_op: op");
  null(tilewire_run(nullptr, nullptr, 0, nullptr, 0, nullptr), "tilewire_run: op");
  null(tilewire_run_and_wait(nullptr, nullptr, 0, nullptr, 0), "tilewire_run_and_wait: op");
  null(tilewire_last_status(nullptr, &status, nullptr), "tilewire_last_status: op");
  null(tilewire_last_status(nullptr, nullptr, nullptr), "tilewire_last_status: status");
  null(tilewire_wait(nullptr), "tilewire_wait: op");
  null(tilewire_workspace(nullptr, nullptr, nullptr), "tilewire_workspace: op");
}

TEST(CErrors, FunctionsWithoutStatusTellTheThread) {
  EXPECT_EQ(tilewire_rank(nullptr), -1);
  EXPECT_EQ(failure(tilewire_last_error_status()), "invalid_input: tilewire_rank: group is a null pointer");
  EXPECT_EQ(tilewire_num_ranks(nullptr), -1);
  EXPECT_EQ(tilewire_backend(nullptr), nullptr);
  EXPECT_EQ(tilewire_explain(nullptr), nullptr);
  EXPECT_EQ(failure(tilewire_last_error_status()), "invalid_input: tilewire_explain: op is a null pointer");
  EXPECT_EQ(tilewire_config(nullptr), nullptr);
}

TEST(CErrors, FreeingNothingIsFine) {
  EXPECT_EQ(tilewire_leave(nullptr), TILEWIRE_OK);
  EXPECT_EQ(tilewire_free_op(nullptr), TILEWIRE_OK);
}

TEST(CErrors, EachThreadHasItsOwnAndSuccessKeepsIt) {
  expect_failure(tilewire_check_backend("abacus"), "invalid_input: ", "'abacus'");
  std::thread([] {
    EXPECT_STREQ(tilewire_last_error(), "");
    EXPECT_EQ(tilewire_last_error_status(), TILEWIRE_OK);
  }).join();
  EXPECT_EQ(tilewire_check_backend("host"), TILEWIRE_OK);
  EXPECT_NE(std::string(tilewire_last_error()).find("'abacus'; known: host, cuda"), std::string::npos);
}

TEST(CErrors, TheEnvironmentMustNameTheRank) {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"}) unsetenv(name);
  tilewire_join_options options{.size = sizeof options};
  expect_failure(tilewire_join_options_from_env(&options), "invalid_input: ", "RANK is not set");
  setenv("RANK", "5", 1);
  setenv("WORLD_SIZE", "2", 1);
  expect_failure(tilewire_join_options_from_env(&options), "invalid_input: ", "RANK 5 of WORLD_SIZE 2");
  setenv("RANK", "1", 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("TILEWIRE_TIMEOUT_S", "7.5", 1);
  EXPECT_EQ(tilewire_join_options_from_env(&options), TILEWIRE_OK);
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.num_ranks, 2);
  EXPECT_EQ(options.local_rank, 0);
  EXPECT_EQ(options.timeout_s, 7.5);
  EXPECT_EQ(options.job, nullptr);
  EXPECT_EQ(options.arena_bytes, int64_t{16} << 30);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TILEWIRE_TIMEOUT_S"}) unsetenv(name);
}

TEST(CErrors, JoiningNamesWhatIsWrong) {
  tilewire_join_options options{.size = sizeof options};
  ASSERT_EQ(tilewire_join_options_default(&options), TILEWIRE_OK);
  tilewire_group* group = nullptr;
  expect_failure(tilewire_join("abacus", &options, &group), "invalid_input: ", "'abacus'");
  options.num_ranks = 0;
  expect_failure(tilewire_join("host", &options, &group), "invalid_input: ", "0");
  options.num_ranks = 2;
  options.job = "c_errors.alone";
  options.timeout_s = 0.2;
  options.arena_bytes = 1 << 20;
  expect_failure(tilewire_join("host", &options, &group), "timeout: ", "1");
  EXPECT_EQ(group, nullptr);
}

TEST(CErrors, OptionsSayHowLargeTheyAre) {
  // A later header, whose struct has eight more bytes.
  alignas(8) std::array<unsigned char, sizeof(tilewire_join_options) + 8> memory{};
  memory.back() = 7;
  auto* later = reinterpret_cast<tilewire_join_options*>(memory.data());
  later->size = sizeof memory;
  EXPECT_EQ(tilewire_join_options_default(later), TILEWIRE_OK);
  EXPECT_EQ(later->size, sizeof memory);
  EXPECT_EQ(later->num_ranks, 1);
  EXPECT_EQ(memory.back(), 0) << "what the library does not know has its default";
  memory.back() = 7;
  tilewire_group* group = nullptr;
  expect_failure(tilewire_join("host", later, &group), "invalid_input: ", "the others are not zero");
  tilewire_join_options sms{.size = sizeof sms};
  EXPECT_EQ(tilewire_join_options_default(&sms), TILEWIRE_OK);
  sms.sms = -3;
  expect_failure(tilewire_join("host", &sms, &group), "invalid_input: ", "sms = -3: want 0 or more");
  for (const uint64_t size : {uint64_t{0}, uint64_t{40}, uint64_t{1} << 20}) {
    tilewire_join_options options{.size = size};
    expect_failure(
        tilewire_join_options_default(&options), "invalid_input: ",
        "size = " + std::to_string(size) + ": want the size of the struct, " + std::to_string(sizeof options));
    expect_failure(tilewire_join("host", &options, &group), "invalid_input: ", "tilewire_join: size = ");
    const tilewire_launch_options launch{.size = size};
    const auto fine = [](tilewire_group*, void*) -> tilewire_status { return TILEWIRE_OK; };
    expect_failure(tilewire_launch(1, &launch, fine, nullptr), "invalid_input: ", "tilewire_launch: size = ");
  }
}

TEST(CErrors, LaunchingNamesWhatIsWrong) {
  const auto fine = [](tilewire_group*, void*) -> tilewire_status { return TILEWIRE_OK; };
  expect_failure(tilewire_launch(0, nullptr, fine, nullptr), "invalid_input: ", "0 ranks");
  const tilewire_launch_options options{
      .size = sizeof options, .backend = "abacus", .threads = 1, .arena_bytes = 0, .timeout_s = 0};
  expect_failure(tilewire_launch(1, &options, fine, nullptr), "invalid_input: ", "'abacus'");
}

TEST(CErrors, ARanksFailureReachesTheLauncherAndThePeers) {
  std::array<std::string, 3> seen;
  const tilewire_status status = on_ranks(3, [&](tilewire_group* group) {
    const int rank = tilewire_rank(group);
    if (rank == 1) return tilewire_fail(group, TILEWIRE_WRONG_RESULT, "the third row is blue");
    const tilewire_status lost = tilewire_barrier(group);
    seen[rank] = failure(lost);
    return lost;
  });
  EXPECT_EQ(failure(status), "wrong_result: the third row is blue");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(seen[rank].substr(0, 10), "rank_lost:") << seen[rank];
    EXPECT_NE(seen[rank].find("rank 1 failed: the third row is blue"), std::string::npos) << seen[rank];
  }
}

TEST(CErrors, AStatusOfTheCallersOwn) {
  expect_failure(on_ranks(1, [](tilewire_group*) -> tilewire_status { return 42; }),
                 "invalid_input: ", "rank 0's function returned 42, which is no status");
  expect_failure(on_ranks(1, [](tilewire_group*) -> tilewire_status { return TILEWIRE_UNSUPPORTED; }),
                 "unsupported: ", "returned 2 (unsupported)");
}

TEST(CErrors, OperatorsLeftByARankAreReported) {
  expect_failure(on_ranks(2,
                          [](tilewire_group* group) {
                            tilewire_op* op = nullptr;
                            return tilewire_make_op(group, kProblem, "sequential", &op);
                          }),
                 "invalid_input: ", "has not freed 1 operators");
}

TEST(CErrors, RanksThatAskForDifferentThings) {
  expect_failure(on_ranks(2,
                          [](tilewire_group* group) {
                            tilewire_op* op = nullptr;
                            const char* config = tilewire_rank(group) == 0 ? "sequential" : "fused";
                            const tilewire_status status = tilewire_make_op(group, kProblem, config, &op);
                            EXPECT_EQ(op, nullptr);
                            return status;
                          }),
                 "invalid_input: ", "config.schedule = \"sequential\" and its default");
}

TEST(CErrors, ADeadlineIsATimeout) {
  const auto body = [](tilewire_group* group) {
    if (tilewire_rank(group) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return tilewire_barrier(group);
  };
  expect_failure(on_ranks(2, body, 0.2), "timeout: ", "arrival of rank 1");
}

TEST_F(OfOne, ALaunchedGroupIsNotLeftAndAJoinedOneNotWithOperators) {
  expect_failure(on_ranks(1, [](tilewire_group* group) { return tilewire_leave(group); }),
                 "invalid_input: ", "tilewire_launch owns this group and ends it");
  make_op();
  expect_failure(tilewire_leave(group_), "invalid_input: ", "1 operators of the group are not freed");
}

TEST_F(OfOne, FailingNeedsAKindAndAText) {
  expect_failure(tilewire_fail(group_, TILEWIRE_OK, "text"), "invalid_input: ", "status 0 is no kind of error");
  expect_failure(tilewire_fail(group_, 99, "text"), "invalid_input: ", "status 99");
  expect_failure(tilewire_fail(group_, TILEWIRE_INTERNAL, nullptr), "invalid_input: ", "text is a null pointer");
  EXPECT_EQ(tilewire_barrier(group_), TILEWIRE_OK) << "the group is whole";
}

TEST_F(OfOne, ProblemsAndConfigsAreReadStrictly) {
  const auto make = [&](const char* problem, const char* config) {
    const tilewire_status status = tilewire_make_op(group_, problem, config, &op_);
    EXPECT_EQ(op_, nullptr);
    return status;
  };
  expect_failure(make(nullptr, nullptr), "invalid_input: ", "problem is a null pointer");
  expect_failure(make("{", nullptr), "invalid_input: ", "malformed JSON");
  expect_failure(make("[]", nullptr), "invalid_input: ", "want an object, got []");
  expect_failure(make(R"({"op": "all_reduce", "em": 4})", nullptr), "invalid_input: ", "unknown field 'em'");
  expect_failure(make(R"({"op": "all_reduce", "m": "4"})", nullptr), "invalid_input: ", "want an integer, got \"4\"");
  expect_failure(make(R"({"op": "all_reduse", "m": 4, "n": 4})", nullptr), "invalid_input: ", "all_reduse");
  expect_failure(make(R"({"op": "all_reduce", "m": -4, "n": 4})", nullptr), "invalid_input: ", "-4");
  expect_failure(make(kProblem, "fusd"), "invalid_input: ", "'fusd'");
  expect_failure(make(kProblem, " "), "invalid_input: ", "config is empty");
  expect_failure(make(kProblem, R"({"schedule": "fused", "tile": 4})"), "invalid_input: ", "unknown field 'tile'");
  expect_failure(make(kProblem, R"({"schedule": "fused", "tile_m": 0})"), "", "tile_m");
}

/// One rank passes a wrong text, the other a right one; both get the Error.
void expect_both_hear(const std::string& problem, const std::string& config, const std::string& words) {
  std::array<std::string, 2> seen;
  const tilewire_status status = on_ranks(2, [&](tilewire_group* group) -> tilewire_status {
    const int rank = tilewire_rank(group);
    tilewire_op* op = nullptr;
    seen[rank] = failure(rank == 1 ? tilewire_make_op(group, problem.c_str(), config.c_str(), &op)
                                   : tilewire_make_op(group, kProblem, "sequential", &op));
    // The group lives.
    const tilewire_status again = tilewire_make_op(group, kProblem, "sequential", &op);
    return again == TILEWIRE_OK ? tilewire_free_op(op) : again;
  });
  EXPECT_EQ(failure(status), "ok");
  for (const std::string& text : seen) {
    EXPECT_EQ(text.substr(0, 23), "invalid_input: rank 1: ") << text.substr(0, 300);
    EXPECT_NE(text.find(words), std::string::npos) << text.substr(0, 300);
  }
}

TEST(CErrors, ForeignJsonOfOneRankIsToldToAll) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  expect_both_hear(deep, "sequential", "deeper than 100 levels");
  expect_both_hear("{\"op\": \"\xff\"}", "sequential", "malformed JSON");
  expect_both_hear(R"({"op": "all_reduce", "m": 4, "m": 4, "n": 3})", "sequential", "key \"m\" appears twice");
  expect_both_hear(kProblem, "{\"schedule\": " + deep + "}", "deeper than 100 levels");
  expect_both_hear(kProblem, "\xff", "unknown schedule");
  expect_both_hear(kProblem, "", "config is empty");
}

TEST(CErrors, TextsAreUtf8WhateverWasAsked) {
  tilewire_group* group = nullptr;
  tilewire_join_options options{.size = sizeof options};
  ASSERT_EQ(tilewire_join_options_default(&options), TILEWIRE_OK);
  expect_failure(tilewire_join("b\xff", &options, &group), "invalid_input: ", "'b\xEF\xBF\xBD'");
}

TEST_F(OfOne, TensorsAreCheckedBeforeAnythingRuns) {
  make_op();
  std::array<float, 12> x{};
  std::array<float, 12> y{};
  const tilewire_tensor in = dense(x.data(), TILEWIRE_FP32, 4, 3);
  const tilewire_tensor out = dense(y.data(), TILEWIRE_FP32, 4, 3);
  const auto run = [&](const tilewire_tensor& first) { return tilewire_run(op_, &first, 1, &out, 1, nullptr); };
  expect_failure(tilewire_run(op_, &in, -1, &out, 1, nullptr), "invalid_input: ", "the number of inputs is -1");
  expect_failure(tilewire_run(op_, nullptr, 1, &out, 1, nullptr), "invalid_input: ", "inputs is a null pointer");
  expect_failure(tilewire_run(op_, &in, 1, nullptr, 1, nullptr), "invalid_input: ", "outputs is a null pointer");
  expect_failure(tilewire_run(op_, &in, 0, &out, 1, nullptr), "invalid_input: ", "input x is missing: 0 were given");
  const tilewire_tensor two[] = {in, in};
  expect_failure(tilewire_run(op_, two, 2, &out, 1, nullptr), "invalid_input: ", "2 tensors were given");
  expect_failure(run(dense(x.data(), 9, 4, 3)), "invalid_input: ", "tilewire_run: input 0: unknown element type 9");
  expect_failure(run(dense(x.data(), TILEWIRE_BF16, 4, 3)), "invalid_input: ", "is bf16, must be fp32");
  expect_failure(run(dense(x.data(), TILEWIRE_FP32, 3, 4)), "invalid_input: ", "3 x 4, must be 4 x 3");
  expect_failure(run({x.data(), TILEWIRE_FP32, 4, 3, 2}), "invalid_input: ", "3 elements 2 apart");
  expect_failure(run(dense(nullptr, TILEWIRE_FP32, 4, 3)), "invalid_input: ", "has no memory");

  tilewire_status status = TILEWIRE_OK;
  const char* text = nullptr;
  EXPECT_EQ(tilewire_last_status(op_, &status, &text), TILEWIRE_OK);
  EXPECT_EQ(status, TILEWIRE_INVALID_INPUT);
  EXPECT_NE(std::string(text).find("has no memory"), std::string::npos) << text;
  x.fill(3);
  EXPECT_EQ(run(in), TILEWIRE_OK) << tilewire_last_error();
  EXPECT_EQ(y, x);
  EXPECT_EQ(tilewire_last_status(op_, &status, &text), TILEWIRE_OK);
  EXPECT_EQ(status, TILEWIRE_OK);
  EXPECT_STREQ(text, "");
}

TEST_F(OfOne, MemoryOfTheArena) {
  tilewire_tensor tensor = dense(&tensor, TILEWIRE_FP32, 1, 1);
  expect_failure(tilewire_allocate(group_, 9, 1, 1, &tensor), "invalid_input: ", "unknown element type 9");
  EXPECT_EQ(tensor.data, nullptr) << "nothing is given where the call fails";
  expect_failure(tilewire_allocate(group_, TILEWIRE_FP32, -1, 1, &tensor), "invalid_input: ", "-1 x 1");
  expect_failure(tilewire_allocate(group_, TILEWIRE_FP32, 1 << 20, 1, &tensor), "invalid_input: ", "4194304 bytes");
  // Three quarters of the arena, repeatedly: freed memory is used again, and zeroed.
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(tilewire_allocate(group_, TILEWIRE_BF16, 3 << 9, 256, &tensor), TILEWIRE_OK) << tilewire_last_error();
    auto* words = static_cast<uint16_t*>(tensor.data);
    for (int i = 0; i < 3 << 17; ++i) ASSERT_EQ(words[i], 0);
    words[5] = 7;
    tilewire_tensor again = tensor;
    EXPECT_EQ(tilewire_free(group_, &tensor), TILEWIRE_OK) << tilewire_last_error();
    EXPECT_EQ(tensor.data, nullptr);
    expect_failure(tilewire_free(group_, &again), "invalid_input: ", "no tensor of the arena starts there");
  }
  float mine = 0;
  tilewire_tensor foreign = dense(&mine, TILEWIRE_FP32, 1, 1);
  expect_failure(tilewire_free(group_, &foreign), "invalid_input: ", "no tensor of the arena starts there");
  EXPECT_EQ(tilewire_allocate(group_, TILEWIRE_FP16, 0, 5, &tensor), TILEWIRE_OK);
  EXPECT_EQ(tilewire_free(group_, &tensor), TILEWIRE_OK);
}

TEST_F(OfOne, Copies) {
  const int32_t from = 5;
  int32_t to = 0;
  EXPECT_EQ(tilewire_copy(group_, &to, &from, 4), TILEWIRE_OK);
  EXPECT_EQ(to, 5);
  EXPECT_EQ(tilewire_copy(group_, nullptr, nullptr, 0), TILEWIRE_OK);
  expect_failure(tilewire_copy(group_, nullptr, &from, 4), "invalid_input: ", "to is a null pointer");
  expect_failure(tilewire_copy(group_, &to, nullptr, 4), "invalid_input: ", "from is a null pointer");
  expect_failure(tilewire_copy(group_, &to, &from, -4), "invalid_input: ", "-4 bytes");
}

}  // namespace
