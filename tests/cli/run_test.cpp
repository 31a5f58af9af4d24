// tilewire run: real matrices give right results, bad files are refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <vector>

#include "cli/command.hpp"
#include "cli/npy.hpp"
#include "operator_names.hpp"

namespace tilewire::testing {
namespace {

using cli::NpyHeader;

struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  [[nodiscard]] float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
  float& at(int64_t row, int64_t col) { return values[static_cast<size_t>(row * cols + col)]; }
};

Matrix make_matrix(int64_t rows, int64_t cols, const std::function<double(int64_t, int64_t)>& value) {
  Matrix matrix{rows, cols, std::vector<float>(static_cast<size_t>(rows * cols))};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) matrix.at(row, col) = static_cast<float>(value(row, col));
  }
  return matrix;
}

void save(const std::string& path, Matrix matrix) {
  const NpyHeader header = cli::create_npy(path, {.dtype = DType::fp32, .rows = matrix.rows, .cols = matrix.cols});
  cli::write_npy_block(path, header, 0, 0, make_tensor(matrix.values.data(), DType::fp32, matrix.rows, matrix.cols));
}

Matrix load(const std::string& path) {
  const NpyHeader header = cli::read_npy_header(path, DType::fp32);
  Matrix matrix{header.rows, header.cols, std::vector<float>(static_cast<size_t>(header.rows * header.cols))};
  cli::read_npy_block(path, header, 0, 0, make_tensor(matrix.values.data(), DType::fp32, header.rows, header.cols));
  return matrix;
}

/// Small integers, so that every sum is exact.
double whole(int64_t row, int64_t col) { return static_cast<double>((row * 7 + col * 3) % 11 - 5); }

Matrix product(const Matrix& a, const Matrix& b) {
  return make_matrix(a.rows, b.rows, [&](int64_t row, int64_t col) {
    double sum = 0;
    for (int64_t k = 0; k < a.cols; ++k) sum += static_cast<double>(a.at(row, k)) * static_cast<double>(b.at(col, k));
    return sum;
  });
}

class Run : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fresh_folder();
    a_ = make_matrix(37, 50, whole);
    b_ = make_matrix(29, 50, [](int64_t row, int64_t col) { return whole(col, row); });
    save(folder_ + "/a.npy", a_);
    save(folder_ + "/b.npy", b_);
  }
  [[nodiscard]] std::string files() const {
    return " --input a=" + folder_ + "/a.npy --input b=" + folder_ + "/b.npy --output c=" + folder_ + "/c.npy ";
  }

  std::string folder_;
  Matrix a_, b_;
};

TEST_P(Run, GlobalFilesGiveTheProduct) {
  const Outcome outcome =
      run_tilewire(std::string("run ") + GetParam() + files() + "--ranks 3 --schedule fused --verify");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("verified: rel_error 0.00e+00, ok"), std::string::npos) << outcome.out;
  const Matrix c = load(folder_ + "/c.npy");
  EXPECT_EQ(c.rows, 37);
  EXPECT_EQ(c.cols, 29);
  EXPECT_EQ(c.values, product(a_, b_).values);
}

TEST_P(Run, NanAndInfPassThrough) {
  a_.at(5, 7) = std::nanf("");
  b_.at(3, 2) = INFINITY;
  save(folder_ + "/a.npy", a_);
  save(folder_ + "/b.npy", b_);
  const Outcome outcome =
      run_tilewire(std::string("run ") + GetParam() + files() + "--ranks 2 --verify --schedule sequential");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const Matrix c = load(folder_ + "/c.npy");
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t col = 0; col < c.cols; ++col) {
      const float wanted = product(a_, b_).at(row, col);
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(c.at(row, col)) : wanted == c.at(row, col)) << row << " " << col;
    }
  }
  EXPECT_TRUE(std::isnan(c.at(5, 0)));
  EXPECT_TRUE(std::isinf(c.at(0, 3)));
}

INSTANTIATE_TEST_SUITE_P(Operators, Run, ::testing::ValuesIn(testing::operator_names(testing::makes_one_product)),
                         [](const auto& op) { return std::string(op.param); });

using Files = Run;

TEST_F(Files, AWrongResultIsExitCodeOne) {
  // The ranks' partials are 90,000 and -90,000: fp16 cannot hold them, so Inf is sent, and the sum is NaN.
  save(folder_ + "/a.npy", make_matrix(4, 2, [](int64_t, int64_t) { return 300; }));
  save(folder_ + "/b.npy", make_matrix(3, 2, [](int64_t, int64_t k) { return k == 0 ? 300 : -300; }));
  const std::string command = "run gemm_reduce_scatter" + files() + "--ranks 2 --verify --schedule fused";
  const Outcome wrong = run_tilewire(command + " --set wire=fp16");
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_NE((wrong.out + wrong.err).find("WRONG"), std::string::npos) << wrong.out << wrong.err;
  const Outcome right = run_tilewire(command);
  EXPECT_EQ(right.code, 0) << right.out << right.err;
}

TEST_F(Files, OnePerRank) {
  // gemm_reduce_scatter over 2 ranks: K in halves, C in rows 0..19 and 19..37.
  for (const int rank : {0, 1}) {
    const auto half = [&](const Matrix& from) {
      return make_matrix(from.rows, 25, [&](int64_t row, int64_t col) { return from.at(row, col + 25 * rank); });
    };
    save(folder_ + "/a" + std::to_string(rank) + ".npy", half(a_));
    save(folder_ + "/b" + std::to_string(rank) + ".npy", half(b_));
  }
  const std::string in = " --input a=" + folder_ + "/a{rank}.npy --input b=" + folder_ + "/b{rank}.npy";
  const std::string args = "run gemm_reduce_scatter --ranks 2 --output c=" + folder_ + "/c{rank}.npy" + in;
  const Outcome without_sizes = run_tilewire(args);
  EXPECT_EQ(without_sizes.code, 2) << without_sizes.err;
  const Outcome outcome = run_tilewire(args + " -m 37 -n 29 -k 50 --schedule fused");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  std::vector<float> both = load(folder_ + "/c0.npy").values;
  EXPECT_EQ(both.size(), 19 * 29);
  const std::vector<float> second = load(folder_ + "/c1.npy").values;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(both, product(a_, b_).values);
}

/// Two ranks have 19 and 18 rows of A, and a B each. Rank 0 gets rows 0..10 and 19..28, rank 1 the others.
TEST_F(Files, OwnBOfEachRank) {
  const Matrix both = make_matrix(58, 50, [&](int64_t row, int64_t col) { return whole(col, 3 * row); });
  save(folder_ + "/b.npy", both);
  const std::string args = "run gemm_all_to_all_rows --ranks 2 --schedule fused --verify --input a=" + folder_ +
                           "/a.npy --input b=" + folder_ + "/b.npy --output c=" + folder_;
  const Outcome one_file = run_tilewire(args + "/c.npy");
  EXPECT_EQ(one_file.code, 2);
  EXPECT_NE(one_file.err.find("c.npy with {rank} in its name"), std::string::npos) << one_file.err;
  const Outcome outcome = run_tilewire(args + "/c{rank}.npy");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const auto rows_by = [&](int maker, int64_t first, int64_t end) {
    const Matrix a = make_matrix(end - first, 50, [&](int64_t row, int64_t col) { return a_.at(first + row, col); });
    const Matrix b = make_matrix(29, 50, [&](int64_t row, int64_t col) { return both.at(29 * maker + row, col); });
    return product(a, b).values;
  };
  std::vector<float> wanted = rows_by(0, 0, 10);
  std::ranges::copy(rows_by(1, 19, 28), std::back_inserter(wanted));
  EXPECT_EQ(load(folder_ + "/c0.npy").values, wanted);
  wanted = rows_by(0, 10, 19);
  std::ranges::copy(rows_by(1, 28, 37), std::back_inserter(wanted));
  EXPECT_EQ(load(folder_ + "/c1.npy").values, wanted);
}

TEST_F(Files, AllReduceBiasAndGathered) {
  save(folder_ + "/x0.npy", a_);
  save(folder_ + "/x1.npy", a_);
  const Outcome sum = run_tilewire("run all_reduce --ranks 2 --schedule two_stream --input x=" + folder_ +
                                   "/x{rank}.npy --output y=" + folder_ + "/y.npy");
  ASSERT_EQ(sum.code, 0) << sum.out << sum.err;
  const Matrix twice = make_matrix(37, 50, [&](int64_t row, int64_t col) { return 2 * a_.at(row, col); });
  EXPECT_EQ(load(folder_ + "/y.npy").values, twice.values);
  save(folder_ + "/bias.npy", make_matrix(1, 29, [](int64_t, int64_t col) { return static_cast<double>(col); }));
  const Outcome gathered = run_tilewire("run all_gather_gemm --ranks 3 --schedule fused --input bias=" + folder_ +
                                        "/bias.npy --output gathered=" + folder_ + "/g.npy" + files());
  ASSERT_EQ(gathered.code, 0) << gathered.out << gathered.err;
  EXPECT_EQ(load(folder_ + "/g.npy").values, a_.values);
  Matrix wanted = product(a_, b_);
  for (int64_t row = 0; row < 37; ++row) {
    for (int64_t col = 0; col < 29; ++col) wanted.at(row, col) += static_cast<float>(col);
  }
  EXPECT_EQ(load(folder_ + "/c.npy").values, wanted.values);
}

TEST_F(Files, ADirectoryIsNoOutput) {
  const std::string target = folder_ + "/d";
  std::filesystem::create_directories(target + "1");
  for (const std::string& output : {target + "1", target + "{rank}"}) {
    const Outcome outcome = run_tilewire("run all_gather_gemm --ranks 2 --schedule fused --input a=" + folder_ +
                                         "/a.npy --input b=" + folder_ + "/b.npy --output c=" + output);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(target + "1: cannot write it: it is a directory"), std::string::npos) << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(target + "0"));
}

TEST_F(Files, NothingUnfinishedRemains) {
  // Rank 1 cannot write its file after the computation.
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  std::filesystem::create_symlink("/dev/full", folder_ + "/c1");
  const Outcome outcome = run_tilewire("run all_gather_gemm --ranks 2 --schedule fused --input a=" + folder_ +
                                       "/a.npy --input b=" + folder_ + "/b.npy --output c=" + folder_ + "/c{rank}");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("c1: cannot write it: No space left on device"), std::string::npos) << outcome.err;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "a.npy" || name == "b.npy" || name == "c0" || name == "c1") << name;
  }
}

TEST_F(Files, TraceIsWrittenAndSummarised) {
  const std::string path = folder_ + "/t.json";
  const Outcome outcome = run_tilewire("run gemm_all_reduce --ranks 2 --schedule sequential --trace " + path + files());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const std::string& part : {std::string("sequential, traced call: overlap "), std::string("waiting us"),
                                  std::string("span us"), "trace in " + path}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  EXPECT_NE(read_text(path).find("traceEvents"), std::string::npos);
  const Outcome nowhere =
      run_tilewire("run gemm_all_reduce --ranks 2 --schedule sequential --trace " + folder_ + files());
  EXPECT_EQ(nowhere.code, 2) << nowhere.err;
}

TEST_F(Files, BadOnesAreRefusedBeforeAnythingIsWritten) {
  const auto expect = [&](const std::string& args, const std::string& says) {
    const Outcome outcome = run_tilewire("run gemm_all_reduce --ranks 2 --schedule fused " + args);
    EXPECT_EQ(outcome.code, 2) << args << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(read_text(folder_ + "/c.npy"), "");
  };
  expect(files() + "-k 51", "is 37 x 50, input 'a' of all ranks must be 37 x 51");
  expect(files() + "--b-layout kn", "input 'b'");
  expect(files() + "--dtype bf16", "holds fp32, input 'a' must be bf16");
  expect(files() + "--input a=x.npy", "given twice");
  expect(files() + "--output d=d.npy", "no output 'd'; it has: c");
  expect("--input a=" + folder_ + "/a.npy -n 29 --output c=" + folder_ + "/c.npy", "no file for input 'b'");
  expect("--input a", "NAME=FILE");
  expect(files() + "--input bias=" + folder_ + "/a.npy --output gathered=g.npy", "no output 'gathered'; it has: c");
  const auto numpy = [&](const std::string& descr, const std::string& shape, size_t bytes) {
    const std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
    const std::string head("\x93NUMPY\x01\x00\x76\x00", 10);
    write_text(folder_ + "/v.npy", head + text + std::string(117 - text.size(), ' ') + "\n" + std::string(bytes, '\0'));
  };
  const std::string files_of_v = "--input a=" + folder_ + "/a.npy --input b=" + folder_ + "/v.npy --verify";
  numpy("<f4", "(50,)", 200);
  expect(files_of_v + " -n 29", "v.npy: is a vector of 50 elements, input 'b' of all ranks must be a matrix, 29 x 50");
  numpy("<i4", "(29, 50)", 5800);
  expect(files_of_v, "v.npy: holds int32, input 'b' must be fp32, bf16 or fp16");
  const std::string whole_file = read_text(folder_ + "/a.npy");
  write_text(folder_ + "/a.npy", whole_file.substr(0, whole_file.size() / 2));
  expect(files(), "truncated");
  write_text(folder_ + "/a.npy", "not an array at all");
  expect(files(), "not a .npy file");
}

}  // namespace
}  // namespace tilewire::testing
