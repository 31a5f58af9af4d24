// The TMA loads of A and B for one step of K; CTAs of a cluster load parts of shared operands for each other.
// Used by gemm_producer.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_stage.cuh"

namespace tilewire::cuda {

/// This CTA's loads of one operand of a tile: one box per step of K (several of B stored [K,N]), to the same address in
/// all CTAs that use it. NOTE: keep this in registers: one thread issues all loads of a CTA, and a step of a small tile
/// takes hardly longer than its instructions.
struct Operand {
  const CUtensorMap* map;
  uint32_t to;    // address of the box in stage 0
  int line;       // first row of A, or column of the result, of the box
  uint16_t ctas;  // bit mask of the CTAs that use the operand
  bool shared;    // several CTAs use it: multicast
  uint32_t mine;  // bit mask of the boxes that this CTA loads: one, except of B stored [K,N]
};

/// The place of a tile's last rows of A if they are not in the matrix of the first rows; map: null = they are.
struct OtherRows {
  const CUtensorMap* map;
  uint32_t to;
  int line;
};

/// The loads of both operands.
struct Operands {
  Operand a;
  Operand b;
  int k;  // first element of K in step 0
  OtherRows rest;
  int rows;   // of a group: rows of A
  int group;  // and its number in the B map
};

/// An operand of `lines` rows in boxes of `box` rows, of which this CTA loads number `part`.
__device__ inline Operand operand_of(const CUtensorMap* map, uint32_t to, int line, int lines, int box, uint32_t part,
                                     uint32_t ctas) {
  const int first = static_cast<int>(part) * box;
  return {map,
          to + first * kTileK * 2,
          line + first,
          static_cast<uint16_t>(ctas),
          __popc(ctas) > 1,
          first < lines ? 1U : 0U};
}

/// The loads of a tile of a group.
template <class Body>
__device__ inline Operands operands_of_group(const Cta<Body>& cta, const TileRecord& tile) {
  const uint32_t to = ptx::shared_address(cta.stages);
  Operands from{};
  from.a = {map_of(cta.launch.table, tile.a_map), to, tile.a_row};
  from.b = {map_of(cta.launch.table, tile.b_map), to + Body::kBytesA, tile.b_col};
  from.rows = rows_made(cta, tile);
  from.group = static_cast<int>(tile.first_partial);
  return from;
}

/// The rows of A for one step of K: boxes of 128, 64, ... rows, each at most once.
template <class Body>
__device__ inline void load_group_a(const Cta<Body>& cta, const Operands& from, int k, int stage) {
  const auto cache_hints = static_cast<uint64_t>(cta.launch.table.cache_hints.a);
  uint32_t to = from.a.to + stage * Body::kStageBytes;
  int line = from.a.line;
#pragma unroll 1
  for (int box = kMostGroupRows, i = 0; box >= 8; box /= 2, ++i) {
    if ((from.rows & box) == 0) continue;
    ptx::tensor_load(to, from.a.map + i, &cta.control.full[stage], k, line, cache_hints);
    to += box * kTileK * 2;
    line += box;
  }
}

/// The lines of B for one step of K: a box for each consumer, or of B stored [K,N] one for each 64 columns.
template <class Body>
__device__ inline void load_group_b(const Cta<Body>& cta, const Operands& from, int k, int stage) {
  constexpr int kCols = Body::kBlocksOut * 64;
  const auto cache_hints = static_cast<uint64_t>(cta.launch.table.cache_hints.b);
  const uint32_t to = from.b.to + stage * Body::kStageBytes;
#pragma unroll
  for (int consumer = 0; consumer < 2; ++consumer) {
    const uint32_t part = to + consumer * Body::kBytesB / 2;
    const int line = from.b.line + consumer * kCols;
    if constexpr (Body::kNMajor) {
#pragma unroll
      for (int block = 0; block < Body::kBlocksM; ++block) {
        ptx::tensor_load_4d(part + block * 64 * kTileK * 2, from.b.map, &cta.control.full[stage],
                            Body::kGated ? line : line + block * 64, k, Body::kGated ? block : 0, from.group,
                            cache_hints);
      }
    } else {
      ptx::tensor_load_4d(part, from.b.map, &cta.control.full[stage], k, line, 0, from.group, cache_hints);
    }
  }
}

template <class Body>
__device__ inline Operands operands_of(const Cta<Body>& cta, const TileRecord& tile) {
  if constexpr (Body::kGroups) return operands_of_group(cta, tile);
  const GemmLaunch& launch = cta.launch;
  const uint32_t to = ptx::shared_address(cta.stages);
  const int rows = Body::kSwapAb ? launch.tile_rows : Body::kTileM;
  Operands from{
      operand_of(map_of(launch.table, tile.a_map), to, tile.a_row, rows, launch.a_box, cta.a_part, cta.a_ctas),
      operand_of(map_of(launch.table, tile.b_map), to + Body::kBytesA, tile.b_col, Body::kTileN, launch.b_box,
                 Body::kNMajor ? 0 : cta.b_part, cta.b_ctas),
      tile.k_begin,
      {}};
  if constexpr (Body::kTakesSplits) {
    if (tile.split != 0) {
      const RowSplit& split = launch.table.splits[tile.split - 1];
      from.rest = {map_of(launch.table, split.map), to + split.first * kTileK * 2, split.row};
    }
  }
  if constexpr (Body::kNMajor) {
    const uint32_t parts = Body::kTileN / launch.b_box;
    from.b.mine = 0;
    for (uint32_t i = cta.b_part; cta.b_part < parts && i < Body::kBoxesB; i += parts) from.b.mine |= 1U << i;
  }
  return from;
}

/// Load one box of an operand.
__device__ inline void load_box(const Operand& from, uint32_t to, uint64_t* full, int x, int y, bool mine,
                                Eviction cache_hints) {
  if (!from.shared) {
    ptx::tensor_load(to, from.map, full, x, y, static_cast<uint64_t>(cache_hints));
  } else if (mine) {
    ptx::tensor_load_shared(to, from.map, full, x, y, static_cast<uint64_t>(cache_hints), from.ctas);
  }
}

/// Load A for one step of K.
template <class Body>
__device__ inline void load_a(const Cta<Body>& cta, const Operands& from, int step, int stage) {
  if constexpr (Body::kGroups) return load_group_a(cta, from, step * kTileK, stage);
  uint64_t* full = &cta.control.full[stage];
  const int k = from.k + step * kTileK;
  const Eviction cache_hints = cta.launch.table.cache_hints.a;
  load_box(from.a, from.a.to + stage * Body::kStageBytes, full, k, from.a.line, from.a.mine != 0, cache_hints);
  if constexpr (Body::kTakesSplits) {
    if (from.rest.map == nullptr) return;
    const uint32_t to = from.rest.to + stage * Body::kStageBytes;
    ptx::tensor_load(to, from.rest.map, full, k, from.rest.line, static_cast<uint64_t>(cache_hints));
  }
}

/// Load B for one step of K; if it is stored [K,N], 64 columns at a time.
template <class Body>
__device__ inline void load_b(const Cta<Body>& cta, const Operands& from, int step, int stage) {
  if constexpr (Body::kGroups) return load_group_b(cta, from, step * kTileK, stage);
  uint64_t* full = &cta.control.full[stage];
  const uint32_t to = from.b.to + stage * Body::kStageBytes;
  const int k = from.k + step * kTileK;
  const Eviction cache_hints = cta.launch.table.cache_hints.b;
  if constexpr (Body::kNMajor) {
#pragma unroll
    for (int i = 0; i < Body::kBoxesB; ++i) {
      load_box(from.b, to + i * 64 * kTileK * 2, full, from.b.line + i * 64, k, (from.b.mine >> i & 1) != 0,
               cache_hints);
    }
  } else {
    load_box(from.b, to, full, k, from.b.line, from.b.mine != 0, cache_hints);
  }
}

}  // namespace tilewire::cuda
