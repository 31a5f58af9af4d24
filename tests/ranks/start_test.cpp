// Start-up that one rank cannot finish: limits, refused system calls, other pid namespaces. All ranks report the
// failing
// rank's error at once.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <new>
#include <stdexcept>

#include "backends/host/group.hpp"
#include "backends/host/slot.hpp"
#include "backends/host/wire.hpp"
#include "core/descriptor.hpp"
#include "ranks/plans.hpp"
#include "ranks/processes.hpp"

namespace tilewire {
namespace {

using testing::error_of;
using testing::expect_all;
using testing::options_of;
using testing::Processes;
using testing::try_to_join;
using testing::unique_name;
using testing::want;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kAtOnce = 20 * kSecond;
constexpr double kTimeout = 30;

#if defined(TILEWIRE_ASAN) || defined(TILEWIRE_TSAN)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

std::string stream_ordered_kind(ErrorKind kind) { return fmt::format("{}: ", static_cast<int>(kind)); }

void set_limit(decltype(RLIMIT_NOFILE) resource, rlim_t most) {
  rlimit limit{};
  getrlimit(resource, &limit);
  limit.rlim_cur = most;
  want(setrlimit(resource, &limit) == 0, "setrlimit");
}

/// Write, or wait for, `times` bytes in a pipe.
void tell(const Descriptor& end, int times) {
  for (int i = 0; i < times; ++i) want(write(end.get(), "x", 1) == 1, "write");
}
void hear(const Descriptor& end, int times) {
  char byte = 0;
  for (int i = 0; i < times; ++i) want(read(end.get(), &byte, 1) == 1, "read");
}

class StartUp : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  }
  void TearDown() override {
    EXPECT_LT(host::now_ns() - begin_, kAtOnce * std::max(parts_, 1)) << "somebody has waited";
  }
  /// Ranks that join; `prepare` runs in each of them before.
  std::vector<std::string> join_all(int num_ranks, const std::function<void(int)>& prepare,
                                    int64_t arena_bytes = 1 << 20) {
    ++parts_;
    const std::string job = unique_name();
    Processes processes;
    for (int rank = 0; rank < num_ranks; ++rank) {
      processes.start([=]() -> std::string {
        JoinOptions options = options_of(job, rank, num_ranks, kTimeout);
        options.arena_bytes = arena_bytes;
        try {
          prepare(rank);
        } catch (const Error& error) {
          return testing::stream_ordered(error);
        }
        return try_to_join(options);
      });
    }
    return processes.lines();
  }

 private:
  int parts_ = 0;
  int64_t begin_ = host::now_ns();
};

TEST_F(StartUp, ARankAtItsLimitOfDescriptorsIsNamedByAll) {
  constexpr int kRanks = 5;
  for (const int culprit : {0, 1, 4}) {
    // NOTE: a test has more descriptors open than these; they stay.
    for (const rlim_t most : {3, 4, 5, 8}) {
      if (culprit == 0 && most == 3) continue;
      const auto lines = join_all(kRanks, [&](int rank) {
        if (rank == culprit) set_limit(RLIMIT_NOFILE, most);
      });
      expect_all(lines, kRanks, stream_ordered_kind(ErrorKind::unsupported));
      expect_all(lines, kRanks, fmt::format("rank {} ", culprit));
      expect_all(lines, kRanks, fmt::format("(the limit is {}: ulimit -n)", most));
    }
  }
}

TEST_F(StartUp, EveryNumberOfFreeDescriptorsEndsWell) {
  constexpr int kRanks = 4;
  for (const int culprit : {0, 2}) {
    bool started = false;
    // Rank 0 needs one to be heard.
    for (int free = culprit == 0 ? 1 : 0; free < 12 && !started; ++free) {
      const auto lines = join_all(kRanks, [&](int rank) {
        if (rank != culprit) return;
        for (int fd = 3; fd < testing::kAway; ++fd) close(fd);
        set_limit(RLIMIT_NOFILE, 3 + free);
      });
      ASSERT_EQ(lines.size(), kRanks);
      started = lines[0] == "good";
      expect_all(lines, kRanks, started ? "good" : "ulimit -n");
    }
    EXPECT_TRUE(started) << "with 12 descriptors";
  }
}

TEST_F(StartUp, MemoryThatOneRankCannotMapIsNamedWithTheArenaByAll) {
  if (kSanitizer) GTEST_SKIP() << "sanitizers need the address space";
  constexpr int64_t kArena = int64_t{16} << 30;
  for (const int culprit : {0, 1}) {
    const auto lines = join_all(
        2,
        [&](int rank) {
          if (rank == culprit) set_limit(RLIMIT_AS, rlim_t{20} << 30);
        },
        kArena);
    expect_all(lines, 2, fmt::format("rank {} (process", culprit));
    expect_all(lines, 2, "mapping 32 GiB for 2 ranks with arenas of 16 GiB");
    expect_all(lines, 2, "(the limit is 20 GiB: ulimit -v)");
    expect_all(lines, 2, "--arena-gib");
    expect_all(lines, 2, stream_ordered_kind(ErrorKind::unsupported));
  }
}

TEST_F(StartUp, TheLimitOfFilesIsNamedWithTheArena) {
  const auto lines = join_all(
      2, [](int) { set_limit(RLIMIT_FSIZE, 1 << 20); }, 100 << 20);
  expect_all(lines, 2, "2 ranks with arenas of 100 MiB: File too large (the limit is 1 MiB: ulimit -f)");
  expect_all(lines, 2, stream_ordered_kind(ErrorKind::unsupported));
}

/// From now on the system refuses this call to this process.
void refuse_call(int number) {
  std::array<sock_filter, 4> filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  const bool filtered =
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
  want(filtered, "seccomp is refused here");
}

bool is_refused(const std::vector<std::string>& lines) {
  return !lines.empty() && lines[0].find("seccomp is refused") != std::string::npos;
}

TEST_F(StartUp, WhatTheSystemRefusesToOneRankAllCallUnsupported) {
  struct Case {
    int number;
    const char* name;
    int culprit;
  };
  for (const Case& one : {Case{SYS_memfd_create, "memfd_create", 0}, Case{SYS_eventfd2, "eventfd", 0},
                          Case{SYS_eventfd2, "eventfd", 1}, Case{SYS_pidfd_open, "pidfd_open", 0},
                          Case{SYS_pidfd_open, "pidfd_open", 2}, Case{SYS_ftruncate, "Operation not permitted", 0}}) {
    const auto lines = join_all(3, [&](int rank) {
      if (rank == one.culprit) refuse_call(one.number);
    });
    if (is_refused(lines)) GTEST_SKIP() << lines[0];
    expect_all(lines, 3, stream_ordered_kind(ErrorKind::unsupported));
    expect_all(lines, 3, one.name);
    expect_all(lines, 3, fmt::format("rank {} ", one.culprit));
  }
}

TEST_F(StartUp, WhatTheSystemRefusesToAllIsUnsupported) {
  for (const auto& [number, name] : {std::pair{SYS_socket, "socket"},
                                     {SYS_bind, "bind"},
                                     {SYS_listen, "listen"},
                                     {SYS_memfd_create, "memfd_create"}}) {
    // Rank 0 alone: who cannot speak cannot tell the others.
    const std::string job = unique_name();
    Processes processes;
    processes.start([&, refused = number]() -> std::string {
      const Error error = error_of([&] {
        refuse_call(refused);
        static_cast<void>(join("host", options_of(job, 0, 1, 5)));
      });
      return testing::stream_ordered(error);
    });
    const auto lines = processes.lines();
    if (is_refused(lines)) GTEST_SKIP() << lines[0];
    expect_all(lines, 1, stream_ordered_kind(ErrorKind::unsupported));
    expect_all(lines, 1, name);
  }
  for (const auto& [number, name] : {std::pair{SYS_getrandom, "getrandom"}, {SYS_pipe2, "pipe2"}}) {
    Processes processes;
    processes.start([refused = number]() -> std::string {
      const Error error = error_of([&] {
        refuse_call(refused);
        launch(2, testing::small_launch(false), [](Group&) {});
      });
      return testing::stream_ordered(error);
    });
    const auto lines = processes.lines();
    if (is_refused(lines)) GTEST_SKIP() << lines[0];
    expect_all(lines, 1, stream_ordered_kind(ErrorKind::unsupported));
    expect_all(lines, 1, name);
  }
}

/// `try_to_join` in the first process of a new pid namespace; nothing if this process may not make one.
std::string join_in_new_namespace(const JoinOptions& options) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0 || unshare(CLONE_NEWPID) != 0) return "unshare is refused";
  const pid_t inside = fork();
  if (inside == 0) {
    const std::string line = try_to_join(options);
    _exit(write(ends[1], line.data(), line.size()) < 0);
  }
  waitpid(inside, nullptr, 0);
  std::array<char, 4096> line{};
  const ssize_t size = read(ends[0], line.data(), line.size());
  return {line.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

TEST_F(StartUp, RanksInDifferentPidNamespacesAreToldByAllInAnyOrder) {
  struct Case {
    std::vector<int> apart;  // ranks with namespaces of their own
    int last;                // who comes last
  };
  for (const Case& one :
       {Case{{1}, 0}, Case{{1}, 1}, Case{{0}, 0}, Case{{0}, 1}, Case{{0, 1}, 2}, Case{{2}, 2}, Case{{2}, 0}}) {
    const std::string job = unique_name();
    Processes processes;
    for (int rank = 0; rank < 3; ++rank) {
      processes.start([&, rank] {
        if (rank == one.last) usleep(500'000);
        const JoinOptions options = options_of(job, rank, 3, kTimeout);
        return std::ranges::count(one.apart, rank) > 0 ? join_in_new_namespace(options) : try_to_join(options);
      });
      if (rank == 0 && geteuid() != 0) break;
    }
    const auto lines = processes.lines();
    if (geteuid() != 0 || lines.end() != std::ranges::find(lines, "unshare is refused")) {
      GTEST_SKIP() << "no new pid namespace";
    }
    expect_all(lines, 3, "another pid namespace than rank 0");
    expect_all(lines, 3, stream_ordered_kind(ErrorKind::unsupported));
  }
}

/// If /proc does not show a process, its own number for itself decides.
TEST_F(StartUp, ARankWithAnotherNumberIsInAnotherNamespace) {
  const std::string job = unique_name();
  Processes processes;
  for (const int rank : {0, 2}) processes.start([&, rank] { return try_to_join(options_of(job, rank, 3, kTimeout)); });
  processes.start([&]() -> std::string {
    const Descriptor socket = host::new_socket();
    const host::Address address = host::address_of(job);
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) usleep(1000);
    host::send_hello(socket, {.rank = 1,
                              .num_ranks = 3,
                              .arena_bytes = 1 << 20,
                              .deadline_ns = host::now_ns() + 10 * kSecond,
                              .pid = getpid() + 1});
    host::Verdict verdict;
    static_cast<void>(host::readable_by(socket, host::now_ns() + 10 * kSecond));
    static_cast<void>(host::receive_verdict(socket, verdict));
    return verdict.text.data();
  });
  expect_all(processes.lines(), 3, "another pid namespace than rank 0");
}

TEST_F(StartUp, ALateKnockIsAnsweredAtTheLimitWithoutASpin) {
  const std::string job = unique_name();
  const std::array<Descriptor, 2> joined = new_pipe("joined");
  const std::array<Descriptor, 2> answered = new_pipe("answered");
  Processes processes;
  processes.start([&]() -> std::string {
    const auto group = join("host", options_of(job, 0, 1, 5));
    set_limit(RLIMIT_NOFILE, 3);
    const std::clock_t before = std::clock();
    tell(joined[1], 2);
    hear(answered[0], 2);
    const double busy_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    return busy_s < 0.5 ? "is running already" : fmt::format("busy for {} s", busy_s);
  });
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      hear(joined[0], 1);
      const std::string line = try_to_join(options_of(job, rank, 2, 5));
      tell(answered[1], 1);
      return line;
    });
  }
  expect_all(processes.lines(), 3, "is running already");
}

/// poll() refuses more descriptors than the limit.
TEST_F(StartUp, ARankWhoseLimitFellStillNoticesDeathsWithoutASpin) {
  const std::string job = unique_name();
  const std::array<Descriptor, 2> lowered = new_pipe("lowered");
  Processes processes;
  for (int rank = 0; rank < 8; ++rank) {
    processes.start([&, rank]() -> std::string {
      auto group = join("host", options_of(job, rank, 8, 10));
      if (rank == 7) {
        hear(lowered[0], 1);
        _exit(3);
      }
      if (rank == 1) {
        set_limit(RLIMIT_NOFILE, 6);
        tell(lowered[1], 1);
      }
      const std::clock_t before = std::clock();
      const Error error = error_of([&] {
        while (true) group->barrier();
      });
      group.reset();
      const double busy_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
      return busy_s < 2 ? std::string(error.what()) : fmt::format("busy for {} s", busy_s);
    });
  }
  const auto lines = processes.lines();
  expect_all(lines, 7, "rank 7 (process ");
  expect_all(lines, 7, "died");
}

/// A process that connects to the door and sends nothing.
TEST_F(StartUp, ASilentConnectionDoesNotKeepRanksFromMeeting) {
  const std::string job = unique_name();
  const std::array<Descriptor, 2> connected = new_pipe("connected");
  const std::array<Descriptor, 2> met = new_pipe("met");
  Processes processes;
  processes.start([&] { return try_to_join(options_of(job, 0, 2, 10)); });
  processes.start([&]() -> std::string {
    const Descriptor socket = host::new_socket();
    const host::Address address = host::address_of(job);
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) usleep(1000);
    tell(connected[1], 1);
    hear(met[0], 1);
    return "good";
  });
  processes.start([&] {
    hear(connected[0], 1);
    const std::string line = try_to_join(options_of(job, 1, 2, 10));
    tell(met[1], 1);
    return line;
  });
  expect_all(processes.lines(), 3, "good");
}

TEST_F(StartUp, AStepThatThrowsAnythingIsToldByAll) {
  for (const bool memory : {true, false}) {
    for (const bool threads : testing::launch_modes()) {
      launch(3, testing::small_launch(threads), [&](Group& group) {
        auto& ranks = dynamic_cast<host::HostGroup&>(group);
        const Error error = error_of([&] {
          host::agree(ranks, [&]() -> std::string {
            if (ranks.rank() != 1) return "";
            if (memory) throw std::bad_alloc();
            throw std::runtime_error("a foreign exception");
          });
        });
        want(error.kind() == (memory ? ErrorKind::unsupported : ErrorKind::internal), "{}", error.what());
        const std::string text = error.what();
        want(text.find(memory ? "rank 1: Cannot allocate memory" : "rank 1: a foreign exception") == 0, "{}", text);
        group.barrier();
      });
    }
  }
}

}  // namespace
}  // namespace tilewire
