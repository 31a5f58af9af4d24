// What the cuda backend decides about calls of cuBLASLt without a GPU: what is missing, what is refused, which
// stream does what.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "backends/cuda/lane_tables.hpp"
#include "backends/cuda/work_order.hpp"
#include "tilewire/error.hpp"
#include "tilewire/operator.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cuda {
namespace {

TEST(CublasLt, SaysWhatIsMissing) {
  constexpr std::array<const char*, 2> kNowhere{"libnosuchlt.so.13", "libnosuchlt.so.12"};
  EXPECT_EQ(missing_cublaslt(kNowhere), "cuBLASLt cannot be loaded (libnosuchlt.so.13 or libnosuchlt.so.12)");
  constexpr std::array<const char*, 2> kAnother{"libnosuchlt.so.13", "libc.so.6"};
  EXPECT_EQ(missing_cublaslt(kAnother), "libc.so.6 has no cublasLtCreate");
  try {
    const Library library(kNowhere);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("cuBLASLt cannot be loaded"), std::string::npos) << error.what();
  }
}

Plan plan_of(const Problem& problem, int ranks, Config config) {
  config.compute = Provider::library;
  return make_plan(problem, {.num_ranks = ranks}, config);
}

TEST(CublasLt, RefusesEpiloguesThatItLacks) {
  Problem problem{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 64};
  const Config sequential{.schedule = "sequential"};
  EXPECT_FALSE(refuses_library(plan_of(problem, 2, sequential)));
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::relu}};
  EXPECT_FALSE(refuses_library(plan_of(problem, 2, sequential)));
  problem.out_dtype = DType::fp32;
  EXPECT_EQ(refuses_library(plan_of(problem, 2, sequential)), "a bias of bf16 for an output of fp32");
  problem.out_dtype = std::nullopt;
  problem.epilogue = {{EpilogueKind::bias}, {EpilogueKind::gelu}};
  EXPECT_EQ(refuses_library(plan_of(problem, 2, sequential)), "an epilogue other than bias and relu");
  problem.epilogue = {{EpilogueKind::scale, 2}};
  EXPECT_EQ(refuses_library(plan_of(problem, 2, sequential)), "an epilogue other than bias and relu");
}

/// The tables of rank 0 over made-up addresses.
RankTables tables_of(const Plan& plan, bool streams = true) {
  static std::array<Gate, 64> gates;
  static std::array<uint64_t, 1024> words;
  Addresses addresses;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    for (const Buffer& buffer : plan.buffers) {
      addresses.bases.push_back({reinterpret_cast<std::byte*>(uintptr_t{1} << 32), shape_on(buffer, rank).cols});
    }
  }
  addresses.signal = [](const Signal&) { return words.data(); };
  addresses.progress = words.data();
  addresses.gates = gates.data();
  Plan mine = plan;
  std::erase_if(mine.lanes, [](const Lane& lane) { return lane.rank != 0; });
  EXPECT_LE(most_stream_work(plan), std::ssize(gates));
  return make_tables(mine, 0, addresses, signal_totals(plan), {132, streams});
}

template <class T>
int count_of(const RankTables& tables) {
  return static_cast<int>(
      std::ranges::count_if(tables.works, [](const StreamWork& work) { return std::holds_alternative<T>(work.what); }));
}

void expect_own_gates(const RankTables& tables) {
  std::set<const Gate*> gates;
  int gated = 0;
  for (const StreamWork& work : tables.works) {
    gated += work.gate != nullptr;
    gates.insert(work.gate);
    EXPECT_LT(work.stream, std::ssize(tables.urgent));
  }
  gates.erase(nullptr);
  EXPECT_EQ(std::ssize(gates), gated);
  std::set<const Gate*> passed;
  for (const StepRecord& step : tables.walk.steps) {
    EXPECT_EQ(step.act == Act::gate, step.gate != nullptr);
    if (step.gate != nullptr) passed.insert(step.gate);
  }
  EXPECT_EQ(passed, gates);
}

TEST(LibraryLanes, AGatherIsCopiesAndOneCall) {
  const Problem problem{.op = "all_gather_gemm", .m = 4096, .n = 8192, .k = 4096};
  const RankTables tables = tables_of(plan_of(problem, 4, {.schedule = "sequential", .pacing = Pacing::lockstep}));
  EXPECT_TRUE(tables.light_alone);
  EXPECT_EQ(count_of<LibraryGemm>(tables), 1);
  EXPECT_EQ(count_of<StreamCopy>(tables), 4) << "one of them for my own rows";
  EXPECT_EQ(count_of<StreamWalk>(tables), 0);
  expect_own_gates(tables);
  for (const StreamWork& work : tables.works) {
    const auto* gemm = std::get_if<LibraryGemm>(&work.what);
    EXPECT_EQ(tables.urgent[work.stream], gemm == nullptr);
    if (gemm == nullptr) continue;
    EXPECT_EQ(gemm->m, 4096);
    EXPECT_EQ(gemm->n, 2048);
    EXPECT_EQ(gemm->k, 4096);
    EXPECT_EQ(gemm->ldc, 2048);
    EXPECT_EQ(gemm->sms, 131);
  }
  for (const LaneRecord& lane : tables.walk.lanes) EXPECT_TRUE(lane.light);
}

TEST(LibraryLanes, SumsAfterTheCallAreAKernelThatStartsLate) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 4096, .n = 8192, .k = 4096};
  const RankTables tables = tables_of(plan_of(problem, 4, {.schedule = "sequential", .pacing = Pacing::lockstep}));
  EXPECT_EQ(count_of<LibraryGemm>(tables), 1);
  EXPECT_EQ(count_of<StreamCopy>(tables), 3);
  EXPECT_EQ(count_of<StreamWalk>(tables), 1);
  expect_own_gates(tables);
  EXPECT_FALSE(tables.walk.lanes[0].light);
  EXPECT_EQ(tables.walk.lanes[0].ctas, 100);
  for (const StreamWork& work : tables.works) {
    const auto* gemm = std::get_if<LibraryGemm>(&work.what);
    EXPECT_EQ(gemm == nullptr ? 131 : gemm->sms, 131);
  }
}

TEST(WorkOrder, NothingComesBeforeWhatItWaitsFor) {
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter"}) {
    const Problem problem{.op = op, .m = 400, .n = 256, .k = 64};
    const Config config{.chunk_rows = 50, .transport = Transport::copy_engine, .pacing = Pacing::lockstep};
    const Plan plan = plan_of(problem, 4, config);
    const auto order = begin_order(plan);
    std::map<std::pair<int, int>, int64_t> last_post;
    const auto each = [&](const auto& look) {
      for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        for (size_t task = 0; task < order[lane].size(); ++task) look(plan.lanes[lane].tasks[task], order[lane][task]);
      }
    };
    each([&](const Task& task, int64_t place) {
      EXPECT_LT(place, num_tasks(plan));
      for (const Post& post : task.posts) {
        int64_t& last = last_post[{post.signal.rank, post.signal.index}];
        last = std::max(last, place);
      }
    });
    const auto totals = signal_totals(plan);
    each([&](const Task& task, int64_t place) {
      for (const Wait& wait : task.waits) {
        if (wait.at_least < totals[wait.signal.rank * num_signals(plan) + wait.signal.index]) continue;
        EXPECT_LT((last_post[{wait.signal.rank, wait.signal.index}]), place);
      }
    });
  }
}

TEST(LibraryLanes, WithoutStreamsOrDepthWalkersDoIt) {
  Problem problem{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 64};
  EXPECT_FALSE(tables_of(plan_of(problem, 2, {.schedule = "sequential"}), false).light_alone);
  EXPECT_TRUE(tables_of(plan_of(problem, 2, {.schedule = "sequential"})).light_alone);
  problem.k = 0;
  EXPECT_FALSE(tables_of(plan_of(problem, 2, {.schedule = "sequential"})).light_alone);
}

}  // namespace
}  // namespace tilewire::cuda
