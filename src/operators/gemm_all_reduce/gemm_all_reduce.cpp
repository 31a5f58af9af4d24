// GEMM + AllReduce: every rank multiplies its range of K. The products are summed over ranks, and every rank gets the
// whole sum. Listed in operators.cpp.
#include "operators/gemm_all_reduce/gemm_all_reduce.hpp"

#include "operators/gemm.hpp"
#include "operators/summed_rows.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Buffer> all = k_sharded_inputs(problem, num_ranks);
  add_summed_rows(problem, all_rows(problem, num_ranks), "c", all);
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Meaning& meaning : k_sharded_meanings(problem, num_ranks, rank)) all.push_back(meaning);
    add_summed_rows_meanings(problem, rank, 0, 2, {0, problem.k}, all);
  }
  return all;
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return 2 * (num_ranks - 1) * problem.m * problem.n * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const DoubleMatrix sum = k_sharded_sum(problem, tensors);
  for (const std::vector<Tensor>& mine : tensors) store_summed_rows(problem, mine, 2, sum);
}

}  // namespace

Operator gemm_all_reduce() {
  return {.name = "gemm_all_reduce",
          .summary = "C = all_reduce(A * B): A and B sharded along K, C whole on every rank",
          .structure = {.after = Collective::all_reduce},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
