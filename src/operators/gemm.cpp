// Common code of operators with a GEMM: buffers of A, B and epilogue operands, and the reference product.
// Called by the operators' folders.
#include "operators/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/convert.hpp"
#include "core/race_ranges.hpp"

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
    case EpilogueKind::swiglu_pairs:
      break;  // by join_columns
  }
  return value;
}

void join_columns(DoubleMatrix& sum) {
  DoubleMatrix joined(sum.rows, sum.cols / 2);
  for (int64_t row = 0; row < joined.rows; ++row) {
    for (int64_t col = 0; col < joined.cols; ++col) {
      const double gate = sum.at(row, 2 * col);
      joined.at(row, col) = gate / (1 + std::exp(-gate)) * sum.at(row, 2 * col + 1);
    }
  }
  sum = std::move(joined);
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
                  std::vector<Buffer>& inputs, size_t output) {
  if (has_bias(problem))
    inputs.push_back(sharded_buffer(name_of_output("bias", output), problem.dtype, Scope::input, bias));
  if (has_residual(problem))
    inputs.push_back(sharded_buffer(name_of_output("residual", output), out_dtype_of(problem), Scope::input, residual));
}

void add_operand_meanings(const Problem& problem, int rank, int64_t bias_col, Shape residual_at, int& buffer,
                          std::vector<Meaning>& meanings) {
  if (has_bias(problem)) meanings.push_back({.buffer = buffer++, .rank = rank, .role = Role::bias, .col = bias_col});
  if (!has_residual(problem)) return;
  meanings.push_back(
      {.buffer = buffer++, .rank = rank, .role = Role::residual, .row = residual_at.rows, .col = residual_at.cols});
}

namespace {

/// The columns of a rank in each output, numbered in the concatenation of all outputs.
std::vector<Range> global_columns(const Problem& problem, int num_ranks, int rank) {
  const Range first = shard_of(problem.n, num_ranks, rank);
  std::vector<Range> columns{first};
  int64_t before = problem.n;
  for (const int64_t n : problem.more_n) {
    const Range mine = shard_of(n, num_ranks, rank);
    columns.push_back({before + mine.begin, before + mine.end});
    before += n;
  }
  return columns;
}

size_t operands_of_output(const Problem& problem) {
  return static_cast<size_t>(has_bias(problem)) + static_cast<size_t>(has_residual(problem));
}

}  // namespace

size_t num_gathered_inputs(const Problem& problem) {
  return 1 + (1 + problem.more_n.size()) * (1 + operands_of_output(problem));
}

std::vector<Buffer> gathered_buffers(const Problem& problem, int num_ranks, const std::vector<Shape>& a) {
  const size_t outputs = 1 + problem.more_n.size();
  // [output][rank]
  std::vector<std::vector<Shape>> b(outputs);
  std::vector<std::vector<Shape>> bias(outputs);
  std::vector<std::vector<Shape>> c(outputs);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<Range> columns = columns_on(problem, num_ranks, rank);
    for (size_t i = 0; i < outputs; ++i) {
      b[i].push_back(b_shape(problem, columns_of_b(problem, columns[i].size()), problem.k));
      bias[i].push_back({1, columns[i].size()});
      c[i].push_back({problem.m, columns[i].size()});
    }
  }
  std::vector<Buffer> all{sharded_buffer("a", problem.dtype, Scope::input, a)};
  for (size_t i = 0; i < outputs; ++i)
    all.push_back(sharded_buffer(name_of_output("b", i), problem.dtype, Scope::input, b[i]));
  for (size_t i = 0; i < outputs; ++i) add_operands(problem, bias[i], c[i], all, i);
  for (size_t i = 0; i < outputs; ++i)
    all.push_back(sharded_buffer(name_of_output("c", i), out_dtype_of(problem), Scope::output, c[i]));
  if (problem.gathered_output)
    all.push_back(whole_buffer("gathered", problem.dtype, Scope::output, {problem.m, problem.k}));
  return all;
}

std::vector<Meaning> gathered_meanings(const Problem& problem, int num_ranks, const std::vector<Shape>& a_at) {
  const bool nk = problem.b_layout == BLayout::nk;
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<Range> columns = global_columns(problem, num_ranks, rank);
    int buffer = 0;
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a, .row = a_at[rank].rows, .col = a_at[rank].cols});
    for (const Range& of : columns) {
      const int64_t first = columns_of_b(problem, of.begin);
      all.push_back({.buffer = buffer++, .rank = rank, .role = Role::b, .row = nk ? first : 0, .col = nk ? 0 : first});
    }
    for (const Range& of : columns) add_operand_meanings(problem, rank, of.begin, {0, of.begin}, buffer, all);
    for (const Range& of : columns)
      all.push_back({.buffer = buffer++,
                     .rank = rank,
                     .role = Role::partial,
                     .col = of.begin,
                     .terms = {0, problem.k},
                     .finished = !problem.epilogue.empty()});
    if (problem.gathered_output) all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a});
  }
  return all;
}

void finish_output(const Problem& problem, const std::vector<Tensor>& tensors, size_t output, DoubleMatrix& sum) {
  const Tensor* operand = &tensors[2 + problem.more_n.size() + output * operands_of_output(problem)];
  const Tensor* bias = has_bias(problem) ? operand++ : nullptr;
  const DoubleMatrix residual = has_residual(problem) ? doubles_of(*operand) : DoubleMatrix(0, 0);
  apply_epilogue(problem, bias, &residual, sum);
  store_rows(sum, 0, tensors[num_gathered_inputs(problem) + output]);
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

TILEWIRE_ANNOUNCED
std::vector<float> by_rows_of_k(const Problem& problem, const Tensor& b) {
  std::vector<float> values(b.rows * b.cols);
  std::vector<float> line(b.cols);
  const float* const of_row = line.data();
  const bool nk = problem.b_layout == BLayout::nk;
  for (int64_t row = 0; row < b.rows; ++row) {
    load_row(element_at(b, row, 0), b.dtype, b.cols, nk ? line.data() : values.data() + row * b.cols);
    if (!nk) continue;
    float* const to = values.data() + row;
    for (int64_t k = 0; k < b.cols; ++k) to[k * b.rows] = of_row[k];
  }
  return values;
}

// NOTE: the inner loop runs over columns, so that it vectorises and each element adds its products in the order of k.
TILEWIRE_ANNOUNCED
void add_product(const Tensor& a, const std::vector<float>& b, DoubleMatrix& sum) {
  std::vector<float> line(a.cols);
  std::vector<double> dots_of_row(sum.cols);
  const float* const of_row = line.data();
  double* const dots = dots_of_row.data();
  for (int64_t row = 0; row < sum.rows; ++row) {
    load_row(element_at(a, row, 0), a.dtype, a.cols, line.data());
    std::fill_n(dots, sum.cols, 0);
    for (int64_t k = 0; k < a.cols; ++k) {
      const auto factor = static_cast<double>(of_row[k]);
      const float* of_k = b.data() + k * sum.cols;
      for (int64_t col = 0; col < sum.cols; ++col) dots[col] += factor * static_cast<double>(of_k[col]);
    }
    double* const sums = sum.values.data() + row * sum.cols;
    for (int64_t col = 0; col < sum.cols; ++col) sums[col] += dots[col];
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
  if (joins_columns(problem.epilogue)) return join_columns(sum);
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
