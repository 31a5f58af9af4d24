// make_op and Op: agreement of all ranks, the choice of a config, the checks before a call.
// Called by users; the command line and the benchmarks use nothing else to run a problem.
#include "tilewire/op.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "backends/messages.hpp"
#include "core/overlap.hpp"
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

/// Whether rows are so near each other that a process can address them all.
bool addressable(const Tensor& tensor) {
  constexpr int64_t kMostBytes = int64_t{1} << 48;
  return tensor.rows <= 1 ||
         tensor.row_stride <= (kMostBytes / bytes_of(tensor.dtype) - tensor.cols) / (tensor.rows - 1);
}

/// The tensors that a caller gives for the buffers of one scope, one by one.
void require_tensors(const Plan& plan, int rank, Scope scope, std::span<const Tensor> tensors) {
  size_t used = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.scope != scope) continue;
    require(used < tensors.size(), "{} {} is missing: {} were given", to_string(scope), buffer.name, tensors.size());
    const Tensor& tensor = tensors[used++];
    const Shape shape = shape_on(buffer, rank);
    require(tensor.dtype == buffer.dtype, "{} {} is {}, must be {}", to_string(scope), buffer.name,
            to_string(tensor.dtype), to_string(buffer.dtype));
    require(tensor.rows == shape.rows && tensor.cols == shape.cols, "{} {} is {} x {}, must be {} x {} on rank {}",
            to_string(scope), buffer.name, tensor.rows, tensor.cols, shape.rows, shape.cols, rank);
    require(tensor.rows <= 1 || tensor.row_stride >= tensor.cols, "{} {} has rows of {} elements {} apart",
            to_string(scope), buffer.name, tensor.cols, tensor.row_stride);
    require(addressable(tensor), "{} {} has {} rows {} elements apart: want at most 2^48 bytes from end to end",
            to_string(scope), buffer.name, tensor.rows, tensor.row_stride);
    require(tensor.data != nullptr || tensor.rows == 0 || tensor.cols == 0, "{} {} has no memory", to_string(scope),
            buffer.name);
  }
  require(used == tensors.size(), "{} tensors were given as {}, the operator has {}", tensors.size(), to_string(scope),
          used);
}

std::string name_of(const Plan& plan, Scope scope, size_t place) {
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.scope == scope && place-- == 0) return buffer.name;
  }
  return {};
}

/// Throw where an output, which is written while others are read, shares memory with another tensor.
void require_outputs_apart(const Plan& plan, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const auto require_apart = [&](size_t output, Scope scope, size_t place) {
    const Tensor& mine = outputs[output];
    const Tensor& other = scope == Scope::input ? inputs[place] : outputs[place];
    if (!overlap(mine, other)) return;
    const auto apart = reinterpret_cast<intptr_t>(mine.data) - reinterpret_cast<intptr_t>(other.data);
    fail(ErrorKind::invalid_input, "output {} overlaps {} {}: they begin {} bytes apart, want memory of its own",
         name_of(plan, Scope::output, output), to_string(scope), name_of(plan, scope, place), std::abs(apart));
  };
  for (size_t output = 0; output < outputs.size(); ++output) {
    for (size_t input = 0; input < inputs.size(); ++input) require_apart(output, Scope::input, input);
    for (size_t before = 0; before < output; ++before) require_apart(output, Scope::output, before);
  }
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
    const int rank = group_->team().rank;
    require_tensors(plan_, rank, Scope::input, inputs);
    require_tensors(plan_, rank, Scope::output, outputs);
    require_outputs_apart(plan_, inputs, outputs);
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
