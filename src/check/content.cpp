// Numbers symbolic values, adds sums, and describes content in words.
// Called by coverage.cpp.
#include "check/content.hpp"

#include <fmt/format.h>

#include <array>
#include <tuple>

namespace tilewire::checking {
namespace {

/// The union of two sets of terms in `both`; false if they share a term.
bool unite(const std::vector<Range>& x, const std::vector<Range>& y, std::vector<Range>& both) {
  size_t i = 0;
  size_t j = 0;
  while (i < x.size() || j < y.size()) {
    const bool from_x = j == y.size() || (i < x.size() && x[i].begin < y[j].begin);
    const Range next = from_x ? x[i++] : y[j++];
    if (both.empty() || both.back().end < next.begin) {
      both.push_back(next);
    } else if (both.back().end == next.begin) {
      both.back().end = next.end;
    } else {
      return false;
    }
  }
  return true;
}

std::string extent_name(const char* axis, int64_t offset, int64_t begin, int64_t end) {
  return offset == kAnywhere ? "" : fmt::format(" {} {}..{}", axis, begin + offset, end + offset);
}

}  // namespace

bool Values::Less::operator()(const Value& x, const Value& y) const {
  const auto head = [](const Value& v) { return std::tuple(v.what, v.finished, v.groups, v.width, v.terms.size()); };
  if (head(x) != head(y)) return head(x) < head(y);
  return std::ranges::lexicographical_compare(x.terms, y.terms, [](const Range& s, const Range& t) {
    return std::tie(s.begin, s.end) < std::tie(t.begin, t.end);
  });
}

Values::Values() {
  add({What::unknown});
  zero_ = add({What::partial});
}

int Values::add(Value value) {
  const auto [found, inserted] = ids_.try_emplace(std::move(value), static_cast<int>(all_.size()));
  if (inserted) all_.push_back(found->first);
  return found->second;
}

int Values::sum(int x, int y) {
  const auto [found, inserted] = sums_.try_emplace(std::minmax({x, y}), -1);
  if (!inserted) return found->second;
  Value both{What::partial};
  if (unite(all_[x].terms, all_[y].terms, both.terms)) found->second = add(std::move(both));
  return found->second;
}

std::string Values::describe(const Patch& patch) const {
  static constexpr std::array kNames{"A",
                                     "B",
                                     "bias",
                                     "residual",
                                     "output",
                                     "indices",
                                     "norm weight",
                                     "norm bias",
                                     "normed output",
                                     "scale of the normed output",
                                     "experts of tokens",
                                     "weights of experts",
                                     "w13",
                                     "w2",
                                     "extents of groups",
                                     "numbers of tokens in groups",
                                     "places of tokens",
                                     "weights of places",
                                     "selected rows of A",
                                     "tokens in groups",
                                     "hidden rows of experts",
                                     "output rows of experts",
                                     "number of dropped rows",
                                     "a constant",
                                     "the content of an earlier violation"};
  const Value& value = all_[patch.content.value];
  const std::string where = extent_name("rows", patch.content.row, patch.at.row0, patch.at.row1) +
                            extent_name("cols", patch.content.col, patch.at.col0, patch.at.col1);
  const std::string name = kNames[static_cast<size_t>(value.what)];
  if (value.what != What::partial) return name + where;
  return fmt::format("the {}sum of contributions {} to{}", value.finished ? "finished " : "", terms_name(value.terms),
                     where.empty() ? " any element" : " " + name + where);
}

What what_of(Role role) {
  switch (role) {
    case Role::a:
      return What::a;
    case Role::b:
      return What::b;
    case Role::bias:
      return What::bias;
    case Role::residual:
      return What::residual;
    case Role::partial:
      return What::partial;
    case Role::indices:
      return What::indices;
    case Role::norm_weight:
      return What::norm_weight;
    case Role::norm_bias:
      return What::norm_bias;
    case Role::normed:
      return What::normed;
    case Role::norm_scale:
      return What::norm_scale;
    case Role::topk_ids:
      return What::topk_ids;
    case Role::topk_weights:
      return What::topk_weights;
    case Role::w13:
      return What::w13;
    case Role::w2:
      return What::w2;
    case Role::dropped:
      return What::dropped;
    case Role::extents:
      return What::extents;
    case Role::places:
      return What::places;
    case Role::place_weights:
      return What::place_weights;
    case Role::expert_x:
      return What::expert_x;
    case Role::expert_h:
      return What::expert_h;
    case Role::expert_y:
      return What::expert_y;
  }
  return What::unknown;
}

std::string terms_name(const std::vector<Range>& terms) {
  std::string name;
  for (const Range& range : terms) name += fmt::format("{}{}..{}", name.empty() ? "" : ", ", range.begin, range.end);
  return name.empty() ? "nothing" : name;
}

std::vector<Range> terms_of(Range range) {
  return range.begin < range.end ? std::vector<Range>{range} : std::vector<Range>{};
}

}  // namespace tilewire::checking
