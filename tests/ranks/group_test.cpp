// Groups: agreement, shared tensors, and ranks that disagree, fail or leave.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <thread>

#include "ranks/plans.hpp"
#include "tilewire/op.hpp"

namespace tilewire {
namespace {

using testing::all_gather_plan;
using testing::error_of;
using testing::small_launch;
using testing::want;

class Groups : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Host, Groups, ::testing::ValuesIn(testing::launch_modes()),
                         [](const auto& mode) { return mode.param ? "threads" : "processes"; });

TEST_P(Groups, TeamSaysWhoIsWho) {
  launch(3, small_launch(GetParam()), [](Group& group) {
    want(group.backend() == "host", "backend {}", group.backend());
    want(group.team().num_ranks == 3, "{} ranks", group.team().num_ranks);
    const auto ranks = group.all_gather(std::to_string(group.team().rank));
    want(ranks == std::vector<std::string>{"0", "1", "2"}, "ranks {}", ranks[0] + ranks[1] + ranks[2]);
    for (int from = 0; from < 3; ++from) {
      want(link_between(group.team(), from, 0).reach == Reach::load_store, "reach from {}", from);
    }
  });
}

TEST_P(Groups, AllGatherTakesAnySize) {
  launch(4, small_launch(GetParam()), [](Group& group) {
    for (int round = 0; round < 50; ++round) {
      const auto text_of = [&](int rank) {
        const size_t sizes[] = {0, 1, 300'000, 131'064};
        return std::string(sizes[(rank + round) % 4], static_cast<char>('a' + rank));
      };
      const auto all = group.all_gather(text_of(group.team().rank));
      for (int rank = 0; rank < 4; ++rank) want(all[rank] == text_of(rank), "round {}, rank {}", round, rank);
    }
  });
}

TEST_P(Groups, OneToSixteenRanks) {
  for (int num_ranks = 1; num_ranks <= 16; num_ranks += num_ranks < 8 ? 1 : 8) {
    std::atomic<int> ran{0};
    launch(num_ranks, small_launch(GetParam()), [&](Group& group) {
      group.barrier();
      ran += 1;
    });
    // What child processes change stays in them.
    EXPECT_EQ(ran, GetParam() ? num_ranks : 0);
  }
}

TEST_P(Groups, AllocatedTensorsAreZeroAndApart) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const Tensor first = group.allocate(DType::fp32, 3, 5);
    const Tensor empty = group.allocate(DType::bf16, 0, 7);
    const Tensor second = group.allocate(DType::bf16, 1000, 100);
    want(empty.rows == 0 && first.row_stride == 5, "shapes");
    auto* floats = static_cast<float*>(first.data);
    for (int i = 0; i < 15; ++i) want(floats[i] == 0, "element {}", i);
    std::fill_n(floats, 15, 1.0F);
    const auto* words = static_cast<const uint16_t*>(second.data);
    for (int i = 0; i < 100'000; ++i) want(words[i] == 0, "element {}", i);
    group.barrier();
  });
}

TEST_P(Groups, TooSmallAnArenaIsRefusedEverywhereAndTheGroupLives) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const Error error = error_of([&] { static_cast<void>(group.allocate(DType::fp32, 100 << 20, 1)); });
    want(error.kind() == ErrorKind::invalid_input, "kind {}", static_cast<int>(error.kind()));
    const std::string text = error.what();
    want(text.find("419430400 bytes") != text.npos && text.find("67108864") != text.npos, "{}", text);
    static_cast<void>(group.allocate(DType::fp32, 100, 1));
  });
}

TEST_P(Groups, FreedTensorsMakeRoomOnceAllRanksHaveFreedThem) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    const Tensor kept = group.allocate(DType::fp32, 2, 2);
    // Each needs 40 of 64 MiB.
    for (int i = 0; i < 5; ++i) {
      const Tensor big = group.allocate(DType::fp32, 10 << 10, 1 << 10);
      auto* floats = static_cast<float*>(big.data);
      for (const int64_t at : {int64_t{0}, big.rows * big.cols - 1}) want(floats[at] == 0, "element {}", at);
      std::fill_n(floats, big.rows * big.cols, 1.0F);
      group.free(big);
      const Error twice = error_of([&] { group.free(big); });
      want(twice.kind() == ErrorKind::invalid_input, "{}", twice.what());
    }
    const Tensor first = group.allocate(DType::fp32, 10 << 10, 1 << 10);
    if (group.team().rank == 1) group.free(first);
    const Error full = error_of([&] { static_cast<void>(group.allocate(DType::fp32, 10 << 10, 1 << 10)); });
    want(full.kind() == ErrorKind::invalid_input, "{}", full.what());
    group.free(kept);
    group.free(Tensor{});
  });
}

TEST_P(Groups, ProgramsGiveTheirMemoryBack) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    // Each needs 40 of 64 MiB.
    for (int i = 0; i < 5; ++i) {
      Plan plan = all_gather_plan(2, 8);
      testing::add_buffer(plan, "big", DType::fp32, {10 << 20, 1}, Scope::symmetric);
      const auto program = group.load(plan);
      if (i > 0) continue;
      const Error error = error_of([&] { static_cast<void>(group.load(plan)); });
      want(error.kind() == ErrorKind::invalid_input, "{}", error.what());
    }
  });
}

TEST_P(Groups, RanksThatWantDifferentPlansAreNamed) {
  launch(3, small_launch(GetParam()), [](Group& group) {
    const int rank = group.team().rank;
    Plan plan = all_gather_plan(3, 8);
    if (rank == 2) plan.op = "another";
    const Error other_problem = error_of([&] { static_cast<void>(group.load(plan)); });
    const std::string text = other_problem.what();
    want(other_problem.kind() == ErrorKind::invalid_input && text.find("rank 0 wants") != text.npos &&
             text.find("rank 2 wants") != text.npos && text.find("a plan of another") != text.npos,
         "{}", text);
    // Only a task differs.
    Plan same = all_gather_plan(3, 8);
    if (rank == 1) same.lanes[0].tasks[1].posts[0].add = 2;
    want(error_of([&] { static_cast<void>(group.load(same)); }).kind() == ErrorKind::invalid_input, "no refusal");
    want(group.load(all_gather_plan(3, 8)) != nullptr, "the group is broken");
  });
}

TEST_P(Groups, AFailedRankIsNamedByAllAndReportedByLaunch) {
  const auto begin = std::chrono::steady_clock::now();
  const Error error = error_of([&] {
    launch(3, small_launch(GetParam()), [](Group& group) {
      if (group.team().rank == 2) fail(ErrorKind::wrong_result, "seven is not eight");
      const Error lost = error_of([&] { group.barrier(); });
      want(lost.kind() == ErrorKind::rank_lost, "{}", lost.what());
      want(std::string(lost.what()).find("rank 2 failed: seven is not eight") != std::string::npos, "{}", lost.what());
      // Whoever came late has not waited.
      want(!lost.wait().has_value() || lost.wait()->op == "barrier", "{}", lost.what());
      // The group stays broken.
      const Error again = error_of([&] { group.barrier(); });
      want(std::string(again.what()).find("the group is broken") != std::string::npos, "{}", again.what());
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::wrong_result);
  EXPECT_STREQ(error.what(), "seven is not eight");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(Groups, ARankThatLeavesEarlyIsNamed) {
  const Error error = error_of([&] {
    launch(2, small_launch(GetParam()), [](Group& group) {
      if (group.team().rank == 0) group.barrier();
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::rank_lost);
  EXPECT_NE(std::string(error.what()).find("rank 1 has left"), std::string::npos) << error.what();
}

TEST_P(Groups, LeavingAfterTheLastCallDisturbsNobody) {
  for (int round = 0; round < 20; ++round) {
    launch(3, small_launch(GetParam()), [](Group& group) {
      group.barrier();
      if (group.team().rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2 * group.team().rank));
    });
  }
}

TEST_P(Groups, ASilentRankTimesOut) {
  const Error error = error_of([&] {
    launch(2, small_launch(GetParam(), 0.3), [](Group& group) {
      if (group.team().rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
      group.barrier();
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
  ASSERT_TRUE(error.wait().has_value());
  EXPECT_EQ(error.wait()->signal, "arrival of rank 1");
  EXPECT_EQ(error.wait()->rank, 0);
  const std::string text = error.what();
  EXPECT_EQ(
      text,
      "timeout after 0.3 s: the ranks' exchange for barrier: rank 0 waits for arrival of rank 1 to reach 1, saw 0");
}

TEST_P(Groups, RanksAtDifferentCollectivesAreNamedAndTheGroupLives) {
  launch(3, small_launch(GetParam()), [](Group& group) {
    const Problem problem{.op = "all_reduce", .m = 4, .n = 4};
    const std::vector<std::function<void()>> collectives{
        [&] { static_cast<void>(make_op(group, problem, Config{.schedule = "sequential"})); },
        [&] { group.barrier(); },
        [&] { static_cast<void>(group.allocate(DType::fp32, 2, 2)); },
        [&] { static_cast<void>(group.all_gather("text")); },
    };
    const std::vector<std::string> names{"make_op", "barrier", "allocate", "all_gather"};
    for (size_t first = 0; first < names.size(); ++first) {
      for (size_t other = 0; other < names.size(); ++other) {
        if (first == other) continue;
        const Error error = error_of(collectives[group.team().rank == 1 ? other : first]);
        const std::string wanted =
            fmt::format("ranks call different collectives: rank 0 {}, rank 1 {}", names[first], names[other]);
        want(error.kind() == ErrorKind::invalid_input && error.what() == wanted, "{}", error.what());
      }
    }
    for (const auto& collective : collectives) collective();
  });
}

TEST_P(Groups, NonsenseIsRefused) {
  launch(2, small_launch(GetParam()), [](Group& group) {
    float mine = 0;
    const auto refused = [&](const auto& call, const std::string& text) {
      const Error error = error_of(call);
      want(error.kind() == ErrorKind::invalid_input && error.what() == text, "{}", error.what());
    };
    refused([&] { static_cast<void>(group.new_memory(-1)); }, "new_memory: -1 bytes");
    refused([&] { static_cast<void>(group.allocate(static_cast<DType>(9), 1, 1)); },
            "allocate: unknown element type 9");
    refused([&] { group.copy(nullptr, &mine, 4); }, "copy: 4 bytes to a null pointer");
    refused([&] { group.copy(&mine, nullptr, 4); }, "copy: 4 bytes from a null pointer");
    refused([&] { group.copy(&mine, &mine, -4); }, "copy: -4 bytes");
    group.copy(nullptr, nullptr, 0);
    want(group.new_memory(0) != nullptr, "no memory of no bytes");
    group.barrier();
  });
}

TEST_P(Groups, AnExceptionOfTheCallersOwnNamesTheRank) {
  const Error error = error_of([&] {
    launch(3, small_launch(GetParam()), [](Group& group) {
      if (group.team().rank == 1) throw std::out_of_range("the seventh of six");
      const Error lost = error_of([&] { group.barrier(); });
      want(std::string(lost.what()).find("rank 1 failed: the seventh of six") != std::string::npos, "{}", lost.what());
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_STREQ(error.what(), "rank 1: the seventh of six");
}

TEST(Launch, ReportsWhatKilledARank) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  const Error error = error_of([] {
    launch(2, small_launch(false), [](Group& group) {
      if (group.team().rank == 1) raise(SIGKILL);
      group.barrier();
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::rank_lost);
  EXPECT_NE(std::string(error.what()).find("rank 1 was killed by signal 9"), std::string::npos) << error.what();
}

TEST(Launch, ReportsARankThatEndsInsideOfItsFunction) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ranks are processes";
  for (const int code : {0, 3}) {
    const Error error = error_of([&] {
      launch(2, small_launch(false), [&](Group& group) {
        if (group.team().rank == 1) _exit(code);
        group.barrier();
      });
    });
    EXPECT_EQ(error.kind(), ErrorKind::rank_lost);
    EXPECT_EQ(error.what(), fmt::format("rank 1 ended before its function returned, with exit code {}", code));
  }
}

TEST(Launch, LeavesNoDescriptorsAndRefusesNonsense) {
  const int before = testing::num_descriptors();
  for (const bool threads : testing::launch_modes()) {
    launch(2, small_launch(threads), [](Group& group) { group.barrier(); });
    static_cast<void>(error_of(
        [&] { launch(2, small_launch(threads), [](Group&) { fail(ErrorKind::wrong_result, "on purpose"); }); }));
  }
  EXPECT_EQ(testing::num_descriptors(), before);
  const auto nothing = [](Group&) {};
  EXPECT_EQ(error_of([&] { launch(0, {}, nothing); }).kind(), ErrorKind::invalid_input);
  EXPECT_EQ(error_of([&] { launch(65, {}, nothing); }).kind(), ErrorKind::invalid_input);
  for (const bool threads : testing::launch_modes()) {
    for (const double timeout_s : {-1.0, 0.0, std::nan("")}) {
      const Error error = error_of([&] { launch(1, small_launch(threads, timeout_s), nothing); });
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_EQ(error.what(), fmt::format("timeout of {} s: want more than 0", timeout_s));
    }
    EXPECT_STREQ(error_of([&] { launch(1, small_launch(threads), nullptr); }).what(),
                 "launch: the ranks' function is null");
  }
  LaunchOptions options;
  options.backend = "gpu";
  const Error unknown = error_of([&] { launch(1, options, nothing); });
  EXPECT_NE(std::string(unknown.what()).find("known: host"), std::string::npos) << unknown.what();
}

}  // namespace
}  // namespace tilewire
