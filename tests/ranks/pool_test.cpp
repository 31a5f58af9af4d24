// The pool of a group's programs: the number of threads, which threads a call wakes, and the cores they count.
#include "backends/host/pool.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "core/cores.hpp"
#include "operators/tensors.hpp"
#include "operators/verify.hpp"
#include "ranks/plans.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/schedule.hpp"

namespace {

/// The result of sched_getaffinity in this thread, unless it is empty.
thread_local std::vector<int> made_up_cores;

}  // namespace

// NOTE: replaces the C library's function in this program.
extern "C" int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t* set) noexcept {
  CPU_ZERO_S(bytes, set);
  if (made_up_cores.empty()) return syscall(SYS_sched_getaffinity, pid, bytes, set) < 0 ? -1 : 0;
  if (made_up_cores.back() >= static_cast<int>(8 * bytes)) {
    errno = EINVAL;
    return -1;
  }
  for (const int core : made_up_cores) CPU_SET_S(core, bytes, set);
  return 0;
}

namespace tilewire {
namespace {

using host::Pool;
using host::TaskRunner;
using testing::add_lane;
using testing::add_signals;
using testing::error_of;
using testing::new_plan;
using testing::small_launch;
using testing::want;

int64_t num_threads() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

/// Threads of this process whose affinity mask is `list`.
int64_t num_threads_on(const std::string& list) {
  int64_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) count += line == "Cpus_allowed_list:\t" + list ? 1 : 0;
  }
  return count;
}

std::vector<int> cores_from(int first, int count) {
  std::vector<int> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), first);
  return cores;
}

/// Serial lanes on every rank, each waiting for the next lane of the rank after it: all must run at the same time.
Plan chain(int num_ranks, int lanes) {
  Plan plan = new_plan("chain", num_ranks);
  const int done = add_signals(plan, "done", lanes);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int index = 0; index < lanes; ++index) {
      Task task = testing::sync_task();
      if (index + 1 < lanes) task.waits = {{{rank, done + index + 1}, 1, Purpose::data}};
      if (index > 0) task.posts = {{{(rank + 1) % num_ranks, done + index}, 1}};
      add_lane(plan, rank, Engine::copy, fmt::format("link {}", index)).tasks = {task};
    }
  }
  return plan;
}

/// One pool of empty tasks, with as many workers as the backend chooses.
Plan unsized_pool(int num_ranks) {
  Plan plan = new_plan("unsized", num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    add_lane(plan, rank, Engine::tiles, "tiles").tasks.assign(200, testing::sync_task());
  }
  return plan;
}

class Pools : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Host, Pools, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

TEST(PoolThreads, EveryStepIsDoneOnceWithItsMemory) {
  Pool pool;
  pool.grow(66);
  const int64_t threads = num_threads();
  std::vector<std::atomic<int>> steps(66);
  std::vector<std::atomic<TaskRunner*>> runners(66);
  const auto call = [&](int workers) {
    const Pool::Turn turn(pool);
    pool.run(workers, [&](int index, TaskRunner& runner) {
      ++steps[index];
      TaskRunner* const before = runners[index].exchange(&runner);
      EXPECT_TRUE(before == nullptr || before == &runner);
    });
  };
  call(66);
  for (int i = 0; i < 2000; ++i) call(1 + i % 5);
  pool.grow(3);
  pool.grow(0);
  EXPECT_EQ(num_threads(), threads);
  call(66);
  EXPECT_EQ(steps[0], 2002);
  EXPECT_EQ(steps[4], 402);
  for (int index = 5; index < 66; ++index) EXPECT_EQ(steps[index], 2) << index;
}

TEST(PoolThreads, StepsThatWaitForEachOtherAllHaveAThread) {
  Pool pool;
  for (const int workers : {2, 40, 7}) {
    pool.grow(workers);
    for (int call = 0; call < 200; ++call) {
      std::atomic<int> there{0};
      const Pool::Turn turn(pool);
      pool.run(workers, [&](int, TaskRunner&) {
        for (++there; there < workers;) std::this_thread::yield();
      });
      EXPECT_EQ(there, workers);
    }
  }
}

TEST(PoolThreads, OneTurnAtATime) {
  Pool pool;
  pool.grow(2);
  const Pool::Turn turn(pool);
  std::string text;
  std::thread([&] { text = error_of([&] { const Pool::Turn second(pool); }).what(); }).join();
  EXPECT_EQ(text, "a group serves one thread at a time: another thread is calling an operator of this group");
}

TEST(PoolThreads, AForkedProcessNeitherHasNorJoinsThem) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "forks a process of several threads";
  auto pool = std::make_unique<Pool>();
  pool->grow(5);
  {
    // NOTE: a thread that starts may hold a lock of the sanitizer's allocator, which the child would inherit.
    std::atomic<int> there{0};
    const Pool::Turn turn(*pool);
    pool->run(5, [&](int, TaskRunner&) {
      for (++there; there < 5;) std::this_thread::yield();
    });
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    // It may have some of its own.
    pool->grow(3);
    std::atomic<int> there{0};
    {
      const Pool::Turn turn(*pool);
      pool->run(3, [&](int, TaskRunner&) {
        for (++there; there < 3;) std::this_thread::yield();
      });
    }
    pool.reset();
    _exit(there == 3 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

#if !defined(TILEWIRE_TSAN) && !defined(TILEWIRE_ASAN)  // they need more address space than the limit
TEST(PoolThreads, ThoseOfBeforeServeOnWhereThereAreNoMore) {
  launch(1, small_launch(false), [](Group&) {
    Pool pool;
    pool.grow(4);
    const int64_t threads = num_threads();
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = static_cast<rlim_t>(pages) * 4096 + (256 << 20);
    const rlimit limit{most, most};
    want(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    want(error_of([&] { pool.grow(4000); }).kind() == ErrorKind::unsupported, "it grew");
    want(num_threads() == threads, "{} threads, {} before", num_threads(), threads);
    std::atomic<int> steps{0};
    const Pool::Turn turn(pool);
    pool.run(4, [&](int, TaskRunner&) { ++steps; });
    want(steps == 4, "{} steps", steps.load());
  });
}
#endif

TEST_P(Pools, MoreLanesThanCoresAllRunAtOnce) {
  for (const int num_ranks : {1, 3}) {
    launch(num_ranks, small_launch(GetParam()), [&](Group& group) {
      const auto few = group.load(chain(num_ranks, 2));
      const auto many = group.load(chain(num_ranks, 40));
      for (int call = 0; call < 30; ++call) {
        few->run({}, {}, {});
        many->run({}, {}, {.max_delay_us = call % 3 == 0 ? 50 : 0});
      }
    });
  }
}

/// Operators of every schedule, whose numbers of rows differ.
std::vector<Problem> problems(DType dtype) {
  std::vector<Problem> all;
  for (const char* op : {"gemm_reduce_scatter", "all_gather_gemm", "gemm_all_reduce"}) {
    all.push_back({.op = op, .m = 8, .n = 8, .k = 8, .dtype = dtype});
  }
  return all;
}

std::vector<Config> configs() {
  Config library{.schedule = "sequential"};
  library.compute = Provider::library;
  Config pools{.schedule = "two_stream", .tile_m = 4, .tile_n = 4};
  pools.tile_workers = 4;
  pools.reduce_workers = 2;
  return {library, pools, {.schedule = "fused"}, {.schedule = "sequential"}};
}

TEST(PoolThreads, AThousandOperatorsCostNoMoreThanOneOfEachKind) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "counts the threads of one rank: a process";
  launch(2, small_launch(false), [](Group& group) {
    // Calls of the library have threads of their own, too.
    made_up_cores = cores_from(0, 8);
    std::vector<Op> ops;
    const auto add = [&](int64_t rows) {
      for (Problem problem : problems(DType::fp32)) {
        problem.m = rows;
        for (const Config& config : configs()) {
          if (find_schedule(config.schedule).refuses(problem, group.team(), config)) continue;
          ops.push_back(make_op(group, problem, config, {.check = false}));
        }
      }
    };
    const auto run_all = [&] {
      for (Op& op : ops) {
        const RankTensors data(group, op.problem());
        op.run(data.inputs(), data.outputs());
      }
    };
    // The one of the most rows has the most workers.
    add(100);
    run_all();
    const int64_t threads = num_threads();
    want(threads < 20, "{} threads for {} operators", threads, ops.size());
    for (int64_t rows = 0; ops.size() < 1000; ++rows) add(rows % 100);
    want(num_threads() == threads, "{} threads with {} operators, {} before", num_threads(), ops.size(), threads);
    run_all();
    want(num_threads() == threads, "{} threads after {} calls, {} before", num_threads(), ops.size(), threads);
    ops.clear();
    want(num_threads() <= threads, "{} threads without operators, {} before", num_threads(), threads);
  });
}

TEST_P(Pools, OperatorsComeAndGoInAnyOrderAndAreRight) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  launch(2, small_launch(GetParam()), [&](Group& group) {
    std::minstd_rand random(seed);
    std::vector<Op> ops;
    for (int step = 0; step < 150; ++step) {
      if (ops.size() < 3 || random() % 3 == 0) {
        auto problem = problems(step % 2 == 0 ? DType::fp32 : DType::bf16)[random() % 3];
        problem.m = static_cast<int64_t>(random() % 30);
        problem.k = static_cast<int64_t>(random() % 3 == 0 ? 8 : 40);
        Config config = configs()[random() % 4];
        if (config.tile_workers != 0) config.tile_workers = static_cast<int>(1 + random() % 9);
        if (find_schedule(config.schedule).refuses(problem, group.team(), config)) continue;
        ops.push_back(make_op(group, problem, config, {.check = false, .max_delay_us = step % 5 == 0 ? 100 : 0}));
      } else if (random() % 4 == 0) {
        ops.erase(ops.begin() + static_cast<int64_t>(random() % ops.size()));
        continue;
      }
      Op& op = ops[random() % ops.size()];
      const Problem& problem = op.problem();
      const RankTensors tensors(group, problem);
      const ReadRow read = random_inputs(problem, 2, static_cast<uint64_t>(step));
      tensors.fill(read);
      tensors.poison();
      op.run(tensors.inputs(), tensors.outputs());
      const Expected expected(problem, 2, group.team().rank, read);
      const Comparison comparison = verify(group, expected, tensors.results(), tolerance_of(problem, op.config()));
      want(comparison.ok(), "step {}, {}: {}", step, op.explain(), comparison.first);
    }
  });
}

/// Threads that each rank starts for a pool without a number of workers, if the ranks' masks are these.
std::vector<int> threads_started(const std::vector<std::vector<int>>& masks) {
  const auto num_ranks = static_cast<int>(masks.size());
  std::vector<int> started;
  const std::string file = ::testing::TempDir() + "/threads_started_" + std::to_string(getpid());
  launch(num_ranks, small_launch(false), [&](Group& group) {
    made_up_cores = masks[group.team().rank];
    const int64_t before = num_threads();
    const auto program = group.load(unsized_pool(num_ranks));
    program->run({}, {}, {});
    const auto all = group.all_gather(std::to_string(num_threads() - before));
    if (group.team().rank == 0) std::ofstream(file) << fmt::format("{}", fmt::join(all, " "));
  });
  std::ifstream in(file);
  started.assign(std::istream_iterator<int>(in), {});
  std::filesystem::remove(file);
  return started;
}

TEST(PoolCores, RanksShareThoseThatTheirMasksHaveInCommon) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "counts the threads of one rank: a process";
  using Threads = std::vector<int>;
  // The caller's thread is a worker, too.
  EXPECT_EQ(threads_started({cores_from(0, 16), cores_from(16, 16), cores_from(32, 16), cores_from(48, 16)}),
            Threads(4, 15));
  EXPECT_EQ(threads_started({4, cores_from(0, 64)}), Threads(4, 15));
  EXPECT_EQ(threads_started({{7}, cores_from(8, 9)}), (Threads{0, 8}));
  EXPECT_EQ(threads_started({cores_from(0, 8), cores_from(4, 8)}), (Threads{5, 5}));
  // More than the C library's type can hold.
  EXPECT_EQ(threads_started({cores_from(3000, 6), cores_from(3006, 3)}), (Threads{5, 2}));
}

TEST(PoolCores, ThreadsFollowTheCallerToOtherCores) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "counts the threads of one rank: a process";
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core only";
  launch(1, small_launch(false), [&](Group& group) {
    Plan plan = unsized_pool(1);
    plan.lanes[0].workers = 4;
    const auto before = group.load(plan);
    before->run({}, {}, {});
    const std::string only = std::to_string(cores.back());
    want(num_threads_on(only) == 0, "bound already");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cores.back(), &one);
    want(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    plan.lanes[0].workers = 2;
    const auto after = group.load(plan);
    want(num_threads_on(only) == 4, "{} threads on core {}", num_threads_on(only), only);
    before->run({}, {}, {});
    after->run({}, {}, {});
  });
}

}  // namespace
}  // namespace tilewire
