// Programs: the results of tasks, and their order, over many calls; hand-built plans only.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "core/convert.hpp"
#include "ranks/plans.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::add_buffer;
using testing::add_lane;
using testing::add_signals;
using testing::error_of;
using testing::new_plan;
using testing::small_launch;
using testing::want;
using testing::whole;

class Programs : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Host, Programs, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

/// A gather of `cols` columns: fresh data in each call, skewed ranks, poisoned outputs.
class Gather {
 public:
  Gather(Group& group, int64_t cols, uint64_t seed)
      : group_(group),
        cols_(cols),
        random_(seed * 100 + group.team().rank),
        program_(group.load(testing::all_gather_plan(group.team().num_ranks, cols))) {}

  void call(int call, const RunOptions& options = {}) {
    const int num_ranks = group_.team().num_ranks;
    std::vector<float> mine(cols_);
    for (int64_t i = 0; i < cols_; ++i) mine[i] = value(call, group_.team().rank, i);
    std::vector<float> all(num_ranks * cols_, std::numeric_limits<float>::quiet_NaN());
    nap();
    const Tensor input = make_tensor(mine.data(), DType::fp32, 1, cols_);
    const Tensor output = make_tensor(all.data(), DType::fp32, num_ranks, cols_);
    program_->run({&input, 1}, {&output, 1}, options);
    // The call has ended: no rank needs the input any more.
    std::fill(mine.begin(), mine.end(), -7.0F);
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (int64_t i = 0; i < cols_; ++i) {
        want(all[rank * cols_ + i] == value(call, rank, i), "call {}, rank {}, element {}: got {}", call, rank, i,
             all[rank * cols_ + i]);
      }
    }
  }
  Program& program() { return *program_; }

 private:
  static float value(int call, int rank, int64_t i) { return static_cast<float>(call * 1000 + rank * 100 + i % 97); }
  void nap() {
    if (random_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 400));
  }

  Group& group_;
  int64_t cols_;
  std::minstd_rand random_;
  std::unique_ptr<Program> program_;
};

TEST_P(Programs, AThousandSkewedCallsAreRight) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  launch(3, small_launch(GetParam()), [&](Group& group) {
    Gather gather(group, 1000, seed);
    for (int call = 0; call < 1000; ++call) gather.call(call);
  });
}

TEST_P(Programs, OneToEightRanksAndTwoProgramsAtOnce) {
  for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
    launch(num_ranks, small_launch(GetParam()), [&](Group& group) {
      Gather small(group, 3, 1);
      Gather large(group, 5000, 2);
      for (int call = 0; call < 20; ++call) {
        small.call(2 * call);
        large.call(2 * call + 1);
      }
    });
  }
}

TEST_P(Programs, PingPong) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const auto program = group.load(testing::ping_pong(100));
    for (int call = 0; call < 20; ++call) program->run({}, {}, {});
  });
}

TEST_P(Programs, TraceHasEveryTaskOnOneClock) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const int rank = group.team().rank;
    const Plan plan = testing::ping_pong(10);
    const auto program = group.load(plan);
    program->run({}, {}, {});
    want(program->trace().events.empty(), "an untraced call has events");
    program->run({}, {}, {true});
    const Trace trace = program->trace();
    want(trace.events.size() == plan.lanes[rank].tasks.size(), "{} events", trace.events.size());
    std::string text;
    for (const TraceEvent& event : trace.events) {
      want(event.lane == rank && event.taken_ns > 0, "event of lane {}", event.lane);
      want(event.taken_ns <= event.start_ns && event.start_ns <= event.end_ns, "times of task {}", event.task);
      text += fmt::format("{} ", event.end_ns);
    }
    // Task i of rank 1 answers task i of rank 0: the times of both ranks interleave.
    const auto all = group.all_gather(text);
    std::istringstream zero(all[0]);
    std::istringstream one(all[1]);
    int64_t before = 0;
    for (int round = 0; round < 10; ++round) {
      int64_t times[2] = {};
      zero >> times[0];
      one >> times[1];
      want(before < times[1], "round {}: rank 1 ended before rank 0 had posted", round);
      before = times[0];
    }
  });
}

/// One rank, one call: run `plan` on the tensors.
void run_alone(const Plan& plan, std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
  launch(1, small_launch(true), [&](Group& group) { group.load(plan)->run(inputs, outputs, {}); });
}

TEST(Tasks, CopyTakesStridesAndParts) {
  Plan plan = new_plan("copy", 1);
  const int in = add_buffer(plan, "in", DType::bf16, {4, 6}, Scope::input);
  const int out = add_buffer(plan, "out", DType::bf16, {5, 6}, Scope::output);
  Task task = testing::copy_task({0, in, 1, 3, 2, 3}, {0, out, 0, 2, 1, 3});
  task.writes.push_back({{0, out, 4, 1, 0, 3}, 2, WriteMode::store});
  add_lane(plan, 0, Engine::copy, "copy").tasks = {task};
  std::vector<uint16_t> from(4 * 9);
  std::iota(from.begin(), from.end(), uint16_t{0});
  std::vector<uint16_t> to(5 * 7, 999);
  run_alone(plan, {{from.data(), DType::bf16, 4, 6, 9}}, {{to.data(), DType::bf16, 5, 6, 7}});
  std::vector<uint16_t> expected(5 * 7, 999);
  for (int i = 0; i < 3; ++i) {
    expected[1 + i] = from[1 * 9 + 2 + i];
    expected[7 + 1 + i] = from[2 * 9 + 2 + i];
    expected[4 * 7 + i] = from[3 * 9 + 2 + i];
  }
  EXPECT_EQ(to, expected);
}

TEST(Tasks, ReduceSumsInOrder) {
  // 1e8 + 1 - 1e8 is 0 in this order in fp32, and 1 in another.
  for (const int64_t cols : {1, 5, 5000}) {
    Plan plan = new_plan("reduce", 1);
    Task task;
    task.kind = TaskKind::reduce;
    for (int i = 0; i < 3; ++i) {
      task.reads.push_back(whole(plan, 0, add_buffer(plan, "in", DType::fp32, {2, cols}, Scope::input)));
    }
    task.writes = {{whole(plan, 0, add_buffer(plan, "out", DType::fp32, {2, cols}, Scope::output)), 0, {}},
                   {whole(plan, 0, add_buffer(plan, "half", DType::fp16, {2, cols}, Scope::output)), 0, {}}};
    add_lane(plan, 0, Engine::reduce, "reduce").tasks = {task};
    const float values[] = {1e8F, 1, -1e8F};
    std::vector<std::vector<float>> in;
    std::vector<Tensor> inputs;
    for (const float value : values) in.emplace_back(2 * cols, value);
    for (auto& data : in) inputs.push_back(make_tensor(data.data(), DType::fp32, 2, cols));
    std::vector<float> out(2 * cols, 99);
    std::vector<uint16_t> half(2 * cols, 99);
    const std::vector<Tensor> outputs = {make_tensor(out.data(), DType::fp32, 2, cols),
                                         make_tensor(half.data(), DType::fp16, 2, cols)};
    run_alone(plan, inputs, outputs);
    EXPECT_EQ(out, std::vector<float>(2 * cols, 0.0F));
    EXPECT_EQ(half, std::vector<uint16_t>(2 * cols, 0));
    plan.lanes[0].tasks[0].epilogue = {{EpilogueKind::scale, -2, {}}};
    std::fill(in[2].begin(), in[2].end(), 4.0F);
    std::fill(in[0].begin(), in[0].end(), 2.0F);
    run_alone(plan, inputs, outputs);
    EXPECT_EQ(out, std::vector<float>(2 * cols, -14.0F));
  }
}

TEST(Tasks, EpilogueRunsOnceInOrder) {
  Plan plan = new_plan("epilogue", 1);
  const int in = add_buffer(plan, "in", DType::fp32, {2, 3}, Scope::input);
  const int bias = add_buffer(plan, "bias", DType::bf16, {1, 3}, Scope::input);
  const int residual = add_buffer(plan, "residual", DType::fp32, {2, 3}, Scope::input);
  const int out = add_buffer(plan, "out", DType::fp32, {2, 3}, Scope::output);
  Task task;
  task.kind = TaskKind::reduce;
  task.reads = {whole(plan, 0, in)};
  task.writes = {{whole(plan, 0, out), 0, WriteMode::store}};
  task.epilogue = {{EpilogueKind::bias, 1, whole(plan, 0, bias)},
                   {EpilogueKind::relu, 1, {}},
                   {EpilogueKind::scale, 3, {}},
                   {EpilogueKind::residual, 1, whole(plan, 0, residual)},
                   {EpilogueKind::gelu, 1, {}}};
  add_lane(plan, 0, Engine::tiles, "tiles").tasks = {task};
  std::vector<float> x = {1, -5, 0.25F, std::nanf(""), INFINITY, -0.5F};
  std::vector<uint16_t> b = {bf16_from(1), bf16_from(2), bf16_from(-0.5F)};
  std::vector<float> r = {0.5F, -0.5F, 1, 2, 3, -1};
  std::vector<float> y(6, 99);
  run_alone(plan,
            {make_tensor(x.data(), DType::fp32, 2, 3), make_tensor(b.data(), DType::bf16, 1, 3),
             make_tensor(r.data(), DType::fp32, 2, 3)},
            {make_tensor(y.data(), DType::fp32, 2, 3)});
  for (int i = 0; i < 6; ++i) {
    const double biased = x[i] + from_bf16(b[i % 3]);
    const double value = (biased < 0 ? 0 : biased) * 3 + r[i];
    const double expected = 0.5 * value * (1 + std::erf(value / std::sqrt(2.0)));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(y[i], expected) << i;
    } else {
      EXPECT_NEAR(y[i], expected, 1e-5) << i;
    }
  }
}

TEST(Tasks, PoolSumsTheListedRows) {
  Plan plan = new_plan("pool", 1);
  const int table = add_buffer(plan, "table", DType::fp32, {4, 3}, Scope::input);
  const int indices = add_buffer(plan, "indices", DType::int32, {2, 3}, Scope::input);
  const int out = add_buffer(plan, "out", DType::fp32, {2, 3}, Scope::output);
  Task task;
  task.kind = TaskKind::compute;
  task.body = Body::pool;
  task.reads = {whole(plan, 0, table), whole(plan, 0, indices)};
  task.writes = {{whole(plan, 0, out), 0, WriteMode::store}};
  add_lane(plan, 0, Engine::tiles, "tiles").tasks = {task};
  std::vector<float> rows(12);
  std::iota(rows.begin(), rows.end(), 0.0F);
  std::vector<int32_t> list = {0, 3, 3, 1, 1, 2};
  std::vector<float> sums(6, 99);
  const std::vector<Tensor> inputs = {make_tensor(rows.data(), DType::fp32, 4, 3),
                                      make_tensor(list.data(), DType::int32, 2, 3)};
  const std::vector<Tensor> outputs = {make_tensor(sums.data(), DType::fp32, 2, 3)};
  run_alone(plan, inputs, outputs);
  EXPECT_EQ(sums, (std::vector<float>{18, 21, 24, 12, 15, 18}));
  list[4] = 4;
  const Error error = error_of([&] { run_alone(plan, inputs, outputs); });
  EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
  EXPECT_STREQ(error.what(), "pool: index 4 of a table of 4 rows");
}

TEST_P(Programs, AccumulateLosesNothing) {
  // Four ranks add 1 a thousand times to every element of rank 0's buffer, at once.
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    constexpr int kRanks = 4;
    const int adds = dtype == DType::bf16 ? 60 : 500;
    Plan plan = new_plan("accumulate", kRanks);
    const int out = add_buffer(plan, "out", DType::fp32, {3, 5}, Scope::output);
    const int sum = add_buffer(plan, "sum", dtype, {3, 5}, Scope::symmetric);
    const int filled = add_signals(plan, "filled");
    const int added = add_signals(plan, "added");
    for (int rank = 0; rank < kRanks; ++rank) {
      Lane& lane = add_lane(plan, rank, Engine::tiles, "adders", 2);
      if (rank == 0) {
        Task fill;
        fill.kind = TaskKind::fill;
        fill.value = 16;
        fill.writes = {{whole(plan, 0, sum), 0, WriteMode::store}};
        for (int peer = 0; peer < kRanks; ++peer) fill.posts.push_back({{peer, filled}, 1});
        lane.tasks.push_back(fill);
      }
      Task add;
      add.kind = TaskKind::fill;
      add.value = 1;
      add.writes = {{whole(plan, 0, sum), 0, WriteMode::accumulate}};
      add.waits = {{{rank, filled}, 1, Purpose::data}};
      add.posts = {{{0, added}, 1}};
      for (int i = 0; i < adds; ++i) lane.tasks.push_back(add);
      Task finish;
      finish.kind = TaskKind::reduce;
      finish.reads = {whole(plan, 0, sum)};
      finish.writes = {{whole(plan, rank, out), 0, WriteMode::store}};
      finish.waits = {{{0, added}, kRanks * adds, Purpose::data}};
      add_lane(plan, rank, Engine::reduce, "finish").tasks = {finish};
    }
    launch(kRanks, small_launch(GetParam()), [&](Group& group) {
      const auto program = group.load(plan);
      std::vector<float> result(15, 99);
      const Tensor output = make_tensor(result.data(), DType::fp32, 3, 5);
      program->run({}, {&output, 1}, {});
      const auto expected = static_cast<float>(16 + kRanks * adds);
      for (const float value : result) want(value == (dtype == DType::bf16 ? 256.0F : expected), "got {}", value);
    });
  }
}

TEST_P(Programs, PeersReachTensorsInTheArenaWhereverTheyLie) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const int rank = group.team().rank;
    const auto program = group.load(testing::pull_plan());
    const Tensor tensors[] = {group.allocate(DType::fp32, 2, 3), group.allocate(DType::fp32, 2, 3)};
    for (int call = 0; call < 10; ++call) {
      // Ranks choose different ones.
      const Tensor& mine = tensors[(call + rank) % 2];
      std::fill_n(static_cast<float*>(mine.data), 6, static_cast<float>(10 * call + rank));
      std::vector<float> got(6, 99);
      const Tensor output = make_tensor(got.data(), DType::fp32, 2, 3);
      program->run({&mine, 1}, {&output, 1}, {});
      for (const float value : got) want(value == static_cast<float>(10 * call + 1 - rank), "got {}", value);
    }
    std::vector<float> private_memory(6);
    const Tensor outside = make_tensor(private_memory.data(), DType::fp32, 2, 3);
    const Error error = error_of([&] { program->run({&outside, 1}, {&outside, 1}, {}); });
    want(std::string(error.what()).find("input in must lie in the arena") != std::string::npos, "{}", error.what());
  });
}

#if !defined(TILEWIRE_TSAN) && !defined(TILEWIRE_ASAN)  // they need more address space than the limit
TEST(ProgramThreads, ThatCannotStartAreAnError) {
  launch(1, small_launch(false), [](Group& group) {
    Plan plan = new_plan("many", 1);
    Lane& lane = add_lane(plan, 0, Engine::tiles, "tiles", 4000);
    lane.tasks.assign(4000, testing::sync_task());
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = static_cast<rlim_t>(pages) * 4096 + (256 << 20);
    const rlimit limit{most, most};
    want(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    const Error error = error_of([&] { static_cast<void>(group.load(plan)); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("thread") != std::string::npos, "{}", error.what());
  });
}
#endif

/// all_gather_plan without the signals that LL data replace.
Plan ll_gather_plan(int num_ranks, int64_t cols) {
  Plan plan = testing::all_gather_plan(num_ranks, cols);
  plan.buffers[2].ll = true;
  for (Lane& lane : plan.lanes) {
    if (lane.engine == Engine::copy) lane.engine = Engine::serial;
    for (Task& task : lane.tasks) {
      std::erase_if(task.waits, [](const Wait& wait) { return wait.purpose == Purpose::data; });
      if (task.kind == TaskKind::copy) task.posts.clear();
    }
  }
  return plan;
}

TEST_P(Programs, LlDataStandsForSignals) {
  constexpr int kRanks = 3;
  constexpr int64_t kCols = 37;
  launch(kRanks, small_launch(GetParam()), [](Group& group) {
    const auto program = group.load(ll_gather_plan(kRanks, kCols));
    const int rank = group.team().rank;
    std::vector<float> in(kCols);
    std::vector<float> out(kRanks * kCols);
    const Tensor input = make_tensor(in.data(), DType::fp32, 1, kCols);
    const Tensor output = make_tensor(out.data(), DType::fp32, kRanks, kCols);
    for (int call = 0; call < 30; ++call) {
      for (int64_t i = 0; i < kCols; ++i) in[i] = static_cast<float>(1000 * call + 100 * rank + i);
      // All bits are 1: what missing data looks like.
      in[call] = std::bit_cast<float>(~0U);
      program->run({&input, 1}, {&output, 1}, {.max_delay_us = call % 3 == 0 ? 300 : 0});
      for (int from = 0; from < kRanks; ++from) {
        for (int64_t i = 0; i < kCols; ++i) {
          const float value = out[from * kCols + i];
          const bool right = i == call ? std::isnan(value) : value == static_cast<float>(1000 * call + 100 * from + i);
          want(right, "call {}, element {} of rank {}: got {}", call, i, from, value);
        }
      }
    }
  });
}

TEST_P(Programs, MissingLlDataIsNamed) {
  launch(2, small_launch(GetParam(), 0.4), [](Group& group) {
    // Rank 1 says that it is ready, and sends nothing to rank 0.
    Plan plan = ll_gather_plan(2, 4);
    for (Lane& lane : plan.lanes) {
      if (lane.rank != 1 || lane.engine != Engine::serial) continue;
      std::erase_if(lane.tasks, [](const Task& task) { return !task.writes.empty() && task.writes[0].to.rank == 0; });
    }
    const auto program = group.load(plan);
    std::vector<float> memory(12);
    const Tensor input = make_tensor(memory.data(), DType::fp32, 1, 4);
    const Tensor output = make_tensor(memory.data() + 4, DType::fp32, 2, 4);
    if (group.team().rank == 1) {
      program->run({&input, 1}, {&output, 1}, {});
      return std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    const Error error = error_of([&] { program->run({&input, 1}, {&output, 1}, {}); });
    want(error.kind() == ErrorKind::timeout && error.wait().has_value(), "{}", error.what());
    want(error.wait()->signal == "the data of stage on rank 0 from row 1, column 0 on,", "{}", error.what());
    want(error.wait()->lane == "receive" && error.wait()->wanted == 1 && error.wait()->seen == 0, "{}", error.what());
  });
}

TEST_P(Programs, AFailureBreaksTheGroup) {
  launch(2, small_launch(GetParam(), 0.4), [](Group& group) {
    // A ball that never comes back: rank 1 does not play.
    const auto program = group.load(testing::ping_pong(3));
    if (group.team().rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
    const Error error = error_of([&] { program->run({}, {}, {}); });
    want(error.kind() == ErrorKind::timeout, "{}", error.what());
    want(error.wait() == WaitReport{"ping_pong", 0, "player", 1, "ball on rank 0", 1, 0}, "{}", error.what());
    const auto begin = std::chrono::steady_clock::now();
    want(error_of([&] { program->run({}, {}, {}); }).kind() == ErrorKind::timeout, "not broken");
    want(error_of([&] { group.barrier(); }).kind() == ErrorKind::timeout, "not broken");
    want(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200), "a broken group is slow");
  });
}

}  // namespace
}  // namespace tilewire
