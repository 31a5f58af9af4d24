// Plans in files that `tilewire plan --json` has written.
// Called by check and sim.
#include "cli/plan_files.hpp"

#include <algorithm>
#include <filesystem>

#include "cli/options.hpp"
#include "core/text.hpp"
#include "schedules/knobs.hpp"
#include "tilewire/check.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cli {

std::vector<std::string> take_files(std::vector<std::string>& names) {
  std::vector<std::string> files;
  std::erase_if(names, [&](const std::string& name) {
    const bool is_operator = std::ranges::any_of(operators(), [&](const Operator& op) { return op.name == name; });
    std::error_code none;
    const bool file = !is_operator && (name.find_first_of("./") != name.npos || std::filesystem::exists(name, none));
    if (file) files.push_back(name);
    return file;
  });
  return files;
}

Plan load_plan(const std::string& path) {
  try {
    Plan plan = from_json_text<Plan>(read_file(path));
    const auto [problem, config] = note_of(plan);
    validate(problem, plan.team.num_ranks);
    validate(plan);
    validate(config);
    return plan;
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(error.kind(), text.starts_with(path) ? text : path + ": " + text);
  }
}

Plan load_proven_plan(const std::string& path) {
  Plan plan = load_plan(path);
  const CheckResult proof = check(plan);
  if (!proof.ok()) {
    fail(ErrorKind::refused_plan, "{}: the checker refuses the plan: {}", path, proof.violations.front().text);
  }
  return plan;
}

}  // namespace tilewire::cli
