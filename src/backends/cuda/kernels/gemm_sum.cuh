// Tiles that complete a sum: the other parts come through the ring of stages, after the steps of K or between those of
// the next tile, and are added in their order. Used by the scheduler, the loading warp and the epilogue.
#pragma once

#include "backends/cuda/kernels/gemm_chunk.cuh"
#include "backends/cuda/kernels/gemm_cluster_split_k.cuh"

namespace tilewire::cuda {

/// Whether the parts of a sum come during the CTA's next tile: where that waits for nobody, nor do its partners' tiles,
/// so that all of a cluster decide alike.
template <class Body>
__device__ inline bool comes_late(const Cta<Body>& cta, uint32_t index) {
  const GemmLaunch& launch = cta.launch;
  const TileRecord& tile = launch.table.tiles[index];
  const uint32_t next = index + launch.ctas;
  if (!Body::kSums || tile.num_partials == 0 || launch.counter != nullptr || next >= launch.table.num_tiles)
    return false;
  if (tile.num_steps != 0 || (tile.flags & kOutputFp32) != 0) return false;
  // All parts of a chunk are held while the next step is taken (send_short_sum), beside the step before, which goes
  // back only then: with one stage less it would wait for ever.
  if (tile.num_partials > (Body::kStages - 2) * Body::kPartialsPerStage) return false;
#pragma unroll 1
  for (uint32_t i = 0; i < cta.size; ++i) {
    if (launch.table.tiles[next - cta.rank + i].num_waits > 0) return false;
  }
  // A step comes between two chunks, so that all of this is given back.
  return launch.table.tiles[next].k_steps >= kStepsPerChunk * Body::kChunks;
}

/// Load a chunk of the other parts of a tile, as many parts in a stage as fit. They must have arrived.
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

/// Add pairs to 8 of a thread's sums.
template <typename In>
__device__ inline void add_pairs(float (&total)[8], const uint32_t* pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 values = widen_pair(In{}, pairs[i]);
    total[2 * i] = __fadd_rn(total[2 * i], values.x);
    total[2 * i + 1] = __fadd_rn(total[2 * i + 1], values.y);
  }
}

/// Wait for the stages with the other parts of a chunk.
template <class Body>
__device__ inline void await_partials(const Cta<Body>& cta, const TileRecord& tile, Ring<Body::kStages>& stage) {
#pragma unroll 1
  for (int first = 0; first < tile.num_partials; first += Body::kPartialsPerStage) {
    ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
    stage.next();
  }
}

/// Give the stages with the other parts of a chunk back: from `first` up to `end`.
template <class Body>
__device__ inline void release_partials(const Cta<Body>& cta, const Ring<Body::kStages>& first,
                                        const Ring<Body::kStages>& end) {
  __syncwarp();
  for (Ring<Body::kStages> done = first; done.index != end.index || done.phase != end.phase; done.next()) {
    release_stage(cta, done.index);
  }
}

/// Other parts of a sum that few instructions add.
inline constexpr int kFewPartials = 3;

/// Whether a sum has no more, and is nothing but their sum, in chunks that are swizzled as parts are.
__device__ inline bool has_few_partials(const TileRecord& tile) {
  return tile.num_partials <= kFewPartials && tile.num_steps == 0 && (tile.flags & (kOutputFp32 | kPlain)) == 0;
}

/// Where the few parts of a consumer's chunk lie in shared memory, in their order: the tile's own at `own`, the others
/// from `stage` on.
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

/// Units `first` to `end` of a chunk: the tile's own part, which this warp has written to `own`, becomes the sum. NOTE:
/// one piece of code for all units: what is not in the instruction cache costs more than the additions.
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

/// The sum of all parts of 16 columns of a consumer's chunk, number `unit` of four. `own`: the tile's own part, rounded
/// as the others were; those lie in shared memory, from `stage` on, as chunks to store do. NOTE: beside the sums of the
/// tile that is multiplied, registers hold few values more.
template <class Body>
__device__ inline void sum_unit(const Cta<Body>& cta, const TileRecord& tile, int group, uint32_t unit,
                                const uint32_t* own, Ring<Body::kStages> stage, float (&total)[8]) {
  using In = typename Body::In;
  const uint32_t at = group * kChunkBytes + place_of<Body>(7, unit);
#pragma unroll
  for (int j = 0; j < 8; ++j) total[j] = -0.0F;  // the sum of nothing: adding to it changes no value
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
