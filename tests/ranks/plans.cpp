// Builders of small plans.
// Used by the tests of ranks and faults.
#include "ranks/plans.hpp"

#include <filesystem>
#include <iterator>

namespace tilewire::testing {

std::vector<bool> launch_modes() { return kThreadSanitizer ? std::vector<bool>{true} : std::vector<bool>{false, true}; }

Plan new_plan(const std::string& op, int num_ranks) {
  Plan plan;
  plan.op = op;
  plan.team.num_ranks = num_ranks;
  return plan;
}

int add_buffer(Plan& plan, const std::string& name, DType dtype, Shape shape, Scope scope) {
  plan.buffers.push_back({.name = name, .dtype = dtype, .rows = shape.rows, .cols = shape.cols, .scope = scope});
  return static_cast<int>(plan.buffers.size()) - 1;
}

int add_signals(Plan& plan, const std::string& name, int count) {
  const int first = num_signals(plan);
  plan.signals.push_back({name, first, count});
  return first;
}

Lane& add_lane(Plan& plan, int rank, Engine engine, const std::string& name, int workers) {
  plan.lanes.push_back({.rank = rank, .engine = engine, .name = name, .workers = workers});
  return plan.lanes.back();
}

Region whole(const Plan& plan, int rank, int buffer) {
  const Shape shape = shape_on(plan.buffers[buffer], rank);
  return {rank, buffer, 0, shape.rows, 0, shape.cols};
}

Task copy_task(const Region& from, const Region& to) {
  Task task;
  task.kind = TaskKind::copy;
  task.reads = {from};
  task.writes = {{to, 0, WriteMode::store}};
  return task;
}

Task sync_task() { return {}; }

Plan ping_pong(int rounds) {
  Plan plan = new_plan("ping_pong", 2);
  const int ball = add_signals(plan, "ball");
  for (int rank = 0; rank < 2; ++rank) {
    Lane& lane = add_lane(plan, rank, Engine::copy, "player");
    for (int round = 0; round < rounds; ++round) {
      Task task = sync_task();
      if (rank == 1 || round > 0) task.waits = {{{rank, ball}, rank == 1 ? round + 1 : round, Purpose::data}};
      task.posts = {{{1 - rank, ball}, 1}};
      lane.tasks.push_back(task);
    }
  }
  // Rank 0 ends with the ball.
  Task last = sync_task();
  last.waits = {{{0, ball}, rounds, Purpose::data}};
  plan.lanes[0].tasks.push_back(last);
  return plan;
}

Plan all_gather_plan(int num_ranks, int64_t cols) {
  Plan plan = new_plan("gather_by_hand", num_ranks);
  const int input = add_buffer(plan, "mine", DType::fp32, {1, cols}, Scope::input);
  const int output = add_buffer(plan, "all", DType::fp32, {num_ranks, cols}, Scope::output);
  const int stage = add_buffer(plan, "stage", DType::fp32, {num_ranks, cols}, Scope::symmetric);
  const int ready = add_signals(plan, "ready", num_ranks);
  const int arrived = add_signals(plan, "arrived", num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    Lane& send = add_lane(plan, rank, Engine::copy, "send");
    Task begin = sync_task();
    for (int peer = 0; peer < num_ranks; ++peer) begin.posts.push_back({{peer, ready + rank}, 1});
    send.tasks.push_back(begin);
    for (int step = 0; step < num_ranks; ++step) {
      const int peer = (rank + step) % num_ranks;
      Task task = copy_task(whole(plan, rank, input), {peer, stage, rank, 1, 0, cols});
      task.waits = {{{rank, ready + peer}, 1, Purpose::ready}};
      task.posts = {{{peer, arrived + rank}, 1}};
      send.tasks.push_back(task);
    }
    Lane& receive = add_lane(plan, rank, Engine::tiles, "receive", 2);
    for (int peer = 0; peer < num_ranks; ++peer) {
      Task task = copy_task({rank, stage, peer, 1, 0, cols}, {rank, output, peer, 1, 0, cols});
      task.waits = {{{rank, arrived + peer}, 1, Purpose::data}};
      receive.tasks.push_back(task);
    }
  }
  return plan;
}

Plan pull_plan() {
  Plan plan = new_plan("pull", 2);
  const int in = add_buffer(plan, "in", DType::fp32, {2, 3}, Scope::input);
  const int out = add_buffer(plan, "out", DType::fp32, {2, 3}, Scope::output);
  plan.buffers[in].in_arena = true;
  const int ready = add_signals(plan, "ready");
  const int read = add_signals(plan, "read");
  for (int rank = 0; rank < 2; ++rank) {
    Lane& lane = add_lane(plan, rank, Engine::copy, "pull");
    lane.tasks = {sync_task(), copy_task(whole(plan, 1 - rank, in), whole(plan, rank, out)), sync_task()};
    lane.tasks[0].posts = {{{1 - rank, ready}, 1}};
    lane.tasks[1].waits = {{{rank, ready}, 1, Purpose::ready}};
    lane.tasks[1].posts = {{{1 - rank, read}, 1}};
    lane.tasks[2].waits = {{{rank, read}, 1, Purpose::ready}};
  }
  return plan;
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::internal, "no error was thrown");
}

LaunchOptions small_launch(bool threads, double timeout_s) {
  LaunchOptions options;
  options.threads = threads;
  options.arena_bytes = 64 << 20;
  options.timeout_s = timeout_s;
  return options;
}

int num_descriptors() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace tilewire::testing
