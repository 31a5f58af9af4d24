// Stream-ordered GEMMs between two kernels: the tables of such a rank. Without a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/kernels/plain_ops.hpp"
#include "backends/cuda/tables/lane_tables.hpp"
#include "core/text.hpp"
#include "cuda/made_up_tables.hpp"
#include "stream_ordered_problems.hpp"
#include "tilewire/make_plan.hpp"

namespace tilewire::cuda {
namespace {

using testing::kGather;
using testing::kScatter;
using testing::kSum;
using testing::kWorkers;
using testing::pulls;

Config at_owners() { return {.tile_m = 32, .tile_n = 128, .compute = Provider::library}; }

/// The tables of rank 0 of four.
RankTables tables_of(const Problem& problem, const Config& config, bool traced = false) {
  return cuda::tables_of(make_plan(problem, {.num_ranks = 4}, config), true, 0, traced);
}

/// CTAs of data lanes, and numbers of sync-only lanes, before and after the GEMM.
struct Shares {
  uint32_t ctas_before = 0, sync_before = 0, ctas_after = 0, sync_after = 0;
  bool operator==(const Shares&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Shares& s) {
  return out << fmt::format("{} {} {} {}", s.ctas_before, s.sync_before, s.ctas_after, s.sync_after);
}

Shares shares_of(const RankTables& tables) {
  Shares shares;
  bool after = false;
  for (const LaneRecord& lane : tables.workers.lanes) {
    EXPECT_TRUE(lane.after || !after) << "lanes before the call come first";
    after = lane.after;
    if (lane.sync_only) ++(after ? shares.sync_after : shares.sync_before);
    if (!lane.sync_only) (after ? shares.ctas_after : shares.ctas_before) += lane.ctas;
  }
  return shares;
}

void expect_stream_ordered(const RankTables& tables) {
  EXPECT_TRUE(tables.stream_ordered);
  EXPECT_FALSE(tables.lanes_apart);
  EXPECT_TRUE(tables.streams.empty()) << "no stream beside the caller's";
  ASSERT_EQ(std::ssize(tables.works), 1);
  const auto* gemm = std::get_if<LibraryGemm>(&tables.works[0].what);
  ASSERT_NE(gemm, nullptr);
  EXPECT_EQ(gemm->sms, 0) << "the call has all SMs";
  EXPECT_EQ(tables.works[0].doorbell, nullptr);
  for (const OpRecord& step : tables.workers.ops) EXPECT_NE(step.code, OpCode::doorbell);
}

TEST(StreamOrderedGemm, AGatherByWorkersIsAKernelAndACall) {
  const RankTables tables = tables_of(kGather, kWorkers);
  expect_stream_ordered(tables);
  // Eight workers push, four copy local rows; one of them waits for everything. The call waits for the kernel.
  EXPECT_EQ(shares_of(tables), (Shares{12, 0, 0, 0}));
  EXPECT_EQ(tables.preamble.num_posts, 0U);
  EXPECT_FALSE(tables.preamble.waited);
  // The ready posts are in the preamble, not in a sync-only lane.
  EXPECT_TRUE(tables.first.has_task);
  EXPECT_FALSE(tables.first.waited);
  EXPECT_EQ(tables.first.num_posts, 3U);
  const auto waits_alone = [](const OpRecord& op) { return op.code == OpCode::sync && op.num_waits > 0; };
  const auto all_here = std::ranges::find_if(tables.workers.ops, waits_alone);
  ASSERT_NE(all_here, tables.workers.ops.end()) << "the wait for all that arrives";
  EXPECT_EQ(all_here->num_posts, 0);
  EXPECT_NE(all_here->task, tables.first.task);
  EXPECT_EQ(tables.names[tables.first.task].task, 0);
}

TEST(StreamOrderedGemm, SumsThatPullAreACallAndAKernel) {
  for (const Problem& problem : {kScatter, kSum}) {
    const RankTables tables = tables_of(problem, pulls());
    expect_stream_ordered(tables);
    const Shares shares = shares_of(tables);
    EXPECT_EQ(shares.ctas_before + shares.sync_before, 0U) << "the call is the first thing";
    EXPECT_FALSE(tables.first.has_task);
    EXPECT_EQ(shares.ctas_after, 32U) << "pieces of 32 x 128";
    EXPECT_GE(shares.sync_after, 1U);
    EXPECT_EQ(tables.preamble.num_posts, 4U) << "every owner hears that its parts are made";
    EXPECT_FALSE(tables.preamble.waited);
  }
}

TEST(StreamOrderedGemm, ACallStoresEachOwnersColumnsThere) {
  const RankTables tables = tables_of(kSum, at_owners());
  expect_stream_ordered(tables);
  const Shares shares = shares_of(tables);
  EXPECT_EQ(shares.ctas_before + shares.sync_before, 0U) << "no handshake: the last call's results say enough";
  EXPECT_EQ(shares.ctas_after, 32U) << "16 x 2 pieces of 32 x 128 of 256 columns";
  EXPECT_EQ(tables.preamble.num_posts, 4U);
  EXPECT_EQ(plain_ops(tables.workers, true), Plain::sums);
  const auto& gemm = std::get<LibraryGemm>(tables.works[0].what);
  EXPECT_EQ(gemm.m, 512);
  EXPECT_EQ(gemm.n, 256);
  EXPECT_EQ(gemm.k, 128);
  EXPECT_EQ(gemm.parts, 4);
  EXPECT_EQ(gemm.ldc, 256);
  EXPECT_EQ(gemm.next_part, kMadeUpStep);
  EXPECT_EQ(gemm.next_b(), 256 * 128);
  // Worker CTAs that have made a sum also copy what arrives outside of the arena.
  Problem outside = kSum;
  outside.arena.clear();
  Config workers = at_owners();
  workers.reduce_workers = 128;
  const RankTables lands = tables_of(outside, workers);
  expect_stream_ordered(lands);
  EXPECT_EQ(shares_of(lands).ctas_after, 128U) << "32 sums, then 96 copies";
  EXPECT_EQ(shares_of(tables_of(outside, at_owners())).ctas_after, 100U) << "they begin when the call has ended";
  EXPECT_EQ(plain_ops(lands.workers, true), Plain::sums);
  Problem other = kSum;
  other.b_layout = BLayout::kn;
  const RankTables of_other = tables_of(other, at_owners());
  EXPECT_EQ(std::get<LibraryGemm>(of_other.works[0].what).next_b(), 256);
}

TEST(StreamOrderedGemm, ATraceKnowsWhenTheCallBeganAndEnded) {
  for (const auto& [problem, config] :
       {std::pair(kGather, kWorkers), std::pair(kScatter, pulls()), std::pair(kSum, at_owners())}) {
    const RankTables tables = tables_of(problem, config, true);
    expect_stream_ordered(tables);
    const auto begins = std::ranges::find(tables.workers.ops, tables.preamble.task, &OpRecord::task);
    ASSERT_NE(begins, tables.workers.ops.end());
    EXPECT_EQ(begins->num_posts, 0) << "the kernel after the call posts";
    EXPECT_EQ(tables.names[tables.preamble.task].task, tables.works[0].task);
    EXPECT_EQ(tables.names[tables.preamble.task].lane, tables.works[0].lane);
  }
}

TEST(StreamOrderedGemm, ShortKernelsTakePlainOpsOnly) {
  EXPECT_EQ(plain_ops(tables_of(kGather, kWorkers).workers, false), Plain::copies);
  EXPECT_EQ(plain_ops(tables_of(kGather, kWorkers).workers, true), Plain::no) << "there is nothing to do";
  const auto sums = [](auto change) {
    Problem problem = kScatter;
    Config config = pulls();
    change(problem, config);
    return plain_ops(tables_of(problem, config).workers, true);
  };
  EXPECT_EQ(sums([](auto&, auto&) {}), Plain::sums);
  EXPECT_EQ(sums([](auto& p, auto&) { p.dtype = DType::fp16; }), Plain::sums);
  EXPECT_EQ(sums([](auto& p, auto&) { p.dtype = DType::fp32; }), Plain::no);
  EXPECT_EQ(sums([](auto& p, auto&) { p.epilogue = {{EpilogueKind::bias}}; }), Plain::no);
  EXPECT_EQ(sums([](auto& p, auto&) { p.out_dtype = DType::fp32; }), Plain::no);
  EXPECT_EQ(sums([](auto&, auto& c) { c.wire = DType::fp32; }), Plain::no) << "what is read is not what is stored";
  EXPECT_EQ(sums([](auto& p, auto&) { p.n = 1020; }), Plain::no) << "rows that are no units of 16 bytes";
  EXPECT_EQ(sums([](auto&, auto& c) { c.reduce_mode = ReduceMode::staged; }), Plain::no) << "a lane of copies in turn";
  const Team many{.num_ranks = static_cast<int>(kPlainRecords) + 1};
  const RankTables wide = cuda::tables_of(make_plan(kScatter, many, pulls()));
  EXPECT_TRUE(wide.stream_ordered);
  EXPECT_EQ(plain_ops(wide.workers, true), Plain::no) << "more sources than there is room for";
}

/// The records of an op, by value.
struct Content {
  std::vector<WaitRecord> waits{};
  std::vector<SourceRecord> sources{};
  std::vector<TargetRecord> targets{};
  std::vector<PostRecord> posts{};
  uint32_t task = 0;
  OpCode code = OpCode::sync;
  int32_t rows = 0, cols = 0;
  bool operator==(const Content&) const = default;
};

template <class Records>
Content content_of(const Records& from, const OpRecord& step) {
  const auto part = [](const auto& records, uint32_t first, uint32_t count) {
    return std::vector(std::begin(records) + first, std::begin(records) + first + count);
  };
  return {part(from.waits, step.first_wait, step.num_waits),
          part(from.sources, step.first_source, step.num_sources),
          part(from.targets, step.first_target, step.num_targets),
          part(from.posts, step.first_post, step.num_posts),
          step.task,
          step.code,
          step.rows,
          step.cols};
}

/// Every CTA of every data lane has its ops, in order, and no CTA has others.
void expect_laid_out(const HostWorkerTable& workers, bool after) {
  const std::vector<PlainOp> steps = lay_out_ops(workers, after);
  uint32_t cta = 0;
  size_t seen = 0;
  for (const LaneRecord& lane : workers.lanes) {
    if (lane.sync_only || lane.after != after) continue;
    for (uint32_t first = 0; first < lane.ctas; ++first, ++cta) {
      uint32_t at = cta;
      for (uint32_t i = first; i < lane.num_ops; i += lane.ctas, ++seen) {
        ASSERT_LT(at, steps.size());
        EXPECT_EQ(content_of(steps[at], steps[at].step), content_of(workers, workers.ops[lane.first_op + i]));
        at = steps[at].next;
      }
      EXPECT_EQ(at, PlainOp::kNone);
    }
  }
  EXPECT_EQ(seen, steps.size());
}

TEST(StreamOrderedGemm, PlainOpsHaveAllTheirRecordsInOnePlace) {
  Problem outside = kSum;
  outside.arena.clear();
  for (const int ctas : {1, 5, 31, 32}) {
    Config config = at_owners();
    config.reduce_workers = ctas;
    const HostWorkerTable workers = tables_of(kSum, config).workers;
    EXPECT_EQ(lay_out_ops(workers, true).size(), 32U);
    expect_laid_out(workers, true);
    EXPECT_TRUE(lay_out_ops(workers, false).empty());
    expect_laid_out(tables_of(outside, config).workers, true);
  }
  const HostWorkerTable gather = tables_of(kGather, kWorkers).workers;
  EXPECT_EQ(std::ranges::count(gather.lanes, false, &LaneRecord::sync_only), 2) << "pushes, and own rows";
  EXPECT_GT(lay_out_ops(gather, false).size(), 12U) << "more steps than CTAs";
  expect_laid_out(gather, false);
}

TEST(StreamOrderedGemm, CopiesByEnginesHaveDoorbells) {
  Config engines = kWorkers;
  engines.copy_workers = 0;
  engines.chunk_rows = 0;
  Problem large = kGather;
  large.m = 4096;
  EXPECT_FALSE(tables_of(large, engines).stream_ordered);
  EXPECT_TRUE(tables_of(kGather, engines).stream_ordered) << "copies that are too small for engines";
}

}  // namespace
}  // namespace tilewire::cuda
