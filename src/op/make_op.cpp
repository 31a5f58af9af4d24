// make_op: compares the ranks' requests, chooses a config, makes the plan.
// Called by users, the command line and the benchmarks.
#include <string_view>

#include "core/text.hpp"
#include "op/agreement.hpp"
#include "tilewire/env.hpp"
#include "tilewire/json.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"
#include "tuner/tuner.hpp"

namespace tilewire {
namespace {

/// The schedule's first candidate, or the defaults if the problem breaks a rule; `validate` reports the rule later.
Config config_of_schedule(const std::string& name, const Problem& problem, const Team& team) {
  const Schedule& schedule = find_schedule(name);
  try {
    return default_config(schedule.name, problem, team);
  } catch (const Error&) {
    return {.schedule = schedule.name};
  }
}

/// Parse "auto" (nothing), "auto_TUNING" (nothing; sets options.tuning), the name of a schedule, or JSON.
std::optional<Config> config_of_text(const std::string& text, const Problem& problem, const Team& team,
                                     OpOptions& options) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  require(first != std::string::npos, "config is empty: want \"auto\", the name of a schedule, or JSON");
  if (text == "auto") return std::nullopt;
  constexpr std::string_view kWithTuning = "auto_";
  if (text.starts_with(kWithTuning)) {
    options.tuning = parse<Tuning>(text.substr(kWithTuning.size()), "config = auto_...");
    return std::nullopt;
  }
  if (text[first] == '{') return from_json_text<Config>(text);
  return config_of_schedule(text, problem, team);
}

/// The given config, or the tuner's choice.
tuner::Choice choice_of(Group& group, const Problem& problem, const std::optional<Config>& config,
                        const OpOptions& options) {
  validate(problem, group.team().num_ranks);
  if (config) return {.config = *config, .why = "given by the caller"};
  const std::string file = options.tuner_file.empty() ? env::tuner_file() : options.tuner_file;
  return tuner::choose(group, problem, {.file = file, .tuning = options.tuning});
}

}  // namespace

Op make_op(Group& group, const Problem& problem, const std::optional<Config>& config, const OpOptions& options) {
  require_same(group, [&] { return request_of(problem, config, options); });
  const tuner::Choice choice = choice_of(group, problem, config, options);
  return {group, make_plan(problem, group.team(), choice.config), choice.why, options};
}

Op make_op_from_text(Group& group, const std::string& problem, const std::string& config, const OpOptions& options) {
  Problem asked;
  std::optional<Config> given;
  OpOptions all = options;
  require_same(group, [&] {
    asked = from_json_text<Problem>(problem);
    given = config_of_text(config, asked, group.team(), all);
    return request_of(asked, given, all);
  });
  const tuner::Choice choice = choice_of(group, asked, given, all);
  return {group, make_plan(asked, group.team(), choice.config), choice.why, all};
}

Op make_op(Group& group, const Plan& plan, const OpOptions& options) {
  require_same(group, [&] {
    const PlanNote note = note_of(plan);
    nlohmann::json request = request_of(note.problem, note.config, options);
    request["plan (hash)"] = hash_of(plan);
    return request;
  });
  const int num_ranks = group.team().num_ranks;
  require(plan.team.num_ranks == num_ranks, "the plan is for {} ranks, the team has {}", plan.team.num_ranks,
          num_ranks);
  validate(plan);
  OpOptions checked = options;
  checked.check = true;
  return {group, plan, "the plan was given by the caller", checked};
}

}  // namespace tilewire
