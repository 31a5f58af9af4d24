// Finds the team of a process group, and the operator of a problem in its cache.
// Called by torch/operators.cpp.
#include "torch/teams.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "core/text.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::python {
namespace {

size_t hash_of(const Problem& problem) {
  size_t hash = std::hash<std::string>{}(problem.op);
  for (const int64_t size : {problem.m, problem.n, problem.k}) hash = hash * 1000003 + static_cast<size_t>(size);
  return hash;
}

/// Names of the buffers of x and of the results whose tensors peers can address. A plan uses them in place.
std::vector<std::string> in_arena(const Group& group, const Problem& problem, std::span<const Tensor> inputs,
                                  std::span<const Tensor> outputs) {
  const auto lies = [&](const Tensor& tensor) { return group.place_of(tensor).has_value(); };
  std::vector<std::string> names;
  // NOTE: return early: the list of buffers takes microseconds.
  if (!lies(inputs.front()) && std::ranges::none_of(outputs, lies)) return names;
  size_t output = 0;
  bool first = true;
  for (const Buffer& buffer : find_operator(problem.op).buffers(problem, group.team().num_ranks)) {
    const bool is_input = buffer.scope == Scope::input;
    if (is_input ? first && lies(inputs.front()) : lies(outputs[output])) names.push_back(buffer.name);
    if (is_input) first = false;
    if (!is_input) ++output;
  }
  return names;
}

/// Throw the same Error(invalid_input) on all ranks if a tensor's position in shared memory differs between ranks.
/// Collective.
void require_same_places(Group& group, const Problem& problem, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs) {
  if (problem.arena.empty()) return;
  std::string mine;
  for (const Tensor& tensor : outputs) mine += fmt::format("{}, ", group.place_of(tensor).value_or(-1));
  const std::vector<std::string> all =
      group.all_gather(fmt::format("{}{}", mine, group.place_of(inputs.front()).value_or(-1)));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require(
        all[rank] == all[0],
        "{}: memory that ranks share lies at ({}) on rank 0, at ({}) on rank {}: want the same part of the same tensor",
        problem.op, all[0], all[rank], rank);
  }
}

/// Convert a Python exception to an Error: with its own kind if it is a tilewire.Error, else with the kind `otherwise`.
Error error_of(const nb::python_error& error, ErrorKind otherwise) {
  const nb::handle value = error.value();
  const std::string text = nb::cast<std::string>(nb::str(value));
  if (!nb::hasattr(value, "kind")) return {otherwise, text};
  return {parse<ErrorKind>(nb::cast<std::string>(value.attr("kind")), "kind"), text};
}

}  // namespace

TorchTeam::~TorchTeam() {
  const nb::gil_scoped_acquire gil;
  {
    // Operators wait here for the calls that they have enqueued.
    const nb::gil_scoped_release without_gil;
    const std::scoped_lock alone(group_->busy);
    ops_.clear();
  }
  process_group_.reset();
}

void TorchTeam::run(const TorchShim& shim, Problem problem, const TorchSettings& settings,
                    std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream) {
  const std::scoped_lock alone(group_->busy);
  problem.arena = in_arena(*group_->group, problem, inputs, outputs);
  const bool captures = group_->group->captures(stream);
  Kept& kept = find_or_make(problem, settings, inputs, outputs, captures);
  kept.captured = kept.captured || captures;
  const TorchRange range(shim, kept.name);
  kept.op.run(inputs, outputs, stream);
}

TorchTeam::Kept& TorchTeam::find_or_make(const Problem& problem, const TorchSettings& settings,
                                         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                         bool captures) {
  const size_t hash = hash_of(problem);
  const auto [first, last] = places_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Place place = it->second;
    if (place->problem != problem || place->tuning != settings.tuning) continue;
    ops_.splice(ops_.begin(), ops_, place);
    return *place;
  }
  if (captures) {
    fail(ErrorKind::unsupported, "{} of {} x {} x {} is new inside a capture: call it once before", problem.op,
         problem.m, problem.n, problem.k);
  }
  make_room(settings.most_ops);
  Group& group = *group_->group;
  require_same_places(group, problem, inputs, outputs);
  Op op = make_op(group, problem, std::nullopt, {.tuning = settings.tuning});
  std::string name = fmt::format("tilewire::{} {}", problem.op, op.config().schedule);
  ops_.push_front({problem, settings.tuning, std::move(op), std::move(name)});
  places_.emplace(hash, ops_.begin());
  return ops_.front();
}

void TorchTeam::make_room(size_t most_ops) {
  const auto is_free = [](const Kept& kept) { return !kept.captured; };
  for (auto free = std::ranges::count_if(ops_, is_free); free >= static_cast<std::ptrdiff_t>(most_ops); --free) {
    const Place oldest = std::prev(std::find_if(ops_.rbegin(), ops_.rend(), is_free).base());
    const auto [first, last] = places_.equal_range(hash_of(oldest->problem));
    places_.erase(std::find_if(first, last, [&](const auto& place) { return place.second == oldest; }));
    ops_.erase(oldest);
  }
}

void TorchTeam::check() const {
  const nb::gil_scoped_release without_gil;
  const std::scoped_lock alone(group_->busy);
  for (const Kept& kept : ops_) {
    if (const std::optional<Error>& failed = kept.op.last_status()) throw Error(*failed);
  }
}

std::vector<std::string> TorchTeam::kept() const {
  const nb::gil_scoped_release without_gil;
  const std::scoped_lock alone(group_->busy);
  std::vector<std::string> texts;
  for (const Kept& kept : ops_) {
    const Problem& problem = kept.problem;
    const std::string more = problem.more_n.empty() ? "" : fmt::format(" + {}", fmt::join(problem.more_n, " + "));
    texts.push_back(fmt::format("{} {} x {}{} x {} {}", problem.op, problem.m, problem.n, more, problem.k,
                                kept.op.config().schedule));
  }
  return texts;
}

void TorchTeams::check() const {
  // NOTE: copy the table: while this thread waits for a team, other threads may remove and add teams.
  std::vector<std::shared_ptr<TorchTeam>> all;
  for (const auto& [key, team] : teams_) all.push_back(team);
  for (const auto& team : all) team->check();
}

std::vector<std::string> TorchTeams::kept(const std::string& group, bool on_gpu, int32_t index) const {
  const auto found = teams_.find({group, on_gpu, on_gpu ? index : 0});
  if (found == teams_.end()) return {};
  const std::shared_ptr<TorchTeam> team = found->second;
  return team->kept();
}

std::shared_ptr<TorchTeam> TorchTeams::find(const std::string& group, bool on_gpu, int32_t index) {
  const nb::gil_scoped_acquire gil;
  ErrorKind otherwise = ErrorKind::invalid_input;  // kind of an exception of resolve_: the group is unknown
  try {
    const nb::object process_group = resolve_(group.c_str());
    Key key{group, on_gpu, on_gpu ? index : 0};
    auto found = teams_.find(key);
    if (found != teams_.end() && found->second->is_of(process_group)) return found->second;
    otherwise = ErrorKind::internal;
    const nb::object joined = meet_(process_group, on_gpu, index);
    // NOTE: look again: another thread may have made the team meanwhile, and its operators may be in use.
    found = teams_.find(key);
    if (found != teams_.end() && found->second->is_of(process_group)) return found->second;
    auto team = std::make_shared<TorchTeam>(process_group, nb::cast<const PyGroup&>(joined).shared());
    // NOTE: take the old team out of the table first: its destructor releases the GIL.
    const std::shared_ptr<TorchTeam> old = std::exchange(teams_[std::move(key)], team);
    return team;
  } catch (const nb::python_error& error) {
    throw error_of(error, otherwise);
  }
}

}  // namespace tilewire::python
