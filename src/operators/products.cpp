// Reference products of distributed inputs in double, independent of any plan.
// Called by verify.cpp.
#include "operators/products.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>

#include "core/race_ranges.hpp"
#include "core/text.hpp"
#include "operators/summed_rows.hpp"

namespace tilewire {
namespace {

// Sum of x[i] * y[i] in eight chains, so that it runs as vectors.
TILEWIRE_ANNOUNCED
double dot(const double* x, const float* y, int64_t n) {
  std::array<double, 8> lanes{};
  double* const sums = lanes.data();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += x[i + lane] * static_cast<double>(y[i + lane]);
  }
  for (; i < n; ++i) sums[0] += x[i] * static_cast<double>(y[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

TILEWIRE_ANNOUNCED
void add_scaled(double factor, const float* from, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * static_cast<double>(from[i]);
}

// Multiply-adds of so many tokens.
int64_t experts_work(const Problem& problem, const ExpertSteps& steps, int64_t tokens) {
  const Experts& experts = *problem.experts;
  const double first = static_cast<double>(first_columns(experts)) * static_cast<double>(problem.k);
  const double second = static_cast<double>(experts.ffn) * static_cast<double>(problem.n);
  const double each =
      (steps.first ? first : static_cast<double>(problem.k)) + (steps.second ? second : static_cast<double>(problem.n));
  const double all = static_cast<double>(tokens) * static_cast<double>(experts.top_k + experts.shared) * each;
  return all < 1e18 ? static_cast<int64_t>(all) : INT64_MAX;
}

// The columns that a part shares with an output of `cols` columns from `first` on.
Range shared_columns(const Part& part, int64_t first, int64_t cols) {
  const int64_t begin = std::max(part.meaning.col, first);
  return {begin, std::max(begin, std::min(part.meaning.col + part.shape.cols, first + cols))};
}

}  // namespace

Inputs::Inputs(const Operator& op, const Problem& problem, int num_ranks, ReadRow read)
    : op_(op), problem_(problem), num_ranks_(num_ranks), read_(std::move(read)) {
  op.validate(problem, num_ranks);
  buffers_ = op.buffers(problem, num_ranks);
  meanings_ = op.meanings(problem, num_ranks);
  const ExpertSteps& steps = op.structure.steps;
  if (problem.experts && steps != ExpertSteps{}) steps_.emplace(problem, num_ranks, steps, read_);
  if (!problem.experts || steps_ || problem.experts->max_rows == 0) return;
  const int ids = std::ranges::find(meanings_, Role::topk_ids, &Meaning::role)->buffer;
  kept_ = kept_rows(problem, num_ranks, [&](int64_t token, float* experts) {
    const int owner = owner_of(token);
    read_(ids, owner, token - shard_of(problem_.m, num_ranks_, owner).begin, experts);
  });
}

int Inputs::owner_of(int64_t token) const { return static_cast<int>(shard_at(problem_.m, num_ranks_, token)); }

std::vector<Part> Inputs::outputs_of(int rank) const {
  std::vector<Part> parts;
  for (const Meaning& meaning : meanings_) {
    if (meaning.rank == rank && buffers_[meaning.buffer].scope == Scope::output) {
      parts.push_back({meaning, shape_of(meaning)});
    }
  }
  return parts;
}

// Return a part only once if several ranks hold it. Partial sums are all different.
std::vector<Part> Inputs::input_parts(Role role) const {
  std::vector<Part> parts;
  for (const Meaning& meaning : meanings_) {
    if (meaning.role != role || buffers_[meaning.buffer].scope != Scope::input) continue;
    const auto same = [&](const Part& part) {
      return part.meaning.row == meaning.row && part.meaning.col == meaning.col && part.shape == shape_of(meaning);
    };
    if (role == Role::partial || std::ranges::none_of(parts, same)) parts.push_back({meaning, shape_of(meaning)});
  }
  return parts;
}

bool Inputs::is_product(const Part& output) const {
  return output.meaning.role == Role::partial && !input_parts(Role::b).empty();
}

std::vector<double> Inputs::random_signs(uint64_t seed) const {
  // NOTE: if ranks have different B, an output has columns of several.
  int64_t columns = all_columns(problem_);
  for (const Meaning& meaning : meanings_) {
    if (meaning.role == Role::partial) columns = std::max(columns, meaning.col + shape_of(meaning).cols);
  }
  std::vector<float> values(columns);
  random_row(seed, 1, 0, columns, DType::fp32, values.data());
  std::vector<double> signs(columns);
  std::ranges::transform(values, signs.begin(), [](float value) { return value < 0 ? -1.0 : 1.0; });
  return signs;
}

int64_t Inputs::work() const {
  if (problem_.experts) return experts_work(problem_, op_.structure.steps, problem_.m);
  const int64_t depth = input_parts(Role::b).empty() ? num_ranks_ : problem_.k;
  const int64_t row = all_columns(problem_) * depth;
  return row == 0 || problem_.m <= INT64_MAX / row ? problem_.m * row : INT64_MAX;
}

int64_t Inputs::num_partials(const Part& output) const {
  if (!is_product(output)) return std::ssize(input_parts(Role::partial));
  std::set<int64_t> starts;  // first columns of the ranks' ranges of K
  for (const Part& part : input_parts(Role::a)) {
    if (part.shape.cols > 0) starts.insert(part.meaning.col);
  }
  return std::ssize(starts);
}

std::optional<DType> Inputs::dtype_of_partials(const Part& output) const {
  if (is_product(output)) return std::nullopt;
  return problem_.dtype;
}

double Inputs::scale() const {
  double factor = 1;
  for (const Epilogue& step : problem_.epilogue) {
    if (step.kind == EpilogueKind::scale) factor *= step.value;
  }
  return factor;
}

int64_t Inputs::work_per_row(const Part& output) const {
  if (problem_.experts) return experts_work(problem_, op_.structure.steps, 1);
  if (output.meaning.role == Role::a) return output.shape.cols;
  return output.shape.cols * (is_product(output) ? problem_.k : num_ranks_);
}

std::vector<DoubleMatrix> Inputs::reference_outputs(int rank) const { return all_reference_outputs()[rank]; }

std::vector<std::vector<DoubleMatrix>> Inputs::all_reference_outputs() const {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<Tensor>> tensors(num_ranks_);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    for (int buffer = 0; buffer < std::ssize(buffers_); ++buffer) {
      const Buffer& described = buffers_[buffer];
      const Shape shape = memory_shape_on(described, peer);
      const auto of_buffer = [&](const Meaning& meaning) { return meaning.buffer == buffer && meaning.rank == peer; };
      const Role role = std::ranges::find_if(meanings_, of_buffer)->role;
      // Keep sums in fp32 in the reference, so that the rounding of the output counts as its error.
      const bool computed =
          role == Role::partial || role == Role::normed || role == Role::norm_scale || role == Role::expert_h;
      const DType dtype = described.scope == Scope::output && computed ? DType::fp32 : described.dtype;
      memory.emplace_back(static_cast<size_t>(shape.rows * shape.cols * bytes_of(dtype)));
      tensors[peer].push_back(make_tensor(memory.back().data(), dtype, shape.rows, shape.cols));
      if (described.scope == Scope::input) fill_rows(read_, buffer, peer, tensors[peer].back());
    }
  }
  op_.reference(problem_, tensors);
  std::vector<std::vector<DoubleMatrix>> outputs(static_cast<size_t>(num_ranks_));
  for (int rank = 0; rank < num_ranks_; ++rank) {
    for (const Part& part : outputs_of(rank)) {
      const DoubleMatrix whole = doubles_of(tensors[rank][part.meaning.buffer]);
      outputs[rank].push_back(rows_of(whole, {part.first_row(), part.first_row() + part.shape.rows}));
    }
  }
  return outputs;
}

DoubleMatrix Inputs::rows_of_experts(const Part& output, std::span<const int64_t> rows) const {
  Problem few = problem_;
  few.m = std::ssize(rows);
  few.experts->max_rows = 0;
  few.experts->drops = false;
  // A row of the smaller problem is a row of this one, at another rank perhaps.
  const auto read = [&](int buffer, int rank, int64_t row, float* to) {
    const auto of = [&](const Meaning& meaning) { return meaning.buffer == buffer && meaning.rank == rank; };
    const Role role = std::ranges::find_if(meanings_, of)->role;
    if (role == Role::w13 || role == Role::w2) return read_(buffer, rank, row, to);
    const int64_t token = output.meaning.row + rows[shard_of(few.m, num_ranks_, rank).begin + row];
    const int owner = owner_of(token);
    read_(buffer, owner, token - shard_of(problem_.m, num_ranks_, owner).begin, to);
    if (role != Role::topk_weights || !kept_) return;
    // An expert that does not get the token adds nothing.
    for (int64_t i = 0; i < problem_.experts->top_k; ++i) {
      if (!kept_->pairs[token * problem_.experts->top_k + i]) to[i] = 0;
    }
  };
  DoubleMatrix values(0, output.shape.cols);
  for (const auto& of_rank : Inputs(op_, few, num_ranks_, read).all_reference_outputs()) {
    values.rows += of_rank[0].rows;
    values.values.insert(values.values.end(), of_rank[0].values.begin(), of_rank[0].values.end());
  }
  return values;
}

void Inputs::add_input_rows(Role role, const Part& output, std::span<const int64_t> rows, DoubleMatrix& sum) const {
  std::vector<float> line;
  for (const Part& part : input_parts(role)) {
    const Range cols = shared_columns(part, output.meaning.col, output.shape.cols);
    line.resize(part.shape.cols);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t local = output.meaning.row + rows[i] - part.meaning.row;
      if (local < 0 || local >= part.shape.rows) continue;
      read_(part.meaning.buffer, part.meaning.rank, local, line.data());
      for (int64_t col = cols.begin; col < cols.end; ++col) {
        sum.at(static_cast<int64_t>(i), col - output.meaning.col) += static_cast<double>(line[col - part.meaning.col]);
      }
    }
  }
}

template <class Visit>
void Inputs::for_each_b_row(Range columns, const Visit& visit) const {
  std::vector<float> line;
  const bool nk = problem_.b_layout == BLayout::nk;
  for (const Part& part : input_parts(Role::b)) {
    line.resize(part.shape.cols);
    if (!nk && shared_columns(part, columns.begin, columns.size()).size() == 0) continue;
    const int64_t first = nk ? std::max<int64_t>(0, columns.begin - part.meaning.row) : 0;
    const int64_t end = nk ? std::min(part.shape.rows, columns.end - part.meaning.row) : part.shape.rows;
    for (int64_t row = first; row < end; ++row) {
      read_(part.meaning.buffer, part.meaning.rank, row, line.data());
      visit(part, row, line.data());
    }
  }
}

DoubleMatrix Inputs::exact_rows(const Part& output, std::span<const int64_t> rows) const {
  if (steps_) {
    DoubleMatrix values(0, output.shape.cols);
    for (const int64_t row : rows) {
      const std::vector<double> made = steps_->row(output.meaning, row);
      values.values.insert(values.values.end(), made.begin(), made.end());
      ++values.rows;
    }
    return values;
  }
  if (output.meaning.role == Role::dropped) {
    DoubleMatrix count(1, 1);
    count.at(0, 0) = static_cast<double>(kept_->dropped[output.meaning.rank]);
    return count;
  }
  if (problem_.experts) return rows_of_experts(output, rows);
  const bool product = is_product(output);
  DoubleMatrix values(std::ssize(rows), product ? columns_of_b(problem_, output.shape.cols) : output.shape.cols);
  if (product) {
    add_product_rows(output, rows, values);
  } else {
    add_input_rows(output.meaning.role, output, rows, values);
  }
  apply_epilogue_to(output, rows, values);
  return values;
}

void Inputs::add_product_rows(const Part& output, std::span<const int64_t> rows, DoubleMatrix& values) const {
  DoubleMatrix a(std::ssize(rows), problem_.k);
  Part a_rows = output;
  a_rows.meaning.col = 0;
  a_rows.shape.cols = problem_.k;
  add_input_rows(Role::a, a_rows, rows, a);
  const int64_t first = columns_of_b(problem_, output.meaning.col);
  for_each_b_row({first, first + values.cols}, [&](const Part& part, int64_t row, const float* b) {
    if (problem_.b_layout == BLayout::nk) {
      const int64_t col = part.meaning.row + row - first;
      for (int64_t i = 0; i < a.rows; ++i) values.at(i, col) += dot(&a.at(i, 0) + part.meaning.col, b, part.shape.cols);
      return;
    }
    const Range cols = shared_columns(part, first, values.cols);
    for (int64_t i = 0; i < a.rows; ++i) {
      const double scale = a.at(i, part.meaning.row + row);
      if (cols.size() > 0)
        add_scaled(scale, b + cols.begin - part.meaning.col, cols.size(), &values.at(i, cols.begin - first));
    }
  });
}

std::vector<float> Inputs::bias_of(const Part& output) const {
  const Range wanted{output.meaning.col, output.meaning.col + output.shape.cols};
  const auto covers = [&](const Meaning& meaning) {
    const Range has{meaning.col, meaning.col + shape_of(meaning).cols};
    return meaning.role == Role::bias && has.begin <= wanted.begin && wanted.end <= has.end;
  };
  auto found = std::ranges::find_if(
      meanings_, [&](const Meaning& meaning) { return meaning.rank == output.meaning.rank && covers(meaning); });
  if (found == meanings_.end()) found = std::ranges::find_if(meanings_, covers);  // the bias of the rank that made it
  ensure(found != meanings_.end() || !has_bias(problem_), "no bias has columns {}..{}", wanted.begin, wanted.end);
  if (found == meanings_.end()) return {};
  std::vector<float> line(shape_of(*found).cols);
  read_(found->buffer, found->rank, 0, line.data());
  const auto begin = line.begin() + (wanted.begin - found->col);
  return {begin, begin + wanted.size()};
}

void Inputs::apply_epilogue_to(const Part& output, std::span<const int64_t> rows, DoubleMatrix& values) const {
  if (!output.meaning.finished) return;
  DoubleMatrix residual(values.rows, values.cols);
  add_input_rows(Role::residual, output, rows, residual);
  std::vector<float> bias = bias_of(output);
  const Tensor operand = make_tensor(bias.data(), DType::fp32, 1, std::ssize(bias));
  apply_epilogue(problem_, bias.empty() ? nullptr : &operand, &residual, values);
}

void Inputs::normalise(const Part& output, DoubleMatrix& values) const {
  const auto row_of = [&](Role role) {
    std::vector<float> line;
    for (const Meaning& meaning : meanings_) {
      if (meaning.role != role || meaning.rank != output.meaning.rank) continue;
      line.resize(shape_of(meaning).cols);
      read_(meaning.buffer, meaning.rank, 0, line.data());
    }
    return line;
  };
  std::vector<float> weight = row_of(Role::norm_weight);
  std::vector<float> bias = row_of(Role::norm_bias);
  const Tensor of_bias = make_tensor(bias.data(), DType::fp32, 1, std::ssize(bias));
  apply_norm(*problem_.norm, make_tensor(weight.data(), DType::fp32, 1, std::ssize(weight)),
             bias.empty() ? nullptr : &of_bias, values);
}

// For each row of B (each k): its product with the random vector, and its sum of squares.
RowSizes Inputs::image_of_b(const Part& output, std::span<const double> signs) const {
  RowSizes image{std::vector<double>(problem_.k), std::vector<double>(problem_.k)};
  const Range wanted{output.meaning.col, output.meaning.col + output.shape.cols};
  for_each_b_row(wanted, [&](const Part& part, int64_t row, const float* b) {
    const int64_t place = part.meaning.row + row;
    if (problem_.b_layout == BLayout::nk) {
      double* dots = image.dots.data() + part.meaning.col;
      double* squares = image.squares.data() + part.meaning.col;
      for (int64_t i = 0; i < part.shape.cols; ++i) {
        const double value = b[i];
        dots[i] += signs[place] * value;
        squares[i] += value * value;
      }
      return;
    }
    const Range cols = shared_columns(part, wanted.begin, wanted.size());
    for (int64_t col = cols.begin; col < cols.end; ++col) {
      const double value = b[col - part.meaning.col];
      image.dots[place] += signs[col] * value;
      image.squares[place] += value * value;
    }
  });
  return image;
}

// For each row of the output, sum the values of the parts of one role with weights.dots, and their squares with
// weights.squares.
RowSizes Inputs::weigh_rows(Role role, const Part& output, const RowSizes& weights) const {
  RowSizes sizes{std::vector<double>(output.shape.rows), std::vector<double>(output.shape.rows)};
  std::vector<float> line;
  for (const Part& part : input_parts(role)) {
    line.resize(part.shape.cols);
    for (int64_t row = 0; row < part.shape.rows; ++row) {
      const int64_t local = part.meaning.row + row - output.meaning.row;
      if (local < 0 || local >= output.shape.rows) continue;
      read_(part.meaning.buffer, part.meaning.rank, row, line.data());
      sizes.dots[local] += dot(weights.dots.data() + part.meaning.col, line.data(), part.shape.cols);
      std::ranges::transform(line, line.begin(), [](float value) { return value * value; });
      sizes.squares[local] += dot(weights.squares.data() + part.meaning.col, line.data(), part.shape.cols);
    }
  }
  return sizes;
}

RowSizes Inputs::row_sizes(const Part& output, std::span<const double> signs) const {
  if (output.meaning.role != Role::partial || problem_.experts || joins_columns(problem_.epilogue)) return {};
  const bool product = is_product(output);
  const RowSizes weights = product ? image_of_b(output, signs)
                                   : RowSizes{{signs.begin(), signs.end()}, std::vector<double>(signs.size(), 1)};
  RowSizes sizes = weigh_rows(product ? Role::a : Role::partial, output, weights);
  if (!output.meaning.finished) return sizes;
  const double factor = scale();
  for (const Epilogue& step : problem_.epilogue) {
    if (step.kind == EpilogueKind::gelu || step.kind == EpilogueKind::relu) sizes.dots.clear();
  }
  // The rest is affine: add the result of a row of zeros. Without a residual all rows have the same.
  const auto shift_of = [&](int64_t row) {
    DoubleMatrix zeros(1, output.shape.cols);
    apply_epilogue_to(output, {&row, 1}, zeros);
    double shift = 0;
    for (int64_t col = 0; col < zeros.cols; ++col) shift += signs[output.meaning.col + col] * zeros.at(0, col);
    return shift;
  };
  double shift = 0;
  for (int64_t row = 0; row < std::ssize(sizes.dots); ++row) {
    if (row == 0 || has_residual(problem_)) shift = shift_of(row);
    sizes.dots[row] = sizes.dots[row] * factor + shift;
  }
  for (double& value : sizes.squares) value *= factor * factor;
  return sizes;
}

}  // namespace tilewire
