// Verification accepts the reference's results and refuses others, in each of its ways;
// random inputs are the same on every rank.
#include "operators/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.hpp"
#include "operator_names.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {
namespace {

constexpr int kRanks = 3;

// All ranks' tensors of a problem, with outputs from the reference.
struct World {
  Problem problem;
  ReadRow read;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<Tensor>> tensors;  // by rank
  size_t num_inputs = 0;

  World(const Problem& p, const ReadRow& r) : problem(p), read(r), tensors(kRanks) {
    const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < buffers.size(); ++i) {
        const Shape shape = shape_on(buffers[i], rank);
        memory.emplace_back(static_cast<size_t>(shape.rows * shape.cols * bytes_of(buffers[i].dtype)));
        tensors[rank].push_back(make_tensor(memory.back().data(), buffers[i].dtype, shape.rows, shape.cols));
        if (buffers[i].scope == Scope::input) fill_rows(read, static_cast<int>(i), rank, tensors[rank].back());
      }
    }
    num_inputs = static_cast<size_t>(std::ranges::count(buffers, Scope::input, &Buffer::scope));
    find_operator(problem.op).reference(problem, tensors);
  }

  [[nodiscard]] std::span<const Tensor> outputs(int rank) const { return std::span(tensors[rank]).subspan(num_inputs); }
  [[nodiscard]] Comparison compare(const VerifyOptions& options, const Tolerance& tolerance) const {
    Comparison sum;
    for (int rank = 0; rank < kRanks; ++rank) {
      sum.add(Expected(problem, kRanks, rank, read, options).compare(outputs(rank), tolerance));
    }
    return sum;
  }
};

Problem problem_of(const std::string& op, DType dtype) {
  return {.op = op, .m = 70, .n = 90, .k = find_operator(op).structure.multiplies ? 50 : 0, .dtype = dtype};
}

float& element_of(const Tensor& tensor, int64_t row, int64_t col) {
  return static_cast<float*>(tensor.data)[row * tensor.row_stride + col];
}

// The full reference; all rows in double; and few rows, with Freivalds' check for the others.
const VerifyOptions kWays[] = {{}, {.reference_work = -1}, {.reference_work = -1, .sample_work = 1}};

class Verify : public ::testing::TestWithParam<const char*> {};

TEST_P(Verify, AcceptsTheReference) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const BLayout layout : {BLayout::nk, BLayout::kn}) {
      Problem problem = problem_of(GetParam(), dtype);
      problem.b_layout = layout;
      if (structure_of(problem).multiplies) problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::scale, 0.5}};
      problem.gathered_output = problem.op == "all_gather_gemm";
      const World world(problem, random_inputs(problem, kRanks, 7));
      for (const VerifyOptions& options : kWays) {
        const Comparison result = world.compare(options, tolerance_of(problem, {}));
        EXPECT_TRUE(result.ok()) << result.text();
        EXPECT_LT(result.rel_error(), tolerance_of(problem, {}).relative);
        EXPECT_GT(result.elements, 0);
        if (dtype == DType::bf16) {
          EXPECT_GT(result.rel_error(), 1e-4) << "rounding shows";
        }
      }
    }
  }
}

TEST_P(Verify, RefusesATileThatIsNotWritten) {
  const Problem problem = problem_of(GetParam(), DType::fp32);
  for (const VerifyOptions& options : kWays) {
    for (const float wrong : {0.0F, std::nanf("")}) {
      const World world(problem, random_inputs(problem, kRanks, 8));
      const Tensor& out = world.outputs(1)[0];
      for (int64_t row = 9; row < 13; ++row) {
        for (int64_t col = 5; col < 25; ++col) element_of(out, row, col) = wrong;
      }
      const Comparison result = world.compare(options, tolerance_of(problem, {}));
      EXPECT_FALSE(result.ok());
      EXPECT_GE(result.wrong, 4) << result.text();
      EXPECT_NE(result.first.find("on rank 1"), std::string::npos) << result.first;
    }
  }
}

TEST_P(Verify, RefusesOneWrongElement) {
  const Problem problem = problem_of(GetParam(), DType::fp32);
  const World world(problem, random_inputs(problem, kRanks, 9));
  element_of(world.outputs(2)[0], 4, 11) += 0.01F;
  for (const VerifyOptions& options : kWays) EXPECT_EQ(world.compare(options, {1e-5}).wrong > 0, true);
}

TEST_P(Verify, NanAndInfMustBeWhereTheReferenceHasThem) {
  const Problem problem = problem_of(GetParam(), DType::fp32);
  const ReadRow plain = random_inputs(problem, kRanks, 10);
  const ReadRow read = [&](int buffer, int rank, int64_t row, float* to) {
    plain(buffer, rank, row, to);
    if (buffer == 0 && rank == 1 && row == 3) to[2] = std::nanf("");
    if (buffer == 0 && rank == 2 && row == 5) to[1] = INFINITY;
  };
  const World world(problem, read);
  for (const VerifyOptions& options : kWays) {
    const Comparison result = world.compare(options, {1e-5});
    EXPECT_TRUE(result.ok()) << result.text();
    EXPECT_TRUE(std::isfinite(result.rel_error()));
  }
  int changed = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Tensor& out = world.outputs(rank)[0];
    for (int64_t row = 0; row < out.rows && changed == 0; ++row) {
      for (int64_t col = 0; col < out.cols && changed == 0; ++col) {
        if (!std::isnan(element_of(out, row, col))) continue;
        element_of(out, row, col) = 1;
        ++changed;
      }
    }
  }
  ASSERT_EQ(changed, 1);
  for (const VerifyOptions& options : kWays) EXPECT_FALSE(world.compare(options, {1e-5}).ok());
}

INSTANTIATE_TEST_SUITE_P(Operators, Verify, ::testing::ValuesIn(testing::operator_names()),
                         [](const auto& op) { return std::string(op.param); });

/// Rank 1 of 3 has 24 of 70 rows, and gives 8 to each rank. The rows that it gets from rank 0 come first.
TEST(VerifyOwnB, RowsOfAnotherMakerAreWrong) {
  const Problem problem = problem_of("gemm_all_to_all_rows", DType::fp32);
  for (const VerifyOptions& options : kWays) {
    const World world(problem, random_inputs(problem, kRanks, 8));
    const Tensor& out = world.outputs(1)[0];
    for (int64_t col = 0; col < out.cols; ++col) std::swap(element_of(out, 3, col), element_of(out, 8 + 3, col));
    const Comparison result = world.compare(options, tolerance_of(problem, {}));
    EXPECT_EQ(result.first.substr(0, 20), "row 3 of c on rank 1") << result.first;
    EXPECT_GE(result.wrong, 2);
  }
  World world(problem, random_inputs(problem, kRanks, 8));
  element_of(world.outputs(1)[0], 8 + 3, 5) += 1;
  for (const VerifyOptions& options : kWays)
    EXPECT_EQ(world.compare(options, tolerance_of(problem, {})).first.substr(0, 21), "row 11 of c on rank 1");
}

TEST(VerifyGathered, MovedBitsMustBeTheSame) {
  Problem problem = problem_of("all_gather_gemm", DType::bf16);
  problem.gathered_output = true;
  const World world(problem, random_inputs(problem, kRanks, 11));
  auto* bits = static_cast<uint16_t*>(world.outputs(0)[1].data);
  bits[123] ^= 1;
  EXPECT_EQ(world.compare(kWays[0], {1}).wrong, 1);
  EXPECT_EQ(world.compare(kWays[1], {1}).wrong, 1);
}

TEST(VerifyNorms, EveryRowIsCompared) {
  for (const char* op : {"gemm_all_reduce", "all_reduce"}) {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      Problem problem = problem_of(op, DType::fp32);
      problem.norm = Norm{kind};
      const World world(problem, random_inputs(problem, kRanks, 5));
      const VerifyOptions sampled{.reference_work = -1, .sample_work = 1};
      const Tolerance tolerance = tolerance_of(problem, {});
      const Comparison right = world.compare(sampled, tolerance);
      EXPECT_TRUE(right.ok()) << right.text();
      element_of(world.outputs(1)[1], 37, 11) += 0.01F;
      const Comparison wrong = world.compare(sampled, tolerance);
      EXPECT_EQ(wrong.wrong, 1) << wrong.text();
      EXPECT_NE(wrong.first.find("row 37 of normed on rank 1"), std::string::npos) << wrong.first;
    }
  }
}

TEST(VerifyNorms, EveryQuantisedElementAndScaleIsCompared) {
  for (const DType out : {DType::fp8_e4m3, DType::int8}) {
    Problem problem = problem_of("all_reduce", DType::bf16);
    problem.norm = Norm{NormKind::rms, 1e-6, out};
    const World world(problem, random_inputs(problem, kRanks, 5));
    const auto compare = [&] { return world.compare(kWays[1], tolerance_of(problem, {})); };
    EXPECT_TRUE(compare().ok()) << compare().text();
    auto* bytes = static_cast<uint8_t*>(world.outputs(1)[1].data);
    const uint8_t right = bytes[7];
    bytes[7] = static_cast<uint8_t>(right ^ 2U);
    EXPECT_EQ(compare().wrong, 1) << compare().text();
    EXPECT_NE(compare().first.find("row 0 of normed on rank 1: element 7 is"), std::string::npos) << compare().first;
    bytes[7] = right;
    static_cast<float*>(world.outputs(1)[2].data)[3] *= 1.001F;
    EXPECT_EQ(compare().wrong, 1) << compare().text();
    EXPECT_NE(compare().first.find("row 3 of normed on rank 1: scale"), std::string::npos) << compare().first;
  }
}

TEST(VerifyHalf, OverflowIsInfinity) {
  Problem problem = problem_of("gemm_all_reduce", DType::fp16);
  const ReadRow read = [](int, int, int64_t, float* to) { std::fill(to, to + 16, 300.0F); };
  problem.k = 48;  // 300 * 300 * 48 is beyond fp16
  problem.m = problem.n = 16;
  const World world(problem, read);
  for (const VerifyOptions& options : kWays) EXPECT_TRUE(world.compare(options, tolerance_of(problem, {})).ok());
}

TEST(Tolerance, IsThatOfTheCoarsestType) {
  Problem problem = problem_of("gemm_all_reduce", DType::bf16);
  EXPECT_EQ(tolerance_of(problem, {}).relative, 0x1p-7);
  problem.out_dtype = DType::fp32;
  EXPECT_EQ(tolerance_of(problem, {}).relative, 1e-5);
  EXPECT_EQ(tolerance_of(problem, {.wire = DType::fp16}).relative, 0x1p-10);
}

TEST(RandomData, IsAFunctionOfThePlace) {
  std::vector<float> whole(100);
  std::vector<float> part(30);
  random_row(5, 17, 0, 100, DType::bf16, whole.data());
  random_row(5, 17, 40, 30, DType::bf16, part.data());
  EXPECT_EQ(std::memcmp(part.data(), whole.data() + 40, 30 * sizeof(float)), 0);
  for (const float value : whole) {
    EXPECT_LE(std::abs(value), 1);
    EXPECT_EQ(value, from_bf16(bf16_from(value)));
  }
}

TEST(RandomData, RanksAgreeOnSharedTensorsAndDifferInPartials) {
  const Problem gemm = problem_of("gemm_all_reduce", DType::fp32);
  std::vector<float> row(90), other(90);
  random_inputs(gemm, 1, 3)(1, 0, 8, row.data());    // B whole: row 8, K 0..50
  random_inputs(gemm, 2, 3)(1, 1, 8, other.data());  // rank 1 of 2: K 25..50
  EXPECT_EQ(std::memcmp(row.data() + 25, other.data(), 25 * sizeof(float)), 0);
  const Problem sum = problem_of("all_reduce", DType::fp32);
  random_inputs(sum, 2, 3)(0, 0, 8, row.data());
  random_inputs(sum, 2, 3)(0, 1, 8, other.data());
  EXPECT_NE(row, other);
  random_inputs(sum, 2, 4)(0, 0, 8, other.data());
  EXPECT_NE(row, other) << "another seed";
}

TEST(RandomData, IsUniform) {
  std::vector<float> values(20000);
  random_row(1, 0, 0, 20000, DType::fp32, values.data());
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.02);
  EXPECT_NEAR(squares / 20000, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace tilewire
