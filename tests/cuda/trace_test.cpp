// Traces of calls on GPUs: every task once, in an order that the plan allows, on one clock.
// NOTE: run the executable alone, or `ctest -L gpu`; every test starts CUDA in a child process of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/host/slot.hpp"
#include "cuda/calls.hpp"
#include "ranks/plans.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::testing {
namespace {

/// The largest step of a device's clock.
constexpr int64_t kResolutionNs = 1100;
/// Two clocks, each known to about 1 us, and a post that is recorded after it is made.
constexpr int64_t kToleranceNs = 10'000;
/// The same if clocks are compared when an operator is made.
constexpr int64_t kSharedToleranceNs = 200'000;

class CudaTraces : public InPlaces {
 protected:
  /// All kinds of lanes, and tiles in pairs, some of them padded.
  [[nodiscard]] std::vector<Sample> traced_samples() const {
    std::vector<Sample> all = samples();
    Config pairs{.tile_m = 128, .tile_n = 256, .cluster_m = 2, .group_m = 4};
    all.push_back({{.op = "gemm_reduce_scatter", .m = 1280, .n = 1024, .k = 512}, pairs});
    all.push_back({{.op = "all_gather_gemm", .m = 1280, .n = 1536, .k = 512}, pairs});
    if (place_.shared() || cuda::missing_cublaslt()) return all;
    std::ranges::copy(library_samples(), std::back_inserter(all));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaTraces, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

std::string name_of(const Plan& plan, const TraceEvent& event) { return task_name(plan, event.lane, event.task); }

void want_every_task_once(const Plan& plan, const Trace& trace) {
  std::set<std::pair<int, int64_t>> tasks;
  for (const TraceEvent& event : trace.events) {
    want(event.lane < std::ssize(plan.lanes) && event.task < std::ssize(plan.lanes[event.lane].tasks),
         "lane {} task {}", event.lane, event.task);
    want(tasks.insert({event.lane, event.task}).second, "{} twice", name_of(plan, event));
    want(event.taken_ns <= event.start_ns && event.start_ns <= event.end_ns, "{}: {}, {}, {}", name_of(plan, event),
         event.taken_ns, event.start_ns, event.end_ns);
  }
  want(std::ssize(tasks) == num_tasks(plan), "{} of {} tasks", tasks.size(), num_tasks(plan));
}

/// Serial lanes run in list order, and so do the tiles of each worker. No worker does two tasks at the same time.
void want_list_order(const Plan& plan, Trace trace) {
  std::ranges::sort(trace.events, {}, [](const TraceEvent& event) {
    return std::tuple(event.lane, event.worker, event.taken_ns, event.start_ns, event.task);
  });
  const TraceEvent* before = nullptr;
  const TraceEvent* tile = nullptr;
  for (const TraceEvent& event : trace.events) {
    const bool same = before != nullptr && before->lane == event.lane && before->worker == event.worker;
    if (!same) tile = nullptr;
    if (same && before->end_ns > event.taken_ns) {
      fail(ErrorKind::wrong_result, "{} and {} overlap", name_of(plan, *before), name_of(plan, event));
    }
    before = &event;
    if (plan.lanes[event.lane].tasks[event.task].kind != TaskKind::compute) continue;
    if (tile != nullptr && tile->task >= event.task) {
      fail(ErrorKind::wrong_result, "{} before {}", name_of(plan, *tile), name_of(plan, event));
    }
    tile = &event;
  }
  std::map<std::pair<int, int64_t>, const TraceEvent*> by_task;
  for (const TraceEvent& event : trace.events) by_task[{event.lane, event.task}] = &event;
  for (const auto& [place, event] : by_task) {
    if (place.second == 0 || !is_serial(plan.lanes[place.first].engine)) continue;
    const TraceEvent& earlier = *by_task.at({place.first, place.second - 1});
    want(event->start_ns >= earlier.end_ns - kResolutionNs, "{} started {} ns before {} ended", name_of(plan, *event),
         earlier.end_ns - event->start_ns, name_of(plan, earlier));
  }
}

/// The tasks on which a task waited had started when it ended, on any rank.
void want_posts_before_ends(const Plan& plan, const Trace& trace, int64_t tolerance_ns) {
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> posts;
  const auto task_of = [&](const TraceEvent& event) -> const Task& { return plan.lanes[event.lane].tasks[event.task]; };
  for (const TraceEvent& event : trace.events) {
    for (const Post& post : task_of(event).posts) {
      posts[{post.signal.rank, post.signal.index}].emplace_back(event.start_ns, post.add);
    }
  }
  for (auto& [signal, made] : posts) std::ranges::sort(made);
  for (const TraceEvent& event : trace.events) {
    for (const Wait& wait : task_of(event).waits) {
      int64_t value = 0;
      int64_t reached_ns = std::numeric_limits<int64_t>::min();
      for (const auto& [start_ns, add] : posts[{wait.signal.rank, wait.signal.index}]) {
        if (value >= wait.at_least) break;
        value += add;
        reached_ns = start_ns;
      }
      want(value >= wait.at_least, "{} waits for {} of {}", name_of(plan, event), wait.at_least, value);
      want(wait.at_least <= 0 || reached_ns <= event.end_ns + tolerance_ns, "{} ended {} ns before its posters began",
           name_of(plan, event), reached_ns - event.end_ns);
    }
  }
}

void want_sane(const Group& group, const Plan& plan, const Trace& trace) {
  want_every_task_once(plan, trace);
  want_list_order(plan, trace);
  want_posts_before_ends(plan, trace, shares_gpu(group) ? kSharedToleranceNs : kToleranceNs);
}

/// This rank's events lie between two times of the host.
void want_between(const Group& group, const Trace& mine, int64_t first_ns, int64_t last_ns) {
  const int64_t tolerance = shares_gpu(group) ? kSharedToleranceNs : kToleranceNs;
  for (const TraceEvent& event : mine.events) {
    want(event.taken_ns >= first_ns - tolerance && event.end_ns <= last_ns + tolerance,
         "lane {} task {}: {} to {} ns after the call's begin, which took {} ns", event.lane, event.task,
         event.taken_ns - first_ns, event.end_ns - first_ns, last_ns - first_ns);
  }
}

TEST_P(CudaTraces, HoldEveryTaskOnceInAnOrderThatThePlanAllows) {
  launch_ranks([&](Group& group) {
    for (const Sample& sample : traced_samples()) {
      Op op = make_op(group, sample.problem, sample.config, {.trace = true});
      Caller caller(group, op);
      want(op.last_trace().events.empty(), "a trace before the first call");
      for (int call = 0; call < 3; ++call) {
        caller.fill(call);
        settle(caller.stream());
        group.barrier();
        const int64_t begin_ns = host::now_ns();
        caller.run_and_wait();
        const int64_t end_ns = host::now_ns();
        const Trace trace = op.gather_trace();
        want_between(group, op.last_trace(), begin_ns, end_ns);
        try {
          want_sane(group, op.plan(), trace);
        } catch (const Error& error) {
          fail(error.kind(), "{} with {}: {}", to_string(sample.problem), to_string(sample.config), error.what());
        }
        group.barrier();
      }
      caller.want_right(2);
    }
  });
}

TEST_P(CudaTraces, OfStreamsAndGraphsAreOfTheLastCall) {
  launch_ranks([&](Group& group) {
    for (const Sample& sample : traced_samples()) {
      Op op = make_op(group, sample.problem, sample.config, {.trace = true});
      Caller caller(group, op);
      caller.fill(7);
      keep_in_step(group, caller.stream());
      caller.run();
      keep_in_step(group, caller.stream());
      const Trace enqueued = op.gather_trace();
      want_sane(group, op.plan(), enqueued);
      caller.make_graph();
      int64_t last_ns = 0;
      for (int replay = 0; replay < 2; ++replay) {
        keep_in_step(group, caller.stream());
        caller.replay();
        keep_in_step(group, caller.stream());
        const Trace replayed = op.gather_trace();
        want_sane(group, op.plan(), replayed);
        const auto first = std::ranges::min_element(replayed.events, {}, &TraceEvent::start_ns);
        want(first->start_ns > last_ns, "the trace of a replay is not its own");
        last_ns = first->start_ns;
        group.barrier();
      }
      caller.want_right(7);
    }
  });
}

TEST_P(CudaTraces, AreEmptyWhereNobodyAsksForThem) {
  launch_ranks([&](Group& group) {
    const Sample sample = samples().front();
    Op op = make_op(group, sample.problem, sample.config);
    Caller caller(group, op);
    caller.fill(1);
    settle(caller.stream());
    group.barrier();
    caller.run_and_wait();
    want(op.gather_trace().events.empty(), "an untraced call has events");
  });
}

TEST_P(CudaTraces, OfTwoRanksAreOnOneClock) {
  if (GetParam().num_ranks < 2) GTEST_SKIP() << "one rank";
  place_.num_ranks = 2;
  launch_ranks([&](Group& group) {
    constexpr int kRounds = 200;
    const Plan plan = ping_pong(kRounds);
    const auto program = group.load(plan);
    for (int call = 0; call < 2; ++call) {
      program->run({}, {}, {.trace = true});
      group.barrier();
    }
    std::string times;
    for (const TraceEvent& event : program->trace().events) times += fmt::format("{} ", event.end_ns);
    const auto all = group.all_gather(times);
    std::array<std::istringstream, 2> texts{std::istringstream(all[0]), std::istringstream(all[1])};
    int64_t before = 0;
    int64_t worst = std::numeric_limits<int64_t>::min();
    for (int turn = 0; turn < 2 * kRounds; ++turn) {
      int64_t time = 0;
      texts[turn % 2] >> time;
      if (turn > 0) worst = std::max(worst, before - time);
      before = time;
    }
    if (group.team().rank == 0) std::printf("hops take %lld ns or more\n", static_cast<long long>(-worst));
    want(worst <= kToleranceNs, "a task ended {} ns before the one that it waits for", worst);
  });
}

}  // namespace
}  // namespace tilewire::testing
