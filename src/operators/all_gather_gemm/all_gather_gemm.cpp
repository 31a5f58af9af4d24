// AllGather + GEMM: every rank holds rows of A and columns of B; the rows are gathered, each rank
// computes its columns of C. Listed in operators.cpp.
#include "operators/all_gather_gemm/all_gather_gemm.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Shape> a;
  for (int rank = 0; rank < num_ranks; ++rank) a.push_back({shard_of(problem.m, num_ranks, rank).size(), problem.k});
  return gathered_buffers(problem, num_ranks, a);
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Shape> a_at;
  for (int rank = 0; rank < num_ranks; ++rank) a_at.push_back({shard_of(problem.m, num_ranks, rank).begin, 0});
  return gathered_meanings(problem, num_ranks, a_at);
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return (num_ranks - 1) * problem.m * problem.k * bytes_of(problem.dtype);
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  const size_t c = 2 + static_cast<size_t>(has_bias(problem)) + static_cast<size_t>(has_residual(problem));
  for (const std::vector<Tensor>& mine : tensors) {
    DoubleMatrix sum(problem.m, mine[c].cols);
    const std::vector<float> b = by_rows_of_k(problem, mine[1]);
    for (int owner = 0; owner < num_ranks; ++owner) {
      const Range rows = shard_of(problem.m, num_ranks, owner);
      DoubleMatrix part(rows.size(), sum.cols);
      add_product(tensors[owner][0], b, part);
      std::copy(part.values.begin(), part.values.end(), sum.values.begin() + rows.begin * sum.cols);
      if (problem.gathered_output) copy_rows(tensors[owner][0], mine[c + 1], rows.begin);
    }
    apply_epilogue(problem, mine, sum);
    store_rows(sum, 0, mine[c]);
  }
}

}  // namespace

Operator all_gather_gemm() {
  return {.name = "all_gather_gemm",
          .summary = "C[:, shard] = all_gather(A) * B[shard]: A sharded by rows, B by columns",
          .structure = {.before = Collective::all_gather},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
