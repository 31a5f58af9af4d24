// Op: lowers, proves and loads a plan, and makes its calls.
// Made by make_op.cpp.
#include "tilewire/op.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "backends/messages.hpp"
#include "core/text.hpp"
#include "op/agreement.hpp"
#include "tilewire/check.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/lower.hpp"
#include "tuner/tuner.hpp"

namespace tilewire {
namespace {

void require_supported(const Group& group, const Plan& plan) {
  const std::vector<std::string> names = group.unsupported(plan);
  if (names.empty()) return;
  fail(ErrorKind::unsupported, "the {} backend cannot do {}", group.backend(), fmt::join(names, ", "));
}

}  // namespace

Op::Op(Group& group, Plan plan, const std::string& why, const OpOptions& options)
    : group_(&group), plan_(std::move(plan)), options_(options) {
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
  const PlanNote made_of = note_of(plan_);
  problem_ = made_of.problem;
  config_ = made_of.config;
  explanation_ = fmt::format("{} with {}\nwhy: {}", plan_.op, tuner::describe(config_), why);
  for (const std::string& remark : group.remarks(plan_)) explanation_ += "\n" + remark;
  if (!notes.empty()) explanation_ += fmt::format("\nlowered for {}:", target.name);
  for (const PassNote& note : notes) explanation_ += fmt::format("\n  {}: {}", note.pass, note.text);
  program_ = group.load(plan_);
}

Op::Op(Op&&) noexcept = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

Trace Op::last_trace() const { return program_->trace(); }

const std::optional<Error>& Op::last_status() const {
  if (!status_) status_ = program_->failure();
  return status_;
}

void Op::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream) {
  run_with(inputs, outputs, {options_.trace, options_.max_delay_us, stream});
}

void Op::run_and_wait(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  run_with(inputs, outputs, {options_.trace, options_.max_delay_us});
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

}  // namespace tilewire
