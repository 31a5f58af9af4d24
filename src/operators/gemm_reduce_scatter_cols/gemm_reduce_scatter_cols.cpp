// GEMM + ReduceScatter of columns: every rank multiplies its range of K. The products are summed over ranks, and each
// rank gets its columns of the sum. Listed in operators.cpp.
#include "operators/gemm_reduce_scatter_cols/gemm_reduce_scatter_cols.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Buffer> all = k_sharded_inputs(problem, num_ranks);
  std::vector<Shape> bias;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t n = shard_of(problem.n, num_ranks, rank).size();
    bias.push_back({1, n});
    c.push_back({problem.m, n});
  }
  add_operands(problem, bias, c, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Meaning& meaning : k_sharded_meanings(problem, num_ranks, rank)) all.push_back(meaning);
    const int64_t n = shard_of(problem.n, num_ranks, rank).begin;
    int buffer = 2;
    add_operand_meanings(problem, rank, n, {0, n}, buffer, all);
    all.push_back({.buffer = buffer,
                   .rank = rank,
                   .role = Role::partial,
                   .col = n,
                   .terms = {0, problem.k},
                   .finished = !problem.epilogue.empty()});
  }
  return all;
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return (num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  const DoubleMatrix sum = k_sharded_sum(problem, tensors);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Range cols = shard_of(problem.n, num_ranks, rank);
    DoubleMatrix mine(problem.m, cols.size());
    for (int64_t row = 0; row < problem.m; ++row) {
      for (int64_t col = cols.begin; col < cols.end; ++col) mine.at(row, col - cols.begin) = sum.at(row, col);
    }
    apply_epilogue(problem, tensors[rank], mine);
    store_rows(mine, 0, tensors[rank].back());
  }
}

}  // namespace

Operator gemm_reduce_scatter_cols() {
  return {.name = "gemm_reduce_scatter_cols",
          .summary = "C[:, shard] = reduce_scatter(A * B): A and B sharded along K, C by columns",
          .structure = {.after = Collective::reduce_scatter, .by_columns = true},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
