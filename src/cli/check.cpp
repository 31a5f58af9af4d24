// tilewire check: proves plans right, or says why not.
// Called by main.
#include "tilewire/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/op.hpp"
#include "tilewire/operator.hpp"
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

// Knobs and values whose combinations a schedule may honour or refuse.
constexpr std::pair<const char*, const char*> kVariants[] = {
    {"direction", "push"},
    {"direction", "pull"},
    {"transport", "store"},
    {"transport", "copy_engine"},
    {"algorithm", "direct"},
    {"algorithm", "ring"},
    {"algorithm", "one_shot"},
    {"algorithm", "two_phase"},
    {"reduction", "staged"},
    {"reduction", "pull"},
    {"reduction", "accumulate"},
    {"reduce_when", "beside"},
    {"reduce_when", "after"},
    {"wire", "fp32"},
    {"order", "naive"},
    {"order", "rank_shifted"},
    {"release", "tile"},
    {"release", "all"},
    {"pacing", "unpaced"},
    {"pacing", "lockstep"},
    {"copy_lanes", "1"},
    {"copy_lanes", "2"},
    {"split_k", "1"},
    {"split_k", "2"},
    {"compute", "tiles"},
    {"compute", "library"},
    {"collective", "library"},
    {"chunk_rows", "0"},
    {"chunk_rows", "64"},
};

bool is_set(const Options& options, const std::string& knob) {
  return std::ranges::any_of(options.set, [&](const std::string& text) { return text.starts_with(knob + "="); });
}

// The candidates of a schedule, and each with every pair of variants; --set holds in all of them.
std::vector<Config> variants_of(const Options& options, const Schedule& schedule, const Problem& problem,
                                const Team& team) {
  std::vector<Config> configs;
  const auto add = [&](Config config) {
    config = with_knobs(config, options);
    config.schedule = schedule.name;
    if (schedule.refuses(problem, team, config)) return;
    if (std::ranges::find(configs, config) == configs.end()) configs.push_back(config);
  };
  std::vector<Config> bases = schedule.candidates(problem, team);
  bases.emplace_back();
  for (const Config& base : bases) add(base);
  for (const Config& base : bases) {
    for (const auto& [knob, value] : kVariants) {
      if (is_set(options, knob)) continue;
      Config one = base;
      set_knob(one, knob, value);
      add(one);
      for (const auto& [other, other_value] : kVariants) {
        if (std::string_view(other) <= knob || is_set(options, other)) continue;
        Config two = one;
        set_knob(two, other, other_value);
        add(two);
      }
    }
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
    std::cout << fmt::format("proven   {}: {} tasks, {} bytes over links{}\n", name, num_tasks(plan),
                             result.total_bytes, ratio > 0 ? fmt::format(", {:.2f} x the least", ratio) : "");
    return;
  }
  ++verb.refused;
  std::cout << fmt::format("REFUSED  {}\n", name);
  for (const Violation& violation : result.violations) {
    std::cout << fmt::format("  {}: {}\n", to_string(violation.rule), violation.text);
  }
}

std::string name_of(const Problem& problem, const Config& config) {
  return fmt::format("{} {}x{}x{} {}", problem.op, problem.m, problem.n, problem.k, tuner::describe(config));
}

void check_problem(Check& verb, const Problem& problem) {
  const Options& options = verb.options;
  const Team team = team_of(options);
  const int64_t before = verb.checked;
  for (const std::string& name : schedules_of(options)) {
    const Schedule& schedule = find_schedule(name);
    for (const Config& config : variants_of(options, schedule, problem, team)) {
      check_one(verb, make_plan(problem, team, config), name_of(problem, config));
    }
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

bool is_operator(const std::string& name) {
  return std::ranges::any_of(operators(), [&](const Operator& op) { return op.name == name; });
}

// Names are operators or files of plans; both may be given.
void check_verb(Check& verb) {
  std::vector<std::string> files;
  std::erase_if(verb.options.operators, [&](const std::string& name) {
    const bool file = !is_operator(name) && (name.find_first_of("./") != name.npos || std::filesystem::exists(name));
    if (file) files.push_back(name);
    return file;
  });
  check_names(verb.options);
  for (const std::string& path : files) {
    Plan plan;
    try {
      plan = from_json_text<Plan>(read_file(path));
      validate(plan.problem, plan.team.num_ranks);
      validate(plan);
    } catch (const Error& error) {
      const std::string text = error.what();
      throw Error(error.kind(), text.starts_with(path) ? text : path + ": " + text);
    }
    check_one(verb, plan, path);
  }
  const std::vector<Problem> problems = problems_of(verb.options);
  if (verb.options.schedule == "auto" && !problems.empty()) {
    check_auto(verb, problems);
  } else {
    for (const Problem& problem : problems) check_problem(verb, problem);
  }
  std::cout << fmt::format("{} plans checked, {} refused\n", verb.checked, verb.refused) << std::flush;
  if (verb.refused > 0) fail(ErrorKind::refused_plan, "{} of {} plans refused", verb.refused, verb.checked);
}

constexpr const char* kFooter =
    R"(A proof holds for any number of workers, any interleaving of ranks and lanes, and calls back to back:
  progress  every wait is satisfied: no deadlock
  coverage  every element of the output gets every contribution exactly once
  race      two accesses that overlap, one of them a write, are ordered
A refusal names the tasks, signals and regions involved; it makes the exit code 1.
For an operator every schedule is checked with all of its candidates, and with every value of every
knob and every pair of them that the schedule takes; --schedule and --set narrow that down.

Examples:
  tilewire check plan.json
  tilewire check gemm_reduce_scatter -m 300 -n 512 -k 512 --ranks 3 --quiet
  tilewire check all_gather_gemm -m 512 -n 512 -k 64 --schedule fused --set direction=pull)";

}  // namespace

void add_check(CLI::App& app) {
  auto check = std::make_shared<Check>();
  Options& options = check->options;
  CLI::App* verb = app.add_subcommand("check", "Prove a plan file, or every plan of a problem");
  verb->footer(kFooter);
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
