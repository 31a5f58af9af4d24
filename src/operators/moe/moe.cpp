// Mixture of experts, the whole layer: each token goes through its top_k experts, and their results are added by
// weight. Listed in operators.cpp.
#include "operators/moe/moe.hpp"

#include "core/text.hpp"
#include "operators/expert_steps.hpp"
#include "operators/gemm.hpp"

namespace tilewire {
namespace {

/// Rows of one tensor of stacked B's: those of the B at `index`.
Tensor matrix_of(const Tensor& all, int64_t index, int64_t rows) {
  auto* first = static_cast<std::byte*>(all.data) + index * rows * all.row_stride * bytes_of(all.dtype);
  Tensor one = all;
  one.data = first;
  one.rows = rows;
  return one;
}

/// One row of the result of an expert. `w13` and `w2` come from by_rows_of_k.
void add_expert(const Problem& problem, const Tensor& x, const std::vector<float>& w13, const std::vector<float>& w2,
                double weight, double* sums) {
  const Experts& experts = *problem.experts;
  const int64_t made = first_columns(experts);
  DoubleMatrix hidden(1, made);
  add_product(x, w13, hidden);
  for (int64_t col = 0; col < problem.n; ++col) {
    double sum = 0;
    for (int64_t i = 0; i < experts.ffn; ++i)
      sum += activated(experts.activation, hidden.values.data(), i, experts.ffn) *
             static_cast<double>(w2[i * problem.n + col]);
    sums[col] += weight * sum;
  }
}

void reference(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors) {
  const Experts& experts = *problem.experts;
  const int num_ranks = static_cast<int>(tensors.size());
  const auto placement = placement_of(experts, num_ranks);
  const KeptRows kept = kept_rows(problem, num_ranks, [&](int64_t token, float* chosen) {
    const auto owner = static_cast<int>(shard_at(problem.m, num_ranks, token));
    const int64_t row = token - shard_of(problem.m, num_ranks, owner).begin;
    for (int64_t i = 0; i < experts.top_k; ++i) chosen[i] = static_cast<float>(element(tensors[owner][1], row, i));
  });
  std::vector<DoubleMatrix> sums;
  for (const auto& mine : tensors) sums.emplace_back(mine[5].rows, problem.n);
  std::vector<bool> done(static_cast<size_t>(experts.count + experts.shared), false);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int64_t index = 0; index < std::ssize(placement[rank]); ++index) {
      const int64_t expert = placement[rank][index];
      if (done[expert]) continue;  // a replica
      done[expert] = true;
      const int64_t lines13 = b_shape(problem, first_columns(experts), problem.k).rows;
      const int64_t lines2 = b_shape(problem, problem.n, experts.ffn).rows;
      const auto w13 = by_rows_of_k(problem, matrix_of(tensors[rank][3], index, lines13));
      const auto w2 = by_rows_of_k(problem, matrix_of(tensors[rank][4], index, lines2));
      for (int owner = 0; owner < num_ranks; ++owner) {
        const Tensor& ids = tensors[owner][1];
        const int64_t first = shard_of(problem.m, num_ranks, owner).begin;
        for (int64_t token = 0; token < ids.rows; ++token) {
          Tensor x = tensors[owner][0];
          x.data = static_cast<std::byte*>(x.data) + token * x.row_stride * bytes_of(x.dtype);
          x.rows = 1;
          double* sum = &sums[owner].at(token, 0);
          if (expert >= experts.count) add_expert(problem, x, w13, w2, 1, sum);
          for (int64_t i = 0; i < ids.cols; ++i) {
            if (static_cast<int64_t>(element(ids, token, i)) == expert && kept.pairs[(first + token) * ids.cols + i])
              add_expert(problem, x, w13, w2, element(tensors[owner][2], token, i), sum);
          }
        }
      }
    }
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    store_rows(sums[rank], 0, tensors[rank][5]);
    if (experts.drops) *static_cast<int32_t*>(tensors[rank][6].data) = static_cast<int32_t>(kept.dropped[rank]);
  }
}

}  // namespace

Operator moe() {
  Operator layer = operator_of_steps<ExpertSteps{}>(
      "moe", "C[shard] = sum of weights * (activation(X w13[e]) w2[e]) over the top_k experts e of each token");
  layer.reference = reference;
  return layer;
}

}  // namespace tilewire
