// AllReduce, tile by tile: every rank gets the sum of all ranks' matrices. Listed in operators.cpp.
// The same collective as that of gemm_all_reduce, as an operator of its own.
#include "operators/all_reduce/all_reduce.hpp"

#include "operators/gemm.hpp"
#include "operators/summed_rows.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Buffer> all{whole_buffer("x", problem.dtype, Scope::input, {problem.m, problem.n})};
  add_summed_rows(problem, all_rows(problem, num_ranks), "y", all);
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    all.push_back({.buffer = 0, .rank = rank, .role = Role::partial, .terms = {rank, rank + 1}});
    add_summed_rows_meanings(problem, rank, 0, 1, {0, num_ranks}, all);
  }
  return all;
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return 2 * (num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  DoubleMatrix sum(problem.m, problem.n);
  for (const std::vector<Tensor>& mine : tensors) {
    for (int64_t row = 0; row < sum.rows; ++row) {
      for (int64_t col = 0; col < sum.cols; ++col) sum.at(row, col) += element(mine[0], row, col);
    }
  }
  for (const std::vector<Tensor>& mine : tensors) store_summed_rows(problem, mine, 1, sum);
}

}  // namespace

Operator all_reduce() {
  return {.name = "all_reduce",
          .summary = "Y = sum over ranks of X, tile by tile",
          .structure = {.multiplies = false, .after = Collective::all_reduce},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
