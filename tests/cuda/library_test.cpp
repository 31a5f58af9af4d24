// The cuda backend's decisions about calls of cuBLASLt and NCCL, without a GPU: missing libraries, refusals, and the
// work of
// each stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "backends/cuda/tables/lane_tables.hpp"
#include "backends/cuda/tables/rank_view.hpp"
#include "backends/cuda/tables/stream_lanes.hpp"
#include "backends/cuda/tables/work_order.hpp"
#include "cuda/made_up_tables.hpp"
#include "schedules/variants.hpp"
#include "tilewire/error.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cuda {
namespace {

/// The text of an Error(unsupported), or nothing.
std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    return error.what();
  }
  return "";
}

TEST(CublasLt, SaysWhatIsMissing) {
  constexpr std::array<const char*, 2> kNowhere{"libnosuchlt.so.13", "libnosuchlt.so.12"};
  EXPECT_EQ(missing_cublaslt(kNowhere), "cuBLASLt cannot be loaded (libnosuchlt.so.13 or libnosuchlt.so.12)");
  constexpr std::array<const char*, 2> kAnother{"libnosuchlt.so.13", "libc.so.6"};
  EXPECT_EQ(missing_cublaslt(kAnother), "libc.so.6 has no cublasLtCreate");
  const std::string reason = refusal_of([&] { const Library library(nullptr, kNowhere); });
  EXPECT_NE(reason.find("cuBLASLt cannot be loaded"), std::string::npos) << reason;
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

TEST(CublasLt, RefusesDestinationsThatAreNoEqualColumns) {
  const auto reason = [](int64_t n, auto change) {
    Plan plan = plan_of({.op = "gemm_all_reduce", .m = 64, .n = n, .k = 64}, 2, {.tile_n = 32});
    for (Lane& lane : plan.lanes) {
      for (Task& task : lane.tasks) {
        if (calls_library(task)) change(plan, task);
      }
    }
    return refuses_library(plan).value_or("");
  };
  const auto nothing = [](Plan&, Task&) {};
  EXPECT_EQ(reason(64, nothing), "");
  EXPECT_EQ(reason(65, nothing), "2 destinations of which the first takes 33 of 65 columns");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { std::swap(t.writes[0], t.writes[1]); }),
            "destinations that are no equal parts of the columns, from left to right");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { t.writes[1].to.buffer = 0; }), "destinations in different buffers");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { t.writes[1].to.rows = 32; }), "part of a result");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { t.writes[1].mode = WriteMode::accumulate; }), "an accumulating result");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { t.epilogue = {{EpilogueKind::relu}}; }),
            "an epilogue of a result with several destinations");
  EXPECT_EQ(reason(64, [](Plan&, Task& t) { t.reads[0].cols = t.reads[1].cols = 0; }),
            "several destinations of a product of depth 0");
}

TEST(CublasLt, RefusesDestinationsAtOtherDistances) {
  const Plan plan = plan_of({.op = "gemm_all_reduce", .m = 64, .n = 192, .k = 96}, 3, {.tile_n = 32});
  const Task& call = plan.lanes[0].tasks[0];
  RankTables out;
  const std::vector<int64_t> totals = signal_totals(plan);
  const auto gemm = [&](const std::vector<int64_t>& places) {
    Addresses addresses;
    for (const int64_t place : places) {
      for (const Buffer& buffer : plan.buffers)
        addresses.bases.push_back({reinterpret_cast<std::byte*>(uintptr_t(place)), buffer.cols});
    }
    return library_gemm({plan, 0, addresses, totals, out}, plan.lanes[0], call);
  };
  EXPECT_EQ(gemm({4096, 8192, 12288}).next_part, 4096);
  const auto why = [&](const std::vector<int64_t>& places) {
    return refusal_of([&] { static_cast<void>(gemm(places)); });
  };
  EXPECT_EQ(why({4096, 8192, 16384}),
            "compute = library: destination 2 is 8192 bytes behind the one before it, want 4096 as before");
  EXPECT_EQ(why({8192, 4096, 12288}),
            "compute = library: destination 1 is -4096 bytes behind the one before it, want more than 0");
}

template <class T>
int count_of(const RankTables& tables) {
  return static_cast<int>(
      std::ranges::count_if(tables.works, [](const StreamWork& work) { return std::holds_alternative<T>(work.what); }));
}

void expect_own_doorbells(const RankTables& tables) {
  std::set<const Doorbell*> doorbells;
  int gated = 0;
  for (const StreamWork& work : tables.works) {
    gated += work.doorbell != nullptr && !std::holds_alternative<StreamWorkersEnd>(work.what);
    doorbells.insert(work.doorbell);
    EXPECT_LT(work.stream, std::ssize(tables.streams));
  }
  doorbells.erase(nullptr);
  EXPECT_EQ(std::ssize(doorbells), gated);
  std::set<const Doorbell*> passed;
  for (const OpRecord& step : tables.workers.ops) {
    EXPECT_EQ(step.code == OpCode::doorbell, step.doorbell != nullptr);
    if (step.doorbell != nullptr) passed.insert(step.doorbell);
  }
  EXPECT_EQ(passed, doorbells);
}

TEST(LibraryLanes, AGatherIsCopiesAndOneCall) {
  const Problem problem{.op = "all_gather_gemm", .m = 4096, .n = 8192, .k = 4096};
  const RankTables tables = tables_of(plan_of(problem, 4, {.schedule = "sequential", .pacing = Pacing::lockstep}));
  EXPECT_FALSE(tables.lanes_apart) << "no CTAs move data";
  EXPECT_EQ(count_of<LibraryGemm>(tables), 1);
  EXPECT_EQ(count_of<StreamCopy>(tables), 4) << "one of them for my own rows";
  EXPECT_EQ(count_of<StreamWorkers>(tables), 0);
  expect_own_doorbells(tables);
  for (const StreamWork& work : tables.works) {
    const auto* gemm = std::get_if<LibraryGemm>(&work.what);
    EXPECT_EQ(tables.streams[work.stream].urgent, gemm == nullptr);
    if (gemm == nullptr) continue;
    EXPECT_EQ(gemm->m, 4096);
    EXPECT_EQ(gemm->n, 2048);
    EXPECT_EQ(gemm->k, 4096);
    EXPECT_EQ(gemm->ldc, 2048);
    EXPECT_EQ(gemm->sms, 131);
  }
  for (const LaneRecord& lane : tables.workers.lanes) EXPECT_TRUE(lane.sync_only);
}

TEST(LibraryLanes, SumsAfterTheCallAreAKernelThatStartsLate) {
  const Problem problem{.op = "gemm_reduce_scatter", .m = 4096, .n = 8192, .k = 4096};
  const RankTables tables = tables_of(plan_of(problem, 4, {.schedule = "sequential", .pacing = Pacing::lockstep}));
  EXPECT_EQ(count_of<LibraryGemm>(tables), 1);
  EXPECT_EQ(count_of<StreamCopy>(tables), 3);
  EXPECT_EQ(count_of<StreamWorkers>(tables), 1);
  expect_own_doorbells(tables);
  EXPECT_EQ(count_of<StreamWorkersEnd>(tables), 1);
  EXPECT_FALSE(tables.workers.lanes[0].sync_only);
  EXPECT_EQ(tables.workers.lanes[0].ctas, 100);
  for (const StreamWork& work : tables.works) {
    const auto* gemm = std::get_if<LibraryGemm>(&work.what);
    EXPECT_EQ(gemm == nullptr ? 131 : gemm->sms, 131);
  }
}

Plan collective_plan(const char* op, bool bias = false) {
  Problem problem{.op = op, .m = 4096, .n = 8192, .k = 4096, .reduction = Reduction::any};
  if (bias) problem.epilogue = {{EpilogueKind::bias}};
  Config config{.schedule = "sequential", .collective = Provider::library};
  if (op != std::string("all_reduce")) config.compute = Provider::library;
  return make_plan(problem, {.num_ranks = 4}, config);
}

TEST(LibraryLanes, ACollectiveHasADoorbellAndWhatFollowsItHasNone) {
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    SCOPED_TRACE(op);
    const Plan plan = collective_plan(op);
    EXPECT_TRUE(calls_collective(plan));
    const RankTables tables = tables_of(plan);
    EXPECT_EQ(tables.gemm_ctas, 0U);
    EXPECT_EQ(count_of<LibraryCollective>(tables), 1);
    EXPECT_EQ(count_of<LibraryGemm>(tables), op == std::string("all_reduce") ? 0 : 1);
    EXPECT_EQ(std::ssize(tables.streams), 1) << "one stream, in which one comes after the other";
    ASSERT_EQ(std::ssize(tables.workers.lanes), 1);
    EXPECT_TRUE(tables.workers.lanes[0].sync_only);
    expect_own_doorbells(tables);
    for (const StreamWork& work : tables.works) {
      const auto* call = std::get_if<LibraryCollective>(&work.what);
      EXPECT_EQ(work.doorbell != nullptr, call != nullptr);
      if (call == nullptr || op != std::string("all_gather_gemm")) continue;
      EXPECT_EQ(call->kind, Collective::all_gather);
      EXPECT_EQ(call->from_elements, 1024 * 4096);
      EXPECT_EQ(call->to_elements, 4096 * 4096);
    }
  }
}

TEST(LibraryLanes, TheFinishOfASumIsAKernelThatStartsLate) {
  const RankTables tables = tables_of(collective_plan("gemm_reduce_scatter", true));
  EXPECT_EQ(count_of<LibraryCollective>(tables), 1);
  EXPECT_EQ(count_of<StreamWorkers>(tables), 1);
  EXPECT_EQ(count_of<StreamWorkersEnd>(tables), 1);
  expect_own_doorbells(tables);
}

TEST(LibraryLanes, ACollectiveRefusesRowsThatAreNotDense) {
  const Plan plan = collective_plan("all_gather_gemm");
  RankTables out;
  Addresses addresses;
  for (int owner = 0; owner < 4; ++owner) {
    for (const Buffer& buffer : plan.buffers) addresses.bases.push_back({nullptr, shape_on(buffer, owner).cols + 8});
  }
  const std::vector<int64_t> totals = signal_totals(plan);
  const RankView view{plan, 0, addresses, totals, out};
  EXPECT_EQ(refusal_of([&] { static_cast<void>(library_collective(view, plan.lanes[0].tasks[0])); }),
            "collective = library: rows of a begin 4104 elements apart, want 4096");
}

/// Executes a call on devices with one queue each: the work at the head of a queue blocks the rest until it ends,
/// except the begin of worker CTAs. Lanes without work in the queue run independently.
class OneQueue {
 public:
  explicit OneQueue(const Plan& plan) : plan_(plan), next_(plan.lanes.size()), begun_(plan.lanes.size(), true) {
    const auto places = order_of_tasks(plan);
    for (const Lane& lane : plan.lanes) queued_.emplace_back(lane.tasks.size(), false);
    for (int rank = 0; rank < plan.team.num_ranks; ++rank) add_queue(rank, places);
    values_.resize(static_cast<size_t>(num_signals(plan)) * plan.team.num_ranks);
  }

  /// Whether the call ends.
  bool play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& queue : queues_) {
        while (!queue.empty() && pass(queue.front())) queue.erase(queue.begin()), moved = true;
      }
      for (size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
        while (begun_[lane] && !ended(lane) && !queued_[lane][next_[lane]] && run(lane)) moved = true;
      }
    }
    return std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
  }

 private:
  void add_queue(int rank, const std::vector<std::vector<int64_t>>& places) {
    std::vector<int> lanes;
    std::vector<std::vector<int64_t>> mine;
    for (size_t lane = 0; lane < places.size(); ++lane) {
      if (plan_.lanes[lane].rank != rank) continue;
      lanes.push_back(static_cast<int>(lane));
      mine.push_back(places[lane]);
    }
    auto& queue = queues_.emplace_back(tables_of(plan_, true, rank).works);
    put_in_order(queue, mine);
    for (StreamWork& work : queue) {
      work.lane = lanes[work.lane];
      const bool walks = std::holds_alternative<StreamWorkers>(work.what);
      if (walks) begun_[work.lane] = false;
      if (!walks && !std::holds_alternative<StreamWorkersEnd>(work.what)) queued_[work.lane][work.task] = true;
    }
  }

  int64_t& value(const Signal& signal) { return values_[signal_id(plan_, signal)]; }
  /// A rank's part of a collective ends when those of all ranks are at the heads of their queues, or have ended.
  bool all_met(size_t lane) {
    if (plan_.lanes[lane].tasks[next_[lane]].kind != TaskKind::collective_call) return true;
    met_.insert(lane);
    return std::ssize(met_) == plan_.team.num_ranks;
  }
  bool ended(size_t lane) const { return next_[lane] == std::ssize(plan_.lanes[lane].tasks); }
  bool can_run(size_t lane) {
    const auto& waits = plan_.lanes[lane].tasks[next_[lane]].waits;
    return std::ranges::all_of(waits, [&](const Wait& wait) { return value(wait.signal) >= wait.at_least; });
  }
  bool run(size_t lane) {
    if (!can_run(lane) || !all_met(lane)) return false;
    for (const Post& post : plan_.lanes[lane].tasks[next_[lane]].posts) value(post.signal) += post.add;
    ++next_[lane];
    return true;
  }
  bool pass(const StreamWork& work) {
    if (std::holds_alternative<StreamWorkersEnd>(work.what)) return ended(work.lane);
    if (std::holds_alternative<StreamWorkers>(work.what)) return begun_[work.lane] = can_run(work.lane);
    return next_[work.lane] == work.task && run(work.lane);
  }

  const Plan& plan_;
  std::vector<int64_t> next_;
  std::vector<bool> begun_;
  std::vector<std::vector<bool>> queued_{};  ///< by lane and task
  std::vector<int64_t> values_{};
  std::set<size_t> met_{};  ///< lanes whose collective has begun: a plan has one
  std::vector<std::vector<StreamWork>> queues_{};
};

TEST(LibraryLanes, OneQueueOfTheDeviceComesToAnEnd) {
  int walks = 0;
  int collectives = 0;
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"}) {
    const Problem problem{.op = op, .m = 4096, .n = 2048, .k = 4096, .reduction = Reduction::any};
    const Team team{.num_ranks = 4};
    for (const Config& config : all_variants(problem, team, {.tile_m = 512, .tile_n = 512, .chunk_rows = 256})) {
      SCOPED_TRACE(to_string(config));
      const Plan plan = make_plan(problem, team, config);
      if (!calls_library(plan)) continue;
      // NOTE: behind a call whose result travels as LL data all other work is one kernel (stage_gemm_call).
      if (config.transport == Transport::ll) continue;
      EXPECT_TRUE(OneQueue(plan).play());
      walks += count_of<StreamWorkers>(tables_of(plan));
      collectives += calls_collective(plan);
    }
    EXPECT_TRUE(OneQueue(collective_plan(op, true)).play());
  }
  EXPECT_GT(walks, 0);
  EXPECT_EQ(collectives, 3);
}

/// Every task has one record that takes its times, and all work of streams has a doorbell.
void expect_traced(const Plan& plan, int rank) {
  const RankTables tables = tables_of(plan, true, rank, true);
  std::set<std::pair<int, int64_t>> named;
  for (const TaskName& name : tables.names) {
    if (name.again) continue;
    EXPECT_TRUE(named.insert({name.lane, name.task}).second) << "lane " << name.lane;
  }
  int64_t tasks = 0;
  for (const Lane& lane : lowered_for_tables(plan).lanes) tasks += lane.rank == rank ? std::ssize(lane.tasks) : 0;
  EXPECT_EQ(std::ssize(named), tasks);
  // A stream-ordered call has its own test (stream_ordered_gemm_test.cpp).
  for (const StreamWork& work : tables.works) EXPECT_EQ(work.doorbell == nullptr, tables.stream_ordered);
  if (!tables.stream_ordered) expect_own_doorbells(tables);
  std::set<uint32_t> numbers;
  for (const OpRecord& step : tables.workers.ops) EXPECT_TRUE(numbers.insert(step.task).second) << "two write one";
}

TEST(TracedTables, EveryTaskHasOneRecordAndEveryCopyADoorbell) {
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "all_reduce"}) {
    const Problem problem{.op = op, .m = 4096, .n = 2048, .k = 4096, .dtype = DType::fp32, .reduction = Reduction::any};
    for (const int ranks : {1, 4}) {
      const Team team{.num_ranks = ranks};
      for (const Config& config : all_variants(problem, team, {.tile_m = 512, .tile_n = 512, .chunk_rows = 512})) {
        SCOPED_TRACE(to_string(config));
        expect_traced(make_plan(problem, team, config), ranks - 1);
      }
    }
  }
}

TEST(LibraryLanes, WithoutStreamsOrDepthWorkersDoIt) {
  Problem problem{.op = "all_gather_gemm", .m = 64, .n = 64, .k = 64};
  EXPECT_TRUE(tables_of(plan_of(problem, 2, {.schedule = "sequential"}), false).works.empty());
  EXPECT_EQ(tables_of(plan_of(problem, 2, {.schedule = "sequential"})).works.size(), 1U);
  problem.k = 0;
  EXPECT_TRUE(tables_of(plan_of(problem, 2, {.schedule = "sequential"})).works.empty());
}

}  // namespace
}  // namespace tilewire::cuda
