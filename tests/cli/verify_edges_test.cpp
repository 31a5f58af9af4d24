// Edge cases of verification: a bias that is wider than a rank's output, and results near zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/convert.hpp"
#include "operators/gemm.hpp"
#include "operators/verify.hpp"

namespace tilewire {
namespace {

const VerifyOptions kThreeWays[] = {{}, {.reference_work = -1}, {.reference_work = -1, .sample_work = 1}};

// ---- An operator that is in no table: A by rows, all of B and of the bias on every rank; C by columns. ----

std::vector<Buffer> columns_buffers(const Problem& p, int num_ranks) {
  std::vector<Shape> a;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    a.push_back({shard_of(p.m, num_ranks, rank).size(), p.k});
    c.push_back({p.m, shard_of(p.n, num_ranks, rank).size()});
  }
  return {sharded_buffer("a", p.dtype, Scope::input, a), whole_buffer("b", p.dtype, Scope::input, b_shape(p, p.n, p.k)),
          whole_buffer("bias", p.dtype, Scope::input, {1, p.n}), sharded_buffer("c", p.dtype, Scope::output, c)};
}

std::vector<Meaning> columns_meanings(const Problem& p, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    all.push_back({.buffer = 0, .rank = rank, .role = Role::a, .row = shard_of(p.m, num_ranks, rank).begin});
    all.push_back({.buffer = 1, .rank = rank, .role = Role::b});
    all.push_back({.buffer = 2, .rank = rank, .role = Role::bias});
    all.push_back({.buffer = 3,
                   .rank = rank,
                   .role = Role::partial,
                   .col = shard_of(p.n, num_ranks, rank).begin,
                   .terms = {0, p.k},
                   .finished = true});
  }
  return all;
}

void columns_reference(const Problem& p, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<Tensor>& mine = tensors[rank];
    const int64_t first = shard_of(p.n, num_ranks, rank).begin;
    const std::vector<float> b = by_rows_of_k(p, mine[1]);
    for (int owner = 0; owner < num_ranks; ++owner) {
      DoubleMatrix whole(tensors[owner][0].rows, p.n);
      add_product(tensors[owner][0], b, whole);
      apply_epilogue(p, mine, whole);
      DoubleMatrix part(whole.rows, mine[3].cols);
      for (int64_t row = 0; row < part.rows; ++row) {
        for (int64_t col = 0; col < part.cols; ++col) part.at(row, col) = whole.at(row, first + col);
      }
      Tensor rows = mine[3];
      rows.rows = part.rows;
      rows.data = static_cast<float*>(rows.data) + shard_of(p.m, num_ranks, owner).begin * rows.row_stride;
      store_rows(part, 0, rows);
    }
  }
}

Operator by_columns() {
  return {.name = "by_columns",
          .summary = "made up",
          .validate = [](const Problem&, int) {},
          .buffers = columns_buffers,
          .meanings = columns_meanings,
          .least_bytes = [](const Problem&, int) { return int64_t{0}; },
          .reference = columns_reference};
}

/// Values that depend on their place.
ReadRow inputs_of(const Operator& op, const Problem& problem, int num_ranks) {
  return [buffers = op.buffers(problem, num_ranks), meanings = op.meanings(problem, num_ranks)](
             int buffer, int rank, int64_t row, float* to) {
    const auto mine = std::ranges::find_if(
        meanings, [&](const Meaning& meaning) { return meaning.buffer == buffer && meaning.rank == rank; });
    random_row(static_cast<uint64_t>(buffer) + 3, static_cast<uint64_t>(mine->row + row), mine->col,
               shape_on(buffers[buffer], rank).cols, DType::fp32, to);
  };
}

class WideBias : public ::testing::TestWithParam<std::tuple<int, BLayout>> {};

TEST_P(WideBias, IsReadAtTheColumnsOfTheOutput) {
  const auto [num_ranks, layout] = GetParam();
  Problem problem{.op = "by_columns", .m = 21, .n = 400, .k = 9, .dtype = DType::fp32, .b_layout = layout};
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::scale, 2}};
  const Operator op = by_columns();
  const ReadRow read = inputs_of(op, problem, num_ranks);
  std::vector<std::vector<std::vector<float>>> memory(num_ranks);
  std::vector<std::vector<Tensor>> tensors(num_ranks);
  const std::vector<Buffer> buffers = op.buffers(problem, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int buffer = 0; buffer < std::ssize(buffers); ++buffer) {
      const Shape shape = shape_on(buffers[buffer], rank);
      std::vector<float>& values = memory[rank].emplace_back(shape.rows * shape.cols);
      tensors[rank].push_back(make_tensor(values.data(), DType::fp32, shape.rows, shape.cols));
      if (buffer < 3) fill_rows(read, buffer, rank, tensors[rank].back());
    }
  }
  op.reference(problem, tensors);
  for (const VerifyOptions& options : kThreeWays) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Expected expected(op, problem, num_ranks, rank, read, options);
      const Comparison right = expected.compare(std::span(&tensors[rank][3], 1), {1e-5});
      EXPECT_TRUE(right.ok()) << "rank " << rank << ": " << right.text();
      // Another column's bias is an error.
      memory[rank][3][0] += 1;
      EXPECT_FALSE(expected.compare(std::span(&tensors[rank][3], 1), {1e-5}).ok());
      memory[rank][3][0] -= 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WideBias,
                         ::testing::Combine(::testing::Values(1, 2, 5), ::testing::Values(BLayout::nk, BLayout::kn)));

// ---- Near zero. ----

float rounded(double value, DType dtype) {
  uint32_t bits = 0;
  store_one(static_cast<float>(value), &bits, dtype);
  return load_one(&bits, dtype);
}

double step_of(DType dtype) { return dtype == DType::fp16 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-133 : 0x1p-149; }

/// Products of numbers of one size, summed over ranks after rounding of the partials to `wire`, as in each operator.
struct NearZero {
  int ranks;
  Problem problem{.op = "gemm_all_reduce", .m = 24, .n = 40, .k = 16};
  Tolerance tolerance;
  double size;
  ReadRow read;
  std::vector<std::byte> memory;
  Tensor out;

  NearZero(DType dtype, DType out_dtype, DType wire, double out_size, int num_ranks = 2)
      : ranks(num_ranks), size(std::sqrt(out_size / 4)) {
    problem.dtype = dtype;
    problem.out_dtype = out_dtype;
    tolerance = tolerance_of(problem, {.wire = wire});
    const ReadRow plain = random_inputs(problem, ranks, 5);
    const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, ranks);
    read = [=, this](int buffer, int rank, int64_t row, float* to) {
      plain(buffer, rank, row, to);
      for (int64_t i = 0; i < shape_on(buffers[buffer], rank).cols; ++i) to[i] = rounded(to[i] * size, problem.dtype);
    };
    memory.resize(static_cast<size_t>(problem.m * problem.n * bytes_of(out_dtype)));
    out = make_tensor(memory.data(), out_dtype, problem.m, problem.n);
    const int64_t depth = problem.k / ranks;
    for (int64_t row = 0; row < problem.m; ++row) {
      for (int64_t col = 0; col < problem.n; ++col) {
        double sum = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<float> a(depth), b(depth);
          read(0, rank, row, a.data());
          read(1, rank, col, b.data());
          double partial = 0;
          for (int64_t i = 0; i < depth; ++i) partial += static_cast<double>(a[i]) * static_cast<double>(b[i]);
          sum += static_cast<double>(rounded(partial, wire));
        }
        set(row, col, sum);
      }
    }
  }
  void set(int64_t row, int64_t col, double value) {
    store_one(static_cast<float>(value), memory.data() + (row * out.cols + col) * bytes_of(out.dtype), out.dtype);
  }
  [[nodiscard]] double get(int64_t row, int64_t col) const { return element(out, row, col); }
  [[nodiscard]] Comparison compare(const VerifyOptions& options) const {
    return Expected(problem, ranks, 0, read, options).compare(std::span(&out, 1), tolerance);
  }
};

TEST(VerifyNearZero, CorrectlyRoundedIsRight) {
  for (const DType wire : {DType::fp32, DType::fp16}) {
    for (const double size : {3e-5, 3e-6, 1e-7, 1e-9}) {
      const NearZero fp16(DType::fp16, DType::fp16, wire, size);
      for (const VerifyOptions& options : kThreeWays) {
        EXPECT_TRUE(fp16.compare(options).ok()) << fp16.compare(options).text() << ", size " << size;
      }
    }
  }
  // From fp32, with subnormal bf16; and with a wire type that is coarser than the output's.
  for (const double size : {1e-38, 1e-39, 1e-40}) {
    const NearZero bf16(DType::fp32, DType::bf16, DType::fp32, size);
    for (const VerifyOptions& options : kThreeWays)
      EXPECT_TRUE(bf16.compare(options).ok()) << bf16.compare(options).text();
  }
  for (const double size : {1e-5, 1e-7}) {
    const NearZero coarse(DType::fp32, DType::fp32, DType::fp16, size);
    for (const VerifyOptions& options : kThreeWays) {
      EXPECT_TRUE(coarse.compare(options).ok()) << coarse.compare(options).text() << ", size " << size;
    }
  }
}

/// Each rank's partial has a rounding error of its own: with more ranks, a larger deviation is still right.
TEST(VerifyNearZero, EachPartialMayBeHalfAStepOff) {
  for (const int ranks : {1, 4, 8}) {
    for (const double size : {3e-6, 1e-7}) {
      const NearZero right(DType::fp16, DType::fp16, DType::fp16, size, ranks);
      for (const VerifyOptions& options : kThreeWays) {
        EXPECT_TRUE(right.compare(options).ok()) << right.compare(options).text() << ", " << ranks << " ranks";
      }
      NearZero wrong(DType::fp16, DType::fp16, DType::fp16, size, ranks);
      wrong.set(7, 11, wrong.get(7, 11) + (ranks + 1) * step_of(DType::fp16));
      EXPECT_FALSE(wrong.compare({}).ok()) << ranks << " ranks";
    }
  }
}

/// Inputs already have the wire's type, so their sums are exact near zero.
TEST(VerifyNearZero, OneStepOffASumOfInputsIsWrong) {
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    for (const int ranks : {2, 8}) {
      const Problem problem{.op = "all_reduce", .m = 3, .n = 5, .dtype = dtype};
      const double step = step_of(dtype);
      const ReadRow read = [&](int, int rank, int64_t row, float* to) {
        for (int64_t i = 0; i < 5; ++i) to[i] = static_cast<float>((rank + row + i) % 2 == 0 ? step : 0);
      };
      std::vector<uint16_t> memory(15);
      const Tensor out = make_tensor(memory.data(), dtype, 3, 5);
      for (int64_t i = 0; i < 15; ++i) {
        double sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += (rank + i / 5 + i % 5) % 2 == 0 ? step : 0;
        store_one(static_cast<float>(sum), &memory[i], dtype);
      }
      const Expected expected(problem, ranks, 0, read);
      EXPECT_TRUE(expected.compare({&out, 1}, tolerance_of(problem, {})).ok());
      ++memory[7];
      EXPECT_FALSE(expected.compare({&out, 1}, tolerance_of(problem, {})).ok()) << ranks << " ranks";
    }
  }
}

TEST(VerifyNearZero, TwoStepsAreWrong) {
  const std::tuple<DType, DType, DType, double> kinds[] = {{DType::fp16, DType::fp16, DType::fp32, 3e-6},
                                                           {DType::fp16, DType::fp16, DType::fp16, 3e-6},
                                                           {DType::fp16, DType::fp16, DType::fp16, 1e-9},
                                                           {DType::fp32, DType::bf16, DType::fp32, 1e-39},
                                                           {DType::fp32, DType::bf16, DType::bf16, 1e-39}};
  for (const auto& [dtype, out, wire, size] : kinds) {
    // Where two partials are rounded to the output's type, one step is theirs.
    const double steps = wire == out ? 3 : 2;
    for (const double sign : {1.0, -1.0}) {
      NearZero wrong(dtype, out, wire, size);
      wrong.set(7, 11, wrong.get(7, 11) + sign * steps * step_of(out));
      for (const VerifyOptions& options : {kThreeWays[0], kThreeWays[1]}) {
        EXPECT_FALSE(wrong.compare(options).ok()) << wrong.compare(options).text() << ", size " << size;
      }
    }
  }
}

TEST(VerifyNearZero, AllElementsTwoStepsOffAreWrongInEachWay) {
  NearZero wrong(DType::fp16, DType::fp16, DType::fp32, 3e-6);
  for (int64_t row = 0; row < wrong.out.rows; ++row) {
    for (int64_t col = 0; col < wrong.out.cols; ++col)
      wrong.set(row, col, wrong.get(row, col) + 2 * step_of(DType::fp16));
  }
  for (const VerifyOptions& options : kThreeWays)
    EXPECT_FALSE(wrong.compare(options).ok()) << wrong.compare(options).text();
}

TEST(VerifyNearZero, MovedBitsAndLargeNumbersGainNothing) {
  Problem problem{.op = "gemm_all_reduce", .m = 4, .n = 4, .k = 4, .dtype = DType::fp16};
  EXPECT_EQ(tolerance_of(problem, {}).relative, 0x1p-10);
  EXPECT_EQ(tolerance_of(problem, {}).wire, DType::fp16);
  EXPECT_EQ(tolerance_of(problem, {.wire = DType::fp32}).wire, DType::fp32);
  NearZero large(DType::fp16, DType::fp16, DType::fp32, 100);
  large.set(3, 3, large.get(3, 3) * 1.02 + 0.5);
  for (const VerifyOptions& options : {kThreeWays[0], kThreeWays[1]}) EXPECT_FALSE(large.compare(options).ok());
}

}  // namespace
}  // namespace tilewire
