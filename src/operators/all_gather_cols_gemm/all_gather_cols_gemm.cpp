// AllGather of columns + GEMM: every rank holds columns of A and columns of B; the columns of A are gathered, each rank
// computes its columns of C. Listed in operators.cpp.
#include "operators/all_gather_cols_gemm/all_gather_cols_gemm.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Shape> a;
  std::vector<Shape> b;
  std::vector<Shape> bias;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t n = shard_of(problem.n, num_ranks, rank).size();
    a.push_back({problem.m, shard_of(problem.k, num_ranks, rank).size()});
    b.push_back(b_shape(problem, n, problem.k));
    bias.push_back({1, n});
    c.push_back({problem.m, n});
  }
  std::vector<Buffer> all{sharded_buffer("a", problem.dtype, Scope::input, a),
                          sharded_buffer("b", problem.dtype, Scope::input, b)};
  add_operands(problem, bias, c, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  if (problem.gathered_output) {
    all.push_back(whole_buffer("gathered", problem.dtype, Scope::output, {problem.m, problem.k}));
  }
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t n = shard_of(problem.n, num_ranks, rank).begin;
    const bool nk = problem.b_layout == BLayout::nk;
    int buffer = 0;
    all.push_back(
        {.buffer = buffer++, .rank = rank, .role = Role::a, .col = shard_of(problem.k, num_ranks, rank).begin});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::b, .row = nk ? n : 0, .col = nk ? 0 : n});
    add_operand_meanings(problem, rank, n, {0, n}, buffer, all);
    all.push_back({.buffer = buffer++,
                   .rank = rank,
                   .role = Role::partial,
                   .col = n,
                   .terms = {0, problem.k},
                   .finished = !problem.epilogue.empty()});
    if (problem.gathered_output) all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a});
  }
  return all;
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
    DoubleMatrix gathered(problem.m, problem.k);
    for (int owner = 0; owner < num_ranks; ++owner) {
      const Range depth = shard_of(problem.k, num_ranks, owner);
      add_product(tensors[owner][0], {b.begin() + depth.begin * sum.cols, b.begin() + depth.end * sum.cols}, sum);
      for (int64_t row = 0; row < problem.m; ++row) {
        for (int64_t k = depth.begin; k < depth.end; ++k)
          gathered.at(row, k) = element(tensors[owner][0], row, k - depth.begin);
      }
    }
    apply_epilogue(problem, mine, sum);
    store_rows(sum, 0, mine[c]);
    if (problem.gathered_output) store_rows(gathered, 0, mine[c + 1]);
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
