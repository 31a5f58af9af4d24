// make_op and Op: agreement of all ranks, the choice of a config, the checks before a call.
// Called by users; the command line and the benchmarks use nothing else to run a problem.
#include "tilewire/op.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "backends/messages.hpp"
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
  return of.contains(field) ? of[field].dump() : "its default";
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

/// Throw on every rank, with the same words, unless all ranks ask for the same. Collective.
void require_same(Group& group, const json& mine) {
  const std::vector<std::string> all = exchange(group, "make_op", mine.dump());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require(all[rank] == all[0], "ranks 0 and {} ask for different things: {}", rank,
            differences(json::parse(all[0]), json::parse(all[rank])));
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
  explanation_ = fmt::format("{} with {}\nwhy: {}", plan_.problem.op, tuner::describe(plan_.config), why);
  for (const std::string& remark : group.remarks(plan_)) explanation_ += "\n" + remark;
  program_ = group.load(plan_);
}

const std::optional<Error>& Op::last_status() const {
  if (!status_) status_ = program_->failure();
  return status_;
}

void Op::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream) {
  status_.reset();
  try {
    RunOptions options = run_options_;
    options.stream = stream;
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

Op make_op(Group& group, const Problem& problem, const std::optional<Config>& config, const OpOptions& options) {
  require_same(group, request_of(problem, config, options));
  validate(problem, group.team().num_ranks);
  tuner::Choice choice{.config = config.value_or(Config{}), .why = "given by the caller"};
  if (!config) {
    const std::string file = options.tuner_file.empty() ? env::tuner_file() : options.tuner_file;
    choice = tuner::choose(group, problem, {.file = file});
  }
  return {group, make_plan(problem, group.team(), choice.config), choice.why, options};
}

Op make_op(Group& group, const Plan& plan, const OpOptions& options) {
  json request = request_of(plan.problem, plan.config, options);
  request["plan (hash)"] = hash_of(plan);
  require_same(group, request);
  const int num_ranks = group.team().num_ranks;
  require(plan.team.num_ranks == num_ranks, "the plan is for {} ranks, the team has {}", plan.team.num_ranks,
          num_ranks);
  validate(plan);
  OpOptions checked = options;
  checked.check = true;
  return {group, plan, "the plan was given by the caller", checked};
}

}  // namespace tilewire
