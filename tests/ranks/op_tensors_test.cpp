// What Op::run requires of its tensors besides types and shapes: distinct memory, and addressable rows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ranks/plans.hpp"
#include "tilewire/op.hpp"

namespace tilewire {
namespace {

using testing::error_of;
using testing::small_launch;

TEST(OpTensors, AnOutputSharesMemoryWithNoOtherTensor) {
  launch(2, small_launch(true), [](Group& group) {
    const Problem problem{.op = "all_reduce", .m = 8, .n = 6, .dtype = DType::fp32};
    const Config in_place{.algorithm = Algorithm::one_shot, .reduce_mode = ReduceMode::pull};
    Op op = make_op(group, problem, in_place);
    std::vector<float> memory(200, 1);
    const auto at = [&](int64_t first, int64_t row_stride) {
      return Tensor{memory.data() + first, DType::fp32, 8, 6, row_stride};
    };
    const auto run = [&](const Tensor& x, const Tensor& y) { op.run({&x, 1}, {&y, 1}); };
    const auto refusal = [&](const Tensor& x, const Tensor& y) {
      const Error error = error_of([&] { run(x, y); });
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_TRUE(op.last_status().has_value());
      return std::string(error.what());
    };
    EXPECT_EQ(refusal(at(0, 6), at(0, 6)),
              "output y overlaps input x: they begin 0 bytes apart, rows 6 and 6 elements, want memory of its own");
    EXPECT_NE(refusal(at(0, 6), at(47, 6)).find("output y overlaps input x: they begin 188 bytes"), std::string::npos);
    EXPECT_NE(refusal(at(0, 12), at(5, 12)).find("overlaps"), std::string::npos) << "columns 5..11 and 0..6";
    EXPECT_NE(refusal(at(0, 12), at(6, 13)).find("overlaps"), std::string::npos) << "other strides";
    run(at(0, 6), at(48, 6));
    run(at(0, 12), at(6, 12));  // columns 0..6 and 6..12 of one matrix
    run(at(6, 12), at(0, 12));
    EXPECT_FALSE(op.last_status().has_value());
    EXPECT_EQ(memory[0], 4) << "1 + 1, twice";
  });
}

TEST(OpTensors, AResidualMayHaveTheOutputsMemory) {
  launch(2, small_launch(true), [](Group& group) {
    const Problem problem{
        .op = "all_reduce", .m = 8, .n = 6, .dtype = DType::fp32, .epilogue = {{EpilogueKind::residual}}};
    std::vector<float> memory(200, 1);
    const auto at = [&](int64_t first) { return make_tensor(memory.data() + first, DType::fp32, 8, 6); };
    Op op = make_op(group, problem, Config{.algorithm = Algorithm::one_shot});
    const std::vector<Tensor> inputs{at(0), at(48)};
    op.run(inputs, std::vector{at(48)});
    op.run(inputs, std::vector{at(48)});
    EXPECT_EQ(memory[48], 5) << "1 + 2 + 2";
    EXPECT_EQ(memory[95], 5);
    const Error error = error_of([&] { op.run(inputs, std::vector{at(49)}); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    EXPECT_NE(std::string(error.what()).find("output y overlaps input residual: they begin 4 bytes"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("want one tensor, or memory of its own"), std::string::npos);
  });
}

TEST(OpTensors, InputsMayOverlapOutputsNotEvenEachOther) {
  launch(2, small_launch(true), [](Group& group) {
    Problem problem{.op = "all_gather_gemm", .m = 8, .n = 8, .k = 6, .dtype = DType::fp32};
    problem.gathered_output = true;
    Op op = make_op(group, problem, Config{});
    std::vector<float> memory(200, 1);
    const auto matrix = [&](int64_t first, int64_t rows, int64_t cols) {
      return make_tensor(memory.data() + first, DType::fp32, rows, cols);
    };
    const std::vector<Tensor> inputs{matrix(0, 4, 6), matrix(0, 4, 6)};
    const Error error = error_of([&] { op.run(inputs, std::vector{matrix(24, 8, 4), matrix(50, 8, 6)}); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    EXPECT_NE(std::string(error.what()).find("output gathered overlaps output c"), std::string::npos) << error.what();
    op.run(inputs, std::vector{matrix(24, 8, 4), matrix(56, 8, 6)});
    EXPECT_EQ(memory[24], 6) << "dot products of ones";
  });
}

TEST(OpTensors, RowsAreWhereAProcessCanAddressThem) {
  launch(1, small_launch(true), [](Group& group) {
    const Problem problem{.op = "all_reduce", .m = 8, .n = 6, .dtype = DType::fp32};
    Op op = make_op(group, problem, Config{});
    std::vector<float> memory(100);
    const Tensor x = make_tensor(memory.data(), DType::fp32, 8, 6);
    for (const int64_t stride : {int64_t{1} << 44, int64_t{1} << 61, INT64_MAX}) {
      Tensor y = make_tensor(memory.data() + 48, DType::fp32, 8, 6);
      y.row_stride = stride;
      const Error error = error_of([&] { op.run({&x, 1}, {&y, 1}); });
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_EQ(error.what(),
                fmt::format("output y has 8 rows {} elements apart: want at most 2^48 bytes from end to end", stride));
    }
    const Tensor y = make_tensor(memory.data() + 48, DType::fp32, 8, 6);
    op.run({&x, 1}, {&y, 1});
  });
}

TEST(OpTensors, StridesCountWhereRowsAreEmpty) {
  launch(1, small_launch(true), [](Group& group) {
    Op op = make_op(group, {.op = "all_reduce", .m = 8, .n = 0, .dtype = DType::fp32}, Config{});
    const Tensor x = make_tensor(nullptr, DType::fp32, 8, 0);
    Tensor y = x;
    y.row_stride = -1;
    const Error error = error_of([&] { op.run({&x, 1}, {&y, 1}); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    EXPECT_EQ(error.what(), std::string("output y has rows of 0 elements -1 apart"));
    op.run({&x, 1}, {&x, 1});
  });
}

TEST(OpTraces, WithoutTheOptionThereAreNoEvents) {
  for (const bool trace : {false, true}) {
    launch(2, small_launch(true), [&](Group& group) {
      const Problem problem{.op = "all_reduce", .m = 8, .n = 6, .dtype = DType::fp32};
      Op op = make_op(group, problem, Config{}, {.trace = trace});
      std::vector<float> memory(96);
      const Tensor x = make_tensor(memory.data(), DType::fp32, 8, 6);
      const Tensor y = make_tensor(memory.data() + 48, DType::fp32, 8, 6);
      op.run({&x, 1}, {&y, 1});
      EXPECT_EQ(op.last_trace().events.empty(), !trace);
      EXPECT_EQ(op.gather_trace().events.empty(), !trace);
    });
  }
}

}  // namespace
}  // namespace tilewire
