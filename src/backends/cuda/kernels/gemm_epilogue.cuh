// The epilogue: consumers add partials, apply the steps, round, and write chunks for the storing warps
// (gemm_store.cuh).
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_steps.cuh"
#include "backends/cuda/kernels/gemm_sum.cuh"

namespace tilewire::cuda {

/// Wait until the buffer for a consumer's next chunk is free. Returns its address.
template <class Body>
__device__ inline uint32_t take_buffer(const Cta<Body>& cta, int group, const Ring<Body::kBuffers>& buffer) {
  ptx::barrier_wait(&cta.control.chunk_free[group][buffer.index], buffer.phase ^ 1);
  __syncwarp();
  return ptx::shared_address(cta.chunks + (group * Body::kBuffers + buffer.index) * kChunkBytes);
}

/// Hand the buffer to the storing warp.
template <class Body>
__device__ inline void give_buffer(const Cta<Body>& cta, int group, Ring<Body::kBuffers>& buffer) {
  ptx::fence_async_shared();
  ptx::barrier_arrive(&cta.control.chunk_full[group][buffer.index]);
  buffer.next();
}

/// Write chunk `index` of a warpgroup's results. `values`: this thread's, in the layout of write_unit.
template <class Body, typename Out, typename Value>
__device__ inline void write_chunk(uint32_t to, uint32_t swizzle, int index, const Value* values) {
  constexpr int kValues = 2 * sizeof(Out);  // 32-bit values of a thread in a unit
#pragma unroll
  for (int unit = 0; unit < kUnits<Body, Out>; ++unit) {
    write_unit_of<Body>(to, swizzle, unit, index % ChunkPlace<Body, Out>::kPieces, values + unit * kValues);
  }
}

/// The same, into a buffer for the storing warp.
template <class Body, typename Out, typename Value>
__device__ inline void send_chunk(const Cta<Body>& cta, const TileRecord& tile, int group, int index,
                                  const Value* values, Ring<Body::kBuffers>& buffer) {
  if (!sends<Body, Out>(cta, tile, group, index)) return;
  write_chunk<Body, Out>(take_buffer(cta, group, buffer), swizzle_of(tile), index, values);
  give_buffer(cta, group, buffer);
}

/// Sum chunk `index` and apply the epilogue to all of a thread's values at once, as few other registers are in use.
template <class Body>
__device__ __forceinline__ void sum_chunk(const Cta<Body>& cta, const TileRecord& tile, int group, int index,
                                          const uint32_t* own, const Ring<Body::kStages>& first,
                                          float (&totals)[1][32]) {
#pragma unroll
  for (int unit = 0; unit < 4; ++unit) {
    float total[8];
    sum_unit(cta, tile, group, unit, own + 4 * unit, first, total);
#pragma unroll
    for (int i = 0; i < 8; ++i) totals[0][8 * unit + i] = total[i];
  }
  const ChunkPlace<Body, typename Body::In> place(group, index);
  apply_steps(cta, tile, place.row, place.col, totals);
}

/// As send_chunk, for a sum: add the peers' partials to `own`, this thread's part of chunk `index`. Apply the epilogue
/// if kEpilogue.
template <class Body, typename Out, bool kEpilogue>
__device__ inline void send_sum(const Cta<Body>& cta, const TileRecord& tile, int group, int index, const uint32_t* own,
                                Ring<Body::kStages>& stage, Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  constexpr int kPieces = sizeof(Out) / sizeof(In);  // chunks of results per chunk of partials
  if (!has_chunk(cta, index)) return;
  const Ring<Body::kStages> first = stage;
  await_partials(cta, tile, stage);
  constexpr bool kAtOnce = kEpilogue && Body::kSteps;
  float totals[1][kAtOnce ? 32 : 8];
  if constexpr (kAtOnce) sum_chunk(cta, tile, group, index, own, first, totals);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const ChunkPlace<Body, Out> place(group, index * kPieces + piece);
    if (!place.in(tile)) continue;
    const uint32_t to = take_buffer(cta, group, buffer);
#pragma unroll
    for (int unit = 0; unit < kUnits<Body, Out>; ++unit) {
      const int in_chunk = Body::kSwapAb ? unit : piece * kUnits<Body, Out> + unit;
      if constexpr (!kAtOnce) sum_unit(cta, tile, group, in_chunk, own + 4 * in_chunk, first, totals[0]);
      if constexpr (kEpilogue && !kAtOnce) apply_steps(cta, tile, place.row, place.col + unit * kUnitCols, totals);
      float total[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) total[i] = totals[0][kAtOnce ? 8 * in_chunk + i : i];
      if constexpr (kPieces > 1) {
        write_unit_of<Body>(to, swizzle_of(tile), unit, piece, total);
      } else {
        uint32_t packed[4];
        pack_sums<In>(packed, total);
        write_unit_of<Body>(to, swizzle_of(tile), unit, piece, packed);
      }
    }
    give_buffer(cta, group, buffer);
  }
  release_partials(cta, first, stage);
}

/// The same for few partials. `between` runs after half of the chunk is summed.
template <class Body, class Between>
__device__ __forceinline__ void send_short_sum(const Cta<Body>& cta, const TileRecord& tile, int group, int index,
                                               const uint32_t* own, Ring<Body::kStages>& stage,
                                               Ring<Body::kBuffers>& buffer, Between between) {
  using In = typename Body::In;
  if (!has_chunk(cta, index)) return;
  const bool sent = ChunkPlace<Body, In>(group, index).in(tile);
  const Ring<Body::kStages> first = stage;
  uint32_t parts[kFewPartials + 1];
  uint32_t to = 0;
  if (sent) {
    to = take_buffer(cta, group, buffer);
    write_chunk<Body, In>(to, swizzle_of(tile), index, own);
    find_parts(cta, tile, group, to, first, parts);
  }
  await_partials(cta, tile, stage);
  const Ring<Body::kStages> end = stage;
  __syncwarp();
  if (sent) sum_few_partials<Body>(tile, 0, 2, to, parts);
  between();
  if (sent) {
    sum_few_partials<Body>(tile, 2, 4, to, parts);
    give_buffer(cta, group, buffer);
  }
  release_partials(cta, first, end);
}

/// Send all of a consumer's results at once.
template <class Body>
__device__ inline void send_now(const Cta<Body>& cta, const TileRecord& tile, int group,
                                const float (&sums)[Body::kBlocksM][Body::kGroupN / 2], Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  if (tile.flags & kOutputFp32) {
#pragma unroll
    for (int i = 0; i < ChunkPlace<Body, float>::kChunks; ++i) {
      using Place = ChunkPlace<Body, float>;
      send_chunk<Body, float>(cta, tile, group, i, sums[i / Place::kPerBlock] + Place::value_of(i), buffer);
    }
  } else if constexpr (!Body::kDefer) {
#pragma unroll
    for (int i = 0; i < Body::kChunks; ++i) {
      const float* v = sums[i / Body::kChunksPerBlock] + ChunkPlace<Body, In>::value_of(i);
      uint32_t packed[16];
#pragma unroll
      for (int j = 0; j < 16; ++j) packed[j] = round_pair(In{}, v[2 * j], v[2 * j + 1]);
      send_chunk<Body, In>(cta, tile, group, i, packed, buffer);
    }
  }
}

/// Deferred epilogue: a consumer's rounded results of the tile before, still in registers. They are sent during the
/// next tile, so that wgmma does not wait and the SMs do not all store at the same time.
template <class Body>
struct Deferred {
  int slot = -1;            // slot of the task; -1 = none
  bool is_deferred = true;  // the next tile waits for no signal, so the results may stay
  uint32_t packed[Body::kBlocksOut * Body::kGroupN / 4] = {};
};

/// All deferred chunks are sent: release the slot.
template <class Body>
__device__ inline void end_deferred(const Cta<Body>& cta, Deferred<Body>& deferred) {
  ptx::barrier_arrive(&cta.control.record_empty[deferred.slot]);
  deferred.slot = -1;
}

/// Send the deferred chunks at the end of the CTA, through stages (kLastApart).
template <class Body>
__device__ inline void send_last(const Cta<Body>& cta, Deferred<Body>& deferred, int group) {
  using In = typename Body::In;
  const TileRecord& tile = cta.control.slots[deferred.slot].tile;
#pragma unroll
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    if (!ChunkPlace<Body, In>(group, chunk).in(tile)) continue;
    const uint32_t to = ptx::shared_address(own_lines(cta, group, chunk));
    write_chunk<Body, In>(to, swizzle_of(tile), chunk, deferred.packed + chunk * Body::kChunkWords);
    ptx::fence_async_shared();
    ptx::barrier_arrive(&cta.control.last_full[group][chunk]);
  }
  end_deferred(cta, deferred);
}

/// Move the next chunk to the first registers, so that one copy of the code serves all chunks: misses of the
/// instruction cache cost more than the moves.
template <class Body>
__device__ __forceinline__ void next_chunk(Deferred<Body>& deferred) {
  constexpr int kWords = sizeof(deferred.packed) / sizeof(uint32_t);
#pragma unroll
  for (int i = Body::kChunkWords; i < kWords; ++i) deferred.packed[i - Body::kChunkWords] = deferred.packed[i];
}

/// Send the deferred chunks now, as the next tile waits for a signal, or there is no next tile (`last`).
template <class Body>
__device__ inline void flush_deferred(const Cta<Body>& cta, Deferred<Body>& deferred, int group, bool last,
                                      Ring<Body::kStages>& stage, Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  if constexpr (Body::kLastApart) {
    if (last && cta.launch.cluster.k == 1) return send_last(cta, deferred, group);
  }
  const TileRecord& tile = cta.control.slots[deferred.slot].tile;
#pragma unroll 1
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    if (!Body::kSums || tile.num_partials == 0) {
      send_chunk<Body, In>(cta, tile, group, chunk, deferred.packed, buffer);
    } else if (has_few_partials(tile)) {
      send_short_sum(cta, tile, group, chunk, deferred.packed, stage, buffer, [] {});
    } else if (tile.flags & kOutputFp32) {
      send_sum<Body, float, true>(cta, tile, group, chunk, deferred.packed, stage, buffer);
    } else {
      send_sum<Body, In, true>(cta, tile, group, chunk, deferred.packed, stage, buffer);
    }
    next_chunk(deferred);
  }
  end_deferred(cta, deferred);
}

}  // namespace tilewire::cuda
