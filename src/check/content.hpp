// The content of elements in the symbolic execution: inputs, sums of contributions, constants.
// Used by coverage.cpp, bands.cpp and product.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "check/rect.hpp"
#include "tilewire/check.hpp"

namespace tilewire::checking {

/// Offset of content that is equal in every row (or column), such as an empty sum.
inline constexpr int64_t kAnywhere = std::numeric_limits<int64_t>::min();

enum class What {
  a,
  b,
  bias,
  residual,
  partial,
  indices,
  norm_weight,
  norm_bias,
  normed,      ///< normalised rows of a sum
  norm_scale,  ///< scales of such rows
  topk_ids,
  topk_weights,
  w13,
  w2,
  extents,        ///< of groups of tokens; from here to `expert_y`, Value::groups has their number
  tokens,         ///< numbers of the tokens in each group
  places,         ///< rows of each token in the groups
  place_weights,  ///< the weights of these rows
  selected,       ///< rows of A of tokens that have places; others are undefined
  expert_x,       ///< rows of A in groups
  expert_h,       ///< their products with w13, activated
  expert_y,       ///< the products of these with w2
  dropped,        ///< the number of rows that a routing has left out
  constant,
  unknown,  ///< after a violation
};

struct Value {
  What what = What::unknown;
  std::vector<Range> terms{};  ///< of a sum, normed or not: the contributions; disjoint, ascending, not adjacent. Of
                               ///< tokens, and of rows in groups: the range of the tokens
  bool finished = false;       ///< the epilogue has been applied
  int64_t groups = -1;         ///< of groups: their extents (number_of_extents)
  int64_t width = 0;           ///< of lists of each token: their length

  bool operator==(const Value&) const = default;
};

/// Element (r, c) of a frame holds element (r + row, c + col) of the global tensor.
struct Content {
  int64_t row = kAnywhere;
  int64_t col = kAnywhere;
  int value = 0;  ///< index in Values

  bool operator==(const Content&) const = default;
};

/// A rectangle of equal content in some frame. `writer` is a task; -1 is the caller.
struct Patch {
  Rect at{};
  Content content{};
  int writer = -1;
};

/// All values so far, numbered.
class Values {
 public:
  Values();
  int add(Value value);
  [[nodiscard]] const Value& operator[](int value) const { return all_[value]; }
  /// The first value: content after a reported violation; no further violations are reported for it.
  [[nodiscard]] static Content unknown() { return {}; }
  [[nodiscard]] Content zero() const { return {kAnywhere, kAnywhere, zero_}; }
  /// The sum of two unfinished sums; -1 if both have the same contribution.
  [[nodiscard]] int sum(int x, int y);
  /// "A rows 0..128 cols 0..64", "the sum of contributions 0..64 to output rows ... ".
  [[nodiscard]] std::string describe(const Patch& patch) const;

 private:
  struct Less {
    bool operator()(const Value& x, const Value& y) const;
  };
  std::map<Value, int, Less> ids_;
  std::vector<Value> all_;
  std::map<std::pair<int, int>, int> sums_;
  int zero_ = 0;
};

[[nodiscard]] What what_of(Role role);
/// A number for the extents of a rank's groups. The groups of two routings never have the same.
[[nodiscard]] inline int64_t number_of_extents(int rank, int buffer) { return int64_t{rank} << 32 | buffer; }
[[nodiscard]] inline int64_t rank_of_extents(int64_t number) { return number >> 32; }
/// "0..64, 128..192", "nothing".
[[nodiscard]] std::string terms_name(const std::vector<Range>& terms);
/// `range` as a set of terms; empty if the range is empty.
[[nodiscard]] std::vector<Range> terms_of(Range range);
/// An offset in a frame that begins `shift` elements earlier.
[[nodiscard]] inline int64_t moved(int64_t offset, int64_t shift) {
  return offset == kAnywhere ? kAnywhere : offset - shift;
}
/// Move a patch by `rows` and `cols` in its frame.
[[nodiscard]] inline Patch moved(const Patch& patch, int64_t rows, int64_t cols) {
  return {shifted(patch.at, rows, cols),
          {moved(patch.content.row, rows), moved(patch.content.col, cols), patch.content.value},
          patch.writer};
}
/// Whether two offsets can belong to the same element.
[[nodiscard]] inline bool agree(int64_t x, int64_t y) { return x == y || x == kAnywhere || y == kAnywhere; }

}  // namespace tilewire::checking
