// The checker against the schedules: random problems under every combination of knobs are proven, and damaged plans are
// refused for the right reason. Built as the target `unit_property`. TILEWIRE_SEED repeats a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>

#include "operator_names.hpp"
#include "schedules/variants.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

using Random = std::mt19937_64;

uint64_t seed() {
  const char* given = std::getenv("TILEWIRE_SEED");
  static const uint64_t kSeed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  return kSeed;
}

int64_t between(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

template <class T>
const T& any_of(Random& random, const std::vector<T>& list) {
  return list[static_cast<size_t>(between(random, 0, std::ssize(list) - 1))];
}

std::string words(const CheckResult& result) {
  std::string text;
  for (const Violation& violation : result.violations)
    text += fmt::format("[{}] {}\n", to_string(violation.rule), violation.text);
  return text;
}

// ---- sound plans are accepted ------------------------------------------------------------------------

Problem random_problem(Random& random, const char* op) {
  Problem problem{.op = op, .m = between(random, 0, 40), .n = between(random, 0, 40), .k = between(random, 0, 20)};
  problem.dtype = any_of<DType>(random, {DType::fp32, DType::bf16, DType::fp16});
  problem.b_layout = any_of<BLayout>(random, {BLayout::nk, BLayout::kn});
  problem.reduction = any_of<Reduction>(random, {Reduction::repeatable, Reduction::any});
  if (find_operator(op).structure.multiplies && between(random, 0, 1) == 1)
    problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::relu}, {EpilogueKind::residual}};
  if (problem.op == "all_gather_gemm" && between(random, 0, 3) == 0) problem.epilogue = {{EpilogueKind::swiglu_pairs}};
  if (find_operator(op).structure.before == Collective::all_gather) {
    problem.gathered_output = between(random, 0, 1) == 1;
    for (int64_t more = between(random, -1, 2); more > 0; --more) problem.more_n.push_back(between(random, 0, 30));
  }
  const int64_t experts = between(random, 1, 9);
  problem = testing::with_experts(
      problem,
      {.count = experts,
       .top_k = between(random, 1, experts),
       .ffn = between(random, 1, 30),
       .activation = any_of<Activation>(random, {Activation::swiglu, Activation::swiglu_pairs, Activation::relu})});
  for (const Buffer& buffer : find_operator(op).buffers(problem, 1)) {
    if (between(random, 0, 2) == 0) problem.arena.push_back(buffer.name);
  }
  return problem;
}

/// Sanitizers take ten times as long.
#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
constexpr int kRounds = 4;
#else
constexpr int kRounds = 60;
#endif

class RandomProblems : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomProblems, EveryKnobIsProven) {
  SCOPED_TRACE(fmt::format("TILEWIRE_SEED={}", seed()));
  Random random(seed());
  for (int round = 0; round < kRounds; ++round) {
    Problem problem = random_problem(random, GetParam());
    const Team team{.num_ranks = static_cast<int>(between(random, 1, 8))};
    Config base{.tile_m = between(random, 1, 16), .tile_n = between(random, 1, 16)};
    base.group_m = between(random, 1, 3);
    base.chunk_rows = between(random, 1, 9);
    if (round % 4 == 0) {
      // What tensor cores take, so that sums may be fused.
      problem.m = between(random, 0, 900);
      problem.n = 8 * between(random, 0, 20);
      problem.dtype = DType::bf16;
      problem.out_dtype.reset();
      base.tile_m = 64 * between(random, 1, 2);
      base.tile_n = 128;
      base.chunk_rows = between(random, 32, 200);
    }
    for (const Config& config : all_variants(problem, team, base)) {
      const auto is_proven = [&](const Plan& plan, const char* after) {
        const CheckResult result = check(plan);
        EXPECT_TRUE(result.ok()) << to_string(problem) << "\n"
                                 << team.num_ranks << " ranks\n"
                                 << to_string(config) << "\n"
                                 << after << "\n"
                                 << words(result);
        return result.ok();
      };
      Plan plan = make_plan(problem, team, config);
      ASSERT_TRUE(is_proven(plan, "as made"));
      // Lowered for GPUs: proven after every pass that changed something.
      const Target target = gpu_target("h200", team.num_ranks, 132);
      uint64_t before = hash_of(plan);
      for (const Pass& pass : passes_of(target)) {
        static_cast<void>(pass.run(plan, target));
        const uint64_t after = hash_of(plan);
        ASSERT_TRUE(after == before || is_proven(plan, pass.name));
        before = after;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checker, RandomProblems, ::testing::ValuesIn(testing::all_operator_names()),
                         [](const auto& param) { return std::string(param.param); });

// ---- damaged plans are refused -----------------------------------------------------------------------

/// Something to damage: a task and, if it matters, one of its items.
struct Spot {
  Task* task;
  size_t item;
};

/// All items of all tasks for which `fits(lane, task, item)`; `items(task)` counts them.
template <class Items, class Fits>
std::vector<Spot> spots(Plan& plan, const Items& items, const Fits& fits) {
  std::vector<Spot> all;
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks) {
      for (size_t item = 0; item < items(task); ++item) {
        if (fits(lane, task, item)) all.push_back({&task, item});
      }
    }
  }
  return all;
}

constexpr auto kWaits = [](const Task& task) { return task.waits.size(); };
constexpr auto kPosts = [](const Task& task) { return task.posts.size(); };
constexpr auto kReads = [](const Task& task) { return task.reads.size(); };
constexpr auto kWrites = [](const Task& task) { return task.writes.size(); };
constexpr auto kOnce = [](const Task&) { return size_t{1}; };

bool moves_data(const Task& task) { return task.kind != TaskKind::sync && task.kind != TaskKind::fill; }

bool is_on(const Plan& plan, Signal signal, const std::string& block) {
  return signal_name(plan, signal).starts_with(block);
}

struct Damage {
  const char* name;
  Config config;
  const char* op;
  std::vector<Rule> reasons;
  std::function<void(Plan&, Random&)> apply;
};

Config with(const std::function<void(Config&)>& change) {
  Config config{.tile_m = 8, .tile_n = 8};
  change(config);
  return config;
}

void erase_wait(const Spot& spot) {
  spot.task->waits.erase(spot.task->waits.begin() + static_cast<std::ptrdiff_t>(spot.item));
}

void drop_post(Plan& plan, Random& random) {
  const Spot spot = any_of(random, spots(plan, kPosts, [](auto&, auto& task, size_t) { return moves_data(task); }));
  spot.task->posts.erase(spot.task->posts.begin() + static_cast<std::ptrdiff_t>(spot.item));
}

void raise_threshold(Plan& plan, Random& random) {
  const Spot spot = any_of(random, spots(plan, kWaits, [](auto&, auto&, size_t) { return true; }));
  spot.task->waits[spot.item].at_least += 1;
}

void lower_threshold(Plan& plan, Random& random) {
  const Spot spot =
      any_of(random, spots(plan, kWaits, [](auto&, auto& task, size_t i) { return task.waits[i].at_least > 1; }));
  spot.task->waits[spot.item].at_least -= 1;
}

void drop_wait(Plan& plan, Random& random, Purpose purpose) {
  // NOTE: of two waits for data one may imply the other. A single wait is needed, and so is each handshake.
  erase_wait(any_of(random, spots(plan, kWaits, [&](auto&, auto& task, size_t i) {
                      return moves_data(task) && task.waits[i].purpose == purpose &&
                             (purpose == Purpose::ready ||
                              std::ranges::count(task.waits, purpose, &Wait::purpose) == 1);
                    })));
}

void drop_all_ready_waits(Plan& plan, Random&) {
  for (Lane& lane : plan.lanes) {
    for (Task& task : lane.tasks)
      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::ready; });
  }
}

void say_ready_last(Plan& plan, Random&) {
  for (Lane& lane : plan.lanes) {
    if (lane.name == "tiles") std::swap(lane.tasks.front(), lane.tasks.back());
  }
}

void swap_tasks_of_a_copy_lane(Plan& plan, Random&) {
  for (Lane& lane : plan.lanes) {
    if (lane.name == "gather") std::ranges::reverse(lane.tasks);
  }
}

void swap_writes(Plan& plan, Random& random) {
  const auto all = spots(
      plan, kOnce, [](auto& lane, auto& task, size_t) { return lane.rank == 0 && task.kind == TaskKind::compute; });
  const Spot first = any_of(random, all);
  Spot second = first;
  while (second.task == first.task) second = any_of(random, all);
  std::swap(first.task->writes, second.task->writes);
}

void shift_write(Plan& plan, Random& random) {
  const auto fits = [&](auto&, auto& task, size_t i) {
    const Region& to = task.writes[i].to;
    return moves_data(task) && to.rows > 0 && to.cols > 0 &&
           to.row + to.rows < shape_on(plan.buffers[to.buffer], to.rank).rows;
  };
  const Spot spot = any_of(random, spots(plan, kWrites, fits));
  spot.task->writes[spot.item].to.row += 1;
}

void shift_read(Plan& plan, Random& random) {
  const auto fits = [&](auto&, auto& task, size_t i) {
    const Region& from = task.reads[i];
    return from.rows > 0 && from.cols > 0 && from.row + from.rows < shape_on(plan.buffers[from.buffer], from.rank).rows;
  };
  const Spot spot = any_of(random, spots(plan, kReads, fits));
  spot.task->reads[spot.item].row += 1;
}

void wrong_peer(Plan& plan, Random& random) {
  const auto fits = [&](auto& lane, auto& task, size_t i) { return task.writes[i].to.rank != lane.rank; };
  const Spot spot = any_of(random, spots(plan, kWrites, fits));
  int& rank = spot.task->writes[spot.item].to.rank;
  rank = (rank + 1) % plan.team.num_ranks;
}

void write_twice(Plan& plan, Random& random) {
  std::vector<Lane*> lanes;
  for (Lane& lane : plan.lanes) {
    if (lane.name == "tiles") lanes.push_back(&lane);
  }
  Lane& lane = *any_of(random, lanes);
  Task again = lane.tasks[static_cast<size_t>(between(random, 1, std::ssize(lane.tasks) - 1))];
  again.posts.clear();
  lane.tasks.push_back(again);
}

void lose_contribution(Plan& plan, Random& random) {
  any_of(random, spots(plan, kOnce, [](auto&, auto& task, size_t) { return task.kind == TaskKind::reduce; }))
      .task->reads.pop_back();
}

void count_twice(Plan& plan, Random& random) {
  Task& task =
      *any_of(random, spots(plan, kOnce, [](auto&, auto& t, size_t) { return t.kind == TaskKind::reduce; })).task;
  task.reads.back() = task.reads.front();
}

void skip_fill(Plan& plan, Random& random) {
  Task& task =
      *any_of(random, spots(plan, kOnce, [](auto&, auto& t, size_t) { return t.kind == TaskKind::fill; })).task;
  task.kind = TaskKind::sync;
  task.writes.clear();
}

void leave_hole(Plan& plan, Random& random) {
  Task& task =
      *any_of(random, spots(plan, kOnce, [](auto&, auto& t, size_t) { return t.kind == TaskKind::reduce; })).task;
  task = {.kind = TaskKind::sync, .waits = task.waits, .posts = task.posts};
}

void post_elsewhere(Plan& plan, Random& random) {
  const auto fits = [&](auto&, auto& task, size_t i) {
    return moves_data(task) && is_on(plan, task.posts[i].signal, "arrived");
  };
  Signal& signal = any_of(random, spots(plan, kPosts, fits)).task->posts.front().signal;
  signal.rank = (signal.rank + 1) % plan.team.num_ranks;
}

void drop_taken_wait(Plan& plan, Random& random) {
  erase_wait(any_of(random, spots(plan, kWaits, [&](auto&, auto& task, size_t i) {
                      return is_on(plan, task.waits[i].signal, "taken");
                    })));
}

void drop_turn(Plan& plan, Random& random) {
  // NOTE: the pace signals of several owners come from one tile: each implies the others.
  const auto is_turn = [&](const Wait& wait) { return is_on(plan, wait.signal, "turn"); };
  erase_wait(any_of(random, spots(plan, kWaits, [&](auto&, auto& task, size_t i) {
                      return is_turn(task.waits[i]) && std::ranges::count_if(task.waits, is_turn) == 1;
                    })));
}

void drop_epilogue(Plan& plan, Random& random) {
  any_of(random, spots(plan, kOnce, [](auto&, auto& task, size_t) { return !task.epilogue.empty(); }))
      .task->epilogue.clear();
}

void epilogue_too_early(Plan& plan, Random& random) {
  const auto steps =
      any_of(random, spots(plan, kOnce, [](auto&, auto& task, size_t) { return !task.epilogue.empty(); }))
          .task->epilogue;
  Task& task =
      *any_of(random, spots(plan, kOnce, [&](auto&, auto& t, size_t) { return t.kind == TaskKind::compute; })).task;
  task.epilogue = steps;
  task.epilogue[0].operand->rank = task.reads[0].rank;
}

void write_to_input(Plan& plan, Random& random) {
  const Spot spot =
      any_of(random, spots(plan, kWrites, [](auto&, auto& task, size_t) { return task.kind == TaskKind::compute; }));
  Region& to = spot.task->writes[spot.item].to;
  const Region& a = spot.task->reads[0];
  const int64_t cols = to.cols;
  to = {.rank = a.rank, .buffer = 1, .row = 0, .rows = 1, .col = 0, .cols = cols};
}

void reach_private_memory(Plan& plan, Random& random) {
  const auto fits = [](auto&, auto& task, size_t) { return task.kind == TaskKind::compute; };
  Region& from = any_of(random, spots(plan, kOnce, fits)).task->reads[0];
  from.rank = (from.rank + 1) % plan.team.num_ranks;
}

std::vector<Damage> damages() {
  using enum Rule;
  const Config staged = with([](Config&) {});
  const Config gather = with([](Config& c) { c.transport = Transport::copy_engine; });
  const Config ring = with([](Config& c) { c.transport = Transport::copy_engine, c.algorithm = Algorithm::ring; });
  const Config pull = with([](Config& c) { c.reduce_mode = ReduceMode::pull; });
  const Config add = with([](Config& c) { c.reduce_mode = ReduceMode::accumulate; });
  const Config fills = with([](Config& c) { c.schedule = "track_trigger"; });
  const Config split = with([](Config& c) { c.split_k = 2; });
  const Config streams = with([](Config& c) { c.schedule = "two_stream"; });
  const auto data = [](Plan& plan, Random& random) { drop_wait(plan, random, Purpose::data); };
  const auto ready = [](Plan& plan, Random& random) { drop_wait(plan, random, Purpose::ready); };
  const char* const kScatter = "gemm_reduce_scatter";
  const char* const kGather = "all_gather_gemm";
  const char* const kReduce = "gemm_all_reduce";
  return {
      {"dropped post", staged, kScatter, {progress}, drop_post},
      {"dropped post of a chunk", gather, kGather, {progress}, drop_post},
      {"dropped post of a part", split, kScatter, {progress}, drop_post},
      {"raised threshold", staged, kScatter, {progress}, raise_threshold},
      {"raised threshold of a flag", streams, kReduce, {progress}, raise_threshold},
      {"lowered threshold", staged, kScatter, {race}, lower_threshold},
      {"lowered threshold of parts", split, kScatter, {race}, lower_threshold},
      {"lowered threshold of a flag", streams, kReduce, {race}, lower_threshold},
      {"dropped data wait", staged, kScatter, {race}, data},
      {"dropped data wait of a tile", gather, kGather, {race}, data},
      {"dropped data wait on a ring", ring, kGather, {race}, data},
      {"dropped ready wait", staged, kScatter, {race}, ready},
      {"dropped ready wait of a push", gather, kGather, {race}, ready},
      {"dropped turn of an addition", add, kScatter, {race}, drop_turn},
      {"dropped ready wait of a fill", fills, kScatter, {race}, ready},
      {"no ready handshake", staged, kScatter, {race}, drop_all_ready_waits},
      {"ready said last", staged, kScatter, {progress}, say_ready_last},
      {"swapped tasks of a copy lane", ring, kGather, {progress}, swap_tasks_of_a_copy_lane},
      {"swapped writes", staged, kScatter, {structure, coverage, race}, swap_writes},
      {"shifted write", staged, kScatter, {structure, coverage, race}, shift_write},
      {"shifted write of a chunk", gather, kGather, {structure, coverage, race}, shift_write},
      {"shifted read", staged, kScatter, {coverage, race}, shift_read},
      {"shifted read of a chunk", gather, kGather, {coverage, race}, shift_read},
      {"wrong peer", staged, kScatter, {structure, coverage, race}, wrong_peer},
      {"double write", staged, kScatter, {coverage, race}, write_twice},
      {"double accumulate", add, kScatter, {coverage, race}, write_twice},
      {"missing contribution", staged, kScatter, {coverage}, lose_contribution},
      {"contribution counted twice", staged, kReduce, {coverage}, count_twice},
      {"missing fill", fills, kScatter, {coverage}, skip_fill},
      {"hole in the output", staged, kScatter, {coverage}, leave_hole},
      {"post on the wrong rank", staged, kScatter, {progress}, post_elsewhere},
      {"reads not waited for at the end", pull, kScatter, {race}, drop_taken_wait},
      {"missing epilogue", staged, kScatter, {coverage}, drop_epilogue},
      {"epilogue before the sum", staged, kScatter, {coverage}, epilogue_too_early},
      {"write to an input", staged, kScatter, {structure}, write_to_input},
      {"private memory of a peer", staged, kScatter, {structure}, reach_private_memory},
  };
}

TEST(Damage, IsRefusedForTheRightReason) {
  SCOPED_TRACE(fmt::format("TILEWIRE_SEED={}", seed()));
  Random random(seed());
  for (const Damage& damage : damages()) {
    for (int round = 0; round < 20; ++round) {
      Problem problem{.op = damage.op, .m = 8 * between(random, 6, 9), .n = 8 * between(random, 2, 4), .k = 24};
      problem.reduction = Reduction::any;
      problem.epilogue = {{EpilogueKind::bias}};
      const Team team{.num_ranks = static_cast<int>(between(random, 3, 4))};
      Plan plan = make_plan(problem, team, damage.config);
      damage.apply(plan, random);
      const CheckResult result = check(plan);
      ASSERT_FALSE(result.ok()) << damage.name << " was accepted\n" << to_string(plan);
      const bool right = std::ranges::any_of(result.violations, [&](const Violation& violation) {
        return std::ranges::find(damage.reasons, violation.rule) != damage.reasons.end();
      });
      ASSERT_TRUE(right) << damage.name << "\n" << words(result);
      // A hole has no task; everything else names those involved.
      const std::string named = damage.name == std::string("hole in the output") ? "never written" : "task ";
      EXPECT_NE(result.violations.front().text.find(named), std::string::npos) << words(result);
    }
  }
}

TEST(Damage, DroppedPaceWaitIsAccepted) {
  Random random(seed());
  Config config = with([](Config& c) { c.transport = Transport::copy_engine, c.pacing = Pacing::lockstep; });
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter"}) {
    Plan plan = make_plan({.op = op, .m = 64, .n = 32, .k = 24}, {.num_ranks = 4}, config);
    drop_wait(plan, random, Purpose::pace);
    EXPECT_TRUE(check(plan).ok()) << words(check(plan));
  }
}

}  // namespace
}  // namespace tilewire
