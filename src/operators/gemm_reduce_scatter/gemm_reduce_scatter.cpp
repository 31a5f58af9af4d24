// GEMM + ReduceScatter: every rank multiplies its range of K. The products are summed over ranks, and each rank gets
// its rows of the sum. Listed in operators.cpp.
#include "operators/gemm_reduce_scatter/gemm_reduce_scatter.hpp"

#include "operators/gemm.hpp"
#include "operators/summed_rows.hpp"

namespace tilewire {
namespace {

std::vector<Range> shards(const Problem& problem, int num_ranks) {
  std::vector<Range> rows;
  for (int rank = 0; rank < num_ranks; ++rank) rows.push_back(shard_of(problem.m, num_ranks, rank));
  return rows;
}

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Buffer> all = k_sharded_inputs(problem, num_ranks);
  add_summed_rows(problem, shards(problem, num_ranks), "c", all);
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Meaning& meaning : k_sharded_meanings(problem, num_ranks, rank)) all.push_back(meaning);
    add_summed_rows_meanings(problem, rank, shard_of(problem.m, num_ranks, rank).begin, 2, {0, problem.k}, all);
  }
  return all;
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return (num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const DoubleMatrix sum = k_sharded_sum(problem, tensors);
  const int num_ranks = static_cast<int>(tensors.size());
  for (int rank = 0; rank < num_ranks; ++rank)
    store_summed_rows(problem, tensors[rank], 2, rows_of(sum, shard_of(problem.m, num_ranks, rank)));
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
