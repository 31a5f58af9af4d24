// Skewed ranks: sleeps before and inside calls, a thousand consecutive calls with different data, several operators
// interleaved. Every element of every call is compared. Built into the target `operators`.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tilewire/json.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

constexpr int64_t kM = 20;
constexpr int64_t kN = 24;
constexpr int64_t kK = 8;

// Small integers, so that sums are exact in fp32 and C has a closed form.
float row_value(int64_t row, int call) { return static_cast<float>((row + call) % 7 - 3); }
float col_value(int64_t col, int call) { return static_cast<float>((3 * col + call) % 5 - 2); }

/// One operator's tensors on one rank, refilled for each call.
class Checked {
 public:
  Checked(Group& group, const Problem& problem, const Config& config, const OpOptions& options)
      : rank_(group.team().rank), ranks_(group.team().num_ranks), op_(make_op(group, problem, config, options)) {
    for (const Buffer& buffer : find_operator(problem.op).buffers(problem, ranks_)) {
      const Shape shape = shape_on(buffer, rank_);
      auto& values = memory_.emplace_back(static_cast<size_t>(shape.rows * shape.cols));
      tensors_.push_back(make_tensor(values.data(), DType::fp32, shape.rows, shape.cols));
    }
  }

  void run(int call) {
    const bool gathers = op_.problem().op == "all_gather_gemm";
    const int64_t first_row = gathers ? shard_of(kM, ranks_, rank_).begin : 0;
    const int64_t first_col = gathers ? shard_of(kN, ranks_, rank_).begin : 0;
    fill(0, [&](int64_t row) { return row_value(first_row + row, call); });
    fill(1, [&](int64_t col) { return col_value(first_col + col, call); });
    std::ranges::fill(memory_[2], -1e30F);
    op_.run(std::span(tensors_).first(2), std::span(tensors_).subspan(2));
    // Spoil the inputs: no rank may read them any more.
    std::ranges::fill(memory_[0], 1e30F);
    const bool scatters = op_.problem().op == "gemm_reduce_scatter";
    compare(call, scatters ? shard_of(kM, ranks_, rank_).begin : 0, first_col);
  }

 private:
  template <class Value>
  void fill(size_t tensor, const Value& value) {
    const int64_t cols = tensors_[tensor].cols;
    for (int64_t i = 0; i < std::ssize(memory_[tensor]); ++i) memory_[tensor][i] = value(i / cols);
  }

  void compare(int call, int64_t first_row, int64_t first_col) const {
    const int64_t cols = tensors_[2].cols;
    for (int64_t i = 0; i < std::ssize(memory_[2]); ++i) {
      const float want = kK * row_value(first_row + i / cols, call) * col_value(first_col + i % cols, call);
      if (memory_[2][i] == want) continue;
      throw Error(ErrorKind::wrong_result, fmt::format("rank {} call {} {}: element {} is {}, want {}", rank_, call,
                                                       op_.problem().op, i, memory_[2][i], want));
    }
  }

  int rank_;
  int ranks_;
  Op op_;
  std::vector<std::vector<float>> memory_;
  std::vector<Tensor> tensors_;
};

Problem problem_of(const char* op) {
  return {.op = op, .m = kM, .n = kN, .k = kK, .dtype = DType::fp32, .reduction = Reduction::any};
}

void expect_exact(const std::vector<const char*>& operators, const Config& config, int num_calls, bool threads) {
  launch(3, {.threads = threads}, [&](Group& group) {
    std::minstd_rand random(static_cast<unsigned>(group.team().rank) + 1);
    std::vector<std::unique_ptr<Checked>> ops;
    for (const char* op : operators) {
      ops.push_back(
          std::make_unique<Checked>(group, problem_of(op), config, OpOptions{.check = true, .max_delay_us = 40}));
    }
    for (int call = 0; call < num_calls; ++call) {
      if (random() % 4 == 0) usleep(static_cast<useconds_t>(random() % 300));
      for (const auto& op : ops) op->run(call);
    }
  });
}

class Skewed : public ::testing::TestWithParam<std::pair<const char*, Config>> {};

TEST_P(Skewed, AThousandCallsAreExact) {
  const auto& [op, config] = GetParam();
  EXPECT_NO_THROW(expect_exact({op}, config, 1000, false));
}

Config with(const char* schedule, const char* knob = nullptr, const char* value = nullptr) {
  Config config{.schedule = schedule, .tile_m = 4, .tile_n = 8};
  if (knob != nullptr) set_knob(config, knob, value);
  return config;
}

INSTANTIATE_TEST_SUITE_P(Host, Skewed,
                         ::testing::Values(std::pair{"all_gather_gemm", with("sequential")},
                                           std::pair{"all_gather_gemm", with("fused")},
                                           std::pair{"all_gather_gemm", with("fused", "direction", "pull")},
                                           std::pair{"all_gather_gemm", with("fused", "algorithm", "ring")},
                                           std::pair{"gemm_reduce_scatter", with("fused")},
                                           std::pair{"gemm_reduce_scatter", with("fused", "transport", "copy_engine")},
                                           std::pair{"gemm_reduce_scatter", with("fused", "reduce_mode", "pull")},
                                           std::pair{"gemm_reduce_scatter", with("fused", "reduce_mode", "accumulate")},
                                           std::pair{"gemm_reduce_scatter", with("fused", "algorithm", "ring")},
                                           std::pair{"gemm_all_reduce", with("fused")},
                                           std::pair{"gemm_all_reduce", with("fused", "algorithm", "one_shot")},
                                           std::pair{"gemm_all_reduce", with("fused", "compute", "library")},
                                           std::pair{"gemm_all_reduce", with("two_stream")}));

TEST(SkewedProcesses, OperatorsInTurnAreExact) {
  EXPECT_NO_THROW(
      expect_exact({"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}, with("fused"), 200, false));
}

TEST(SkewedThreads, OperatorsInTurnAreExact) {
  EXPECT_NO_THROW(
      expect_exact({"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}, with("fused"), 100, true));
}

}  // namespace
}  // namespace tilewire
