// The cost of the machinery without work: empty tasks with a wait and a post each, calls that wake several workers, and
// two ranks that wait for each other. Run by bench/run.sh.
#include <chrono>
#include <vector>

#include "core/text.hpp"
#include "report.hpp"
#include "tilewire/group.hpp"
#include "tilewire/spi/backend.hpp"

namespace {

using namespace tilewire;
using nlohmann::json;

Plan empty_plan(const std::string& name, int ranks) {
  Plan plan;
  plan.op = name;
  plan.team.num_ranks = ranks;
  return plan;
}

/// A tile lane of compute tasks without rows; all wait for a post of the first task, and all post.
Plan empty_tasks(int count, int workers) {
  Plan plan = empty_plan("empty_tasks", 1);
  plan.buffers = {
      {.name = "a", .rows = 1, .cols = 1}, {.name = "b", .rows = 1, .cols = 1}, {.name = "c", .rows = 1, .cols = 1}};
  plan.signals = {{.name = "begun", .first = 0, .count = 1}, {.name = "done", .first = 1, .count = 1}};
  Lane lane{.rank = 0, .engine = Engine::tiles, .name = "tiles", .workers = workers};
  lane.tasks.push_back({.posts = {{.signal = {0, 0}}}});
  Task task{.kind = TaskKind::compute};
  task.reads = {{.buffer = 0}, {.buffer = 1}};
  task.writes = {{.to = {.buffer = 2}}};
  task.waits = {{.signal = {0, 0}, .at_least = 1}};
  task.posts = {{.signal = {0, 1}}};
  lane.tasks.resize(static_cast<size_t>(count) + 1, task);
  plan.lanes = {lane};
  return plan;
}

/// `lanes` serial lanes of one empty task: a call wakes a worker for each.
Plan empty_lanes(int lanes) {
  Plan plan = empty_plan("empty_lanes", 1);
  for (int lane = 0; lane < lanes; ++lane) {
    plan.lanes.push_back({.rank = 0, .engine = Engine::copy, .name = fmt::format("lane {}", lane), .tasks = {Task{}}});
  }
  return plan;
}

/// Two serial lanes on two ranks that post to each other alternately.
Plan ping_pong(int rounds) {
  Plan plan = empty_plan("ping_pong", 2);
  plan.signals = {{.name = "ball", .first = 0, .count = 1}};
  for (int rank = 0; rank < 2; ++rank) {
    Lane lane{.rank = rank, .engine = Engine::copy, .name = "player"};
    for (int round = 0; round < rounds; ++round) {
      Task task;
      const int64_t seen = rank == 1 ? round + 1 : round;
      if (seen > 0) task.waits = {{.signal = {rank, 0}, .at_least = seen}};
      task.posts = {{.signal = {1 - rank, 0}}};
      lane.tasks.push_back(task);
    }
    plan.lanes.push_back(lane);
  }
  plan.lanes[0].tasks.push_back({.waits = {{.signal = {0, 0}, .at_least = rounds}}});
  return plan;
}

/// Microseconds of a call divided by `count`, on rank 0; many calls.
std::vector<double> time_calls(Group& group, const Plan& plan, int count, int calls, bool trace) {
  const auto program = group.load(plan);
  std::vector<double> us;
  for (int call = -2; call < calls; ++call) {
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    program->run({}, {}, {.trace = trace});
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    if (call >= 0) us.push_back(passed.count() / count);
  }
  return us;
}

/// Microseconds per call, of `batches` times `calls` consecutive calls.
std::vector<double> time_batches(Group& group, const Plan& plan, int batches, int calls) {
  const auto program = group.load(plan);
  std::vector<double> us;
  for (int batch = 0; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) program->run({}, {}, {});
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    us.push_back(passed.count() / calls);
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Flags flags = bench::parse_flags(argc, argv);
  const int tasks = flags.quick ? 100 : 10'000;
  const int rounds = flags.quick ? 10 : 1'000;
  const int calls = flags.quick ? 2 : 25;
  const std::string file = bench::temporary_file();
  for (const int workers : {1, 2}) {
    for (const bool trace : {false, true}) {
      launch(1, {}, [&](Group& group) {
        const json row{
            {"case", "empty compute task, its wait satisfied, one post"},
            {"tasks", tasks},
            {"workers", workers},
            {"trace", trace},
            {"us_per_task", bench::statistics(time_calls(group, empty_tasks(tasks, workers), tasks, calls, trace))}};
        bench::append_line(file, row.dump());
      });
    }
  }
  for (const int lanes : {1, 2, 4, 8, 32}) {
    launch(1, {}, [&](Group& group) {
      const json row{{"case", "call of empty serial lanes, a worker each"},
                     {"lanes", lanes},
                     {"us_per_call", bench::statistics(time_batches(group, empty_lanes(lanes), calls, rounds / 2))}};
      bench::append_line(file, row.dump());
    });
  }
  launch(2, {}, [&](Group& group) {
    const std::vector<double> us = time_calls(group, ping_pong(rounds), rounds, calls, false);
    if (group.team().rank != 0) return;
    const json row{
        {"case", "round trip of two ranks"}, {"rounds", rounds}, {"us_per_round_trip", bench::statistics(us)}};
    bench::append_line(file, row.dump());
  });
  json rows = json::array();
  for (const std::string& line : bench::take_lines(file)) rows.push_back(json::parse(line));
  bench::write_report(flags, "host_machinery", rows);
}
