// tilewire plan: prints the tasks of every rank, in words and as JSON.
// Called by main.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/counted.hpp"
#include "cli/flag_files.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/summary.hpp"
#include "cli/verbs.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/op.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/lower.hpp"
#include "tuner/candidates.hpp"
#include "tuner/shipped.hpp"
#include "tuner/tuner.hpp"

namespace tilewire::cli {
namespace {

struct Show {
  Options options;
  int64_t limit = 12;
  bool summary = false;
  std::string target;
  bool lowered = false;
  std::string after;
  bool passes = false;
  bool candidates = false;

  [[nodiscard]] bool lowers() const { return !target.empty() || lowered || !after.empty() || passes; }
};

// One line for each pass.
std::string passes_text(const std::vector<PassNote>& notes, const std::string& target) {
  std::string text = fmt::format("  lowered     for {}{}\n", target, notes.empty() ? ", which has no passes" : "");
  for (const PassNote& note : notes) text += fmt::format("    {:16} {}\n", note.pass, note.text);
  return text;
}

// `reasons`: why each plan was chosen, if that was measured. `notes`: of the passes, if the plan is lowered.
void show_all(const Show& verb, const std::vector<Plan>& plans, const std::vector<std::string>& reasons,
              const std::vector<std::vector<PassNote>>& notes) {
  if (!verb.options.json.empty()) {
    require(plans.size() == 1, "--json: the flags name {} plans; name one schedule and one shape", plans.size());
    write_file(verb.options.json, json_text(plans.front(), 1) + "\n");
    if (verb.options.json == "-") return;
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!reasons.empty()) print(reasons[i] + "\n");
    const std::string passes = notes.empty() ? "" : passes_text(notes[i], plans[i].target);
    if (verb.passes) {
      print(passes);
      continue;
    }
    print(summary_of(plans[i]) + passes + (verb.summary ? "" : listing_of(plans[i], verb.limit)));
  }
}

// The same, lowered if the flags ask for it.
void show(const Show& verb, std::vector<Plan> plans, const std::vector<std::string>& reasons) {
  std::vector<std::vector<PassNote>> notes;
  if (verb.lowers()) {
    const Target& target = find_target(verb.target.empty() ? "host" : verb.target);
    for (Plan& plan : plans) {
      Lowered lowered = lower(std::move(plan), target, verb.after);
      plan = std::move(lowered.plan);
      notes.push_back(std::move(lowered.notes));
    }
  }
  show_all(verb, plans, reasons, notes);
}

// Show the configs that `auto` would measure on a target, with their predicted times.
void show_candidates(const Show& verb, const std::vector<Problem>& problems, const Target& target, const Team& team) {
  nlohmann::json result = nlohmann::json::array();
  std::string text;
  for (const Problem& problem : problems) {
    const std::vector<tuner::Predicted> list = tuner::candidates(problem, team, target);
    const size_t measured = tuner::most_measured(list, Tuning::full);
    const tuner::ShippedWinner* shipped = tuner::find_shipped(target, problem);
    result.push_back({{"problem", problem}, {"target", target.name}, {"ranks", team.num_ranks}});
    text += fmt::format("{} on {} of {}: {} candidates, of which auto measures the first {} that can run\n",
                        to_string(problem), counted(team.num_ranks, "rank"), target.name, list.size(), measured);
    if (shipped != nullptr) {
      result.back()["shipped"] = {{"config", shipped->config}, {"us", shipped->us}, {"hardware", shipped->hardware}};
      text += fmt::format("  shipped for {}, so that auto measures nothing there: {:.1f} us, {}\n", shipped->hardware,
                          shipped->us, tuner::describe(shipped->config));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const tuner::Predicted& each = list[i];
      result.back()["candidates"].push_back({{"config", each.config},
                                             {"way", each.way},
                                             {"predicted_us", each.us ? nlohmann::json(*each.us) : nlohmann::json()},
                                             {"measured", i < measured},
                                             {"exception", each.exception}});
      text += fmt::format("  {:>10}  {}: {}{}\n", each.us ? fmt::format("{:.1f} us", *each.us) : "-", each.way,
                          tuner::describe(each.config),
                          each.exception.empty() ? "" : fmt::format("  (always measured: {})", each.exception));
    }
  }
  if (!verb.options.json.empty()) write_file(verb.options.json, json_text(result, 1) + "\n");
  if (verb.options.json != "-") print(text);
}

void show_measured(const Show& verb, const std::vector<Problem>& problems, Group& group) {
  std::vector<Plan> plans;
  std::vector<std::string> reasons;
  for (const Problem& problem : problems) {
    const Op op = make_op(group, problem, {}, {.tuning = verb.options.tuning});
    plans.push_back(make_plan(problem, group.team(), op.config()));
    reasons.push_back(op.explain());
  }
  if (group.team().rank == 0) show(verb, plans, reasons);
}

// Show the plans of the schedules that the flags name.
void show_named(const Show& verb, const std::vector<Problem>& problems, const Team& team) {
  const Options& options = verb.options;
  std::vector<Plan> plans;
  std::string refusals;
  for (const Problem& problem : problems) {
    for (const std::string& schedule : schedules_of(options)) {
      try {
        plans.push_back(make_plan(problem, team, config_of(options, schedule, problem, team)));
      } catch (const Error& error) {
        if (options.schedule != "all" || error.kind() != ErrorKind::unsupported) throw;
        refusals += fmt::format("{}\n", error.what());
      }
    }
  }
  if (plans.empty()) fail(ErrorKind::unsupported, "{}", refusals);
  show(verb, plans, {});
  std::cerr << refusals;
}

void plan_verb(const Show& verb) {
  const Options& options = verb.options;
  check_names(options);
  require(verb.limit >= 0, "--limit {}: want at least 0", verb.limit);
  const std::vector<Problem> problems = problems_of(options);
  check_files({{"--json", options.json}, tuner_file(options)}, input_files(options));
  if (!verb.target.empty()) {
    // NOTE: schedules choose by the team's devices and links.
    const Target& target = find_target(verb.target);
    const Team team = team_of(target, target.ranks > 0 ? target.ranks : options.ranks);
    return verb.candidates ? show_candidates(verb, problems, target, team) : show_named(verb, problems, team);
  }
  if (!needs_ranks(options)) return show_named(verb, problems, team_of(options));
  run_on_ranks(options, [&](Group& group) {
    if (options.schedule == "auto") return show_measured(verb, problems, group);
    if (group.team().rank == 0) show_named(verb, problems, group.team());
  });
}

constexpr const char* kPlanFooter =
    R"(The longest chain counts tasks (or their GFLOP, or the bytes that they move) that must run one after
another, however many workers there are. A line of the listing is a task: what it reads -> what it writes
(+> adds to it), what it waits for, what it posts. docs/plan.md says exactly what they mean.

Examples:
  tilewire plan gemm_reduce_scatter -m 512 -n 512 -k 1024 --ranks 4
  tilewire plan all_gather_gemm --model llama3-70b --schedule all --summary
  tilewire plan gemm_all_reduce -m 256 -n 512 -k 512 --schedule two_stream --json plan.json
  tilewire plan gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --target h200x4 --passes
  tilewire plan gemm_reduce_scatter -m 4096 -n 8192 -k 8192 --target h200x4 --candidates
  tilewire plan all_reduce -m 64 -n 64 --json - | jq .lanes[0])";

}  // namespace

void add_plan(CLI::App& app) {
  auto show_verb = std::make_shared<Show>();
  Options& options = show_verb->options;
  CLI::App* verb = app.add_subcommand("plan", "Print the plan of a problem, or write it as JSON");
  verb->footer(kPlanFooter);
  add_operators(*verb, options, true)->required();
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "fused");
  add_rank_flags(*verb, options);
  add_json_flag(*verb, options, "Write the plan to a file, or - for standard output (then nothing else)");
  verb->add_option("--limit", show_verb->limit, "Tasks listed per lane (default: 12)")->type_name("N");
  verb->add_flag("--summary", show_verb->summary, "Leave the listing out");
  verb->add_option("--target", show_verb->target,
                   "Machines that the plan is for, and lowered for: " + names_of(targets()))
      ->type_name("NAME");
  verb->add_flag("--lowered", show_verb->lowered, "The lowered plan (default target: host)");
  verb->add_option("--after", show_verb->after, "The plan as it is after this pass")->type_name("PASS");
  verb->add_flag("--passes", show_verb->passes, "What each pass changed, or why nothing, and nothing else");
  verb->add_flag("--candidates", show_verb->candidates,
                 "The configs that auto measures on the target, with predicted times, and no plan");
  verb->callback([show_verb, verb] {
    for (const char* flag :
         {"--schedule", "--set", "--limit", "--summary", "--lowered", "--after", "--passes", "--backend"}) {
      require(!show_verb->candidates || verb->count(flag) == 0, "{}: --candidates lists configs, and no plan", flag);
    }
    require(!show_verb->candidates || !show_verb->target.empty(),
            "--candidates: want --target, the machines that it lists them for; known: {}", names_of(targets()));
    if (needs_ranks(show_verb->options)) adopt_launcher(show_verb->options, verb->count("--ranks") > 0);
    plan_verb(*show_verb);
  });
}

}  // namespace tilewire::cli
