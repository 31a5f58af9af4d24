// AllGather of columns + GEMM: every rank has columns of A and columns of B. The ranks gather the columns of A, and
// each rank computes its columns of C. Listed in operators.cpp.
#include "operators/all_gather_cols_gemm/all_gather_cols_gemm.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Shape> a;
  for (int rank = 0; rank < num_ranks; ++rank) a.push_back({problem.m, shard_of(problem.k, num_ranks, rank).size()});
  return gathered_buffers(problem, num_ranks, a);
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Shape> a_at;
  for (int rank = 0; rank < num_ranks; ++rank) a_at.push_back({0, shard_of(problem.k, num_ranks, rank).begin});
  return gathered_meanings(problem, num_ranks, a_at);
}

int64_t least_bytes(const Problem& problem, int num_ranks) {
  return (num_ranks - 1) * problem.m * problem.k * bytes_of(problem.dtype);
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  DoubleMatrix gathered(problem.m, problem.k);
  for (int owner = 0; owner < num_ranks; ++owner) {
    const Range depth = shard_of(problem.k, num_ranks, owner);
    for (int64_t row = 0; row < problem.m; ++row) {
      for (int64_t k = depth.begin; k < depth.end; ++k)
        gathered.at(row, k) = element(tensors[owner][0], row, k - depth.begin);
    }
  }
  for (const std::vector<Tensor>& mine : tensors) {
    for (size_t output = 0; output <= problem.more_n.size(); ++output) {
      const std::vector<float> b = by_rows_of_k(problem, mine[1 + output]);
      DoubleMatrix sum(problem.m, mine[num_gathered_inputs(problem) + output].cols);
      for (int owner = 0; owner < num_ranks; ++owner) {
        const Range depth = shard_of(problem.k, num_ranks, owner);
        add_product(tensors[owner][0], {b.begin() + depth.begin * sum.cols, b.begin() + depth.end * sum.cols}, sum);
      }
      finish_output(problem, mine, output, sum);
    }
    if (problem.gathered_output) store_rows(gathered, 0, mine.back());
  }
}

}  // namespace

Operator all_gather_cols_gemm() {
  return {.name = "all_gather_cols_gemm",
          .summary = "C[:, shard] = all_gather(A) * B[shard]: A sharded by columns, B by columns",
          .structure = {.before = Collective::all_gather, .by_columns = true},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
