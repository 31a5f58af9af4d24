// Outputs that are rows of sums across ranks, with epilogue and norm.
// Called by gemm_all_reduce, gemm_reduce_scatter and all_reduce.
#include "operators/summed_rows.hpp"

#include <algorithm>
#include <cmath>

namespace tilewire {
namespace {

bool has_norm_bias(const Problem& problem) { return problem.norm && problem.norm->kind == NormKind::layer; }

}  // namespace

std::vector<Range> all_rows(const Problem& problem, int num_ranks) {
  return std::vector<Range>(num_ranks, {0, problem.m});
}

void add_summed_rows(const Problem& problem, const std::vector<Range>& rows, const char* name,
                     std::vector<Buffer>& buffers) {
  const DType dtype = out_dtype_of(problem);
  std::vector<Shape> output;
  for (const Range& of_rank : rows) output.push_back({of_rank.size(), problem.n});
  add_operands(problem, std::vector<Shape>(rows.size(), {1, problem.n}), output, buffers);
  if (problem.norm) buffers.push_back(whole_buffer("norm_weight", dtype, Scope::input, {1, problem.n}));
  if (has_norm_bias(problem)) buffers.push_back(whole_buffer("norm_bias", dtype, Scope::input, {1, problem.n}));
  buffers.push_back(sharded_buffer(name, dtype, Scope::output, output));
  if (!problem.norm) return;
  buffers.push_back(sharded_buffer("normed", problem.norm->out_dtype.value_or(dtype), Scope::output, output));
  if (!quantises(*problem.norm)) return;
  for (Shape& shape : output) shape.cols = 1;
  buffers.push_back(sharded_buffer("norm_scale", DType::fp32, Scope::output, output));
}

void add_summed_rows_meanings(const Problem& problem, int rank, int64_t row, int buffer, Range terms,
                              std::vector<Meaning>& meanings) {
  add_operand_meanings(problem, rank, 0, {row, 0}, buffer, meanings);
  const auto add = [&](Role role) { meanings.push_back({.buffer = buffer++, .rank = rank, .role = role}); };
  if (problem.norm) add(Role::norm_weight);
  if (has_norm_bias(problem)) add(Role::norm_bias);
  for (const Role role : {Role::partial, Role::normed, Role::norm_scale}) {
    if (role == Role::normed && !problem.norm) break;
    if (role == Role::norm_scale && !quantises(*problem.norm)) break;
    add(role);
    meanings.back().row = row;
    meanings.back().terms = terms;
    meanings.back().finished = !problem.epilogue.empty();
  }
}

void apply_norm(const Norm& norm, const Tensor& weight, const Tensor* bias, DoubleMatrix& rows) {
  const auto count = static_cast<double>(rows.cols);
  for (int64_t row = 0; row < rows.rows; ++row) {
    double mean = 0;
    for (int64_t col = 0; col < rows.cols && norm.kind == NormKind::layer; ++col) mean += rows.at(row, col) / count;
    double variance = 0;
    for (int64_t col = 0; col < rows.cols; ++col) variance += std::pow(rows.at(row, col) - mean, 2) / count;
    const double factor = 1 / std::sqrt(variance + norm.eps);
    for (int64_t col = 0; col < rows.cols; ++col)
      rows.at(row, col) =
          (rows.at(row, col) - mean) * factor * element(weight, 0, col) + (bias ? element(*bias, 0, col) : 0);
  }
}

std::vector<double> quantise(DType dtype, DoubleMatrix& rows) {
  std::vector<double> scales;
  for (int64_t row = 0; row < rows.rows; ++row) {
    double most = 0;
    for (int64_t col = 0; col < rows.cols; ++col) {
      const double value = std::abs(rows.at(row, col));
      most = std::isnan(value) || std::isnan(most) ? value + most : std::max(most, value);
    }
    scales.push_back(most == 0 ? 1 : most / largest_of(dtype));
    for (int64_t col = 0; col < rows.cols; ++col) rows.at(row, col) /= scales.back();
  }
  return scales;
}

void store_summed_rows(const Problem& problem, const std::vector<Tensor>& tensors, size_t buffer, DoubleMatrix sum) {
  const Tensor* bias = has_bias(problem) ? &tensors[buffer++] : nullptr;
  const DoubleMatrix residual = has_residual(problem) ? doubles_of(tensors[buffer++]) : DoubleMatrix(0, 0);
  apply_epilogue(problem, bias, &residual, sum);
  const Tensor* weight = problem.norm ? &tensors[buffer++] : nullptr;
  const Tensor* norm_bias = has_norm_bias(problem) ? &tensors[buffer++] : nullptr;
  const Tensor& output = tensors[buffer++];
  store_rows(sum, 0, output);
  if (!problem.norm) return;
  DoubleMatrix rows = doubles_of(output);
  apply_norm(*problem.norm, *weight, norm_bias, rows);
  if (quantises(*problem.norm)) {
    const std::vector<double> scales = quantise(*problem.norm->out_dtype, rows);
    DoubleMatrix column(rows.rows, 1);
    std::ranges::copy(scales, column.values.begin());
    store_rows(column, 0, tensors[buffer + 1]);
  }
  store_rows(rows, 0, tensors[buffer]);
}

}  // namespace tilewire
