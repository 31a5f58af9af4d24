// A team's communicator on a fake NCCL: the look-up, ranks that meet, calls that hang or fail, and the teardown.
#include "backends/cuda/vendor/nccl.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cuda/fake_nccl.hpp"
#include "cuda/fake_runtime.hpp"
#include "ranks/plans.hpp"

namespace tilewire {
namespace {

using cuda::Communicator;
using cuda::LibraryCollective;
using testing::error_of;
using testing::FakeNccl;
using testing::small_launch;
using testing::want;

class FakeLibrary {
 public:
  FakeLibrary() : handle_(dlopen(TILEWIRE_FAKE_NCCL, RTLD_NOW)) {}
  void does(FakeNccl what) const { find<decltype(&fake_nccl_does)>("fake_nccl_does")(what); }
  [[nodiscard]] testing::FakeNcclUse use() const { return find<decltype(&fake_nccl_use)>("fake_nccl_use")(); }

 private:
  template <class Function>
  [[nodiscard]] Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }

  void* handle_;
};

/// One test at a time: the fake counts communicators.
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.does(FakeNccl::works);
    before_ = fake_.use();
  }
  void TearDown() override {
    fake_.does(FakeNccl::works);
    for (int ms = 0; testing::fake_streams() > 0 && ms < 5000; ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(testing::fake_streams(), 0);
  }
  /// Threads of this process with host groups.
  static void launch_ranks(double timeout_s, const std::function<void(host::HostGroup&)>& body) {
    launch(2, small_launch(true, timeout_s), [&](Group& group) { body(dynamic_cast<host::HostGroup&>(group)); });
  }
  /// The communicators since the test began, after so many have ended.
  [[nodiscard]] testing::FakeNcclUse use_when_ended(int count) const {
    for (int ms = 0;; ++ms) {
      const testing::FakeNcclUse now = fake_.use();
      const testing::FakeNcclUse mine{now.made - before_.made, now.destroyed - before_.destroyed,
                                      now.aborted - before_.aborted};
      if (mine.destroyed + mine.aborted >= count || ms > 5000) return mine;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  FakeLibrary fake_;
  testing::FakeNcclUse before_;
};

TEST_F(Nccl, SaysWhatIsMissingAndWhichVersionIsThere) {
  EXPECT_EQ(cuda::missing_nccl("libnosuchnccl.so.2"), "NCCL cannot be loaded (libnosuchnccl.so.2)");
  EXPECT_EQ(cuda::missing_nccl("libc.so.6"), "libc.so.6 has no ncclGetVersion");
  EXPECT_EQ(cuda::nccl_version("libc.so.6"), "");
  EXPECT_EQ(cuda::missing_nccl(TILEWIRE_FAKE_NCCL), std::nullopt);
  EXPECT_EQ(cuda::nccl_version(TILEWIRE_FAKE_NCCL), "2.28.9");
  launch_ranks(10, [](host::HostGroup& ranks) {
    const Error error = error_of([&] { const Communicator none(ranks, 0, "libnosuchnccl.so.2"); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    ranks.barrier();
  });
}

TEST_F(Nccl, RanksMeetAndExchange) {
  launch_ranks(10, [](host::HostGroup& ranks) {
    Communicator communicator(ranks, ranks.rank(), TILEWIRE_FAKE_NCCL);
    const float rank = static_cast<float>(ranks.rank());
    const std::array<float, 4> mine{rank, 10 + rank, 20, 30 * rank};
    std::array<float, 8> all{};
    const auto call = [&](Collective kind, int64_t from, int64_t to) {
      LibraryCollective what{.kind = kind, .from_elements = from, .to_elements = to, .dtype = DType::fp32};
      communicator.prepare({what});
      what.from = reinterpret_cast<const std::byte*>(mine.data());
      what.to = reinterpret_cast<std::byte*>(all.data());
      communicator.bind(what)->enqueue({}, nullptr);
    };
    call(Collective::all_gather, 4, 8);
    want(all == std::array<float, 8>{0, 10, 20, 0, 1, 11, 20, 30}, "gathered");
    call(Collective::all_reduce, 4, 4);
    want(all[0] == 1 && all[1] == 21 && all[2] == 40 && all[3] == 30, "summed");
    call(Collective::reduce_scatter, 4, 2);
    want(all[0] == (rank == 0 ? 1 : 40) && all[1] == (rank == 0 ? 21 : 30), "scattered");
  });
  const testing::FakeNcclUse use = use_when_ended(2);
  EXPECT_EQ(use.made, 2);
  EXPECT_EQ(use.destroyed, 2);
  EXPECT_EQ(use.aborted, 0);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST_F(Nccl, ARankThatFailsIsNamedByAll) {
  fake_.does(FakeNccl::fails_in_init);
  launch_ranks(10, [](host::HostGroup& ranks) {
    const Error error = error_of([&] { const Communicator none(ranks, 0, TILEWIRE_FAKE_NCCL); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("rank 1: ncclCommInitRank: an error of the fake") == 0, "{}", error.what());
    ranks.barrier();
  });
  EXPECT_EQ(use_when_ended(1).aborted, 1) << "rank 0's";
}

TEST_F(Nccl, ALibraryThatDoesNotComeBackIsLeftBehind) {
  fake_.does(FakeNccl::hangs_in_init);
  const auto begin = std::chrono::steady_clock::now();
  launch_ranks(3, [](host::HostGroup& ranks) {
    const Error error = error_of([&] { const Communicator none(ranks, 0, TILEWIRE_FAKE_NCCL); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("ncclCommInitRank does not end within 2.7 s") != std::string::npos, "{}",
         error.what());
    ranks.barrier();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  fake_.does(FakeNccl::works);
  EXPECT_EQ(use_when_ended(2).aborted, 2) << "also the one that came too late";
}

TEST_F(Nccl, AFirstCallThatHangsIsAborted) {
  fake_.does(FakeNccl::hangs_in_calls);
  launch_ranks(3, [](host::HostGroup& ranks) {
    Communicator communicator(ranks, 0, TILEWIRE_FAKE_NCCL);
    const LibraryCollective what{
        .kind = Collective::all_reduce, .from_elements = 4, .to_elements = 4, .dtype = DType::fp32};
    const Error error = error_of([&] { communicator.prepare({what}); });
    want(error.kind() == ErrorKind::unsupported, "{}", error.what());
    want(std::string(error.what()).find("the first call of NCCL") != std::string::npos, "{}", error.what());
    const Error after = error_of([&] { communicator.bind(what)->enqueue({}, nullptr); });
    want(after.kind() == ErrorKind::rank_lost, "{}", after.what());
    ranks.barrier();
  });
  EXPECT_EQ(use_when_ended(2).aborted, 2);
}

TEST_F(Nccl, ABrokenTeamEndsItsCalls) {
  const Error error = error_of([&] {
    launch_ranks(20, [](host::HostGroup& ranks) {
      Communicator communicator(ranks, 0, TILEWIRE_FAKE_NCCL);
      const std::array<float, 4> mine{};
      std::array<float, 4> sum{};
      const LibraryCollective what{.kind = Collective::all_reduce,
                                   .from = reinterpret_cast<const std::byte*>(mine.data()),
                                   .to = reinterpret_cast<std::byte*>(sum.data()),
                                   .from_elements = 4,
                                   .to_elements = 4,
                                   .dtype = DType::fp32};
      ranks.barrier();
      if (ranks.rank() == 0) {
        // Rank 1 never comes: another thread says so.
        std::thread watch([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          communicator.abort();
        });
        const Error inside = error_of([&] { communicator.bind(what)->enqueue({}, nullptr); });
        watch.join();
        want(inside.kind() == ErrorKind::unsupported, "{}", inside.what());
        fail(ErrorKind::wrong_result, "on purpose");
      }
      static_cast<void>(error_of([&] { ranks.barrier(); }));
      fail(ErrorKind::rank_lost, "on purpose");
    });
  });
  EXPECT_STREQ(error.what(), "on purpose");
  EXPECT_EQ(use_when_ended(2).aborted, 2);
}

}  // namespace
}  // namespace tilewire
