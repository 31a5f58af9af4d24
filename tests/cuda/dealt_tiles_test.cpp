// Tables of all ranks are executed to their end: each CTA takes its own tiles in order, as in the kernel. A tile ends
// with
// its sum; deferred epilogues and late sums are not modelled. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cuda/made_up_maps.hpp"
#include "cuda/made_up_tables.hpp"
#include "schedules/variants.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cuda {
namespace {

/// SMs of a rank: few, so that there are many waves.
constexpr int kSms = 14;

struct Turn {
  std::vector<WaitRecord> waits{};
  std::vector<PostRecord> posts{};
};

/// The tasks of a CTA, a cluster, or a lane of ops, one after another.
struct Worker {
  std::string name;
  std::vector<Turn> turns{};
  size_t at = 0;
};

template <typename Record>
void add_to(Turn& turn, const Record& record, size_t num_waits, const std::vector<WaitRecord>& waits,
            const std::vector<PostRecord>& posts) {
  const auto mine = std::span(waits).subspan(record.first_wait, num_waits);
  turn.waits.insert(turn.waits.end(), mine.begin(), mine.end());
  const auto after = std::span(posts).subspan(record.first_post, record.num_posts);
  turn.posts.insert(turn.posts.end(), after.begin(), after.end());
}

/// CTA i of n takes tiles i, i + n, ...; the tiles of a cluster begin and end together.
void add_tiles(std::vector<Worker>& workers, const RankTables& tables, const std::string& rank) {
  const uint32_t cluster = cluster_ctas(tables.cluster);
  const HostTable& gemm = tables.gemm;
  for (uint32_t cta = 0; cta < tables.gemm_ctas; cta += cluster) {
    Worker& worker = workers.emplace_back(Worker{rank + "CTA " + std::to_string(cta)});
    for (size_t first = cta; first < gemm.tiles.size(); first += tables.gemm_ctas) {
      Turn& turn = worker.turns.emplace_back();
      for (const TileRecord& tile : std::span(gemm.tiles).subspan(first, cluster))
        add_to(turn, tile, size_t{tile.num_waits} + tile.num_partial_waits, gemm.waits, gemm.posts);
    }
  }
}

std::vector<Worker> workers_of(const Plan& plan, bool reversed) {
  std::vector<Worker> workers;
  for (int rank = 0; rank < plan.team.num_ranks; ++rank) {
    RankTables tables = tables_of(plan, false, rank, false, {}, kSms);
    if (reversed) std::ranges::reverse(tables.gemm.tiles);
    const std::string name = "rank " + std::to_string(rank) + ", ";
    add_tiles(workers, tables, name);
    for (const LaneRecord& lane : tables.workers.lanes) {
      Worker& worker = workers.emplace_back(Worker{name + "a lane of steps"});
      for (const OpRecord& step : std::span(tables.workers.ops).subspan(lane.first_op, lane.num_ops))
        add_to(worker.turns.emplace_back(), step, step.num_waits, tables.workers.waits, tables.workers.posts);
    }
  }
  return workers;
}

/// Require that each wave has the plan's tiles of that wave in some order, and that pairs stay together. Returns
/// whether the order has changed.
bool turns_are_the_plans(const RankTables& tables) {
  const uint32_t cluster = cluster_ctas(tables.cluster);
  int64_t before = -1;
  bool moved = false;
  for (size_t first = 0; first < tables.gemm.tiles.size(); first += tables.gemm_ctas) {
    const size_t end = std::min(first + tables.gemm_ctas, tables.gemm.tiles.size());
    std::vector<int64_t> tasks;
    for (size_t i = first; i < end; i += cluster) tasks.push_back(tables.names[tables.gemm.tiles[i].task].task);
    moved = moved || !std::ranges::is_sorted(tasks);
    EXPECT_GT(std::ranges::min(tasks), before) << "a tile of an earlier turn";
    before = std::ranges::max(tasks);
    for (size_t i = first; i + 1 < end && cluster == 2; i += 2) {
      const int64_t partner = tables.names[tables.gemm.tiles[i + 1].task].task;
      EXPECT_LE(std::abs(partner - tables.names[tables.gemm.tiles[i].task].task), 1) << "of another pair";
      before = std::max(before, partner);
    }
  }
  return moved;
}

/// The workers that wait for ever.
std::vector<std::string> stuck(const Plan& plan, bool reversed = false) {
  std::vector<Worker> workers = workers_of(plan, reversed);
  std::map<const uint64_t*, uint64_t> values;
  for (bool moved = true; moved;) {
    moved = false;
    for (Worker& worker : workers) {
      const auto met = [&](const WaitRecord& wait) { return values[wait.signal] >= wait.at_least; };
      while (worker.at < worker.turns.size() && std::ranges::all_of(worker.turns[worker.at].waits, met)) {
        for (const PostRecord& post : worker.turns[worker.at].posts) values[post.signal] += post.add;
        ++worker.at;
        moved = true;
      }
    }
  }
  std::vector<std::string> names;
  for (const Worker& worker : workers) {
    if (worker.at < worker.turns.size()) names.push_back(worker.name + " at " + std::to_string(worker.at));
  }
  return names;
}

Problem problem_of(const char* op) {
  return {.op = op, .m = 1024, .n = 1024, .k = 512, .dtype = DType::bf16, .reduction = Reduction::any};
}

/// Every config that GPUs accept, with small tables of tiles: rounds, groups and pairs.
void want_all_end(const char* op) {
  const Problem problem = problem_of(op);
  const Team team{.num_ranks = 4};
  int played = 0;
  for (const Config& variant : all_variants(problem, team, {.tile_m = 128, .tile_n = 128, .chunk_rows = 64})) {
    for (const int cluster_m : {1, 2}) {
      Config config = variant;
      config.cluster_m = cluster_m;
      if (config.collective == Provider::library || config.compute == Provider::library) continue;  // has no tiles
      if (find_schedule(config.schedule).refuses(problem, team, config)) continue;
      SCOPED_TRACE(to_string(config));
      EXPECT_EQ(stuck(make_plan(problem, team, config)), std::vector<std::string>{});
      ++played;
    }
  }
  EXPECT_GT(played, 50);
}

TEST(DealtTiles, OfAGatherComeToTheirEnd) { want_all_end("all_gather_gemm"); }
TEST(DealtTiles, OfAReduceScatterComeToTheirEnd) { want_all_end("gemm_reduce_scatter"); }
TEST(DealtTiles, OfAnAllReduceComeToTheirEnd) { want_all_end("gemm_all_reduce"); }

/// Returns how many of the ranks' tables have another order than the plan.
int want_rounds_end(const char* op, const Config& config) {
  SCOPED_TRACE(std::string(op) + " " + to_string(config));
  Problem problem = problem_of(op);
  problem.m = 4096;
  const Plan plan = make_plan(problem, {.num_ranks = 4}, config);
  EXPECT_EQ(stuck(plan), std::vector<std::string>{});
  int moved = 0;
  for (int rank = 0; rank < 4; ++rank) moved += turns_are_the_plans(tables_of(plan, false, rank, false, {}, kSms));
  return moved;
}

TEST(DealtTiles, OfManyRoundsComeToTheirEndInTheirTurns) {
  int moved = 0;
  for (const int rounds : {1, 2, 3, 4, 8, 16, 32}) {
    for (const int64_t group_m : {1, 2, 4}) {
      for (const int cluster_m : {1, 2}) {
        Config config{.tile_n = 128, .cluster_m = cluster_m, .group_m = group_m, .transport = Transport::tma};
        config.rounds = rounds;
        moved += want_rounds_end("gemm_reduce_scatter", config) + want_rounds_end("gemm_all_reduce", config);
        config.algorithm = Algorithm::ring;
        moved += want_rounds_end("gemm_reduce_scatter", config);
      }
    }
  }
  EXPECT_GT(moved, 50);
}

TEST(DealtTiles, InAnotherOrderWaitForEver) {
  const Plan plan = make_plan(problem_of("gemm_reduce_scatter"), {.num_ranks = 4}, {.tile_n = 128});
  EXPECT_EQ(stuck(plan), std::vector<std::string>{});
  EXPECT_NE(stuck(plan, true), std::vector<std::string>{});
}

}  // namespace
}  // namespace tilewire::cuda
