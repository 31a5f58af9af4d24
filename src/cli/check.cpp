// tilewire check: proves plans, or reports why they are wrong.
// Called by main.
#include "tilewire/check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/counted.hpp"
#include "cli/options.hpp"
#include "cli/plan_files.hpp"
#include "cli/ranks.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "schedules/variants.hpp"
#include "tilewire/op.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

struct Check {
  Options options;
  bool quiet = false;
  int64_t checked = 0;
  int64_t refused = 0;
};

// The candidates of the schedules, and every combination of their knobs; --set holds for all of them.
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

// Whether the checker refuses the ranks: then it would refuse every plan for them.
bool refuses_ranks(const CheckResult& result, const Plan& plan) {
  const std::string text = counted(plan.team.num_ranks, "rank") + ": ";
  return std::ranges::any_of(result.violations, [&](const Violation& violation) {
    return violation.rule == Rule::unsupported && violation.text.starts_with(text);
  });
}

// `place`: which plan of how many this is.
CheckResult check_one(Check& verb, Progress& progress, const Plan& plan, const std::string& name,
                      const std::string& place = "") {
  progress.show(fmt::format("{}{}: {}", place, name, counted(num_tasks(plan), "task")));
  CheckResult result = check(plan);
  progress.show("");
  ++verb.checked;
  if (result.ok()) {
    if (verb.quiet) return result;
    const double ratio =
        result.least_bytes > 0 ? static_cast<double>(result.total_bytes) / static_cast<double>(result.least_bytes) : 0;
    print(fmt::format("proven   {}: {}, {} bytes over links{}\n", name, counted(num_tasks(plan), "task"),
                      result.total_bytes, ratio > 0 ? fmt::format(", {:.2f} x the least", ratio) : ""));
    return result;
  }
  ++verb.refused;
  std::string text = fmt::format("REFUSED  {}\n", name);
  for (const Violation& violation : result.violations) {
    text += fmt::format("  {}: {}\n", to_string(violation.rule), violation.text);
  }
  print(text);
  return result;
}

std::string name_of(const Problem& problem, const Config& config) {
  return fmt::format("{} {}x{}x{} {}", problem.op, problem.m, problem.n, problem.k, tuner::describe(config));
}

// False if nothing else can be proven for these ranks.
bool check_problem(Check& verb, const Problem& problem, const Team& team) {
  const std::vector<Config> configs = variants_of(verb.options, problem, team);
  if (configs.empty()) {
    fail(ErrorKind::unsupported, "no schedule can do {} with these knobs", to_string(problem));
  }
  Progress progress(0);
  for (size_t i = 0; i < configs.size(); ++i) {
    const std::string name = name_of(problem, configs[i]);
    const std::string place = fmt::format("{} of {}: ", i + 1, configs.size());
    progress.show(place + name);
    const Plan plan = make_plan(problem, team, configs[i]);
    if (refuses_ranks(check_one(verb, progress, plan, name, place), plan)) return false;
  }
  return true;
}

void finish(const Check& verb) {
  print(fmt::format("{} checked, {} refused\n", counted(verb.checked, "plan"), verb.refused));
  if (verb.refused > 0) fail(ErrorKind::refused_plan, "{} of {} refused", verb.refused, counted(verb.checked, "plan"));
}

void check_named(Check& verb, const std::vector<Problem>& problems, const Team& team) {
  for (const Problem& problem : problems) {
    if (!check_problem(verb, problem, team)) break;
  }
  finish(verb);
}

void check_measured(Check& verb, const std::vector<Problem>& problems, Group& group) {
  const bool checks = group.team().rank == 0;
  Progress progress(group.team().rank);
  for (const Problem& problem : problems) {
    const Op op = make_op(group, problem, {}, {.tuning = verb.options.tuning});
    const Plan plan = make_plan(problem, group.team(), op.config());
    if (checks) static_cast<void>(check_one(verb, progress, plan, name_of(problem, op.config())));
  }
  if (checks) finish(verb);
}

// Names are operators or files of plans; both may be given.
void check_verb(Check& verb, const std::vector<std::string>& files) {
  const Options& options = verb.options;
  check_names(options);
  for (const std::string& path : files) {
    Progress progress(0);
    static_cast<void>(check_one(verb, progress, load_plan(path), path));
  }
  const std::vector<Problem> problems = problems_of(options);
  if (problems.empty() || !needs_ranks(options)) return check_named(verb, problems, team_of(options));
  run_on_ranks(options, [&](Group& group) {
    if (options.schedule == "auto") return check_measured(verb, problems, group);
    if (group.team().rank == 0) check_named(verb, problems, group.team());
  });
}

// Refuse flags that mean nothing if all plans are from files.
void refuse_flags_of_problems(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    require(option->count() == 0 || name == "operator" || name == "--quiet",
            "{}: goes with an operator; a plan from a file has its own", name);
  }
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
    const std::vector<std::string> files = take_files(check->options.operators);
    if (check->options.operators.empty()) {
      refuse_flags_of_problems(*verb);
    } else if (needs_ranks(check->options)) {
      adopt_launcher(check->options, verb->count("--ranks") > 0);
    }
    check_verb(*check, files);
  });
}

}  // namespace tilewire::cli
