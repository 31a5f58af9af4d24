// GEMM + ReduceScatter: every rank multiplies its range of K. The products are summed over ranks, and each rank gets
// its rows of the sum. Listed in operators.cpp.
#include "operators/gemm_reduce_scatter/gemm_reduce_scatter.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Buffer> all = k_sharded_inputs(problem, num_ranks);
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) c.push_back({shard_of(problem.m, num_ranks, rank).size(), problem.n});
  add_operands(problem, std::vector<Shape>(num_ranks, {1, problem.n}), c, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Meaning& meaning : k_sharded_meanings(problem, num_ranks, rank)) all.push_back(meaning);
    int buffer = 2;
    add_operand_meanings(problem, rank, 0, {shard_of(problem.m, num_ranks, rank).begin, 0}, buffer, all);
    all.push_back({.buffer = buffer,
                   .rank = rank,
                   .role = Role::partial,
                   .row = shard_of(problem.m, num_ranks, rank).begin,
                   .terms = {0, problem.k},
                   .finished = !problem.epilogue.empty()});
  }
  return all;
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return (num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const DoubleMatrix sum = k_sharded_sum(problem, tensors);
  for (int rank = 0; rank < std::ssize(tensors); ++rank) {
    const Range rows = shard_of(problem.m, static_cast<int>(tensors.size()), rank);
    DoubleMatrix mine = rows_of(sum, rows);
    apply_epilogue(problem, tensors[rank], mine);
    store_rows(mine, 0, tensors[rank].back());
  }
}

}  // namespace

Operator gemm_reduce_scatter() {
  return {.name = "gemm_reduce_scatter",
          .summary = "C[shard, :] = reduce_scatter(A * B): A and B sharded along K, C by rows",
          .structure = {.after = Collective::reduce_scatter},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
