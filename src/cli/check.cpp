// tilewire check: proves plans right, or says why not.
// Called by main.
#include "tilewire/check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/options.hpp"
#include "cli/plan_files.hpp"
#include "cli/ranks.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "schedules/variants.hpp"
#include "tilewire/op.hpp"
#include "tilewire/print.hpp"
#include "tilewire/schedule.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

struct Check {
  Options options;
  bool quiet = false;
  int64_t checked = 0;
  int64_t refused = 0;
};

// The candidates of the schedules, and every combination of their knobs; --set holds in all of them.
std::vector<Config> variants_of(const Options& options, const Problem& problem, const Team& team) {
  std::vector<Config> found;
  const std::vector<std::string> names = schedules_of(options);
  for (const std::string& name : names) {
    for (const Config& candidate : find_schedule(name).candidates(problem, team)) found.push_back(candidate);
  }
  Config base;
  base.chunk_rows = 64;
  for (const std::optional<DType>& wire : {std::optional<DType>{}, std::optional<DType>{DType::fp32}}) {
    base.wire = wire;
    const std::vector<Config> variants = all_variants(problem, team, base);
    found.insert(found.end(), variants.begin(), variants.end());
  }
  std::vector<Config> configs;
  for (const Config& one : found) {
    const Config config = with_knobs(one, options);
    if (std::ranges::find(names, config.schedule) == names.end()) continue;
    if (find_schedule(config.schedule).refuses(problem, team, config)) continue;
    if (std::ranges::find(configs, config) == configs.end()) configs.push_back(config);
  }
  return configs;
}

void check_one(Check& verb, const Plan& plan, const std::string& name) {
  const CheckResult result = check(plan);
  ++verb.checked;
  if (result.ok()) {
    if (verb.quiet) return;
    const double ratio =
        result.least_bytes > 0 ? static_cast<double>(result.total_bytes) / static_cast<double>(result.least_bytes) : 0;
    print(fmt::format("proven   {}: {} tasks, {} bytes over links{}\n", name, num_tasks(plan), result.total_bytes,
                      ratio > 0 ? fmt::format(", {:.2f} x the least", ratio) : ""));
    return;
  }
  ++verb.refused;
  std::string text = fmt::format("REFUSED  {}\n", name);
  for (const Violation& violation : result.violations) {
    text += fmt::format("  {}: {}\n", to_string(violation.rule), violation.text);
  }
  print(text);
}

std::string name_of(const Problem& problem, const Config& config) {
  return fmt::format("{} {}x{}x{} {}", problem.op, problem.m, problem.n, problem.k, tuner::describe(config));
}

void check_problem(Check& verb, const Problem& problem) {
  const Options& options = verb.options;
  const Team team = team_of(options);
  const int64_t before = verb.checked;
  for (const Config& config : variants_of(options, problem, team)) {
    check_one(verb, make_plan(problem, team, config), name_of(problem, config));
  }
  if (verb.checked == before) {
    fail(ErrorKind::unsupported, "no schedule can do {} with these knobs", to_string(problem));
  }
}

void check_auto(Check& verb, const std::vector<Problem>& problems) {
  run_on_ranks(verb.options, [&](Group& group) {
    for (const Problem& problem : problems) {
      const Op op = make_op(group, problem);
      if (group.team().rank == 0) check_one(verb, op.plan(), name_of(problem, op.config()));
    }
    if (verb.refused > 0) fail(ErrorKind::refused_plan, "{} of {} plans refused", verb.refused, verb.checked);
  });
}

// Names are operators or files of plans; both may be given.
void check_verb(Check& verb) {
  const std::vector<std::string> files = take_files(verb.options.operators);
  check_names(verb.options);
  for (const std::string& path : files) check_one(verb, load_plan(path), path);
  const std::vector<Problem> problems = problems_of(verb.options);
  if (verb.options.schedule == "auto" && !problems.empty()) {
    check_auto(verb, problems);
  } else {
    for (const Problem& problem : problems) check_problem(verb, problem);
  }
  print(fmt::format("{} plans checked, {} refused\n", verb.checked, verb.refused));
  if (verb.refused > 0) fail(ErrorKind::refused_plan, "{} of {} plans refused", verb.refused, verb.checked);
}

constexpr const char* kCheckFooter =
    R"(A proof holds for any number of workers, any interleaving of ranks and lanes, and calls back to back:
  progress  every wait is satisfied: no deadlock
  coverage  every element of the output gets every contribution exactly once
  race      two accesses that overlap, one of them a write, are ordered
A refusal names the tasks, signals and regions involved; it makes the exit code 1.
For an operator every schedule is checked with all of its candidates, and with every combination of the
knobs that change a plan's structure; --schedule and --set narrow that down.

Examples:
  tilewire check plan.json
  tilewire check gemm_reduce_scatter -m 300 -n 512 -k 512 --ranks 3 --quiet
  tilewire check all_gather_gemm -m 512 -n 512 -k 64 --schedule fused --set direction=pull)";

}  // namespace

void add_check(CLI::App& app) {
  auto check = std::make_shared<Check>();
  Options& options = check->options;
  CLI::App* verb = app.add_subcommand("check", "Prove a plan file, or every plan of a problem");
  verb->footer(kCheckFooter);
  add_operators(*verb, options, true)->required()->type_name("NAME|FILE");
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "all");
  add_rank_flags(*verb, options);
  verb->add_flag("--quiet", check->quiet, "Print refused plans only");
  verb->callback([check, verb] {
    if (check->options.schedule == "auto") adopt_launcher(check->options, verb->count("--ranks") > 0);
    check_verb(*check);
  });
}

}  // namespace tilewire::cli
