// GEMM + AllToAll: every rank multiplies its rows of A by all of B. Each rank then gets its columns of all rows.
// Listed in operators.cpp.
#include "operators/gemm_all_to_all/gemm_all_to_all.hpp"

#include "operators/gemm.hpp"

namespace tilewire {
namespace {

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  std::vector<Shape> a;
  std::vector<Shape> made;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    a.push_back({shard_of(problem.m, num_ranks, rank).size(), problem.k});
    made.push_back({shard_of(problem.m, num_ranks, rank).size(), problem.n});
    c.push_back({problem.m, shard_of(problem.n, num_ranks, rank).size()});
  }
  std::vector<Buffer> all{
      sharded_buffer("a", problem.dtype, Scope::input, a),
      whole_buffer("b", problem.dtype, Scope::input, b_shape(problem, problem.n, problem.k)),
  };
  add_operands(problem, std::vector<Shape>(num_ranks, {1, problem.n}), made, all);
  all.push_back(sharded_buffer("c", out_dtype_of(problem), Scope::output, c));
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    int buffer = 0;
    all.push_back(
        {.buffer = buffer++, .rank = rank, .role = Role::a, .row = shard_of(problem.m, num_ranks, rank).begin});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::b});
    add_operand_meanings(problem, rank, 0, {shard_of(problem.m, num_ranks, rank).begin, 0}, buffer, all);
    all.push_back({.buffer = buffer,
                   .rank = rank,
                   .role = Role::partial,
                   .col = shard_of(problem.n, num_ranks, rank).begin,
                   .terms = {0, problem.k},
                   .finished = !problem.epilogue.empty()});
  }
  return all;
}

/// Every rank sends the columns of all other owners.
int64_t least_bytes(const Problem& problem, int num_ranks) {
  int64_t kept = 0;
  for (int rank = 0; rank < num_ranks; ++rank)
    kept += shard_of(problem.m, num_ranks, rank).size() * shard_of(problem.n, num_ranks, rank).size();
  return (problem.m * problem.n - kept) * bytes_of(out_dtype_of(problem));
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const int num_ranks = static_cast<int>(tensors.size());
  for (int maker = 0; maker < num_ranks; ++maker) {
    const std::vector<Tensor>& mine = tensors[maker];
    const Range rows = shard_of(problem.m, num_ranks, maker);
    DoubleMatrix made(rows.size(), problem.n);
    add_product(mine[0], by_rows_of_k(problem, mine[1]), made);
    apply_epilogue(problem, mine, made);
    for (int owner = 0; owner < num_ranks; ++owner)
      store_block(made, shard_of(problem.n, num_ranks, owner).begin, rows.begin, tensors[owner].back());
  }
}

}  // namespace

Operator gemm_all_to_all() {
  return {.name = "gemm_all_to_all",
          .summary = "C[:, shard] = all_to_all(A[shard] * B): A sharded by rows, B whole, C by columns",
          .structure = {.after = Collective::all_to_all},
          .validate = [](const Problem&, int) {},
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
