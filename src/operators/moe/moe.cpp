// Mixture of experts, the whole layer: each token goes through its top_k experts, and their results are added by
// weight. Listed in operators.cpp.
#include "operators/moe/moe.hpp"

#include <cmath>

#include "core/text.hpp"
#include "operators/experts.hpp"
#include "operators/gemm.hpp"

namespace tilewire {
namespace {

/// The B's of some experts, one below the other.
Shape stacked(const Problem& problem, int64_t experts, int64_t n, int64_t k) {
  const Shape one = b_shape(problem, n, k);
  return {experts * one.rows, one.cols};
}

std::vector<Buffer> buffers(const Problem& problem, int num_ranks) {
  const Experts& experts = *problem.experts;
  const auto placement = placement_of(experts, num_ranks);
  std::vector<Shape> x;
  std::vector<Shape> ids;
  std::vector<Shape> first;
  std::vector<Shape> second;
  std::vector<Shape> c;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t tokens = shard_of(problem.m, num_ranks, rank).size();
    x.push_back({tokens, problem.k});
    ids.push_back({tokens, experts.top_k});
    first.push_back(stacked(problem, std::ssize(placement[rank]), first_columns(experts), problem.k));
    second.push_back(stacked(problem, std::ssize(placement[rank]), problem.n, experts.ffn));
    c.push_back({tokens, problem.n});
  }
  std::vector<Buffer> all{sharded_buffer("x", problem.dtype, Scope::input, x),
                          sharded_buffer("topk_ids", DType::int32, Scope::input, ids),
                          sharded_buffer("topk_weights", DType::fp32, Scope::input, ids),
                          sharded_buffer("w13", problem.dtype, Scope::input, first),
                          sharded_buffer("w2", problem.dtype, Scope::input, second),
                          sharded_buffer("c", out_dtype_of(problem), Scope::output, c)};
  if (experts.drops)
    all.push_back({.name = "dropped", .dtype = DType::int32, .rows = 1, .cols = 1, .scope = Scope::output});
  return all;
}

std::vector<Meaning> meanings(const Problem& problem, int num_ranks) {
  const std::vector<RouteParams> routes = routes_of(problem, num_ranks);
  const int64_t lines13 = b_shape(problem, first_columns(*problem.experts), problem.k).rows;
  const int64_t lines2 = b_shape(problem, problem.n, problem.experts->ffn).rows;
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t token = shard_of(problem.m, num_ranks, rank).begin;
    const int64_t group = routes[rank].first_group;
    int buffer = 0;
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::a, .row = token});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::topk_ids, .row = token});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::topk_weights, .row = token});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::w13, .row = group * lines13});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::w2, .row = group * lines2});
    all.push_back({.buffer = buffer++, .rank = rank, .role = Role::partial, .row = token, .terms = {0, num_ranks}});
    if (problem.experts->drops) all.push_back({.buffer = buffer, .rank = rank, .role = Role::dropped, .row = rank});
  }
  return all;
}

/// Depends on the routing.
int64_t least_bytes(const Problem&, int) { return 0; }

double activated(Activation activation, const double* values, int64_t col, int64_t cols) {
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return values[col] < 0 ? 0 : values[col];
    case Activation::gelu:
      return values[col] * 0.5 * (1 + std::erf(values[col] / std::sqrt(2.0)));
    case Activation::silu:
      return silu(values[col]);
    case Activation::swiglu:
      return silu(values[col]) * values[cols + col];
    case Activation::swiglu_pairs:
      return silu(values[2 * col]) * values[2 * col + 1];
  }
  return values[col];
}

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
  return {.name = "moe",
          .summary = "C[shard] = sum of weights * (activation(X w13[e]) w2[e]) over the top_k experts e of each token",
          .structure = {.experts = true},
          .validate = validate_experts,
          .buffers = buffers,
          .meanings = meanings,
          .least_bytes = least_bytes,
          .reference = reference};
}

}  // namespace tilewire
