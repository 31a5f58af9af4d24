// Programs that were started with closed standard streams: their output goes to none of our descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "backends/host/exchange.hpp"
#include "ranks/plans.hpp"
#include "ranks/processes.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

using testing::want;

class ClosedStreams : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  }
  /// Close some of the descriptors 0, 1 and 2, by the bits of the parameter.
  static void close_streams() {
    for (int fd = 0; fd < 3; ++fd) {
      if ((GetParam() & (1 << fd)) != 0) close(fd);
    }
  }
  static void want_closed() {
    for (int fd = 0; fd < 3; ++fd) {
      const bool closed = (GetParam() & (1 << fd)) != 0;
      want((fcntl(fd, F_GETFD) < 0) == closed, "descriptor {} is {}", fd, closed ? "in use" : "closed");
    }
  }
  static void print_rubbish() {
    const std::string rubbish(100, '#');
    for (int round = 0; round < 10; ++round) {
      for (int fd = 0; fd < 3; ++fd) {
        if ((GetParam() & (1 << fd)) != 0) static_cast<void>(!write(fd, rubbish.data(), rubbish.size()));
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Combinations, ClosedStreams, ::testing::Range(1, 8));

TEST_P(ClosedStreams, RanksThatJoinAreUndisturbed) {
  const std::string job = testing::unique_name();
  testing::Processes processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.start([&, rank]() -> std::string {
      close_streams();
      try {
        const auto group = join("host", testing::options_of(job, rank, 3, 10));
        want_closed();
        print_rubbish();
        const auto program = group->load(testing::all_gather_plan(3, 2));
        const auto texts = group->all_gather(fmt::format("rank {}", rank));
        for (int peer = 0; peer < 3; ++peer) want(texts[peer] == fmt::format("rank {}", peer), "{}", texts[peer]);
        const Descriptor memory = granted_descriptor("memfd", [] { return memfd_create("streams", MFD_CLOEXEC); });
        const auto theirs = host::exchange_descriptors(dynamic_cast<host::HostGroup&>(*group), memory.get());
        for (const Descriptor& one : theirs) want(!one.valid() || one.get() > 2, "descriptor {}", one.get());
        want_closed();
        print_rubbish();
        group->barrier();
        return "good";
      } catch (const Error& error) {
        return testing::stream_ordered(error);
      }
    });
  }
  testing::expect_all(processes.lines(), 3, "good");
}

TEST_P(ClosedStreams, LaunchedRanksReportWhatTheySay) {
  testing::Processes processes;
  processes.start([]() -> std::string {
    close_streams();
    try {
      launch(2, testing::small_launch(false), [](Group& group) {
        want_closed();
        print_rubbish();
        group.barrier();
      });
      launch(2, testing::small_launch(false), [](Group& group) {
        print_rubbish();
        if (group.team().rank == 1) fail(ErrorKind::wrong_result, "good");
        group.barrier();
      });
      return "nothing was thrown";
    } catch (const Error& error) {
      return error.what();
    }
  });
  const auto lines = processes.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "good");
}

}  // namespace
}  // namespace tilewire
