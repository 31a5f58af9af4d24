// Symmetric memory on a fake driver: sharing, growth, failures and teardown, among threads and among processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "backends/cuda/runtime/symmetric_memory.hpp"
#include "cuda/fake_driver.hpp"
#include "ranks/plans.hpp"

namespace tilewire {
namespace {

using cuda::SymmetricMemory;
using testing::error_of;
using testing::FakeUse;
using testing::small_launch;
using testing::want;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLimit = 1024 * kMiB;

class CudaMemory : public ::testing::TestWithParam<bool> {
 protected:
  void launch_ranks(int num_ranks, const std::function<void(host::HostGroup&)>& body, double timeout_s = 30) {
    launch(num_ranks, small_launch(GetParam(), timeout_s),
           [&](Group& group) { body(dynamic_cast<host::HostGroup&>(group)); });
  }
  static SymmetricMemory make_memory(host::HostGroup& group) {
    std::vector<int> devices(group.team().num_ranks);
    for (int rank = 0; rank < std::ssize(devices); ++rank) devices[rank] = rank % 2;
    return {group, testing::fake_driver(), devices, kLimit};
  }
};
INSTANTIATE_TEST_SUITE_P(Fake, CudaMemory, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

/// Every rank writes to every rank at `offset`, and finds the other ranks' values there.
void exchange_words(host::HostGroup& group, const SymmetricMemory& memory, int64_t offset) {
  const int num_ranks = group.team().num_ranks;
  for (int peer = 0; peer < num_ranks; ++peer) {
    const int64_t word = offset + 1000 * group.rank() + peer;
    std::memcpy(memory.base(peer) + offset + 8 * group.rank(), &word, 8);
  }
  group.barrier();
  for (int peer = 0; peer < num_ranks; ++peer) {
    int64_t word = 0;
    std::memcpy(&word, memory.base(group.rank()) + offset + 8 * peer, 8);
    want(word == offset + 1000 * peer + group.rank(), "offset {}: {} from rank {}", offset, word, peer);
  }
  group.barrier();
}

TEST_P(CudaMemory, PeersSeeEachOthersWritesAndMemoryGrows) {
  for (const int num_ranks : {1, 2, 5}) {
    launch_ranks(num_ranks, [](host::HostGroup& group) {
      SymmetricMemory memory = make_memory(group);
      want(memory.backed() == 0, "{} bytes at start", memory.backed());
      for (int peer = 1; peer < group.team().num_ranks; ++peer) {
        const int64_t step = memory.base(peer) - memory.base(peer - 1);
        want(step == kLimit, "rank {} begins {} bytes behind the one before it", peer, step);
      }
      memory.grow_to(100);
      want(memory.backed() == 64 * kMiB, "{} bytes", memory.backed());
      std::byte* const base = memory.base(0);
      exchange_words(group, memory, 4096);
      memory.grow_to(64 * kMiB + 1);
      want(memory.backed() == 128 * kMiB, "{} bytes", memory.backed());
      memory.grow_to(kLimit);
      want(memory.backed() == kLimit && memory.base(0) == base, "the beginning moved");
      for (const int64_t offset : {8192 + int64_t{0}, 64 * kMiB - 16, 128 * kMiB - 8, kLimit - 64}) {
        exchange_words(group, memory, offset);
      }
      int64_t word = 0;
      std::memcpy(&word, base + 4096, 8);
      want(word == 4096, "what was written before the growth is {}", word);
    });
  }
  EXPECT_EQ(testing::fake_use(), FakeUse{});
}

TEST_P(CudaMemory, NothingIsLeftInAnyRanksProcess) {
  const int before = testing::num_descriptors();
  launch_ranks(3, [](host::HostGroup& group) {
    const int descriptors = testing::num_descriptors();
    {
      SymmetricMemory memory = make_memory(group);
      memory.grow_to(200 * kMiB);
      want(testing::fake_use().handles == 0 || !group.separate(), "{} handles", testing::fake_use().handles);
      // Ranks leave one after another, while the others still use their memory.
      group.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * group.rank()));
      memory.base(0)[group.rank()] = std::byte{1};
    }
    if (!group.separate()) return;
    want(testing::fake_use() == FakeUse{}, "left behind");
    // Fewer, where a peer that has left is watched no longer.
    want(testing::num_descriptors() <= descriptors, "{} descriptors", testing::num_descriptors());
  });
  EXPECT_EQ(testing::fake_use(), FakeUse{});
  EXPECT_EQ(testing::num_descriptors(), before);
}

TEST_P(CudaMemory, AFullDeviceIsNamedByAllAndNothingChanges) {
  launch_ranks(3, [](host::HostGroup& group) {
    SymmetricMemory memory = make_memory(group);
    memory.grow_to(1);
    // Threads share the fake device, and its limit.
    group.barrier();
    if (group.rank() == 1) testing::limit_fake_memory(100 * kMiB);
    group.barrier();
    const Error error = error_of([&] { memory.grow_to(500 * kMiB); });
    const std::string name = group.separate() ? "rank 1: GPU 1 has no room for" : "has no room for";
    want(error.kind() == ErrorKind::invalid_input && std::string(error.what()).find(name) != std::string::npos, "{}",
         error.what());
    want(memory.backed() == 64 * kMiB, "{} bytes", memory.backed());
    exchange_words(group, memory, 0);
    memory.grow_to(65 * kMiB);
    exchange_words(group, memory, 65 * kMiB - 64);
    group.barrier();
    testing::limit_fake_memory(std::numeric_limits<int64_t>::max());
    group.barrier();
    memory.grow_to(500 * kMiB);
    exchange_words(group, memory, 500 * kMiB - 64);
  });
  EXPECT_EQ(testing::fake_use(), FakeUse{});
}

TEST_P(CudaMemory, DevicesWithoutALinkAreNamedByAll) {
  launch_ranks(2, [](host::HostGroup& group) {
    SymmetricMemory memory = make_memory(group);
    group.barrier();
    if (group.rank() == 1) testing::forbid_fake_access(true);
    group.barrier();
    const Error error = error_of([&] { memory.grow_to(1); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("cuMemSetAccess") != std::string::npos, "{}", error.what());
    group.barrier();
    testing::forbid_fake_access(false);
    group.barrier();
    memory.grow_to(1);
    exchange_words(group, memory, 64);
  });
  EXPECT_EQ(testing::fake_use(), FakeUse{});
}

TEST_P(CudaMemory, ASilentRankIsNamedAndNothingIsLeft) {
  const auto begin = std::chrono::steady_clock::now();
  launch_ranks(
      3,
      [](host::HostGroup& group) {
        std::optional<SymmetricMemory> memory(make_memory(group));
        if (group.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        } else {
          const Error error = error_of([&] { memory->grow_to(1); });
          want(error.kind() == ErrorKind::timeout && std::string(error.what()).find("rank 2") != std::string::npos,
               "{}", error.what());
        }
        memory.reset();
        if (group.separate()) want(testing::fake_use() == FakeUse{}, "left behind");
      },
      0.5);
  EXPECT_EQ(testing::fake_use(), FakeUse{});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_P(CudaMemory, ARankThatFailsLeavesNothing) {
  const Error error = error_of([&] {
    launch_ranks(2, [](host::HostGroup& group) {
      SymmetricMemory memory = make_memory(group);
      memory.grow_to(1);
      if (group.rank() == 1) fail(ErrorKind::wrong_result, "on purpose");
      memory.grow_to(100 * kMiB);
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::wrong_result) << error.what();
  EXPECT_EQ(testing::fake_use(), FakeUse{});
}

}  // namespace
}  // namespace tilewire
