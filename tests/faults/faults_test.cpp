// Ranks that are killed or stopped at random moments: all others report it in time, nothing is left behind, and the
// next
// job of the same name works. TILEWIRE_FAULT_ROUNDS sets the number of rounds (20).
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include "backends/host/slot.hpp"
#include "operators/tensors.hpp"
#include "ranks/job.hpp"
#include "ranks/plans.hpp"
#include "tilewire/op.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using host::now_ns;
using testing::Job;

constexpr int64_t kMillisecond = 1'000'000;

/// The body of a job's ranks; it calls `ready` when a rank is prepared.
using Work = std::function<void(Group& group, const std::function<void()>& ready)>;

/// Endless calls: gathers over the arena, barriers, and sometimes a pause.
void gather_for_ever(Group& group, uint64_t seed, const std::function<void()>& ready) {
  ready();
  const int rank = group.team().rank;
  const int num_ranks = group.team().num_ranks;
  std::minstd_rand random(seed + rank);
  constexpr int64_t kCols = 20'000;
  const auto program = group.load(testing::all_gather_plan(num_ranks, kCols));
  std::vector<float> mine(kCols, static_cast<float>(rank));
  std::vector<float> all(kCols * num_ranks);
  const Tensor input = make_tensor(mine.data(), DType::fp32, 1, kCols);
  const Tensor output = make_tensor(all.data(), DType::fp32, num_ranks, kCols);
  while (true) {
    program->run({&input, 1}, {&output, 1}, {});
    if (random() % 4 == 0) usleep(static_cast<useconds_t>(random() % 300));
  }
}

/// Endless calls of a GEMM operator; one call takes seconds.
void multiply_for_ever(Group& group, const std::string& op_name, const std::string& schedule,
                       const std::function<void()>& ready) {
  constexpr int64_t kSize = 6144;
  const Problem problem{.op = op_name, .m = kSize, .n = kSize, .k = kSize, .dtype = DType::fp32};
  const Config config{.schedule = schedule};
  Op op = make_op(group, problem, config, {.check = false});
  const RankTensors tensors(group, problem);
  ready();
  while (true) op.run(tensors.inputs(), tensors.outputs());
}

/// Ranks as processes of a host group that work until there is an Error.
class HostJob : public Job {
 public:
  HostJob(const std::string& name, int num_ranks, double timeout_s, uint64_t seed)
      : HostJob(name, num_ranks, timeout_s, 64 << 20,
                [seed](Group& group, const auto& ready) { gather_for_ever(group, seed, ready); }) {}
  HostJob(const std::string& name, int num_ranks, double timeout_s, int64_t arena_bytes, const Work& work)
      : Job(num_ranks, [=](int rank, const testing::Say& say) {
          const auto group = join("host", {rank, num_ranks, name, arena_bytes, timeout_s});
          work(*group, [&] { say({.rank = rank, .running = true}); });
        }) {}
};

int64_t shared_files() {
  return std::distance(std::filesystem::directory_iterator("/dev/shm"), std::filesystem::directory_iterator{});
}

int rounds() {
  const char* text = std::getenv("TILEWIRE_FAULT_ROUNDS");
  return text == nullptr ? 20 : std::atoi(text);
}

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  }
};

TEST_F(Faults, AKilledRankIsNoticedWithinASecond) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u, %d rounds\n", seed, rounds());
  std::mt19937 random(seed);
  const std::string job = fmt::format("faults.{}", getpid());
  const int64_t files = shared_files();
  int64_t slowest_ns = 0;
  for (int round = 0; round < rounds() && !HasFailure(); ++round) {
    const int num_ranks = 2 + static_cast<int>(random() % 5);
    const int victim = static_cast<int>(random() % num_ranks);
    HostJob ranks(job, num_ranks, 30, random());
    ASSERT_TRUE(ranks.all_running(num_ranks)) << "round " << round;
    usleep(static_cast<useconds_t>(random() % 40'000));
    const int64_t killed_ns = now_ns();
    ranks.signal_rank(victim, SIGKILL);
    for (int other = 0; other < num_ranks - 1; ++other) {
      const auto report = ranks.next(killed_ns + 5'000 * kMillisecond);
      ASSERT_TRUE(report.has_value()) << "round " << round << ": a rank of " << num_ranks << " says nothing";
      EXPECT_EQ(report->kind, ErrorKind::rank_lost) << report->text;
      EXPECT_NE(report->text.find(fmt::format("rank {} (process", victim)), std::string::npos) << report->text;
      slowest_ns = std::max(slowest_ns, report->at_ns - killed_ns);
      EXPECT_LT(report->at_ns - killed_ns, 1'000 * kMillisecond) << report->text;
    }
    EXPECT_FALSE(ranks.next(now_ns() + 2'000 * kMillisecond).has_value()) << "somebody still works";
  }
  EXPECT_EQ(shared_files(), files);
  std::printf("slowest Error %.1f ms after the kill\n", static_cast<double>(slowest_ns) / kMillisecond);
}

TEST_F(Faults, AKilledRankIsNoticedWithinASecondInALongGemm) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u, %d rounds\n", seed, rounds());
  std::mt19937 random(seed);
  constexpr int kRanks = 3;
  const std::string job = fmt::format("faults.gemm.{}", getpid());
  int64_t slowest_ns = 0;
  for (int round = 0; round < rounds() && !HasFailure(); ++round) {
    const std::string op = round % 2 == 0 ? "gemm_reduce_scatter" : "all_gather_gemm";
    const std::string schedule = round % 4 < 2 ? "fused" : "sequential";
    const int victim = static_cast<int>(random() % kRanks);
    HostJob ranks(job, kRanks, 30, 400 << 20,
                  [&](Group& group, const auto& ready) { multiply_for_ever(group, op, schedule, ready); });
    ASSERT_TRUE(ranks.all_running(kRanks)) << op << ", " << schedule;
    usleep(static_cast<useconds_t>(random() % 1'500'000));
    const int64_t killed_ns = now_ns();
    ranks.signal_rank(victim, SIGKILL);
    for (int other = 0; other < kRanks - 1; ++other) {
      const auto report = ranks.next(killed_ns + 20'000 * kMillisecond);
      ASSERT_TRUE(report.has_value()) << op << ", " << schedule << ": a rank says nothing";
      EXPECT_EQ(report->kind, ErrorKind::rank_lost) << report->text;
      EXPECT_NE(report->text.find(fmt::format("rank {} (process", victim)), std::string::npos) << report->text;
      slowest_ns = std::max(slowest_ns, report->at_ns - killed_ns);
      EXPECT_LT(report->at_ns - killed_ns, 1'000 * kMillisecond) << op << ", " << schedule << ": " << report->text;
    }
  }
  std::printf("slowest Error %.1f ms after the kill\n", static_cast<double>(slowest_ns) / kMillisecond);
}

TEST_F(Faults, SurvivorsSayWhatTheyWaitedFor) {
  const auto work = [](Group& group, const auto& ready) {
    const int num_ranks = group.team().num_ranks;
    const auto program = group.load(testing::all_gather_plan(num_ranks, 100));
    std::vector<float> mine(100);
    std::vector<float> all(100 * num_ranks);
    const Tensor input = make_tensor(mine.data(), DType::fp32, 1, 100);
    const Tensor output = make_tensor(all.data(), DType::fp32, num_ranks, 100);
    ready();
    if (group.team().rank == 1) pause();
    program->run({&input, 1}, {&output, 1}, {});
  };
  HostJob ranks(fmt::format("faults.wait.{}", getpid()), 3, 30, 1 << 20, work);
  ASSERT_TRUE(ranks.all_running(3));
  usleep(1'000'000);  // beside other tests the others begin to wait late
  ranks.signal_rank(1, SIGKILL);
  for (int other = 0; other < 2; ++other) {
    const auto report = ranks.next(now_ns() + 5'000 * kMillisecond);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->kind, ErrorKind::rank_lost) << report->text;
    ASSERT_TRUE(report->has_wait) << report->text;
    const WaitReport& wait = report->wait;
    EXPECT_EQ(wait.op, "gather_by_hand");
    EXPECT_EQ(wait.rank, report->rank);
    EXPECT_TRUE(wait.lane == "send" || wait.lane == "receive") << wait.lane;
    EXPECT_NE(wait.signal.find(fmt::format("] on rank {}", report->rank)), std::string::npos) << wait.signal;
    EXPECT_TRUE(wait.task >= 0 && wait.task < (wait.lane == "send" ? 4 : 3)) << wait.task;
    EXPECT_GT(wait.wanted, wait.seen);
  }
}

/// From now on, this fork makes a child that is killed at once; -1 = none.
int killed_fork = -1;

TEST_F(Faults, LaunchNamesARankThatIsKilledDuringStartUp) {
  ASSERT_EQ(pthread_atfork([] { --killed_fork; }, nullptr,
                           [] {
                             if (killed_fork == -1) raise(SIGKILL);
                           }),
            0);
  for (const int victim : {0, 1, 2}) {
    killed_fork = victim;
    const int64_t begin = now_ns();
    const Error error =
        testing::error_of([] { launch(3, testing::small_launch(false, 30), [](Group& group) { group.barrier(); }); });
    EXPECT_EQ(error.kind(), ErrorKind::rank_lost) << error.what();
    EXPECT_NE(std::string(error.what()).find(fmt::format("rank {} was killed by signal 9", victim)), std::string::npos)
        << error.what();
    EXPECT_LT(now_ns() - begin, 3'000 * kMillisecond);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  }
}

TEST_F(Faults, AStoppedRankTimesOutWithAllDetails) {
  const std::string job = fmt::format("faults.stop.{}", getpid());
  for (int round = 0; round < 3; ++round) {
    constexpr double kTimeout = 0.8;
    HostJob ranks(job, 3, kTimeout, round);
    ASSERT_TRUE(ranks.all_running(3));
    // They make the operator first, which takes a while on a busy machine.
    usleep(200'000 + 7'000 * static_cast<useconds_t>(round));
    const int64_t stopped_ns = now_ns();
    ranks.signal_rank(round, SIGSTOP);
    for (int other = 0; other < 2; ++other) {
      const auto report = ranks.next(stopped_ns + 10'000 * kMillisecond);
      ASSERT_TRUE(report.has_value());
      EXPECT_EQ(report->kind, ErrorKind::timeout) << report->text;
      EXPECT_LT(report->at_ns - stopped_ns, 1'800 * kMillisecond) << report->text;
      ASSERT_TRUE(report->has_wait) << report->text;
      const WaitReport& wait = report->wait;
      EXPECT_EQ(wait.op, "gather_by_hand");
      EXPECT_EQ(wait.rank, report->rank);
      EXPECT_TRUE(wait.lane == "send" || wait.lane == "receive") << wait.lane;
      // The missing post may be that of a rank which itself waits for the stopped one.
      EXPECT_NE(wait.signal.find(fmt::format("] on rank {}", report->rank)), std::string::npos) << wait.signal;
      EXPECT_EQ(wait.wanted, wait.seen + 1);
      for (const std::string& part : {wait.signal, std::to_string(wait.wanted), std::to_string(wait.seen)}) {
        EXPECT_NE(report->text.find(part), std::string::npos) << report->text;
      }
    }
    // Awake again, it learns that it is too late.
    ranks.signal_rank(round, SIGCONT);
    const auto report = ranks.next(now_ns() + 5'000 * kMillisecond);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->kind, ErrorKind::timeout) << report->text;
  }
}

TEST_F(Faults, RanksEndWithTheProcessThatLaunchedThem) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    close(ends[0]);
    launch(3, testing::small_launch(false), [&](Group& group) {
      group.barrier();
      if (write(ends[1], "x", 1) == 1) pause();
    });
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  // The pipe closes when the last of them is gone.
  pollfd watched{ends[0], POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, 5'000), 1) << "a rank lives on";
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

TEST_F(Faults, LaunchLeavesNoStoppedRankBehind) {
  const int64_t begin = now_ns();
  const Error error = testing::error_of([] {
    launch(2, testing::small_launch(false, 0.5), [](Group& group) {
      if (group.team().rank == 1) raise(SIGSTOP);
      group.barrier();
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
  EXPECT_LT(now_ns() - begin, 5'000 * kMillisecond);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace
}  // namespace tilewire
