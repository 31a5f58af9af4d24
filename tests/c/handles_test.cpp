// The C interface with invalid handles, with versions, and with names of schedules.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include "tilewire/c.h"

namespace {

#define TEXT(number) #number
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)
constexpr std::string_view kVersion = DOTTED(TILEWIRE_VERSION_MAJOR, TILEWIRE_VERSION_MINOR, TILEWIRE_VERSION_PATCH);
static_assert(kVersion == TILEWIRE_PROJECT_VERSION, "tilewire/c.h has not the version of the project");
#if TILEWIRE_VERSION != TILEWIRE_VERSION_MAJOR * 10000 + TILEWIRE_VERSION_MINOR * 100 + TILEWIRE_VERSION_PATCH
#error "TILEWIRE_VERSION is not made of its parts, or not for #if"
#endif

constexpr std::string_view kNoGroup = "not a live group handle: it has been left, or was never joined";
constexpr std::string_view kNoOp =
    "not a live operator handle: it has been freed, its group has ended, or it was never made";
const char* const kSmall = R"({"op": "all_reduce", "m": 4, "n": 3, "dtype": "fp32"})";

void expect_gone(tilewire_status status, const std::string& function, std::string_view why) {
  EXPECT_EQ(status, TILEWIRE_INVALID_INPUT);
  EXPECT_EQ(tilewire_last_error(), function + ": " + std::string(why));
}

tilewire_group* join_alone() {
  tilewire_join_options options{.size = sizeof options};
  EXPECT_EQ(tilewire_join_options_default(&options), TILEWIRE_OK);
  const std::string job = "c_handles." + std::to_string(getpid());
  options.job = job.c_str();
  options.arena_bytes = 1 << 20;
  tilewire_group* group = nullptr;
  EXPECT_EQ(tilewire_join("host", &options, &group), TILEWIRE_OK) << tilewire_last_error();
  return group;
}

tilewire_op* new_op(tilewire_group* group, const char* config = "sequential", const char* problem = kSmall) {
  tilewire_op* op = nullptr;
  EXPECT_EQ(tilewire_make_op(group, problem, config, &op), TILEWIRE_OK) << tilewire_last_error();
  return op;
}

/// Every function that takes an operator refuses this one.
void expect_no_op(tilewire_op* op) {
  std::array<float, 12> memory{};
  const tilewire_tensor tensor{memory.data(), TILEWIRE_FP32, 4, 3, 3};
  tilewire_status status = TILEWIRE_OK;
  expect_gone(tilewire_free_op(op), "tilewire_free_op", kNoOp);
  expect_gone(tilewire_run(op, &tensor, 1, &tensor, 1, nullptr), "tilewire_run", kNoOp);
  expect_gone(tilewire_last_status(op, &status, nullptr), "tilewire_last_status", kNoOp);
  expect_gone(tilewire_wait(op), "tilewire_wait", kNoOp);
  int64_t bytes = 1;
  expect_gone(tilewire_workspace(op, &bytes, nullptr), "tilewire_workspace", kNoOp);
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(tilewire_explain(op), nullptr);
  EXPECT_EQ(tilewire_config(op), nullptr);
  expect_gone(tilewire_last_error_status(), "tilewire_config", kNoOp);
}

/// Every function that takes a group refuses this one.
void expect_no_group(tilewire_group* group) {
  int32_t number = 0;
  tilewire_tensor tensor{};
  tilewire_op* op = nullptr;
  expect_gone(tilewire_leave(group), "tilewire_leave", kNoGroup);
  EXPECT_EQ(tilewire_rank(group), -1);
  EXPECT_EQ(tilewire_num_ranks(group), -1);
  EXPECT_EQ(tilewire_backend(group), nullptr);
  expect_gone(tilewire_barrier(group), "tilewire_barrier", kNoGroup);
  expect_gone(tilewire_fail(group, TILEWIRE_INTERNAL, "text"), "tilewire_fail", kNoGroup);
  expect_gone(tilewire_allocate(group, TILEWIRE_FP32, 1, 1, &tensor), "tilewire_allocate", kNoGroup);
  expect_gone(tilewire_free(group, &tensor), "tilewire_free", kNoGroup);
  expect_gone(tilewire_copy(group, &number, &number, 4), "tilewire_copy", kNoGroup);
  expect_gone(tilewire_make_op(group, kSmall, "sequential", &op), "tilewire_make_op", kNoGroup);
  EXPECT_EQ(op, nullptr);
}

TEST(CHandles, OperatorsThatWereFreedAndGroupsThatWereLeft) {
  tilewire_group* group = join_alone();
  tilewire_op* op = new_op(group);
  tilewire_op* kept = new_op(group);
  EXPECT_EQ(tilewire_free_op(op), TILEWIRE_OK);
  expect_no_op(op);
  EXPECT_NE(tilewire_explain(kept), nullptr);
  EXPECT_EQ(tilewire_free_op(kept), TILEWIRE_OK);
  EXPECT_EQ(tilewire_barrier(group), TILEWIRE_OK);
  EXPECT_EQ(tilewire_leave(group), TILEWIRE_OK);
  expect_no_group(group);
  expect_no_op(kept);
}

TEST(CHandles, WhatIsLeftOfALaunchedGroup) {
  struct Left {
    tilewire_group* group = nullptr;
    tilewire_op* op = nullptr;
  } left;
  const auto body = [](tilewire_group* group, void* user) -> tilewire_status {
    auto& kept = *static_cast<Left*>(user);
    kept.group = group;
    return tilewire_make_op(group, kSmall, "sequential", &kept.op);
  };
  const tilewire_launch_options options{
      .size = sizeof options, .backend = nullptr, .threads = 1, .arena_bytes = 1 << 20, .timeout_s = 0};
  EXPECT_EQ(tilewire_launch(1, &options, body, &left), TILEWIRE_INVALID_INPUT) << "an operator is not freed";
  expect_no_op(left.op);
  expect_no_group(left.group);
}

TEST(CHandles, OneOfTheOtherKindIsNone) {
  tilewire_group* group = join_alone();
  tilewire_op* op = new_op(group);
  expect_no_op(reinterpret_cast<tilewire_op*>(group));
  expect_no_group(reinterpret_cast<tilewire_group*>(op));
  EXPECT_EQ(tilewire_free_op(op), TILEWIRE_OK);
  EXPECT_EQ(tilewire_leave(group), TILEWIRE_OK);
}

TEST(CVersion, OfTheLibraryIsThatOfTheHeader) { EXPECT_EQ(tilewire_version(), kVersion); }

TEST(CConfig, ANameIsTheSchedulesFirstCandidateJsonHasFixedDefaults) {
  tilewire_group* group = join_alone();
  const char* const gather = R"({"op": "all_gather_gemm", "m": 64, "n": 32, "k": 16, "dtype": "fp32"})";
  tilewire_op* named = new_op(group, "fused", gather);
  tilewire_op* fixed = new_op(group, R"({"schedule": "fused"})", gather);
  EXPECT_NE(std::string(tilewire_config(named)).find("copy_engine"), std::string::npos) << tilewire_config(named);
  EXPECT_EQ(std::string(tilewire_config(fixed)).find("copy_engine"), std::string::npos) << tilewire_config(fixed);
  EXPECT_EQ(tilewire_free_op(named), TILEWIRE_OK);
  EXPECT_EQ(tilewire_free_op(fixed), TILEWIRE_OK);
  EXPECT_EQ(tilewire_leave(group), TILEWIRE_OK);
}

TEST(CRun, NothingIsDoneInPlace) {
  tilewire_group* group = join_alone();
  tilewire_op* op = new_op(group);
  std::array<float, 24> memory{};
  const tilewire_tensor x{memory.data(), TILEWIRE_FP32, 4, 3, 6};
  const tilewire_tensor beside{memory.data() + 3, TILEWIRE_FP32, 4, 3, 6};
  EXPECT_EQ(tilewire_run(op, &x, 1, &x, 1, nullptr), TILEWIRE_INVALID_INPUT);
  EXPECT_NE(std::string(tilewire_last_error()).find("output y overlaps input x"), std::string::npos)
      << tilewire_last_error();
  EXPECT_EQ(tilewire_run(op, &x, 1, &beside, 1, nullptr), TILEWIRE_OK) << tilewire_last_error();
  EXPECT_EQ(tilewire_free_op(op), TILEWIRE_OK);
  EXPECT_EQ(tilewire_leave(group), TILEWIRE_OK);
}

}  // namespace
