// Start-up of ranks that are independent processes: by environment, by mpirun, and all failures.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "backends/host/slot.hpp"
#include "backends/host/wire.hpp"
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

TEST(Join, RanksComeInAnyOrder) {
  const std::string job = unique_name();
  Processes processes;
  for (int rank = 3; rank >= 0; --rank) {
    processes.start([&, rank] {
      usleep(static_cast<useconds_t>((rank * 37 % 4) * 20'000));
      return try_to_join(options_of(job, rank, 4, 10));
    });
  }
  expect_all(processes.lines(), 4, "good");
}

TEST(Join, SilentRanksAreNamedOnEveryRank) {
  const std::string job = unique_name();
  Processes processes;
  for (const int rank : {0, 2}) {
    processes.start([&, rank] { return try_to_join(options_of(job, rank, 5, rank == 0 ? 5 : 0.5)); });
  }
  const auto lines = processes.lines();
  expect_all(lines, 2, "ranks 1, 3, 4 of 5 have not joined");
  expect_all(lines, 2, fmt::format("{}: ", static_cast<int>(ErrorKind::timeout)));
}

TEST(Join, SilentRankZeroIsNamed) {
  const Error error = error_of([] { static_cast<void>(join("host", options_of(unique_name(), 1, 2, 0.3))); });
  EXPECT_EQ(error.kind(), ErrorKind::timeout);
  EXPECT_NE(std::string(error.what()).find("rank 0 of 2 has not joined"), std::string::npos) << error.what();
}

TEST(Join, TwoProcessesOfOneRankAreNamed) {
  for (const int twice : {0, 1}) {
    const std::string job = unique_name();
    Processes processes;
    for (const int rank : {0, 1, twice}) {
      processes.start([&, rank] { return try_to_join(options_of(job, rank, 3, 10)); });
    }
    expect_all(processes.lines(), 3, fmt::format("both say that they are rank {}", twice));
  }
}

TEST(Join, RanksThatDisagreeAreNamed) {
  const std::string job = unique_name();
  Processes sizes;
  sizes.start([&] { return try_to_join(options_of(job, 0, 2, 10)); });
  sizes.start([&] { return try_to_join(options_of(job, 1, 3, 10)); });
  expect_all(sizes.lines(), 2, "rank 0 says 2 ranks, rank 1");
  Processes arenas;
  for (int rank = 0; rank < 2; ++rank) {
    arenas.start([&, rank] {
      JoinOptions options = options_of(job, rank, 2, 10);
      options.arena_bytes += rank;
      return try_to_join(options);
    });
  }
  expect_all(arenas.lines(), 2, "rank 0 wants an arena of 1048576 bytes, rank 1 one of 1048577");
}

TEST(Join, ARankThatDiesDuringStartUpIsNoticed) {
  const std::string job = unique_name();
  const auto begin = std::chrono::steady_clock::now();
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] { return try_to_join(options_of(job, rank, 4, 30)); });
  }
  processes.start([&]() -> std::string {
    const Descriptor socket = host::new_socket();
    const host::Address address = host::address_of(job);
    while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) usleep(1000);
    host::send_hello(socket, {host::kProtocol, 2, 4, 1 << 20, host::now_ns() + 30'000'000'000});
    usleep(200'000);
    return "rank 2 ended during start-up";
  });
  for (const std::string& line : processes.lines()) EXPECT_NE(line.find("ended during start-up"), line.npos) << line;
  Processes headless;
  headless.start([&] {
    alarm(1);
    return try_to_join(options_of(job, 0, 3, 30));
  });
  headless.start([&] { return try_to_join(options_of(job, 1, 3, 30)); });
  expect_all(headless.lines(), 1, "rank 0 (process");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Join, ASecondJobOfTheNameIsRefusedUntilTheFirstHasEnded) {
  const std::string job = unique_name();
  {
    const auto group = join("host", options_of(job, 0, 1, 5));
    for (int rank = 0; rank < 2; ++rank) {
      const Error error = error_of([&] { static_cast<void>(join("host", options_of(job, rank, 2, 5))); });
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_NE(std::string(error.what()).find("is running already (1 ranks"), std::string::npos) << error.what();
    }
  }
  for (int again = 0; again < 20; ++again) static_cast<void>(join("host", options_of(job, 0, 1, 5)));
}

/// Rank 1 leaves and joins again at once, while rank 0 is still leaving.
TEST(Join, WhoLeavesFirstMayComeAgain) {
  const std::string job = unique_name();
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([&, rank] {
      for (int round = 0; round < 3; ++round) {
        const auto group = join("host", options_of(job, rank, 2, 20));
        group->barrier();
        if (rank == 0) usleep(200'000);
      }
      return try_to_join(options_of(job, rank, 2, 20));
    });
  }
  expect_all(processes.lines(), 2, "good");
}

TEST(Join, StrangersAreIgnoredAndNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string job = unique_name();
  const host::Address address = host::address_of(job);
  const auto as_nobody = [&](const auto& act) {
    return [&address, act]() -> std::string {
      if (setuid(65534) != 0) return "setuid";
      const Descriptor socket = host::new_socket();
      return act(socket, reinterpret_cast<const sockaddr*>(&address.name));
    };
  };
  Processes guests;
  guests.start([&] { return try_to_join(options_of(job, 0, 2, 10)); });
  guests.start(as_nobody([&](const Descriptor& socket, const sockaddr* name) {
    while (connect(socket.get(), name, address.size) != 0) usleep(1000);
    host::send_hello(socket, {host::kProtocol, 1, 2, 1 << 20, host::now_ns() + 1'000'000'000});
    return std::string("good");
  }));
  guests.start([&] {
    usleep(200'000);
    return try_to_join(options_of(job, 1, 2, 10));
  });
  expect_all(guests.lines(), 3, "good");

  Processes squatter;
  squatter.start(as_nobody([&](const Descriptor& socket, const sockaddr* name) {
    if (bind(socket.get(), name, address.size) != 0 || listen(socket.get(), 8) != 0) return "bind";
    usleep(500'000);
    return "held by another user";
  }));
  squatter.start([&] {
    usleep(200'000);
    return try_to_join(options_of(job, 0, 2, 10));
  });
  expect_all(squatter.lines(), 2, "held by another user");
}

TEST(Join, BadOptionsAreRefused) {
  const auto kind_of = [](const JoinOptions& options) {
    return error_of([&] { static_cast<void>(join("host", options)); }).kind();
  };
  EXPECT_EQ(kind_of(options_of("x", 2, 2, 1)), ErrorKind::invalid_input);
  EXPECT_EQ(kind_of(options_of("x", -1, 2, 1)), ErrorKind::invalid_input);
  EXPECT_EQ(kind_of(options_of("x", 0, 0, 1)), ErrorKind::invalid_input);
  EXPECT_EQ(kind_of(options_of("", 0, 1, 1)), ErrorKind::invalid_input);
  EXPECT_EQ(kind_of(options_of("x", 0, 1, 0)), ErrorKind::invalid_input);
  JoinOptions huge = options_of(unique_name(), 0, 1, 1);
  huge.arena_bytes = int64_t{1} << 62;
  EXPECT_EQ(kind_of(huge), ErrorKind::invalid_input);
  huge.arena_bytes = -1;
  EXPECT_EQ(kind_of(huge), ErrorKind::invalid_input);
}

TEST(Join, EnvironmentNamesRankAndSize) {
  Processes processes;
  processes.start([&] {
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "8", 1);
    setenv("TILEWIRE_JOB", "named", 1);
    setenv("TILEWIRE_TIMEOUT_S", "2.5", 1);
    setenv("LOCAL_RANK", "1", 1);
    const JoinOptions options = join_options_from_env();
    return fmt::format("{} {} {} {} {}", options.rank, options.num_ranks, options.job, options.timeout_s,
                       options.local_rank);
  });
  expect_all(processes.lines(), 1, "3 8 named 2.5 1");
  Processes broken;
  const auto message_with = [&](const char* rank, const char* size) {
    broken.start([=]() -> std::string {
      unsetenv("RANK");
      unsetenv("WORLD_SIZE");
      if (rank != nullptr) setenv("RANK", rank, 1);
      if (size != nullptr) setenv("WORLD_SIZE", size, 1);
      return error_of([] { static_cast<void>(join_options_from_env()); }).kind() == ErrorKind::invalid_input ? "good"
                                                                                                             : "bad";
    });
  };
  message_with(nullptr, "2");
  message_with("0", nullptr);
  message_with("two", "2");
  message_with("2", "2");
  message_with("0", "0");
  expect_all(broken.lines(), 5, "good");
}

int count_good(const std::string& command) {
  FILE* output = popen(command.c_str(), "r");
  std::array<char, 512> line{};
  int good = 0;
  while (fgets(line.data(), line.size(), output) != nullptr) {
    if (std::string(line.data()).find("is good") != std::string::npos) {
      ++good;
    } else {
      ADD_FAILURE() << line.data();
    }
  }
  EXPECT_EQ(pclose(output), 0);
  return good;
}

TEST(Join, RanksStartedByEnvironment) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  const std::string command =
      fmt::format("for r in 0 1 2; do RANK=$r WORLD_SIZE=3 TILEWIRE_JOB={} {} & done; wait", unique_name(), RANK_MAIN);
  EXPECT_EQ(count_good(command), 3);
}

TEST(Join, RanksStartedByMpirun) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  EXPECT_EQ(count_good(fmt::format("mpirun --allow-run-as-root --oversubscribe -np 3 {}", RANK_MAIN)), 3);
}

}  // namespace
}  // namespace tilewire
