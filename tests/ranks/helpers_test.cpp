// Processes that ranks fork and that are not ranks, and the output of ranks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>

#include "ranks/plans.hpp"
#include "ranks/processes.hpp"
#include "read_to_end.hpp"

namespace tilewire {
namespace {

using testing::error_of;
using testing::small_launch;
using testing::want;

class Helpers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  }
};

/// The body of a helper that outlives its rank and all that waits for it.
void last() {
  // NOTE: the test runner waits for the end of the output.
  for (int fd = 0; fd < 3; ++fd) close(fd);
  alarm(20);
  pause();
}

/// Wait for a helper; it must have ended well.
void collect(pid_t helper) {
  int status = 0;
  want(waitpid(helper, &status, 0) == helper && WIFEXITED(status) && WEXITSTATUS(status) == 0,
       "a helper's status is {}", status);
}

TEST_F(Helpers, OneThatComesBackFromTheRanksFunctionIsNotTheRank) {
  launch(3, small_launch(false), [](Group& group) {
    const auto program = group.load(testing::all_gather_plan(3, 4));
    const pid_t helper = fork();
    if (helper == 0) return;
    collect(helper);
    // Peers must not have heard that the rank has left.
    for (int round = 0; round < 3; ++round) group.barrier();
  });
  const Error error = error_of([] {
    launch(2, small_launch(false), [](Group& group) {
      const pid_t helper = fork();
      if (helper == 0) fail(ErrorKind::wrong_result, "the helper's trouble is its own");
      waitpid(helper, nullptr, 0);
      group.barrier();
      if (group.team().rank == 1) fail(ErrorKind::wrong_result, "the rank's trouble");
    });
  });
  EXPECT_STREQ(error.what(), "the rank's trouble");
}

TEST_F(Helpers, OneThatOutlivesItsRankIsNotWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  const auto start_helper = [] {
    if (fork() == 0) last();
  };
  launch(2, small_launch(false), [&](Group& group) {
    start_helper();
    group.barrier();
  });
  const Error error = error_of([&] {
    launch(2, small_launch(false), [&](Group& group) {
      start_helper();
      group.barrier();
      if (group.team().rank == 1) raise(SIGKILL);
      group.barrier();
    });
  });
  EXPECT_NE(std::string(error.what()).find("rank 1 was killed by signal 9"), std::string::npos) << error.what();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

/// A group that lives until its process ends.
std::unique_ptr<Group>& lasting_group() {
  static std::unique_ptr<Group> group;
  return group;
}

TEST_F(Helpers, OneThatExitsRunsNoDestructorOfTheRank) {
  const std::string job = testing::unique_name();
  testing::Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank]() -> std::string {
      lasting_group() = join("host", testing::options_of(job, rank, 2, 10));
      const pid_t helper = fork();
      if (helper == 0) {
        alarm(5);
        // As exit() does at its end.
        lasting_group().reset();
        _exit(0);
      }
      try {
        collect(helper);
        lasting_group()->barrier();
        lasting_group()->barrier();
        return "good";
      } catch (const Error& error) {
        return testing::stream_ordered(error);
      }
    });
  }
  testing::expect_all(processes.lines(), 2, "good");
}

TEST_F(Helpers, OneThatCallsIsToldThatItIsNoRank) {
  launch(2, small_launch(false), [](Group& group) {
    const pid_t helper = fork();
    if (helper == 0) {
      const Error error = error_of([&] { group.barrier(); });
      group.fail_with(error);
      const bool told = std::string(error.what()).find("was forked by rank") != std::string::npos;
      _exit(told && error.kind() == ErrorKind::invalid_input ? 0 : 1);
    }
    collect(helper);
    group.barrier();
  });
}

TEST_F(Helpers, ARankThatExitsWithoutLeavingIsStillNamed) {
  const Error error = error_of([] {
    launch(2, small_launch(false), [](Group& group) {
      if (fork() == 0) last();
      if (group.team().rank == 1) _exit(5);
      const Error lost = error_of([&] { group.barrier(); });
      want(std::string(lost.what()).find("rank 1 (process") != std::string::npos, "{}", lost.what());
    });
  });
  EXPECT_STREQ(error.what(), "rank 1 ended before its function returned, with exit code 5");
}

/// The output of a child process, with buffered iostreams of its own.
std::string printed(const std::function<void()>& body) {
  std::fflush(nullptr);
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    std::ios::sync_with_stdio(false);
    body();
    std::cout.flush();
    _exit(0);
  }
  close(ends[1]);
  const std::string text = testing::read_to_end(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Helpers, WhatRanksPrintByIostreamsArrivesOnce) {
  const std::string text = printed([] {
    std::cout << "before;";
    launch(3, small_launch(false), [](Group& group) {
      const int rank = group.team().rank;
      std::cout << "out" << rank << ";";
      std::clog << "log" << rank << ";";
      std::wcout << L"wide" << rank << L";";
      std::printf("stdio%d;", rank);
      group.barrier();
    });
  });
  EXPECT_EQ(count_of("before;", text), 1) << text;
  for (const char* stream : {"out", "log", "wide", "stdio"}) {
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(count_of(fmt::format("{}{};", stream, rank), text), 1) << text;
  }
}

TEST_F(Helpers, WhatAFailingRankPrintsArrives) {
  const std::string text = printed([] {
    static_cast<void>(error_of([] {
      launch(2, small_launch(false), [](Group& group) {
        std::cout << "last words of " << group.team().rank << ";";
        fail(ErrorKind::wrong_result, "on purpose");
      });
    }));
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(count_of(fmt::format("last words of {};", rank), text), 1) << text;
}

}  // namespace
}  // namespace tilewire
