// Tables with relative addresses of callers' tensors, which serve tensors at any address.
#include "backends/cuda/kernels/bases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backends/cuda/tables/gemm_table.hpp"
#include "cuda/table_text.hpp"
#include "schedules/variants.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

TEST(Bases, DoubleBufferedDataHaveACopyOfTheCall) {
  Bases bases;
  bases.of[kCopyBase] = base_of_copies();
  const uint64_t address = 0x7f12'3456'7810UL;
  EXPECT_TRUE(is_relative(copied_address(address)));
  EXPECT_EQ(resolve(bases, copied_address(address) + 48), address + 48);
  EXPECT_EQ(resolve(bases, copied_address(address) + 48, 4096), address + 48 + 4096);
  EXPECT_EQ(resolve(bases, address, 4096), address) << "other data have one copy";
}

TEST(Bases, ARelativeAddressIsResolved) {
  for (const uint64_t address : {0x7f12'3456'7800UL, 0x7f12'3456'7802UL, 0UL, 255UL}) {
    for (const uint32_t number : {1U, kCopyBase - 1}) {
      Bases bases;
      bases.of[number] = base_of(number, address);
      const uint64_t relative = relative_address(number, address);
      EXPECT_TRUE(is_relative(relative));
      EXPECT_EQ(relative % kBaseAlignment, address % kBaseAlignment);
      for (const int64_t distance : {int64_t{0}, int64_t{4098}, -int64_t{1} << 40, int64_t{1} << 40})
        EXPECT_EQ(resolve(bases, relative + distance), address + distance);
    }
  }
}

TEST(Bases, AnAddressStaysWhatItIs) {
  Bases bases;
  bases.of[3] = 77;
  EXPECT_FALSE(is_relative(0x7fff'ffff'fff0UL));
  EXPECT_EQ(resolve(bases, uint64_t{0x7fff'ffff'fff0UL}), 0x7fff'ffff'fff0UL);
  EXPECT_EQ(resolve(bases, static_cast<const char*>(nullptr)), nullptr);
}

/// A table of `maps` maps, of which those with odd numbers move.
HostTable table_of(uint16_t maps) {
  HostTable table;
  for (uint16_t i = 0; i < maps; ++i) {
    CUtensorMap map{};
    map.opaque[0] = i;
    const bool moves = i % 2 == 1;
    table.maps.push_back(moves ? CUtensorMap{} : map);
    if (moves) table.moving.push_back({i, {}, [map](const MatrixView&) { return map; }});
    table.tiles.push_back({.a_map = i, .b_map = static_cast<uint16_t>(maps - 1 - i)});
    table.writes.push_back({.map = i, .via = StoreVia::tensor_map, .rest_map = i});
    table.parts.push_back({.map = i});
  }
  table.writes.push_back({.map = 5, .via = StoreVia::pointer});
  table.splits.push_back({.map = 4});
  return table;
}

TEST(Bases, MovingMapsComeFirstWhereNotAllGoWithALaunch) {
  for (const uint16_t count : {uint16_t{kMapsAtHand}, uint16_t{kMapsAtHand + 5}}) {
    HostTable table = table_of(count);
    put_moving_first(table);
    GemmTable made;
    make_moving(table, {}, made);
    const auto of = [&](uint16_t number) {
      const bool moves = std::ranges::count(table.moving, number, &MovingMap::number) > 0;
      EXPECT_TRUE(!moves || number < kMapsAtHand);
      return (moves ? made.at_hand[number] : table.maps.at(number)).opaque[0];
    };
    for (uint16_t i = 0; i < count; ++i) {
      EXPECT_EQ(of(table.tiles[i].a_map), i);
      EXPECT_EQ(of(table.tiles[i].b_map), count - 1 - i);
      EXPECT_EQ(of(table.writes[i].map), i);
      EXPECT_EQ(of(table.writes[i].rest_map), i);
      EXPECT_EQ(of(static_cast<uint16_t>(table.parts[i].map)), i);
    }
    EXPECT_EQ(table.writes.back().map, 5);
    EXPECT_EQ(table.writes.back().rest_map, kNoMap);
    EXPECT_EQ(of(table.splits[0].map), 4);
  }
}

/// All variants of small problems, also with tensors in the arena.
TEST(Bases, RelativeTablesResolveToAbsoluteOnes) {
  int served = 0;
  int fixed = 0;
  for (const char* op : {"all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all",
                         "gemm_all_to_all_rows", "all_gather_cols_gemm", "gemm_reduce_scatter_cols", "all_reduce"}) {
    Problem problem{.op = op, .m = 520, .n = 776, .k = 640, .dtype = DType::bf16, .reduction = Reduction::any};
    if (op != std::string("all_reduce")) problem.epilogue = {{EpilogueKind::bias}};
    if (op == std::string("gemm_all_reduce")) problem.arena = {"c"};
    Team team{.num_ranks = 4};
    team.devices.assign(4, {.copy_engines = 3, .sms = 132});
    for (const Config& config : all_variants(problem, team, {.tile_m = 128, .tile_n = 128, .chunk_rows = 64})) {
      const Plan plan = make_plan(problem, team, config);
      const std::string there = tables_text(plan, 1, true, false, true);
      ++(there.empty() ? fixed : served);
      EXPECT_TRUE(there.empty() || there == tables_text(plan, 1, true, false)) << to_string(config);
    }
  }
  EXPECT_GT(served, 100);
  EXPECT_EQ(fixed, 0);
}

/// If C of sixteen ranks is in the arena, there are more tensor maps, or more destinations of an op, than a launch
/// carries.
TEST(Bases, TablesOfManyRanksMayBeForOneSetOfAddresses) {
  const Problem problem{.op = "gemm_all_reduce", .m = 2048, .n = 512, .k = 1024, .dtype = DType::bf16, .arena = {"c"}};
  Team team{.num_ranks = 16};
  team.devices.assign(16, {.copy_engines = 3, .sms = 132});
  int absolute = 0;
  for (const Transport transport : {Transport::tma, Transport::store}) {
    Config config{.tile_m = 128, .tile_n = 128, .transport = transport};
    const Plan plan = make_plan(problem, team, config);
    if (tables_text(plan, 1, true, false, true).empty()) ++absolute;
  }
  EXPECT_GT(absolute, 0);
}

/// There is a body of its own only if registers are full and the epilogue is more than one bias.
TEST(GemmBodies, EpiloguesOfMoreThanOneBiasHaveABodyWhereRegistersAreFull) {
  const auto steps = [](std::vector<Epilogue> epilogue, int cols) {
    const Problem problem{.op = "gemm_reduce_scatter",
                          .m = 512,
                          .n = 512,
                          .k = 512,
                          .dtype = DType::bf16,
                          .epilogue = std::move(epilogue)};
    Config config{.tile_m = 128, .tile_n = cols};
    const Plan made = make_plan(problem, {.num_ranks = 2}, config);
    return kind_of(lower(made, gpu_target("h200", 2, 132)).plan).steps;
  };
  EXPECT_FALSE(steps({}, 256));
  EXPECT_FALSE(steps({{EpilogueKind::bias}}, 256));
  EXPECT_TRUE(steps({{EpilogueKind::bias}, {EpilogueKind::relu}}, 256));
  EXPECT_TRUE(steps({{EpilogueKind::gelu}}, 256));
  EXPECT_FALSE(steps({{EpilogueKind::gelu}}, 128));
}

}  // namespace
}  // namespace tilewire::cuda
