// Gives local workspace the memory of buffers that no later task uses. Listed in lower.cpp.
#include <algorithm>
#include <vector>

#include "core/grouped_tasks.hpp"
#include "core/text.hpp"
#include "lower/passes.hpp"

namespace tilewire::lowering {
namespace {

/// A task that uses a buffer: its lane, and its index there.
struct User {
  const Lane* lane;
  int64_t index;
};

/// The tasks that use each buffer.
std::vector<std::vector<User>> users_of(const Plan& plan) {
  std::vector<std::vector<User>> users(plan.buffers.size());
  const auto add = [&](int buffer, const User& user) {
    auto& mine = users[buffer];
    if (mine.empty() || mine.back().lane != user.lane || mine.back().index != user.index) mine.push_back(user);
  };
  for (const Lane& lane : plan.lanes) {
    for (int64_t index = 0; index < std::ssize(lane.tasks); ++index) {
      const Task& task = lane.tasks[index];
      for (const Region& read : task.reads) add(read.buffer, {&lane, index});
      for (const Region& read : extents_read(plan, task)) add(read.buffer, {&lane, index});
      for (const Region& read : task.addends) add(read.buffer, {&lane, index});
      for (const EpilogueStep& step : task.epilogue) {
        if (step.operand) add(step.operand->buffer, {&lane, index});
      }
      for (const Write& write : task.writes) add(write.to.buffer, {&lane, index});
    }
  }
  return users;
}

/// Whether stages, or the order of a lane, put one task before another of the same rank.
bool is_before(const User& first, const User& second) {
  if (first.lane->stage != second.lane->stage) return first.lane->stage < second.lane->stage;
  return first.lane == second.lane && is_serial(first.lane->engine) && first.index < second.index;
}

/// Whether no task uses the first buffer when one uses the second.
bool are_apart(const std::vector<User>& first, const std::vector<User>& second) {
  return std::ranges::all_of(first, [&](const User& one) {
    return std::ranges::all_of(
        second, [&](const User& other) { return one.lane->rank != other.lane->rank || is_before(one, other); });
  });
}

}  // namespace

std::string reuse_memory(Plan& plan, const Target&) {
  if (std::ranges::none_of(plan.lanes, [](const Lane& lane) { return lane.stage > 0; })) return "no stages";
  const auto users = users_of(plan);
  std::vector<bool> taken(plan.buffers.size(), false);
  int64_t saved = 0;
  for (size_t later = 0; later < plan.buffers.size(); ++later) {
    Buffer& buffer = plan.buffers[later];
    for (size_t earlier = 0; earlier < later && buffer.scope == Scope::local && buffer.reuses < 0; ++earlier) {
      const Buffer& before = plan.buffers[earlier];
      if (before.scope != Scope::local || before.reuses >= 0 || taken[earlier]) continue;
      if (workspace_bytes(buffer) > workspace_bytes(before) || !are_apart(users[earlier], users[later])) continue;
      buffer.reuses = static_cast<int>(earlier);
      taken[earlier] = true;
      saved += workspace_bytes(buffer);
    }
  }
  return saved == 0 ? "no buffer fits into memory that earlier stages have used"
                    : fmt::format("{:.3f} MiB of local workspace have the memory of earlier buffers",
                                  static_cast<double>(saved) / (1 << 20));
}

}  // namespace tilewire::lowering
