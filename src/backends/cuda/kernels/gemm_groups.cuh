// Grouped GEMMs: the scheduler warp makes the tiles of groups from their extents, and consumers activate results.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_scheduler.cuh"
#include "backends/cuda/kernels/scan.cuh"
#include "backends/cuda/kernels/signal_device.cuh"

namespace tilewire::cuda {

__device__ inline float silu(float x) { return __fdividef(x, 1.0F + __expf(-x)); }

/// Activate a consumer's results. If gated, the first block of them is the gate and the second one is up; the first one
/// takes the results.
template <class Body>
__device__ __forceinline__ void activate(Activation activation, float (&sums)[Body::kBlocksM][Body::kGroupN / 2]) {
  const auto change = [&](auto function) {
#pragma unroll
    for (int m = 0; m < Body::kBlocksOut; ++m) {
#pragma unroll
      for (float& value : sums[m]) value = function(value);
    }
  };
  if constexpr (Body::kGated) {
#pragma unroll
    for (int i = 0; i < Body::kGroupN / 2; ++i) sums[0][i] = silu(sums[0][i]) * sums[1][i];
  } else if (activation == Activation::silu) {
    change([](float value) { return silu(value); });
  } else if (activation == Activation::gelu) {
    change([](float value) { return value * (0.5F * (1.0F + erff(value * 0.70710678F))); });
  } else if (activation == Activation::relu) {
    change([](float value) { return value < 0 ? 0 : value; });
  }
}

/// The rows of a group.
struct GroupRows {
  int begin = 0;
  int count = 0;
};

/// A scheduler warp's place in the list of all tiles of all families, in their order.
struct FamilyCursor {
  uint32_t family = 0;
  uint32_t base = 0;     ///< number of the family's first tile
  uint32_t tiles = 0;    ///< number of its tiles; 0 = not counted yet
  int most = 0;          ///< most rows of a tile
  int group = 0;         ///< the first of the 32 groups that lanes look at
  uint32_t before = 0;   ///< tiles of the family's groups before it
  bool aborted = false;  ///< a wait for extents failed: there are no further tiles
};

/// This lane's group of a family: number `first` + lane. A count of -1: rows beyond the memory.
__device__ inline GroupRows rows_of_group(const Bases& bases, const FamilyRecord& family, int first) {
  const int group = first + static_cast<int>(threadIdx.x % 32);
  if (group >= family.groups) return {};
  const int32_t* extents = resolve(bases, family.extents) + group;
  const int begin = __ldcg(extents);
  const int end = __ldcg(extents + family.extents_ld);
  return {begin, begin < 0 || end < begin || end > family.most_rows ? -1 : end - begin};
}

/// Tiles of so many rows, if a tile has `most`.
__device__ inline uint32_t row_tiles(int rows, int most) { return static_cast<uint32_t>((rows + most - 1) / most); }

/// The most rows of a tile with which a family takes the shortest time: fewer rows may need no more waves. `all`: its
/// row tiles with kTileM rows. With many waves this makes little difference.
template <class Body>
__device__ inline int best_rows(const GemmLaunch& launch, const FamilyRecord& family, uint32_t across, uint32_t all) {
  constexpr uint32_t kManyWaves = 6;
  constexpr int kLeastRows = 64;  // with fewer, the loads of B take the time
  constexpr int kOfATile = 12;    // the other time of a tile, in rows
  // Families are much alike: all of them are as many times this one.
  const uint32_t like_it = across * launch.table.num_families;
  if (all * like_it > kManyWaves * launch.ctas) return Body::kTileM;
  // Each lane looks at another number of rows.
  const int most = max(kLeastRows, Body::kTileM - 8 * static_cast<int>(threadIdx.x % 32));
  uint32_t tiles = 0;
#pragma unroll 1
  for (int first = 0; first < family.groups; first += 32) {
    const int rows = rows_of_group(launch.workers.bases, family, first).count;
    const int groups = min(32, family.groups - first);
#pragma unroll 1
    for (int i = 0; i < groups; ++i) tiles += row_tiles(__shfl_sync(~0U, rows, i), most);
  }
  const uint32_t waves = (tiles * like_it + launch.ctas - 1) / launch.ctas;
  const uint32_t cost = waves * static_cast<uint32_t>(most + kOfATile);
  const uint32_t least = __reduce_min_sync(~0U, cost);
  return __shfl_sync(~0U, most, __ffs(static_cast<int>(__ballot_sync(~0U, cost == least))) - 1);
}

/// One warp: begin with a family, when its extents are there: count its tiles.
template <class Body>
__device__ inline void enter_family(const GemmLaunch& launch, const FamilyRecord& family, uint32_t across,
                                    uint64_t epoch, FamilyCursor& at) {
  bool good = true;
  if (threadIdx.x % 32 == 0)
    good = wait_signals(launch.table.waits + family.first_wait, family.num_early, epoch, launch.workers.watch,
                        family.task);
  // NOTE: if the team is broken, there may be no extents.
  const WaitWatch& watch = launch.workers.watch;
  good = good && (watch.abort == nullptr || !is_aborted(watch));
  at.aborted = __shfl_sync(~0U, good ? 0 : 1, 0) != 0;
  __syncwarp();  // the extents that the first lane has acquired are there for all lanes
  if (at.aborted) return;
  uint32_t mine = 0;
#pragma unroll 1
  for (int first = 0; first < family.groups; first += 32) {
    const GroupRows rows = rows_of_group(launch.workers.bases, family, first);
    mine += row_tiles(rows.count, Body::kTileM);
    if (rows.count >= 0) continue;
    good = false;
    if (watch.abort == nullptr) continue;
    report_failure(watch, {.task = family.task,
                           .wait = kGroupBeyond,
                           .wanted = first + threadIdx.x % 32,
                           .seen = static_cast<uint64_t>(rows.begin),
                           .epoch = epoch});
  }
  at.aborted = !__all_sync(~0U, good);
  if (at.aborted) return;
  at.most = best_rows<Body>(launch, family, across, __shfl_sync(~0U, sum_to_lane(mine), 31));
  mine = 0;
#pragma unroll 1
  for (int first = 0; first < family.groups; first += 32)
    mine += row_tiles(rows_of_group(launch.workers.bases, family, first).count, at.most);
  at.tiles = max(1U, __shfl_sync(~0U, sum_to_lane(mine), 31) * across);
  at.group = 0;
  at.before = 0;
}

/// Make the record of tile `index` of a group: its row tiles first, then its columns.
template <class Body>
__device__ inline TileRecord tile_of_group(const FamilyRecord& family, int most, int group, GroupRows rows,
                                           uint32_t index) {
  constexpr int kCols = Body::kBlocksOut * 128;
  const uint32_t down = max(1U, row_tiles(rows.count, most));
  const int each = (rows.count + static_cast<int>(down) * 8 - 1) / (static_cast<int>(down) * 8) * 8;
  const int row = static_cast<int>(index % down) * each;
  const int col = static_cast<int>(index / down) * kCols;
  TileRecord tile{};
  tile.a_row = rows.begin + row;
  tile.b_col = family.first_col + col;
  tile.k_steps = family.k_steps;
  tile.a_map = family.a_map;
  tile.b_map = family.b_map;
  tile.rows = static_cast<uint16_t>(max(0, min(each, rows.count - row)));
  tile.cols = static_cast<uint16_t>(min(kCols, family.cols - col));
  tile.first_wait = family.first_wait;
  tile.first_post = family.first_post;
  tile.num_waits = family.num_waits;
  tile.num_posts = family.num_posts;
  tile.num_writes = 1;
  tile.task = family.task;
  tile.first_partial = static_cast<uint32_t>(family.first_group + group);
  return tile;
}

/// The store of a tile: whole boxes of 8 rows, as groups begin at multiples of 8 rows.
__device__ inline WriteRecord write_of_group(const FamilyRecord& family, const TileRecord& tile) {
  WriteRecord write;
  write.row = tile.a_row;
  write.col = tile.b_col;
  write.map = family.c_map;
  write.rows = tile.rows;
  write.cols = tile.cols;
  write.via = StoreVia::tensor_map;
  write.rest_map = family.rest_map;
  return write;
}

/// One warp: put tile number `index` of all into a slot when it is free; past the last one, a record with k_steps = 0.
/// Returns whether it is past.
template <class Body>
__device__ inline bool fetch_group_tile(const Cta<Body>& cta, uint32_t index, uint64_t epoch, FamilyCursor& at,
                                        TaskSlot& task, uint64_t* free, uint32_t phase) {
  constexpr int kCols = Body::kBlocksOut * 128;
  const GemmTable& table = cta.launch.table;
  TileRecord tile{};
  const FamilyRecord* family = table.families;
  bool found = false;
#pragma unroll 1
  while (!found && at.family < table.num_families && !at.aborted) {
    family = table.families + at.family;
    const auto across = static_cast<uint32_t>(family->cols + kCols - 1) / kCols;
    if (at.tiles == 0) enter_family<Body>(cta.launch, *family, across, epoch, at);
    if (at.aborted) break;
    if (index - at.base >= at.tiles) {
      at.base += at.tiles;
      at.tiles = 0;
      ++at.family;
      continue;
    }
    const GroupRows rows = rows_of_group(cta.launch.workers.bases, *family, at.group);
    const uint32_t mine = row_tiles(rows.count, at.most) * across;
    const uint32_t up_to = at.before + sum_to_lane(mine);
    const uint32_t here = __ballot_sync(~0U, index - at.base < up_to);
    const bool last = at.group + 32 >= family->groups;
    if (here == 0 && !last) {
      at.before = __shfl_sync(~0U, up_to, 31);
      at.group += 32;
      continue;
    }
    // A family without rows has one tile, without results.
    const int lane = here != 0 ? __ffs(static_cast<int>(here)) - 1 : 0;
    const GroupRows chosen{__shfl_sync(~0U, rows.begin, lane), here != 0 ? __shfl_sync(~0U, rows.count, lane) : 0};
    const uint32_t first = __shfl_sync(~0U, up_to - mine, lane);
    tile = tile_of_group<Body>(*family, at.most, at.group + lane, here != 0 ? chosen : GroupRows{},
                               index - at.base - first);
    found = true;
  }
  if (free != nullptr) ptx::barrier_wait(free, phase);
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    task.tile = tile;
    task.late = 0;
    task.family = at.family;
    task.in_family = at.tiles;
    if (found) task.writes[0] = write_of_group(*family, tile);
  }
  __syncwarp();
  return !found;
}

/// The same for a CTA's first tile, before its roles begin. `epoch`: set to the number of the call.
template <class Body>
__device__ inline bool fetch_first_of_groups(const Cta<Body>& cta, FamilyCursor& at, uint64_t& epoch) {
  if (cta.launch.workers.counters != nullptr) epoch = calls_before(cta.launch.workers);
  return fetch_group_tile(cta, next_task(cta, 0), epoch, at, cta.control.slots[0], nullptr, 0);
}

/// The scheduler warp of tiles of groups.
template <class Body>
__device__ void schedule_groups(const Cta<Body>& cta, FamilyCursor at, uint64_t epoch, bool end) {
  Control<Body>& control = cta.control;
  const GemmTable& table = cta.launch.table;
  Ring<kSlots> slot;
  for (uint32_t turn = 0;;) {
    ptx::barrier_arrive(&control.record_full[slot.index]);
    if (end) break;
    __syncwarp();
    TaskSlot& task = control.slots[slot.index];
    const uint32_t posts = min(uint32_t{task.tile.num_posts}, kSlotPosts);
    if (threadIdx.x % 32 < posts) task.posts[threadIdx.x % 32] = table.posts[task.tile.first_post + threadIdx.x % 32];
    ptx::barrier_arrive(&control.to_store[slot.index]);
    slot.next();
    end = fetch_group_tile(cta, next_task(cta, ++turn), epoch, at, control.slots[slot.index],
                           &control.record_empty[slot.index], slot.phase ^ 1);
  }
  leave_counter(cta);
}

}  // namespace tilewire::cuda
