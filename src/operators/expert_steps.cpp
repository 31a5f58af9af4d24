// Common code of the operators with experts: buffers, meanings, and the reference of some steps.
// Called by the operators' folders and the verification.
#include "operators/expert_steps.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text.hpp"
#include "operators/gemm.hpp"

namespace tilewire {
namespace {

/// The B's of some experts, one below the other.
Shape stacked(const Problem& problem, int64_t experts, int64_t n, int64_t k) {
  const Shape one = b_shape(problem, n, k);
  return {experts * one.rows, one.cols};
}

/// Lines of w13, or of w2, of one expert.
int64_t lines_of(const Problem& problem, Role role) {
  const Experts& experts = *problem.experts;
  return role == Role::w13 ? b_shape(problem, first_columns(experts), problem.k).rows
                           : b_shape(problem, problem.n, experts.ffn).rows;
}

/// Rows in groups that the steps take, or that they leave.
Role rows_taken(const ExpertSteps& steps) { return steps.second ? Role::expert_h : Role::expert_y; }
Role rows_left(const ExpertSteps& steps) { return steps.first ? Role::expert_h : Role::expert_x; }

class StepBuffers {
 public:
  StepBuffers(const Problem& problem, int num_ranks)
      : problem_(problem), num_ranks_(num_ranks), placement_(placement_of(*problem.experts, num_ranks)) {}

  template <class ShapeOf>
  void add(const char* name, DType dtype, Scope scope, const ShapeOf& shape_of) {
    std::vector<Shape> shapes;
    for (int rank = 0; rank < num_ranks_; ++rank) shapes.push_back(shape_of(rank));
    all_.push_back(sharded_buffer(name, dtype, scope, std::move(shapes)));
  }
  void add_of_tokens(const char* name, DType dtype, Scope scope, int64_t cols) {
    add(name, dtype, scope, [&](int rank) { return Shape{shard_of(problem_.m, num_ranks_, rank).size(), cols}; });
  }
  void add_matrices(const char* name, int64_t n, int64_t k) {
    add(name, problem_.dtype, Scope::input, [&](int rank) { return stacked(problem_, groups_of(rank), n, k); });
  }
  /// Rows in groups, and the handle of their routing.
  void add_groups(Role role, Scope scope) {
    const Experts& experts = *problem_.experts;
    const int64_t width = experts.top_k + experts.shared;
    const bool x = role == Role::expert_x;
    const int64_t cols = x ? problem_.k : role == Role::expert_h ? experts.ffn : problem_.n;
    add(x                        ? "expert_x"
        : role == Role::expert_h ? "expert_h"
                                 : "expert_y",
        problem_.dtype, scope, [&](int rank) {
          return Shape{groups_of(rank), cols};
        });
    all_.back().extents = static_cast<int>(std::ssize(all_));
    all_.back().most_rows = most_rows_of_groups(problem_, num_ranks_);
    add("extents", DType::int32, scope, [&](int rank) { return Shape{2, groups_of(rank)}; });
    all_.push_back(whole_buffer("places", DType::int32, scope, {problem_.m, width}));
    all_.push_back(whole_buffer("place_weights", DType::fp32, scope, {problem_.m, width}));
  }
  void add_number(const char* name) { all_.push_back(whole_buffer(name, DType::int32, Scope::output, {1, 1})); }
  [[nodiscard]] std::vector<Buffer> take() { return std::move(all_); }

 private:
  [[nodiscard]] int64_t groups_of(int rank) const { return std::ssize(placement_[rank]); }

  const Problem& problem_;
  int num_ranks_;
  std::vector<std::vector<int64_t>> placement_;
  std::vector<Buffer> all_{};
};

}  // namespace

std::vector<Buffer> buffers_of_steps(const Problem& problem, int num_ranks, const ExpertSteps& steps) {
  const Experts& experts = *problem.experts;
  StepBuffers all(problem, num_ranks);
  if (steps.dispatch) {
    all.add_of_tokens("x", problem.dtype, Scope::input, problem.k);
    all.add_of_tokens("topk_ids", DType::int32, Scope::input, experts.top_k);
    all.add_of_tokens("topk_weights", DType::fp32, Scope::input, experts.top_k);
  } else {
    all.add_groups(rows_taken(steps), Scope::input);
  }
  if (steps.first) all.add_matrices("w13", first_columns(experts), problem.k);
  if (steps.second) all.add_matrices("w2", problem.n, experts.ffn);
  if (steps.combine) {
    all.add_of_tokens("c", out_dtype_of(problem), Scope::output, problem.n);
  } else {
    all.add_groups(rows_left(steps), Scope::output);
  }
  if (steps.dispatch && experts.drops) all.add_number("dropped");
  return all.take();
}

std::vector<Meaning> meanings_of_steps(const Problem& problem, int num_ranks, const ExpertSteps& steps) {
  const std::vector<RouteParams> routes = routes_of(problem, num_ranks);
  std::vector<Meaning> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int64_t token = shard_of(problem.m, num_ranks, rank).begin;
    const int64_t group = routes[rank].first_group;
    int buffer = 0;
    const auto add = [&](Role role, int64_t row, Range terms = {}) {
      all.push_back({.buffer = buffer++, .rank = rank, .role = role, .row = row, .terms = terms});
    };
    const auto add_groups = [&](Role role) {
      add(role, group, {0, problem.m});
      for (const Role part : {Role::extents, Role::places, Role::place_weights}) add(part, 0);
    };
    if (steps.dispatch) {
      for (const Role part : {Role::a, Role::topk_ids, Role::topk_weights}) add(part, token);
    } else {
      add_groups(rows_taken(steps));
    }
    if (steps.first) add(Role::w13, group * lines_of(problem, Role::w13));
    if (steps.second) add(Role::w2, group * lines_of(problem, Role::w2));
    steps.combine ? add(Role::partial, token, {0, num_ranks}) : add_groups(rows_left(steps));
    if (steps.dispatch && problem.experts->drops) add(Role::dropped, rank);
  }
  return all;
}

int64_t no_least_bytes(const Problem& /*problem*/, int /*num_ranks*/) { return 0; }

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

StepRows::StepRows(const Problem& problem, int num_ranks, const ExpertSteps& steps,
                   std::function<void(int, int, int64_t, float*)> read)
    : problem_(problem),
      num_ranks_(num_ranks),
      steps_(steps),
      read_(std::move(read)),
      buffers_(buffers_of_steps(problem, num_ranks, steps)),
      meanings_(meanings_of_steps(problem, num_ranks, steps)) {
  const int64_t most = most_rows_of_groups(problem, num_ranks);
  if (most > int64_t{1} << 24)
    fail(ErrorKind::unsupported, "{}: groups of {} rows, the reference knows at most 2^24", problem.op, most);
  const std::vector<RouteParams> routes = routes_of(problem, num_ranks);
  const int64_t top_k = problem.experts->top_k;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (!steps.dispatch) {
      routings_.push_back(given_routing(rank));
      continue;
    }
    routings_.push_back(route_tokens(routes[rank], problem.m, top_k, most, [&](int64_t token, float* ids, float* of) {
      const auto owner = static_cast<int>(shard_at(problem_.m, num_ranks_, token));
      const int64_t row = token - shard_of(problem_.m, num_ranks_, owner).begin;
      std::ranges::copy(input(Role::topk_ids, owner, row), ids);
      std::ranges::copy(input(Role::topk_weights, owner, row), of);
    }));
  }
}

std::vector<float> StepRows::input(Role role, int rank, int64_t row) const {
  const auto of = [&](const Meaning& meaning) { return meaning.role == role && meaning.rank == rank; };
  const int buffer = std::ranges::find_if(meanings_, of)->buffer;
  std::vector<float> values(static_cast<size_t>(shape_on(buffers_[buffer], rank).cols));
  read_(buffer, rank, row, values.data());
  return values;
}

Routing StepRows::given_routing(int rank) const {
  Routing routing;
  for (const int64_t row : {0, 1}) {
    for (const float value : input(Role::extents, rank, row)) routing.extents.push_back(static_cast<int32_t>(value));
  }
  const int64_t width = problem_.experts->top_k + problem_.experts->shared;
  for (int64_t token = 0; token < problem_.m; ++token) {
    for (const float value : input(Role::places, rank, token)) routing.places.push_back(static_cast<int32_t>(value));
    for (const float value : input(Role::place_weights, rank, token)) routing.weights.push_back(value);
  }
  find_rows(routing, width, most_rows_of_groups(problem_, num_ranks_));
  return routing;
}

std::vector<double> StepRows::product(Role b, int rank, int64_t group, std::vector<float> a) const {
  const int64_t lines = lines_of(problem_, b);
  std::vector<float> values;
  for (int64_t line = 0; line < lines; ++line) {
    const std::vector<float> row = input(b, rank, group * lines + line);
    values.insert(values.end(), row.begin(), row.end());
  }
  const int64_t cols = b == Role::w13 ? first_columns(*problem_.experts) : problem_.n;
  const Shape shape = b_shape(problem_, cols, std::ssize(a));
  DoubleMatrix sum(1, cols);
  add_product(make_tensor(a.data(), DType::fp32, 1, std::ssize(a)),
              by_rows_of_k(problem_, make_tensor(values.data(), DType::fp32, shape.rows, shape.cols)), sum);
  return std::move(sum.values);
}

std::vector<double> StepRows::activated_row(int rank, int64_t row) const {
  const int64_t token = routings_[rank].tokens[row];
  const auto owner = static_cast<int>(shard_at(problem_.m, num_ranks_, token));
  std::vector<float> x = input(Role::a, owner, token - shard_of(problem_.m, num_ranks_, owner).begin);
  if (!steps_.first) return {x.begin(), x.end()};
  const std::vector<double> made = product(Role::w13, rank, routings_[rank].groups[row], std::move(x));
  const Experts& experts = *problem_.experts;
  std::vector<double> values;
  for (int64_t col = 0; col < experts.ffn; ++col)
    values.push_back(activated(experts.activation, made.data(), col, experts.ffn));
  return values;
}

std::vector<double> StepRows::sum_of_token(int64_t token) const {
  std::vector<double> sum(static_cast<size_t>(problem_.n), 0);
  const int64_t width = problem_.experts->top_k + problem_.experts->shared;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const Routing& routing = routings_[rank];
    for (int64_t i = token * width; i < (token + 1) * width && routing.places[i] >= 0; ++i) {
      const int64_t row = routing.places[i];
      std::vector<float> given = input(rows_taken(steps_), rank, row);
      const std::vector<double> values = steps_.second ? product(Role::w2, rank, routing.groups[row], std::move(given))
                                                       : std::vector<double>(given.begin(), given.end());
      for (int64_t col = 0; col < problem_.n; ++col) sum[col] += static_cast<double>(routing.weights[i]) * values[col];
    }
  }
  return sum;
}

std::vector<int64_t> StepRows::rows_of(const Meaning& output) const {
  std::vector<int64_t> rows;
  const Buffer& buffer = buffers_[output.buffer];
  for (int64_t row = 0; row < memory_shape_on(buffer, output.rank).rows; ++row) {
    if (!is_grouped(buffer) || routings_[output.rank].groups[row] >= 0) rows.push_back(row);
  }
  return rows;
}

std::vector<double> StepRows::row(const Meaning& output, int64_t row) const {
  const Routing& routing = routings_[output.rank];
  const int64_t cols = shape_on(buffers_[output.buffer], output.rank).cols;
  const auto part = [&](const auto& all) {
    return std::vector<double>(all.begin() + row * cols, all.begin() + (row + 1) * cols);
  };
  switch (output.role) {
    case Role::extents:
      return part(routing.extents);
    case Role::places:
      return part(routing.places);
    case Role::place_weights:
      return part(routing.weights);
    case Role::dropped:
      return {static_cast<double>(routing.dropped)};
    case Role::partial:
      return sum_of_token(output.row + row);
    default:
      return activated_row(output.rank, row);
  }
}

void reference_of_steps(const Problem& problem, const std::vector<std::vector<Tensor>>& tensors,
                        const ExpertSteps& steps) {
  const auto read = [&](int buffer, int rank, int64_t row, float* to) {
    const Tensor& tensor = tensors[rank][buffer];
    for (int64_t col = 0; col < tensor.cols; ++col) to[col] = static_cast<float>(element(tensor, row, col));
  };
  const auto num_ranks = static_cast<int>(tensors.size());
  const std::vector<Buffer> buffers = buffers_of_steps(problem, num_ranks, steps);
  const StepRows rows(problem, num_ranks, steps, read);
  for (const Meaning& output : meanings_of_steps(problem, num_ranks, steps)) {
    if (buffers[output.buffer].scope != Scope::output) continue;
    Tensor to = tensors[output.rank][output.buffer];
    auto* const first = static_cast<std::byte*>(to.data);
    to.rows = 1;
    for (const int64_t row : rows.rows_of(output)) {
      DoubleMatrix values(1, to.cols);
      values.values = rows.row(output, row);
      to.data = first + row * to.row_stride * bytes_of(to.dtype);
      store_rows(values, 0, to);
    }
  }
}

}  // namespace tilewire
