// The table of knobs: which schedule honours a knob, for which operators, and with which values.
// Called by `tilewire info --knobs`; docs/schedules.md has a copy, which a test compares.
#include "cli/knob_table.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/text.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

/// "MoE", or with the steps that a part of it has: "MoE-D" dispatch, "MoE-C" combine, "MoE-DG", "MoE-GC" each with its
/// product.
std::string short_name(const ExpertSteps& steps) {
  if (steps == ExpertSteps{}) return "MoE";
  return std::string("MoE-") + (steps.dispatch ? "D" : "") + (steps.first || steps.second ? "G" : "") +
         (steps.combine ? "C" : "");
}

/// "AG", "AGC", "RS", "RSC", "AR", "A2A", "A2AR"; in small letters without a GEMM.
std::string short_name(const Operator& op) {
  const Problem problem{.op = op.name};
  if (has_experts(problem)) return short_name(op.structure.steps);
  std::string name = gathers(problem) ? "AG" : scatters(problem) ? "RS" : exchanges(problem) ? "A2A" : "AR";
  // An exchange of columns has the shorter name.
  if (has_own_b(op.structure)) name += "R";
  if (!exchanges(problem) && by_columns(problem)) name += "C";
  if (multiplies(problem)) return name;
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

/// All knobs of all schedules, each once.
std::vector<std::string> all_knobs() {
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) {
    for (const Knob& knob : schedule.knobs) {
      if (std::ranges::find(names, knob.name) == names.end()) names.emplace_back(knob.name);
    }
  }
  return names;
}

/// "AG, RS: direct, ring; AR: direct": operators that have the same values are together; "all" where these are all that
/// the schedule knows.
std::string cell_of(const Schedule& schedule, const std::string& name) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // values, and operators
  size_t known = 0;
  for (const Operator& op : operators()) {
    if (!schedule.knows(op.structure)) continue;
    ++known;
    const Knob* knob = find_knob(schedule.knobs, name, {.op = op.name});
    if (knob == nullptr) continue;
    auto group = std::ranges::find(groups, knob->values, [](const auto& each) { return each.first; });
    if (group == groups.end()) group = groups.insert(group, {knob->values, {}});
    group->second.push_back(short_name(op));
  }
  std::string text;
  for (const auto& [values, names] : groups) {
    const std::string where = names.size() == known ? "all" : fmt::format("{}", fmt::join(names, ", "));
    text += (text.empty() ? "" : "; ") + where + (values.empty() ? "" : ": " + values);
  }
  return text;
}

}  // namespace

std::string knob_table() {
  std::string text = "| knob |";
  std::string line = "|---|";
  for (const Schedule& schedule : schedules()) {
    text += fmt::format(" `{}` |", schedule.name);
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const std::string& name : all_knobs()) {
    text += fmt::format("| `{}` |", name);
    for (const Schedule& schedule : schedules()) text += fmt::format(" {} |", cell_of(schedule, name));
    text += "\n";
  }
  return text;
}

}  // namespace tilewire::cli
