// make_op and Op: agreement of all ranks, the choice of a config, the checks before a call.
// Called by users; the command line and the benchmarks use nothing else to run a problem.
#include "tilewire/op.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "backends/messages.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/check.hpp"
#include "tilewire/env.hpp"
#include "tilewire/json.hpp"
#include "tilewire/operator.hpp"
#include "tilewire/schedule.hpp"
#include "tuner/tuner.hpp"

namespace tilewire {
namespace {

using nlohmann::json;

std::string value_of(const json& of, const std::string& field) {
  return of.contains(field) ? shown(of[field]) : "its default";
}

/// "m = 64 and 128, dtype = its default and "fp16"".
std::string differences(const json& x, const json& y) {
  json fields = x;
  fields.update(y);
  std::vector<std::string> texts;
  for (const auto& [field, value] : fields.items()) {
    if (value_of(x, field) == value_of(y, field)) continue;
    texts.push_back(fmt::format("{} = {} and {}", field, value_of(x, field), value_of(y, field)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Throw on every rank, with the same words, unless all ranks ask for the same; where `read` throws on one, too.
/// Collective.
void require_same(Group& group, const std::function<json()>& read) {
  const std::vector<std::string> all = agree(group, "make_op", [&] { return json_text(read()); });
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require(all[rank] == all[0], "ranks 0 and {} ask for different things: {}", rank,
            differences(parse_json(all[0], "a request"), parse_json(all[rank], "a request")));
  }
}

bool checks(const OpOptions& options) {
#ifdef NDEBUG
  constexpr bool kDefault = false;
#else
  constexpr bool kDefault = true;
#endif
  return options.check.value_or(kDefault);
}

/// Problem, knobs and options side by side, so that a difference has one name.
json request_of(const Problem& problem, const std::optional<Config>& config, const OpOptions& options) {
  json request = problem;
  request["check"] = checks(options);
  request["config"] = config ? "given" : "auto";
  if (!config) request["tuning"] = options.tuning;
  if (!config) return request;
  const json knobs = *config;
  for (const auto& [knob, value] : knobs.items()) request[fmt::format("config.{}", knob)] = value;
  return request;
}

void require_supported(const Group& group, const Plan& plan) {
  const std::vector<std::string> names = group.unsupported(plan);
  if (names.empty()) return;
  fail(ErrorKind::unsupported, "the {} backend cannot do {}", group.backend(), fmt::join(names, ", "));
}

}  // namespace

Op::Op(Group& group, Plan plan, const std::string& why, const OpOptions& options)
    : group_(&group), plan_(std::move(plan)), run_options_{options.trace, options.max_delay_us} {
  require_supported(group, plan_);
  if (checks(options)) require_proven(plan_);
  const Target target = group.target();
  std::vector<PassNote> notes;
  if (plan_.target.empty() && !passes_of(target).empty()) {
    Lowered made = lower(std::move(plan_), target);
    notes = std::move(made.notes);
    plan_ = std::move(made.plan);
    if (checks(options)) require_proven(plan_);
  }
  made_of_ = note_of(plan_);
  explanation_ = fmt::format("{} with {}\nwhy: {}", plan_.op, tuner::describe(made_of_.config), why);
  for (const std::string& remark : group.remarks(plan_)) explanation_ += "\n" + remark;
  if (!notes.empty()) explanation_ += fmt::format("\nlowered for {}:", target.name);
  for (const PassNote& note : notes) explanation_ += fmt::format("\n  {}: {}", note.pass, note.text);
  program_ = group.load(plan_);
}

const std::optional<Error>& Op::last_status() const {
  if (!status_) status_ = program_->failure();
  return status_;
}

void Op::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream) {
  RunOptions options = run_options_;
  options.stream = stream;
  run_with(inputs, outputs, options);
}

void Op::run_and_wait(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  run_with(inputs, outputs, run_options_);
}

void Op::wait() {
  try {
    program_->wait();
  } catch (const Error& error) {
    status_ = error;
    throw;
  }
}

void Op::run_with(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) {
  status_.reset();
  try {
    program_->run(inputs, outputs, options);
  } catch (const Error& error) {
    status_ = error;
    throw;
  }
}

Trace Op::gather_trace() {
  static_assert(std::is_trivially_copyable_v<TraceEvent>);
  const Trace mine = program_->trace();
  const size_t bytes = mine.events.size() * sizeof(TraceEvent);
  Trace all;
  for (const std::string& part :
       exchange(*group_, "gather_trace", {reinterpret_cast<const char*>(mine.events.data()), bytes})) {
    const size_t before = all.events.size();
    all.events.resize(before + part.size() / sizeof(TraceEvent));
    if (!part.empty()) std::memcpy(&all.events[before], part.data(), part.size());
  }
  std::sort(all.events.begin(), all.events.end(), [](const TraceEvent& x, const TraceEvent& y) {
    return std::tie(x.lane, x.taken_ns, x.task) < std::tie(y.lane, y.taken_ns, y.task);
  });
  return all;
}

namespace {

/// The schedule's own choice. Where the problem breaks a rule its defaults: `validate` says so later.
Config config_of_schedule(const std::string& name, const Problem& problem, const Team& team) {
  const Schedule& schedule = find_schedule(name);
  try {
    return default_config(schedule.name, problem, team);
  } catch (const Error&) {
    return {.schedule = schedule.name};
  }
}

/// "auto", perhaps with a tuning, which is then set in `options`; the name of a schedule; or JSON.
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

/// What a problem is done with.
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
    json request = request_of(note.problem, note.config, options);
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
