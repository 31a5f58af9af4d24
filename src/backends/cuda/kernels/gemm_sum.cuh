// Fused reduction epilogue: partials are loaded through the stages, after the tile or during the next, and added in
// order.
// Used by the scheduler, the producer and the epilogue.
#pragma once

#include "backends/cuda/kernels/gemm_chunk.cuh"
#include "backends/cuda/kernels/gemm_cluster_split_k.cuh"

namespace tilewire::cuda {

/// Whether the partials of a sum are loaded during the CTA's next tile. That tile must wait for no signal, nor may the
/// next tiles of the cluster's other CTAs, so that all CTAs of a cluster decide alike.
template <class Body>
__device__ inline bool comes_late(const Cta<Body>& cta, uint32_t index) {
  const GemmLaunch& launch = cta.launch;
  const TileRecord& tile = launch.table.tiles[index];
  const uint32_t next = index + launch.ctas;
  if (!Body::kSums || tile.num_partials == 0 || launch.counter != nullptr || next >= launch.table.num_tiles)
    return false;
  if (tile.num_steps != 0 || (tile.flags & kOutputFp32) != 0) return false;
  // send_short_sum holds all partials of a chunk while it takes a step of K. The stage of the step before is released
  // only after that: with one stage less, this would wait for ever.
  if (tile.num_partials > (Body::kStages - 2) * Body::kPartialsPerStage) return false;
#pragma unroll 1
  for (uint32_t i = 0; i < cta.size; ++i) {
    if (launch.table.tiles[next - cta.rank + i].num_waits > 0) return false;
  }
  // A step of K lies between two chunks; after it, all of these stages are released.
  return launch.table.tiles[next].k_steps >= kStepsPerChunk * Body::kChunks;
}

/// Load a chunk of the other partials of a tile's sum, as many per stage as fit. They must have arrived.
template <class Body>
__device__ inline void load_partials(const Cta<Body>& cta, const TileRecord& tile, int chunk, Fill<Body>& fill) {
  if (!has_chunk(cta, chunk)) return;
  const PartialRecord* parts = cta.launch.table.parts + tile.first_partial;
#pragma unroll 1
  for (int first = 0; first < tile.num_partials; first += Body::kPartialsPerStage) {
    const int count = min(Body::kPartialsPerStage, tile.num_partials - first);
    uint64_t* full = &cta.control.full[fill.stage.index];
    const uint32_t to = ptx::shared_address(cta.stages) + fill.stage.index * Body::kStageBytes;
    ptx::barrier_wait(&cta.control.empty[fill.index()], fill.phase());
    ptx::barrier_arrive_expect(full, count * 2 * kChunkBytes);
#pragma unroll 1
    for (int i = 0; i < 2 * count; ++i) {
      const PartialRecord part = parts[first + i / 2];
      const ChunkPlace<Body, typename Body::In> place(i % 2, chunk);
      ptx::tensor_load(to + i * kChunkBytes, map_of(cta.launch.table, part.map), full, part.col + place.col,
                       part.row + place.row);
    }
    fill.next();
  }
}

/// Add pairs to 8 of a thread's sums, in fp32.
template <typename In>
__device__ inline void add_pairs(float (&total)[8], const uint32_t* pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 values = widen_pair(In{}, pairs[i]);
    total[2 * i] = __fadd_rn(total[2 * i], values.x);
    total[2 * i + 1] = __fadd_rn(total[2 * i + 1], values.y);
  }
}

/// Wait for the stages with the other partials of a chunk.
template <class Body>
__device__ inline void await_partials(const Cta<Body>& cta, const TileRecord& tile, Ring<Body::kStages>& stage) {
#pragma unroll 1
  for (int first = 0; first < tile.num_partials; first += Body::kPartialsPerStage) {
    ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
    stage.next();
  }
}

/// Release the stages with the other partials of a chunk, from `first` up to `end`.
template <class Body>
__device__ inline void release_partials(const Cta<Body>& cta, const Ring<Body::kStages>& first,
                                        const Ring<Body::kStages>& end) {
  __syncwarp();
  for (Ring<Body::kStages> done = first; done.index != end.index || done.phase != end.phase; done.next()) {
    release_stage(cta, done.index);
  }
}

/// Most other partials of a sum that send_short_sum adds.
inline constexpr int kFewPartials = 3;

/// Whether a sum has no more partials, no epilogue steps, 16-bit results, and chunks with the swizzle of the partials.
__device__ inline bool has_few_partials(const TileRecord& tile) {
  return tile.num_partials <= kFewPartials && tile.num_steps == 0 && (tile.flags & (kOutputFp32 | kPlain)) == 0;
}

/// Addresses in shared memory of a chunk's partials, in the order of the sum. The tile's own partial is at `own`, the
/// others are in stages from `stage` on.
template <class Body>
__device__ __forceinline__ void find_parts(const Cta<Body>& cta, const TileRecord& tile, int group, uint32_t own,
                                           Ring<Body::kStages> stage, uint32_t (&parts)[kFewPartials + 1]) {
  const uint32_t stages = ptx::shared_address(cta.stages) + group * kChunkBytes;
  int in_stage = 0;
#pragma unroll
  for (int i = 0; i <= kFewPartials; ++i) {
    parts[i] = own;
    if (i == tile.own_partial) continue;
    parts[i] = stages + stage.index * Body::kStageBytes + 2 * in_stage * kChunkBytes;
    if (++in_stage == Body::kPartialsPerStage) {
      in_stage = 0;
      stage.next();
    }
  }
}

/// Sum units `first` to `end` of a chunk. The sum replaces the tile's own partial, which this warp has written to
/// `own`. NOTE: one copy of the code serves all units: misses of the instruction cache cost more than the additions.
template <class Body>
__device__ __forceinline__ void sum_few_partials(const TileRecord& tile, uint32_t first, uint32_t end, uint32_t own,
                                                 const uint32_t (&parts)[kFewPartials + 1]) {
  using In = typename Body::In;
  const int num_partials = tile.num_partials;
#pragma unroll 1
  for (uint32_t unit = first; unit < end; ++unit) {
    const uint32_t at = place_of<Body>(7, unit);
    uint32_t pairs[4];
    float total[8];
    load_unit<Body>(parts[0] + at, pairs);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 values = widen_pair(In{}, pairs[i]);
      total[2 * i] = values.x;
      total[2 * i + 1] = values.y;
    }
#pragma unroll
    for (int part = 1; part <= kFewPartials; ++part) {
      if (part > num_partials) break;
      load_unit<Body>(parts[part] + at, pairs);
      add_pairs<In>(total, pairs);
    }
    pack_sums<In>(pairs, total);
    keep_unit<Body>(own + at, pairs);
  }
}

/// Sum all partials of 16 columns of a consumer's chunk (unit `unit` of four). `own`: the tile's own partial, rounded
/// like the others. The others are in stages from `stage` on, in the layout of chunks. NOTE: registers also hold the
/// sums of the next tile, so that few are left.
template <class Body>
__device__ inline void sum_unit(const Cta<Body>& cta, const TileRecord& tile, int group, uint32_t unit,
                                const uint32_t* own, Ring<Body::kStages> stage, float (&total)[8]) {
  using In = typename Body::In;
  const uint32_t at = group * kChunkBytes + place_of<Body>(7, unit);
#pragma unroll
  for (int j = 0; j < 8; ++j) total[j] = -0.0F;  // -0 + x = x, to the bit
  int in_stage = 0;
#pragma unroll 1
  for (int part = 0; part <= tile.num_partials; ++part) {
    uint32_t pairs[4] = {own[0], own[1], own[2], own[3]};
    if (part != tile.own_partial) {
      const uint32_t from = ptx::shared_address(cta.stages) + stage.index * Body::kStageBytes;
      load_unit<Body>(from + 2 * in_stage * kChunkBytes + at, pairs);
      if (++in_stage == Body::kPartialsPerStage) {
        in_stage = 0;
        stage.next();
      }
    }
    add_pairs<In>(total, pairs);
  }
}

}  // namespace tilewire::cuda
