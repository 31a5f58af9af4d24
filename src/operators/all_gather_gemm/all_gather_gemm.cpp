// AllGather + GEMM: every rank has rows of A and columns of B. The ranks gather the rows of A, and each rank computes
// its columns of C. Listed in operators.cpp.
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
  for (const std::vector<Tensor>& mine : tensors) {
    for (size_t output = 0; output <= problem.more_n.size(); ++output) {
      const std::vector<float> b = by_rows_of_k(problem, mine[1 + output]);
      const Tensor& c = mine[num_gathered_inputs(problem) + output];
      DoubleMatrix sum(problem.m, columns_of_b(problem, c.cols));
      for (int owner = 0; owner < num_ranks; ++owner) {
        const Range rows = shard_of(problem.m, num_ranks, owner);
        DoubleMatrix part(rows.size(), sum.cols);
        add_product(tensors[owner][0], b, part);
        std::copy(part.values.begin(), part.values.end(), sum.values.begin() + rows.begin * sum.cols);
      }
      finish_output(problem, mine, output, sum);
    }
    for (int owner = 0; problem.gathered_output && owner < num_ranks; ++owner)
      copy_rows(tensors[owner][0], mine.back(), shard_of(problem.m, num_ranks, owner).begin);
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
