// Descriptors that processes send to each other, and agreement of all ranks.
#include "backends/host/exchange.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "backends/host/wire.hpp"
#include "backends/messages.hpp"
#include "ranks/plans.hpp"

namespace tilewire {
namespace {

using host::HostGroup;
using testing::error_of;
using testing::small_launch;
using testing::want;

/// Run `body` on ranks that are processes.
void on_processes(int num_ranks, double timeout_s, const std::function<void(HostGroup&)>& body) {
  launch(num_ranks, small_launch(false, timeout_s), [&](Group& group) { body(dynamic_cast<HostGroup&>(group)); });
}

/// Memory with `number` in it.
Descriptor memory_with(int number) {
  Descriptor memory(memfd_create("exchange-test", MFD_CLOEXEC));
  want(write(memory.get(), &number, sizeof(number)) == sizeof(number), "write");
  return memory;
}

int number_in(const Descriptor& memory) {
  int number = -1;
  want(pread(memory.get(), &number, sizeof(number), 0) == sizeof(number), "pread");
  return number;
}

class Exchange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  }
};

TEST_F(Exchange, EveryRankGetsEveryonesDescriptor) {
  for (const int num_ranks : {1, 2, 5}) {
    on_processes(num_ranks, 30, [&](HostGroup& group) {
      const int before = testing::num_descriptors();
      for (int round = 0; round < 20; ++round) {
        const Descriptor mine = memory_with(100 * round + group.rank());
        const std::vector<Descriptor> all = exchange_descriptors(group, mine.get());
        for (int rank = 0; rank < num_ranks; ++rank) {
          if (rank == group.rank()) {
            want(!all[rank].valid(), "a descriptor of mine");
          } else {
            want(number_in(all[rank]) == 100 * round + rank, "round {}: {} of rank {}", round, number_in(all[rank]),
                 rank);
          }
        }
      }
      // Fewer, where a peer that has left is watched no longer.
      want(testing::num_descriptors() <= before, "{} descriptors, {} before", testing::num_descriptors(), before);
    });
  }
}

/// Take part in the exchange until the rank should send its descriptor.
std::vector<std::string> open_a_door_only(HostGroup& group, std::optional<Descriptor>& door) {
  const std::string name = host::unique_name("test");
  door = host::listen_at(name);
  return exchange(group, "exchange_descriptors", name);
}

TEST_F(Exchange, ASilentRankIsNamedAtTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  on_processes(3, 0.5, [](HostGroup& group) {
    std::optional<Descriptor> door;
    if (group.rank() == 1) {
      open_a_door_only(group, door);
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      return;
    }
    const Descriptor mine = memory_with(0);
    const Error error = error_of([&] { static_cast<void>(exchange_descriptors(group, mine.get())); });
    want(error.kind() == ErrorKind::timeout, "{}", error.what());
    want(std::string(error.what()).find("for a descriptor of rank 1") != std::string::npos, "{}", error.what());
    want(error_of([&] { group.barrier(); }).kind() == ErrorKind::timeout, "the group is not broken");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(Exchange, ADeadRankIsNamedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Error killed = error_of([] {
    on_processes(3, 30, [](HostGroup& group) {
      std::optional<Descriptor> door;
      if (group.rank() == 2) {
        open_a_door_only(group, door);
        raise(SIGKILL);
      }
      const Descriptor mine = memory_with(0);
      const Error error = error_of([&] { static_cast<void>(exchange_descriptors(group, mine.get())); });
      want(error.kind() == ErrorKind::rank_lost, "{}", error.what());
      want(std::string(error.what()).find("rank 2") != std::string::npos, "{}", error.what());
    });
  });
  EXPECT_NE(std::string(killed.what()).find("rank 2 was killed"), std::string::npos) << killed.what();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

/// A process, of another user if `uid` is not ours, that connects to a rank's door with a descriptor of its own.
void knock_as_stranger(const std::string& name, uid_t uid) {
  const host::Address address = host::address_of(name);
  const pid_t pid = fork();
  if (pid == 0) {
    if (uid != geteuid() && setuid(uid) != 0) _exit(1);
    const Descriptor socket = host::new_socket();
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) _exit(2);
    const int32_t label = 1;
    // It may be shown the door before it has spoken.
    host::send_message(socket, std::as_bytes(std::span(&label, 1)), STDERR_FILENO);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  want(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the stranger ended with {}", status);
}

TEST_F(Exchange, NothingIsTakenFromStrangers) {
  const uid_t me = geteuid();
  const std::vector<uid_t> users = me == 0 ? std::vector<uid_t>{me, 65534} : std::vector<uid_t>{me};
  for (const uid_t uid : users) {
    on_processes(2, 30, [&](HostGroup& group) {
      if (group.rank() == 0) {
        const Descriptor mine = memory_with(7);
        want(number_in(exchange_descriptors(group, mine.get())[1]) == 8, "not the number of rank 1");
        return group.barrier();
      }
      std::optional<Descriptor> door;
      const std::string name = open_a_door_only(group, door)[0];
      knock_as_stranger(name, uid);
      // As rank 1 would.
      const Descriptor mine = memory_with(8);
      const Descriptor socket = host::new_socket();
      const host::Address address = host::address_of(name);
      want(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0, "connect");
      const int32_t label = 1;
      want(host::send_message(socket, std::as_bytes(std::span(&label, 1)), mine.get()).ok(), "send");
      group.barrier();
    });
  }
}

TEST(Agree, ReturnsEveryonesValueOrThrowsTheFirstErrorEverywhere) {
  for (const bool threads : testing::launch_modes()) {
    launch(3, small_launch(threads), [](Group& base) {
      auto& group = dynamic_cast<HostGroup&>(base);
      const auto values = agree(group, [&] { return std::to_string(group.rank()); });
      want(values == std::vector<std::string>{"0", "1", "2"}, "{}", fmt::join(values, " "));
      const Error error = error_of([&] {
        agree(group, [&]() -> std::string {
          if (group.rank() > 0) fail(ErrorKind::unsupported, "no room at {}", group.rank());
          return "fine";
        });
      });
      want(error.kind() == ErrorKind::unsupported && std::string(error.what()) == "rank 1: no room at 1", "{}",
           error.what());
      group.barrier();
    });
  }
}

}  // namespace
}  // namespace tilewire
