// Tiles that complete a sum: the other parts come through the ring of stages, after the steps of K or between those of
// the next tile, and are added in their order. Used by gemm_producer.cuh and gemm_tiles.cuh.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backends/cuda/gemm_cta.cuh"

namespace tilewire::cuda {

__device__ inline uint32_t pack(__nv_bfloat16, float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint32_t pack(__half, float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline float2 unpack(__nv_bfloat16, uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
}
__device__ inline float2 unpack(__half, uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

/// Whether the parts of a sum come during the CTA's next tile: where that waits for nobody, nor do its partners' tiles,
/// so that all of a cluster decide alike.
template <class Body>
__device__ inline bool comes_late(const Cta<Body>& cta, uint32_t index) {
  const GemmLaunch& launch = cta.launch;
  const TileRecord& tile = launch.table.tiles[index];
  const uint32_t next = index + launch.ctas;
  if (!Body::kDefer || tile.num_parts == 0 || launch.counter != nullptr || next >= launch.table.num_tiles) return false;
  if (tile.bias != nullptr || (tile.flags & kOutputFp32) != 0) return false;
  // All parts of a chunk are in stages at once, beside the last step and the next: one is given back for the other.
  if (tile.num_parts > (Body::kStages - 2) * Body::kPartsPerStage) return false;
  for (uint32_t i = 0; i < cta.size; ++i) {
    if (launch.table.tiles[next - cta.rank + i].num_waits > 0) return false;
  }
  // A step comes between two chunks, so that all of this is given back.
  return launch.table.tiles[next].k_steps >= kStepsPerChunk * Body::kChunks;
}

/// Load a chunk of the other parts of a tile, as many parts in a stage as fit. They must have arrived.
template <class Body>
__device__ inline void load_parts(const Cta<Body>& cta, const TileRecord& tile, int chunk, Ring<Body::kStages>& stage) {
  const PartRecord* parts = cta.launch.table.parts + tile.first_part;
  for (int first = 0; first < tile.num_parts; first += Body::kPartsPerStage) {
    const int count = min(Body::kPartsPerStage, tile.num_parts - first);
    uint64_t* full = &cta.control.full[stage.index];
    uint8_t* to = cta.stages + stage.index * Body::kStageBytes;
    ptx::barrier_wait(&cta.control.empty[stage.index], stage.phase ^ 1);
    ptx::barrier_arrive_expect(full, count * 2 * kChunkBytes);
    for (int i = 0; i < 2 * count; ++i) {
      const PartRecord part = parts[first + i / 2];
      const ChunkPlace<Body, typename Body::In> place(i % 2, chunk);
      ptx::tensor_load(to + i * kChunkBytes, &cta.launch.table.maps[part.map], full, part.col + place.col,
                       part.row + place.row);
    }
    stage.next();
  }
}

/// Add pairs to 8 of a thread's sums.
template <typename In>
__device__ inline void add_pairs(float* total, const uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 values = unpack(In{}, pairs[i]);
    total[2 * i] = __fadd_rn(total[2 * i], values.x);
    total[2 * i + 1] = __fadd_rn(total[2 * i + 1], values.y);
  }
}

/// Add a chunk of one part, which lies in shared memory as chunks to store do, to sums as the matrix instruction leaves
/// them.
template <typename In>
__device__ inline void add_part(float* total, uint32_t chunk) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t from = chunk + threadIdx.x % 128 / 32 * 16 * 128 + lane % 16 * 128;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t pairs[4];
    ptx::load_blocks(from + ((i * 2 + lane / 16) ^ lane % 8) * 16, pairs);
    add_pairs<In>(total + 8 * i, pairs);
  }
}

/// A chunk of a consumer's part, rounded, becomes the sum of all parts. `release`: gives a stage back. NOTE: beside the
/// sums of the tile that is multiplied, registers hold few values more: 8 columns at a time.
template <class Body, class Release>
__device__ inline void add_late_parts(const Cta<Body>& cta, const TileRecord& tile, int group, uint32_t* packed,
                                      Ring<Body::kStages>& stage, const Release& release) {
  using In = typename Body::In;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t at = group * kChunkBytes + threadIdx.x % 128 / 32 * 16 * 128 + lane % 16 * 128;
  const Ring<Body::kStages> first_stage = stage;
  for (int first = 0; first < tile.num_parts; first += Body::kPartsPerStage) {
    ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
    stage.next();
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    float total[8];
    uint32_t own[4];
#pragma unroll
    for (int j = 0; j < 8; ++j) total[j] = -0.0F;  // the sum of nothing: adding to it changes no value
#pragma unroll
    for (int j = 0; j < 4; ++j) own[j] = packed[4 * i + j];
    const uint32_t unit = ((i * 2 + lane / 16) ^ lane % 8) * 16;
    Ring<Body::kStages> from = first_stage;
    int in_stage = 0;
#pragma unroll 1
    for (int part = 0; part < tile.num_parts; ++part) {
      uint32_t pairs[4];
      const uint32_t stage_at = ptx::shared_address(cta.stages) + from.index * Body::kStageBytes;
      ptx::load_blocks(stage_at + 2 * in_stage * kChunkBytes + at + unit, pairs);
      if (part == tile.own_part) add_pairs<In>(total, own);
      add_pairs<In>(total, pairs);
      if (++in_stage < Body::kPartsPerStage) continue;
      in_stage = 0;
      from.next();
    }
    if (tile.own_part == tile.num_parts) add_pairs<In>(total, own);
#pragma unroll
    for (int j = 0; j < 4; ++j) packed[4 * i + j] = pack(In{}, total[2 * j], total[2 * j + 1]);
  }
  __syncwarp();
  for (Ring<Body::kStages> done = first_stage; done.index != stage.index; done.next()) release(done.index);
}

/// A consumer's own sums become the sums of all parts. `release`: gives a stage back.
template <class Body, class Release>
__device__ inline void add_parts(const Cta<Body>& cta, const TileRecord& tile, int group,
                                 float (&sums)[Body::kBlocksM][Body::kGroupN / 2], Ring<Body::kStages>& stage,
                                 const Release& release) {
  using In = typename Body::In;
#pragma unroll
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    float* total = sums[chunk / Body::kChunksPerBlock] + chunk % Body::kChunksPerBlock * 32;
    uint32_t own[4][4];  // rounded as the others were
#pragma unroll
    for (int i = 0; i < 16; ++i) own[i / 4][i % 4] = pack(In{}, total[2 * i], total[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 32; ++i) total[i] = -0.0F;  // the sum of nothing: adding to it changes no value
    const auto add_own = [&] {
#pragma unroll
      for (int i = 0; i < 4; ++i) add_pairs<In>(total + 8 * i, own[i]);
    };
#pragma unroll 1
    for (int first = 0; first < tile.num_parts; first += Body::kPartsPerStage) {
      const int count = min(Body::kPartsPerStage, tile.num_parts - first);
      ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
      const uint8_t* from = cta.stages + stage.index * Body::kStageBytes + group * kChunkBytes;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        if (first + i == tile.own_part) add_own();
        add_part<In>(total, ptx::shared_address(from + 2 * i * kChunkBytes));
      }
      __syncwarp();
      release(stage.index);
      stage.next();
    }
    if (tile.own_part == tile.num_parts) add_own();
  }
}

}  // namespace tilewire::cuda
