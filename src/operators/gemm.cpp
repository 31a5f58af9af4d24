// What the operators that contain a GEMM share: buffers of A, B and bias, and the reference product.
// Called by the operators' folders.
#include "operators/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/convert.hpp"

namespace tilewire {
namespace {

const char* element_at(const Tensor& tensor, int64_t row, int64_t col) {
  return static_cast<const char*>(tensor.data) + (row * tensor.row_stride + col) * bytes_of(tensor.dtype);
}

double apply_step(const Epilogue& step, double value, double operand) {
  switch (step.kind) {
    case EpilogueKind::bias:
    case EpilogueKind::residual:
      return value + operand;
    case EpilogueKind::gelu:
      return 0.5 * value * (1 + std::erf(value / std::sqrt(2.0)));
    case EpilogueKind::relu:
      return value < 0 ? 0 : value;
    case EpilogueKind::scale:
      return value * step.value;
  }
  return value;
}

}  // namespace

Buffer sharded_buffer(std::string name, DType dtype, Scope scope, std::vector<Shape> shapes) {
  Buffer buffer{.name = std::move(name), .dtype = dtype, .scope = scope, .shapes = std::move(shapes)};
  for (const Shape& shape : buffer.shapes) {
    buffer.rows = std::max(buffer.rows, shape.rows);
    buffer.cols = std::max(buffer.cols, shape.cols);
  }
  const auto same = [&](const Shape& shape) { return shape == buffer.shapes.front(); };
  if (std::ranges::all_of(buffer.shapes, same)) buffer.shapes.clear();
  return buffer;
}

Buffer whole_buffer(std::string name, DType dtype, Scope scope, Shape shape) {
  return {.name = std::move(name), .dtype = dtype, .rows = shape.rows, .cols = shape.cols, .scope = scope};
}

Shape b_shape(const Problem& problem, int64_t n, int64_t k) {
  return problem.b_layout == BLayout::nk ? Shape{n, k} : Shape{k, n};
}

bool has_bias(const Problem& problem) {
  return !problem.epilogue.empty() && problem.epilogue.front().kind == EpilogueKind::bias;
}

bool has_residual(const Problem& problem) {
  return std::ranges::count(problem.epilogue, EpilogueKind::residual, &Epilogue::kind) > 0;
}

void add_operands(const Problem& problem, const std::vector<Shape>& bias, const std::vector<Shape>& residual,
                  std::vector<Buffer>& inputs) {
  if (has_bias(problem)) inputs.push_back(sharded_buffer("bias", problem.dtype, Scope::input, bias));
  if (has_residual(problem))
    inputs.push_back(sharded_buffer("residual", out_dtype_of(problem), Scope::input, residual));
}

void add_operand_meanings(const Problem& problem, int rank, int64_t bias_col, Shape residual_at, int& buffer,
                          std::vector<Meaning>& meanings) {
  if (has_bias(problem)) meanings.push_back({.buffer = buffer++, .rank = rank, .role = Role::bias, .col = bias_col});
  if (!has_residual(problem)) return;
  meanings.push_back(
      {.buffer = buffer++, .rank = rank, .role = Role::residual, .row = residual_at.rows, .col = residual_at.cols});
}

std::vector<Buffer> gathered_buffers(const Problem& problem, int num_ranks, const std::vector<Shape>& a) {
  std::vector<Shape> b;
  std::vector<Shape> bias;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t n = shard_of(problem.n, num_ranks, rank).size();
    b.push_back(b_shape(problem, n, problem.k));
    bias.push_back({1, n});
    c.push_back({problem.m, n});
  }
  std::vector<Buffer> all{sharded_buffer("a", problem.dtype, Scope::input, a),
                          sharded_buffer("b", problem.dtype, Scope::input, b)};
  add_operands(problem, bias, c, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  if (problem.gathered_output) {
    all.push_back(whole_buffer("gathered", problem.dtype, Scope::output, {problem.m, problem.k}));
  }
  return all;
}

std::vector<Meaning> gathered_meanings(const Problem& problem, int num_ranks, const std::vector<Shape>& a_at) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t n = shard_of(problem.n, num_ranks, rank).begin;
    const bool nk = problem.b_layout == BLayout::nk;
    int buffer = 0;
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a, .row = a_at[rank].rows, .col = a_at[rank].cols});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::b, .row = nk ? n : 0, .col = nk ? 0 : n});
    add_operand_meanings(problem, rank, n, {0, n}, buffer, all);
    all.push_back({.buffer = buffer++,
                   .rank = rank,
                   .role = Role::partial,
                   .col = n,
                   .terms = {0, problem.k},
                   .finished = !problem.epilogue.empty()});
    if (problem.gathered_output) all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a});
  }
  return all;
}

std::vector<Buffer> k_sharded_inputs(const Problem& problem, int num_ranks) {
  std::vector<Shape> a;
  std::vector<Shape> b;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t k = shard_of(problem.k, num_ranks, rank).size();
    a.push_back({problem.m, k});
    b.push_back(b_shape(problem, problem.n, k));
  }
  std::vector<Buffer> buffers{sharded_buffer("a", problem.dtype, Scope::input, a),
                              sharded_buffer("b", problem.dtype, Scope::input, b)};
  return buffers;
}

std::vector<Meaning> k_sharded_meanings(const Problem& problem, int num_ranks, int rank) {
  const int64_t k = shard_of(problem.k, num_ranks, rank).begin;
  const bool nk = problem.b_layout == BLayout::nk;
  return {
      {.buffer = 0, .rank = rank, .role = Role::a, .col = k},
      {.buffer = 1, .rank = rank, .role = Role::b, .row = nk ? 0 : k, .col = nk ? k : 0},
  };
}

double element(const Tensor& tensor, int64_t row, int64_t col) {
  return static_cast<double>(load_one(element_at(tensor, row, col), tensor.dtype));
}

std::vector<float> by_rows_of_k(const Problem& problem, const Tensor& b) {
  std::vector<float> values(b.rows * b.cols);
  std::vector<float> line(b.cols);
  const bool nk = problem.b_layout == BLayout::nk;
  for (int64_t row = 0; row < b.rows; ++row) {
    load_row(element_at(b, row, 0), b.dtype, b.cols, nk ? line.data() : values.data() + row * b.cols);
    if (!nk) continue;
    for (int64_t k = 0; k < b.cols; ++k) values[k * b.rows + row] = line[k];
  }
  return values;
}

// NOTE: an inner loop over columns runs as vectors, and adds up each element's products in the order of k.
void add_product(const Tensor& a, const std::vector<float>& b, DoubleMatrix& sum) {
  std::vector<float> line(a.cols);
  std::vector<double> dots(sum.cols);
  for (int64_t row = 0; row < sum.rows; ++row) {
    load_row(element_at(a, row, 0), a.dtype, a.cols, line.data());
    std::ranges::fill(dots, 0);
    for (int64_t k = 0; k < a.cols; ++k) {
      const auto factor = static_cast<double>(line[k]);
      const float* of_k = b.data() + k * sum.cols;
      for (int64_t col = 0; col < sum.cols; ++col) dots[col] += factor * static_cast<double>(of_k[col]);
    }
    for (int64_t col = 0; col < sum.cols; ++col) sum.at(row, col) += dots[col];
  }
}

DoubleMatrix doubles_of(const Tensor& tensor) {
  DoubleMatrix values(tensor.rows, tensor.cols);
  for (int64_t row = 0; row < tensor.rows; ++row) {
    for (int64_t col = 0; col < tensor.cols; ++col) values.at(row, col) = element(tensor, row, col);
  }
  return values;
}

void apply_epilogue(const Problem& problem, const Tensor* bias, const DoubleMatrix* residual, DoubleMatrix& sum) {
  for (const Epilogue& step : problem.epilogue) {
    for (int64_t row = 0; row < sum.rows; ++row) {
      for (int64_t col = 0; col < sum.cols; ++col) {
        const double operand = step.kind == EpilogueKind::bias       ? element(*bias, 0, col)
                               : step.kind == EpilogueKind::residual ? residual->at(row, col)
                                                                     : 0;
        sum.at(row, col) = apply_step(step, sum.at(row, col), operand);
      }
    }
  }
}

void apply_epilogue(const Problem& problem, const std::vector<Tensor>& tensors, DoubleMatrix& sum) {
  if (problem.epilogue.empty()) return;
  const bool bias = has_bias(problem);
  const DoubleMatrix residual = has_residual(problem) ? doubles_of(tensors[bias ? 3 : 2]) : DoubleMatrix(0, 0);
  apply_epilogue(problem, bias ? &tensors[2] : nullptr, &residual, sum);
}

DoubleMatrix k_sharded_sum(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  DoubleMatrix sum(problem.m, problem.n);
  for (const std::vector<Tensor>& mine : tensors) add_product(mine[0], by_rows_of_k(problem, mine[1]), sum);
  return sum;
}

DoubleMatrix rows_of(const DoubleMatrix& matrix, Range rows) {
  DoubleMatrix some(rows.size(), matrix.cols);
  std::copy_n(matrix.values.begin() + rows.begin * matrix.cols, std::ssize(some.values), some.values.begin());
  return some;
}

void store_rows(const DoubleMatrix& from, int64_t first_row, const Tensor& to) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t col = 0; col < to.cols; ++col) {
      store_one(static_cast<float>(from.at(first_row + row, col)), const_cast<char*>(element_at(to, row, col)),
                to.dtype);
    }
  }
}

void store_block(const DoubleMatrix& from, int64_t first_col, int64_t first_row, const Tensor& to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    for (int64_t col = 0; col < to.cols; ++col) {
      store_one(static_cast<float>(from.at(row, first_col + col)),
                const_cast<char*>(element_at(to, first_row + row, col)), to.dtype);
    }
  }
}

void copy_rows(const Tensor& from, const Tensor& to, int64_t first_row) {
  if (from.cols == 0) return;
  const auto bytes = static_cast<size_t>(from.cols * bytes_of(from.dtype));
  for (int64_t row = 0; row < from.rows; ++row) {
    std::memcpy(const_cast<char*>(element_at(to, first_row + row, 0)), element_at(from, row, 0), bytes);
  }
}

}  // namespace tilewire
