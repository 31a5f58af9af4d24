// Symbolic results of tasks: products, pooled rows, sums, the epilogue.
// Called by coverage.cpp.
#include "check/product.hpp"

#include <optional>

#include "core/text.hpp"

namespace tilewire::checking {
namespace {

/// An operand, described along its result axis and its depth axis (K).
struct Side {
  std::vector<Strip> strips{};
  int64_t depth = 0;  ///< first K of the operand in the global tensor
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::refused_plan, format, std::forward<Args>(args)...);
}

void require_sum(const Values& values, const Patch& patch) {
  require_what(values, patch, What::partial, "a sum");
  if (values[patch.content.value].finished) refuse("adds to {}, which is finished", values.describe(patch));
}

Side side_of(const Values& values, const Operand& operand, What what, bool depth_in_cols) {
  const auto depth = [&](const Patch& p) { return depth_in_cols ? p.content.col : p.content.row; };
  const Patch& first = operand.patches[0];
  for (const Patch& patch : operand.patches) {
    require_what(values, patch, what, what == What::a ? "elements of A" : "elements of B");
    if (depth(patch) != depth(first))
      refuse("reads {} next to {}: their ranges of K are not contiguous", values.describe(first),
             values.describe(patch));
  }
  const int64_t extent = depth_in_cols ? operand.shape.rows : operand.shape.cols;
  return {strips_of(values, operand.patches, depth_in_cols, extent), depth(first)};
}

}  // namespace

bool is_unknown(const std::vector<Patch>& patches) {
  return std::ranges::any_of(patches, [](const Patch& patch) { return patch.content == Values::unknown(); });
}

std::vector<Patch> whole(Shape shape, Content content) { return {{{0, shape.rows, 0, shape.cols}, content}}; }

void require_what(const Values& values, const Patch& patch, What what, const char* wanted) {
  if (values[patch.content.value].what != what) refuse("reads {} where it needs {}", values.describe(patch), wanted);
}

std::vector<Strip> strips_of(const Values& values, const std::vector<Patch>& patches, bool by_rows, int64_t extent) {
  const auto span = [&](const Patch& p) {
    return by_rows ? Strip{p.at.row0, p.at.row1, p.content.row} : Strip{p.at.col0, p.at.col1, p.content.col};
  };
  const int64_t first = span(patches[0]).offset;
  if (std::ranges::all_of(patches, [&](const Patch& patch) { return span(patch).offset == first; }))
    return {{0, extent, first}};
  std::vector<int64_t> cuts{extent};
  for (const Patch& patch : patches) cuts.push_back(span(patch).begin);
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Strip> strips;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Patch* from = nullptr;
    for (const Patch& patch : patches) {
      if (span(patch).begin > cuts[i] || span(patch).end <= cuts[i]) continue;
      if (from && span(*from).offset != span(patch).offset)
        refuse("combines {} and {}, which belong to different rows or columns", values.describe(*from),
               values.describe(patch));
      from = &patch;
    }
    ensure(from != nullptr, "an operand has a gap at {}", cuts[i]);
    strips.push_back({cuts[i], cuts[i + 1], span(*from).offset});
  }
  return strips;
}

std::vector<Patch> product_of(Values& values, BLayout b_layout, const Operand& a, const Operand& b) {
  const bool nk = b_layout == BLayout::nk;
  const Shape shape{a.shape.rows, nk ? b.shape.rows : b.shape.cols};
  const int64_t depth = a.shape.cols;
  if (is_unknown(a.patches) || is_unknown(b.patches)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  if (depth == 0) return whole(shape, values.zero());
  const Side left = side_of(values, a, What::a, true);
  const Side right = side_of(values, b, What::b, nk);
  if (left.depth != right.depth)
    refuse("multiplies K {}..{} of A with K {}..{} of B", left.depth, left.depth + depth, right.depth,
           right.depth + depth);
  const int value = values.add({What::partial, {{left.depth, left.depth + depth}}});
  std::vector<Patch> result;
  for (const Strip& rows : left.strips) {
    for (const Strip& cols : right.strips)
      result.push_back({{rows.begin, rows.end, cols.begin, cols.end}, {rows.offset, cols.offset, value}});
  }
  return result;
}

std::vector<Patch> in_pairs(const Values& values, const std::vector<Patch>& product) {
  std::vector<Patch> result = product;
  for (Patch& patch : result) {
    int64_t& first = patch.content.col;
    if (patch.at.col0 % 2 != 0 || patch.at.col1 % 2 != 0 || (first != kAnywhere && first % 2 != 0))
      refuse("joins columns of {} that are no pair", values.describe(patch));
    patch.at.col0 /= 2;
    patch.at.col1 /= 2;
    if (first != kAnywhere) first /= 2;
  }
  return result;
}

std::vector<Patch> pooled(Values& values, const Operand& table, const Operand& indices) {
  const Shape shape{indices.shape.rows, table.shape.cols};
  if (is_unknown(table.patches) || is_unknown(indices.patches)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  if (indices.shape.cols == 0 || table.shape.rows == 0) return whole(shape, values.zero());
  for (const Patch& patch : table.patches) {
    require_what(values, patch, What::b, "a table");
    if (patch.content.row != 0) refuse("reads {} as if it were the table's first rows", values.describe(patch));
  }
  for (const Patch& patch : indices.patches) require_what(values, patch, What::indices, "indices");
  const int value = values.add({What::partial, {{0, 1}}});
  std::vector<Patch> result;
  for (const Strip& rows : strips_of(values, indices.patches, true, shape.rows)) {
    for (const Strip& cols : strips_of(values, table.patches, false, shape.cols))
      result.push_back({{rows.begin, rows.end, cols.begin, cols.end}, {rows.offset, cols.offset, value}});
  }
  return result;
}

std::vector<Patch> normed(Values& values, const Norm& norm, const std::vector<Operand>& reads) {
  const Operand& rows = reads[0];
  const int64_t cols = rows.shape.cols;
  const int64_t scales = quantises(norm) ? 1 : 0;
  if (std::ranges::any_of(reads, [](const Operand& read) { return is_unknown(read.patches); }))
    return whole({rows.shape.rows, cols + scales}, Values::unknown());
  if (rows.shape.rows == 0) return {};
  for (size_t i = 1; i < reads.size(); ++i) {
    const What what = i == 1 ? What::norm_weight : What::norm_bias;
    for (const Patch& patch : reads[i].patches) {
      require_what(values, patch, what, i == 1 ? "the weight of a norm" : "the bias of a norm");
      if (patch.content.col != 0) refuse("reads {} from a column that is not the first", values.describe(patch));
    }
  }
  const Patch& first = rows.patches[0];
  for (const Patch& patch : rows.patches) {
    require_what(values, patch, What::partial, "a sum");
    if (!agree(patch.content.col, 0)) refuse("normalises {}: it is not a whole row", values.describe(patch));
    if (patch.content.value != first.content.value)
      refuse("normalises {} with {}", values.describe(first), values.describe(patch));
  }
  Value value = values[first.content.value];
  value.what = What::normed;
  const int elements = values.add(value);
  value.what = What::norm_scale;
  const int scale = values.add(std::move(value));
  std::vector<Patch> result;
  for (const Strip& strip : strips_of(values, rows.patches, true, rows.shape.rows)) {
    result.push_back({{strip.begin, strip.end, 0, cols}, {strip.offset, 0, elements}});
    if (scales > 0) result.push_back({{strip.begin, strip.end, cols, cols + scales}, {strip.offset, -cols, scale}});
  }
  return result;
}

std::vector<Patch> sum_of(Values& values, const std::vector<Patch>& x, const std::vector<Patch>& y) {
  std::vector<Patch> result;
  for (const Patch& one : x) {
    for (const Patch& other : y) {
      const Rect both = intersect(one.at, other.at);
      if (both.empty()) continue;
      if (one.content == Values::unknown() || other.content == Values::unknown()) {
        result.push_back({both, Values::unknown()});
        continue;
      }
      const Patch left{both, one.content};
      const Patch right{both, other.content};
      require_sum(values, left);
      require_sum(values, right);
      if (!agree(one.content.row, other.content.row) || !agree(one.content.col, other.content.col))
        refuse("adds {} to {}: different elements", values.describe(left), values.describe(right));
      const int value = values.sum(one.content.value, other.content.value);
      if (value < 0)
        refuse("adds {} to {}: a contribution is counted twice", values.describe(left), values.describe(right));
      // kAnywhere is the smallest offset, so max() keeps the other one.
      result.push_back(
          {both, {std::max(one.content.row, other.content.row), std::max(one.content.col, other.content.col), value}});
    }
  }
  return result;
}

std::vector<Patch> with_operand(Values& values, const std::vector<Patch>& sums, const Operand& operand, What what) {
  const bool by_row = what == What::residual;  // a bias is equal in all rows
  std::vector<Patch> result;
  for (const Patch& sum : sums) {
    for (const Patch& step : operand.patches) {
      Patch patch = sum;
      patch.at.col0 = std::max(sum.at.col0, step.at.col0);
      patch.at.col1 = std::min(sum.at.col1, step.at.col1);
      if (by_row) patch.at = intersect(sum.at, step.at);
      if (patch.at.empty()) continue;
      if (step.content == Values::unknown()) patch.content = Values::unknown();
      if (patch.content != Values::unknown()) {
        require_what(values, step, what, by_row ? "the residual" : "the bias");
        if (!agree(sum.content.col, step.content.col) || (by_row && !agree(sum.content.row, step.content.row)))
          refuse("adds {} to {}: different {}", values.describe(step), values.describe(patch),
                 by_row ? "elements" : "columns");
        patch.content.col = step.content.col;
        if (by_row) patch.content.row = step.content.row;
      }
      result.push_back(patch);
    }
  }
  return result;
}

std::vector<Patch> finished(Values& values, const std::vector<Patch>& sums) {
  std::vector<Patch> result;
  for (Patch patch : sums) {
    if (patch.content != Values::unknown()) {
      require_what(values, patch, What::partial, "a sum");
      Value value = values[patch.content.value];
      if (value.finished) refuse("applies the epilogue to {} again", values.describe(patch));
      value.finished = true;
      patch.content.value = values.add(std::move(value));
    }
    result.push_back(patch);
  }
  return result;
}

}  // namespace tilewire::checking
