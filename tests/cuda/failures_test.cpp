// Ranks that never come, or are killed inside operators: every other rank gets an Error with all details in time, its
// process and its CUDA context survive, and a new team computes. TILEWIRE_FAULT_ROUNDS sets the number of rounds (4).
// NOTE: run the executable alone, or `ctest -L gpu`; CUDA starts in child processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "backends/cuda/cuda.hpp"
#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "backends/host/slot.hpp"
#include "core/text.hpp"
#include "cuda/calls.hpp"
#include "cuda/child.hpp"
#include "cuda/kernels.hpp"
#include "ranks/job.hpp"
#include "ranks/plans.hpp"
#include "tilewire/print.hpp"

namespace tilewire::testing {
namespace {

using host::now_ns;

constexpr int64_t kSecond = 1'000'000'000;

int rounds() {
  const char* text = std::getenv("TILEWIRE_FAULT_ROUNDS");
  return text == nullptr ? 4 : std::atoi(text);
}

/// The way of a call.
enum class How { waited_for, on_a_stream, by_replay };
constexpr How kHows[] = {How::waited_for, How::on_a_stream, How::by_replay};

void call(Caller& caller, How how) {
  caller.fill(7);
  settle(caller.stream());
  if (how == How::waited_for) return caller.run_and_wait();
  how == How::on_a_stream ? caller.run() : caller.replay();
  settle(caller.stream());
  if (caller.op().last_status()) throw Error(*caller.op().last_status());
}

void want_details(const Error& error, const std::string& op, int rank) {
  want(error.wait().has_value(), "no details: {}", error.what());
  const WaitReport& wait = *error.wait();
  want(wait.op == op && wait.rank == rank && !wait.lane.empty() && wait.task >= 0, "{}", error.what());
  want(wait.signal.find(fmt::format("on rank {}", rank)) != std::string::npos, "signal {}", wait.signal);
  want(wait.wanted > wait.seen, "wanted {}, saw {}", wait.wanted, wait.seen);
  for (const std::string& part : {op, wait.lane, wait.signal}) {
    want(std::string(error.what()).find(part) != std::string::npos, "{} is not in: {}", part, error.what());
  }
}

/// Require that the device still runs kernels and copies.
void want_live_context(const Group& group) {
  constexpr int64_t kWords = 1 << 16;
  const auto memory = group.new_memory(4 * kWords);
  auto* words = reinterpret_cast<uint32_t*>(memory.get());
  store_words(words, kWords, 3);
  want(count_wrong_words(words, kWords, 3) == 0, "a kernel after the failure gave wrong words");
}

/// Require a team whose operators work.
void want_working_team(Group& group) {
  for (const Sample& sample : {samples()[0], samples()[1]}) {
    Op op = make_op(group, sample.problem, sample.config);
    Caller caller(group, op);
    caller.fill(11);
    settle(caller.stream());
    caller.run_and_wait();
    caller.want_right(11);
  }
}

class CudaFailures : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (const auto reason = cuda::cuda_unavailable()) GTEST_SKIP() << *reason;
    place_ = GetParam();
    if (place_.num_ranks == 1) GTEST_SKIP() << "nobody can be missing";
    if (place_.one_gpu) return;
    place_.num_ranks = std::min(place_.num_ranks, num_gpus_here());
    if (place_.num_ranks < 2) GTEST_SKIP() << "this machine has fewer than 2 GPUs";
  }
  [[nodiscard]] LaunchOptions options(double timeout_s) const {
    return {.backend = "cuda", .threads = place_.threads, .timeout_s = timeout_s};
  }

  Place place_{};
};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaFailures, ::testing::ValuesIn(places()),
                         [](const auto& place) { return std::string(place.param.name); });

/// All ranks call twice; then rank 1 does not call any more, and the others must report that in time.
void miss_a_rank(Group& group, const Sample& sample, How how, double timeout_s) {
  Op op = make_op(group, sample.problem, sample.config);
  Caller caller(group, op);
  if (how == How::by_replay) caller.make_graph();
  for (int i = 0; i < 2; ++i) call(caller, how);
  caller.want_right(7);
  group.barrier();
  if (group.team().rank == 1) {
    usleep(static_cast<useconds_t>((timeout_s + 1) * 1e6));
    const Error late = error_of([&] { call(caller, How::waited_for); });
    want(late.kind() == ErrorKind::timeout, "the late rank: {}", late.what());
    return;
  }
  const int64_t begin = now_ns();
  const Error error = error_of([&] { call(caller, how); });
  const double passed = static_cast<double>(now_ns() - begin) / kSecond;
  want(error.kind() == ErrorKind::timeout, "{}", error.what());
  want(passed < timeout_s + 1.5, "the Error came after {} s", passed);
  want_details(error, sample.problem.op, group.team().rank);
  // Another call gives the same Error.
  const Error again = error_of([&] { caller.run(); });
  want(again.kind() == ErrorKind::timeout, "{}", again.what());
  want_live_context(group);
}

TEST_P(CudaFailures, ARankThatNeverComesIsNamedInTime) {
  constexpr double kTimeout = 2;
  in_child([&] {
    if (place_.one_gpu) see_one_gpu();
    const auto all = samples();
    for (const auto& [sample, how] : {std::pair{all[1], How::waited_for},
                                      {all[1], How::on_a_stream},
                                      {all[1], How::by_replay},
                                      {all[2], How::by_replay},
                                      {all[0], How::on_a_stream},
                                      {all[4], How::by_replay},
                                      {all[6], How::by_replay},
                                      {all.back(), How::by_replay}}) {
      launch(place_.num_ranks, options(kTimeout), [&](Group& group) { miss_a_rank(group, sample, how, kTimeout); });
    }
    launch(place_.num_ranks, options(20), want_working_team);
    return std::string();
  });
}

TEST_P(CudaFailures, ARankThatNeverComesBesideCallsOfTheLibraryIsNamedInTime) {
  constexpr double kTimeout = 2;
  if (place_.one_gpu) GTEST_SKIP() << "ranks that share a GPU do not call the library";
  if (const auto reason = cuda::missing_cublaslt()) GTEST_SKIP() << *reason;
  in_child([&] {
    How how = How::by_replay;
    for (const Sample& sample : library_samples()) {
      if (sample.config.schedule != std::string("sequential")) continue;
      launch(place_.num_ranks, options(kTimeout), [&](Group& group) { miss_a_rank(group, sample, how, kTimeout); });
      how = how == How::by_replay ? How::on_a_stream : How::by_replay;
    }
    launch(place_.num_ranks, options(20), want_working_team);
    return std::string();
  });
}

TEST_P(CudaFailures, ARankThatNeverJoinsACollectiveIsNamedInTime) {
  constexpr double kTimeout = 10;  // NCCL takes seconds to start
  if (place_.one_gpu) GTEST_SKIP() << "ranks that share a GPU do not call the library";
  if (const auto reason = cuda::missing_nccl()) GTEST_SKIP() << *reason;
  in_child([&] {
    const auto all = collective_samples();
    for (const auto& [sample, how] :
         {std::pair{all[0], How::waited_for}, {all[1], How::on_a_stream}, {all[2], How::by_replay}}) {
      launch(place_.num_ranks, options(kTimeout), [&](Group& group) { miss_a_rank(group, sample, how, kTimeout); });
    }
    launch(place_.num_ranks, options(20), want_working_team);
    return std::string();
  });
}

/// MiB that are allocated on the first GPU.
int64_t used_mib() {
  size_t free = 0;
  size_t total = 0;
  cuda::check(cudaSetDevice(0), "cudaSetDevice");
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>((total - free) >> 20);
}

TEST_P(CudaFailures, TeamsComeAndGoAfterErrorsInAnyOrder) {
  in_child([&] {
    if (place_.one_gpu) see_one_gpu();
    int64_t before = 0;
    for (int round = 0; round < rounds() + 1; ++round) {
      // What CUDA itself takes, it takes the first time. A process that looks cannot fork ranks.
      if (round == 1 && place_.threads) before = used_mib();
      // Tensors are the caller's: they outlive the calls that use them.
      std::vector<std::unique_ptr<Caller>> callers(2 * place_.num_ranks);
      const Error error = error_of([&] {
        launch(place_.num_ranks, options(20), [&](Group& group) {
          const auto all = samples();
          std::optional<Op> first = make_op(group, all[0].problem, all[0].config);
          std::optional<Op> second = make_op(group, all[1].problem, all[1].config);
          auto& x = callers[2 * group.team().rank];
          auto& y = callers[2 * group.team().rank + 1];
          x = std::make_unique<Caller>(group, *first);
          y = std::make_unique<Caller>(group, *second);
          x->run();
          y->run();
          if (group.team().rank == 1) fail(ErrorKind::wrong_result, "on purpose");
          // What is left goes while others' calls may wait for it, in another order each time.
          x->run();
          if (round % 2 == 0) first.reset();
          if (round % 4 < 2) second.reset();
          group.barrier();
        });
      });
      want(std::string(error.what()) == "on purpose", "{}", error.what());
    }
    if (place_.threads) {
      const int64_t after = used_mib();
      want(after <= before + 64, "{} MiB are used, before it were {}", after, before);
    }
    launch(place_.num_ranks, options(20), want_working_team);
    return std::string();
  });
}

/// The body of one rank: endless calls until a rank is lost; then a live context and a new team.
void call_until_lost(const JoinOptions& options, const Sample& sample, How how, bool replacement, const Say& say) {
  if (!replacement) {
    const auto group = join("cuda", options);
    Op op = make_op(*group, sample.problem, sample.config);
    Caller caller(*group, op);
    if (how == How::by_replay) caller.make_graph();
    call(caller, how);
    group->barrier();
    say({.rank = options.rank, .running = true});
    const Error error = error_of([&] {
      while (true) call(caller, how);
    });
    say(report_of(options.rank, error));
    want_live_context(*group);
  }
  JoinOptions again = options;
  again.job += ".again";
  again.timeout_s = 60;
  const auto group = join("cuda", again);
  want_working_team(*group);
  group->barrier();
  say({.rank = options.rank, .running = true});
}

class CudaKills : public CudaFailures {
 protected:
  /// Kill ranks during these calls, repeatedly.
  void kill_ranks(const std::vector<Sample>& some, double timeout_s, bool tells = true) const;
};
INSTANTIATE_TEST_SUITE_P(Gpu, CudaKills, ::testing::Values(places().back()),
                         [](const auto& place) { return std::string(place.param.name); });

void CudaKills::kill_ranks(const std::vector<Sample>& some, double timeout_s, bool tells) const {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u, %d rounds\n", seed, rounds());
  std::mt19937 random(seed);
  const int num_ranks = place_.num_ranks;
  int with_details = 0;
  int64_t slowest_ns = 0;
  for (int round = 0; round < rounds() * 3 && !HasFailure(); ++round) {
    const Sample sample = some[random() % some.size()];
    const How how = kHows[round % 3];
    const int victim = static_cast<int>(random() % num_ranks);
    SCOPED_TRACE(fmt::format("{} with {}, how {}, victim {}", to_string(sample.problem), to_string(sample.config),
                             static_cast<int>(how), victim));
    const std::string name = fmt::format("cuda-kill.{}.{}", getpid(), round);
    bool replacing = false;
    Job ranks(
        num_ranks,
        [&](int rank, const Say& say) {
          call_until_lost({rank, num_ranks, name, int64_t{4} << 30, timeout_s}, sample, how, replacing, say);
        },
        true);
    ASSERT_TRUE(ranks.all_running(num_ranks));
    usleep(static_cast<useconds_t>(random() % 100'000));
    const int64_t killed_ns = now_ns();
    ranks.signal_rank(victim, SIGKILL);
    for (int other = 0; other < num_ranks - 1; ++other) {
      const auto report = ranks.next(killed_ns + 8 * kSecond);
      ASSERT_TRUE(report.has_value()) << "a survivor says nothing";
      ASSERT_FALSE(report->running);
      EXPECT_EQ(report->kind, ErrorKind::rank_lost) << report->text;
      EXPECT_NE(report->text.find(fmt::format("rank {} (process", victim)), std::string::npos) << report->text;
      EXPECT_LT(report->at_ns - killed_ns, 2 * kSecond) << report->text;
      slowest_ns = std::max(slowest_ns, report->at_ns - killed_ns);
      if (!report->has_wait) continue;
      ++with_details;
      EXPECT_EQ(report->wait.op, sample.problem.op);
      EXPECT_EQ(report->wait.rank, report->rank);
      EXPECT_GT(report->wait.wanted, report->wait.seen) << report->text;
    }
    replacing = true;
    ranks.replace(victim);
    EXPECT_TRUE(ranks.all_running(num_ranks)) << "the new team";
  }
  std::printf("slowest Error %.1f ms after the kill; %d Errors with details\n", static_cast<double>(slowest_ns) / 1e6,
              with_details);
  // A rank has no wait to report if it is between two calls, or waits in the vendor's library.
  EXPECT_TRUE(with_details > 0 || !tells);
}

TEST_P(CudaKills, SurvivorsGetDetailsAndMakeANewTeam) { kill_ranks(samples(), 5); }

TEST_P(CudaKills, SurvivorsOfCallsOfTheLibraryDoSo) {
  if (const auto reason = cuda::missing_cublaslt()) GTEST_SKIP() << *reason;
  kill_ranks(library_samples(), 5);
}

TEST_P(CudaKills, SurvivorsOfACollectiveOfTheLibraryDoSo) {
  if (const auto reason = cuda::missing_nccl()) GTEST_SKIP() << *reason;
  kill_ranks(collective_samples(), 20, false);
}

}  // namespace
}  // namespace tilewire::testing
