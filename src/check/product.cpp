// What tasks compute from what their operands hold: products, pooled rows, sums, the epilogue.
// Called by coverage.cpp.
#include "check/product.hpp"

#include <optional>

#include "core/text.hpp"

namespace tilewire::checking {
namespace {

/// Rows or columns of a result that lie together in the global tensor.
struct Strip {
  int64_t begin;
  int64_t end;
  int64_t offset;
};

/// An operand seen along its result axis and its depth axis.
struct Side {
  std::vector<Strip> strips{};
  int64_t depth = 0;  ///< global K of the operand's first K
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::refused_plan, format, std::forward<Args>(args)...);
}

bool is_unknown(const std::vector<Piece>& pieces) {
  return std::ranges::any_of(pieces, [](const Piece& piece) { return piece.content == Values::unknown(); });
}

std::vector<Piece> whole(Shape shape, Content content) { return {{{0, shape.rows, 0, shape.cols}, content}}; }

void require_what(const Values& values, const Piece& piece, What what, const char* wanted) {
  if (values[piece.content.value].what != what) refuse("reads {} where it needs {}", values.describe(piece), wanted);
}

void require_sum(const Values& values, const Piece& piece) {
  require_what(values, piece, What::partial, "a sum");
  if (values[piece.content.value].finished) refuse("adds to {}, which is finished", values.describe(piece));
}

/// Strips of equal offset; every row (or column) of the result must come from one global row.
std::vector<Strip> strips_of(const Values& values, const std::vector<Piece>& pieces, bool by_rows, int64_t extent) {
  const auto span = [&](const Piece& p) {
    return by_rows ? Strip{p.at.row0, p.at.row1, p.content.row} : Strip{p.at.col0, p.at.col1, p.content.col};
  };
  const int64_t first = span(pieces[0]).offset;
  if (std::ranges::all_of(pieces, [&](const Piece& piece) { return span(piece).offset == first; }))
    return {{0, extent, first}};
  std::vector<int64_t> cuts{extent};
  for (const Piece& piece : pieces) cuts.push_back(span(piece).begin);
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Strip> strips;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Piece* from = nullptr;
    for (const Piece& piece : pieces) {
      if (span(piece).begin > cuts[i] || span(piece).end <= cuts[i]) continue;
      if (from && span(*from).offset != span(piece).offset)
        refuse("multiplies {} and {} as if they were of one row", values.describe(*from), values.describe(piece));
      from = &piece;
    }
    ensure(from != nullptr, "an operand has a gap at {}", cuts[i]);
    strips.push_back({cuts[i], cuts[i + 1], span(*from).offset});
  }
  return strips;
}

Side side_of(const Values& values, const Operand& operand, What what, bool depth_in_cols) {
  const auto depth = [&](const Piece& p) { return depth_in_cols ? p.content.col : p.content.row; };
  const Piece& first = operand.pieces[0];
  for (const Piece& piece : operand.pieces) {
    require_what(values, piece, what, what == What::a ? "elements of A" : "elements of B");
    if (depth(piece) != depth(first))
      refuse("reads {} next to {}: their K does not follow on", values.describe(first), values.describe(piece));
  }
  const int64_t extent = depth_in_cols ? operand.shape.rows : operand.shape.cols;
  return {strips_of(values, operand.pieces, depth_in_cols, extent), depth(first)};
}

}  // namespace

std::vector<Piece> product_of(Values& values, const Problem& problem, const Operand& a, const Operand& b) {
  const bool nk = problem.b_layout == BLayout::nk;
  const Shape shape{a.shape.rows, nk ? b.shape.rows : b.shape.cols};
  const int64_t depth = a.shape.cols;
  if (is_unknown(a.pieces) || is_unknown(b.pieces)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  if (depth == 0) return whole(shape, values.zero());
  const Side left = side_of(values, a, What::a, true);
  const Side right = side_of(values, b, What::b, nk);
  if (left.depth != right.depth)
    refuse("multiplies K {}..{} of A with K {}..{} of B", left.depth, left.depth + depth, right.depth,
           right.depth + depth);
  const int value = values.add({What::partial, {{left.depth, left.depth + depth}}});
  std::vector<Piece> result;
  for (const Strip& rows : left.strips) {
    for (const Strip& cols : right.strips)
      result.push_back({{rows.begin, rows.end, cols.begin, cols.end}, {rows.offset, cols.offset, value}});
  }
  return result;
}

std::vector<Piece> pooled(Values& values, const Operand& table, const Operand& indices) {
  const Shape shape{indices.shape.rows, table.shape.cols};
  if (is_unknown(table.pieces) || is_unknown(indices.pieces)) return whole(shape, Values::unknown());
  if (shape.rows == 0 || shape.cols == 0) return {};
  if (indices.shape.cols == 0 || table.shape.rows == 0) return whole(shape, values.zero());
  for (const Piece& piece : table.pieces) {
    require_what(values, piece, What::b, "a table");
    if (piece.content.row != 0) refuse("reads {} as if it were the table's first rows", values.describe(piece));
  }
  for (const Piece& piece : indices.pieces) require_what(values, piece, What::indices, "indices");
  const int value = values.add({What::partial, {{0, 1}}});
  std::vector<Piece> result;
  for (const Strip& rows : strips_of(values, indices.pieces, true, shape.rows)) {
    for (const Strip& cols : strips_of(values, table.pieces, false, shape.cols))
      result.push_back({{rows.begin, rows.end, cols.begin, cols.end}, {rows.offset, cols.offset, value}});
  }
  return result;
}

std::vector<Piece> sum_of(Values& values, const std::vector<Piece>& x, const std::vector<Piece>& y) {
  std::vector<Piece> result;
  for (const Piece& one : x) {
    for (const Piece& other : y) {
      const Rect both = intersect(one.at, other.at);
      if (both.empty()) continue;
      if (one.content == Values::unknown() || other.content == Values::unknown()) {
        result.push_back({both, Values::unknown()});
        continue;
      }
      const Piece left{both, one.content};
      const Piece right{both, other.content};
      require_sum(values, left);
      require_sum(values, right);
      if (!agree(one.content.row, other.content.row) || !agree(one.content.col, other.content.col))
        refuse("adds {} to {}: different elements", values.describe(left), values.describe(right));
      const int value = values.sum(one.content.value, other.content.value);
      if (value < 0)
        refuse("adds {} to {}: a contribution is counted twice", values.describe(left), values.describe(right));
      // kAnywhere is the least of all offsets.
      result.push_back(
          {both, {std::max(one.content.row, other.content.row), std::max(one.content.col, other.content.col), value}});
    }
  }
  return result;
}

std::vector<Piece> finished(Values& values, const std::vector<Piece>& sums, const Operand& bias) {
  std::vector<Piece> result;
  const auto finish = [&](Piece piece) {
    if (piece.content != Values::unknown()) {
      require_what(values, piece, What::partial, "a sum");
      Value value = values[piece.content.value];
      if (value.finished) refuse("applies the epilogue to {} again", values.describe(piece));
      value.finished = true;
      piece.content.value = values.add(std::move(value));
    }
    result.push_back(piece);
  };
  for (const Piece& sum : sums) {
    if (bias.pieces.empty()) finish(sum);
    for (const Piece& step : bias.pieces) {
      Piece piece = sum;
      piece.at.col0 = std::max(sum.at.col0, step.at.col0);
      piece.at.col1 = std::min(sum.at.col1, step.at.col1);
      if (piece.at.empty()) continue;
      if (step.content == Values::unknown()) piece.content = Values::unknown();
      if (piece.content != Values::unknown()) {
        require_what(values, step, What::bias, "the bias");
        if (!agree(sum.content.col, step.content.col))
          refuse("adds {} to {}: different columns", values.describe(step), values.describe(piece));
        piece.content.col = step.content.col;
      }
      finish(piece);
    }
  }
  return result;
}

}  // namespace tilewire::checking
