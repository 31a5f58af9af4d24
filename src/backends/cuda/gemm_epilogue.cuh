// How a finished tile leaves: consumers put it into shared memory in chunks, storing warps send each chunk to all its
// destinations and post. Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/gemm_sum.cuh"
#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/spans.cuh"

namespace tilewire::cuda {

/// 32 columns of a warpgroup's fp32 sums to a chunk. `v` holds, for each 8 columns, {row, row, row + 8, row + 8} x {2
/// columns} of this thread, as the matrix instruction leaves them.
__device__ inline void write_chunk(uint32_t chunk, const float* v) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t row = lane / 4;
  const uint32_t to = chunk + threadIdx.x % 128 / 32 * 16 * 128 + row * 128 + lane % 2 * 8;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t unit = (i * 2 + lane % 4 / 2) ^ row;
    ptx::store_pair(to + unit * 16, v[4 * i], v[4 * i + 1]);
    ptx::store_pair(to + unit * 16 + 8 * 128, v[4 * i + 2], v[4 * i + 3]);
  }
}

/// 64 columns of a warpgroup's sums, in pairs of 16 bits, to a chunk.
__device__ inline void write_chunk(uint32_t chunk, const uint32_t* v) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t to = chunk + threadIdx.x % 128 / 32 * 16 * 128 + lane % 16 * 128;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t unit = (i * 2 + lane / 16) ^ lane % 8;
    ptx::store_blocks(to + unit * 16, v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
  }
}

/// Round sums to pairs of 16 bits.
template <typename In, int kCount>
__device__ inline void pack_sums(uint32_t (&packed)[kCount / 2], const float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) packed[i] = pack(In{}, sums[2 * i], sums[2 * i + 1]);
}

/// Add the bias of this thread's columns, in fp32.
template <typename Bias, int kBlocks, int kCount>
__device__ inline void add_bias(float (&sums)[kBlocks][kCount], const Bias* bias, int first_col, int cols) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const int col = first_col + i * 8 + static_cast<int>(threadIdx.x % 4) * 2;
    const float x = col < cols ? static_cast<float>(bias[col]) : 0.f;
    const float y = col + 1 < cols ? static_cast<float>(bias[col + 1]) : 0.f;
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      sums[m][4 * i] += x;
      sums[m][4 * i + 1] += y;
      sums[m][4 * i + 2] += x;
      sums[m][4 * i + 3] += y;
    }
  }
}

/// One unit of 16 bytes of a row to one place; `count` of its elements are real.
template <typename Out>
__device__ inline void store_unit(Out* to, const uint8_t* from, int count, StoreMode mode) {
  constexpr int kPerUnit = 16 / sizeof(Out);
  if (count >= kPerUnit && mode == StoreMode::store && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(from);
    return;
  }
  const Out* values = reinterpret_cast<const Out*>(from);
#pragma unroll 1
  for (int i = 0; i < min(count, kPerUnit); ++i) {
    if (mode == StoreMode::accumulate) {
      atomicAdd(to + i, values[i]);
    } else {
      to[i] = values[i];
    }
  }
}

/// Store a chunk's part of `write` through its pointer, by one warp. (row, col): the chunk's first element in the tile.
template <typename Out>
__device__ inline void store_by_pointer(const uint8_t* chunk, const WriteRecord& write, int row, int col) {
  constexpr int kPerUnit = 16 / sizeof(Out);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = max(0, write.first_row - row);
  const int end = min(64, write.first_row + write.rows - row);
  const int unit = lane % 8;
  const int at_col = col + unit * kPerUnit;
  Out* base = static_cast<Out*>(write.to) + at_col;
#pragma unroll 4
  for (int r = first + lane / 8; r < end; r += 4) {
    Out* to = base + static_cast<int64_t>(row + r) * write.ld;
    store_unit(to, chunk + r * 128 + (unit ^ r % 8) * 16, write.cols - at_col, write.mode);
  }
}

/// Hand a chunk of a warpgroup's results to its storing warp. `values`: as write_chunk takes them.
template <class Body, typename Out, typename Values>
__device__ inline void send_chunk(const Cta<Body>& cta, const TileRecord& tile, int group, int index,
                                  const Values* values, Ring<Body::kBuffers>& buffer) {
  if (!ChunkPlace<Body, Out>(group, index).in(tile)) return;
  ptx::barrier_wait(&cta.control.chunk_free[group][buffer.index], buffer.phase ^ 1);
  __syncwarp();
  write_chunk(ptx::shared_address(cta.chunks + (group * Body::kBuffers + buffer.index) * kChunkBytes), values);
  ptx::fence_async_shared();
  ptx::barrier_arrive(&cta.control.chunk_full[group][buffer.index]);
  buffer.next();
}

/// Add the tile's bias, if any, to a consumer's sums.
template <class Body>
__device__ inline void add_tile_bias(const TileRecord& tile, int group,
                                     float (&sums)[Body::kBlocksM][Body::kGroupN / 2]) {
  if (tile.bias == nullptr) return;
  const int first_col = Body::kSplitN ? group * Body::kGroupN : 0;
  if (tile.flags & kBiasFp32) {
    add_bias(sums, static_cast<const float*>(tile.bias), first_col, tile.cols);
  } else {
    add_bias(sums, static_cast<const typename Body::In*>(tile.bias), first_col, tile.cols);
  }
}

/// Send all of a consumer's results at once.
template <class Body>
__device__ inline void send_now(const Cta<Body>& cta, const TileRecord& tile, int group,
                                const float (&sums)[Body::kBlocksM][Body::kGroupN / 2], Ring<Body::kBuffers>& buffer) {
  using In = typename Body::In;
  if (tile.flags & kOutputFp32) {
#pragma unroll
    for (int i = 0; i < ChunkPlace<Body, float>::kChunks; ++i) {
      constexpr int kPerBlock = ChunkPlace<Body, float>::kPerBlock;
      send_chunk<Body, float>(cta, tile, group, i, sums[i / kPerBlock] + i % kPerBlock * 16, buffer);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < Body::kChunks; ++i) {
    const float* v = sums[i / Body::kChunksPerBlock] + i % Body::kChunksPerBlock * 32;
    uint32_t packed[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) packed[j] = pack(In{}, v[2 * j], v[2 * j + 1]);
    send_chunk<Body, In>(cta, tile, group, i, packed, buffer);
  }
}

/// A consumer's results of the tile before, rounded and still in registers: they leave during the next tile, so that
/// the matrix unit does not wait and writes do not come in one burst from all SMs.
template <class Body>
struct Pending {
  int slot = -1;  // of the task; -1 = none
  uint32_t packed[Body::kBlocksM][Body::kGroupN / 4] = {};
};

template <class Body>
__device__ inline bool sums_late(const Cta<Body>& cta, const Pending<Body>& pending) {
  return pending.slot >= 0 && cta.control.slots[pending.slot].late != 0;
}

template <class Body>
__device__ inline void send_pending(const Cta<Body>& cta, const Pending<Body>& pending, int group, int index,
                                    Ring<Body::kBuffers>& buffer) {
  if (pending.slot < 0) return;
  const uint32_t* values = pending.packed[index / Body::kChunksPerBlock] + index % Body::kChunksPerBlock * 16;
  send_chunk<Body, typename Body::In>(cta, cta.control.slots[pending.slot].tile, group, index, values, buffer);
  if (index + 1 == Body::kChunks) ptx::barrier_arrive(&cta.control.record_empty[pending.slot]);
}

/// Send one chunk, whose first element is (row, col) of the tile, to all destinations of the tile, by one warp.
template <class Body, typename Out>
__device__ inline void store_chunk(const Cta<Body>& cta, const Slot& task, const uint8_t* chunk, int row, int col) {
#pragma unroll 1
  for (int i = 0; i < task.tile.num_writes; ++i) {
    const WriteRecord& write = task.writes[i];
    if (row >= write.first_row + write.rows || row + 64 <= write.first_row) continue;
    const CUtensorMap* map = &cta.launch.table.maps[write.map];
    if (write.via == StoreVia::pointer) {
      store_by_pointer<Out>(chunk, write, row, col);
    } else if (threadIdx.x % 32 == 0 && write.mode == StoreMode::accumulate) {
      ptx::tensor_add(map, chunk, write.col + col, write.row + row);
    } else if (threadIdx.x % 32 == 0) {
      ptx::tensor_store(map, chunk, write.col + col, write.row + row);
    }
  }
}

/// Send all chunks of one consumer's part, freeing each buffer when the next one is on its way.
template <class Body, typename Out>
__device__ inline void store_part(const Cta<Body>& cta, const Slot& task, int group, Ring<Body::kBuffers>& buffer) {
  Control<Body>& control = cta.control;
  const uint8_t* chunks = cta.chunks + group * Body::kBuffers * kChunkBytes;
  const bool first_lane = threadIdx.x % 32 == 0;
  int previous = -1;
#pragma unroll 1
  for (int i = 0; i < ChunkPlace<Body, Out>::kChunks; ++i) {
    const ChunkPlace<Body, Out> place(group, i);
    if (!place.in(task.tile)) continue;
    ptx::barrier_wait(&control.chunk_full[group][buffer.index], buffer.phase);
    __syncwarp();
    if (!task.abandoned) store_chunk<Body, Out>(cta, task, chunks + buffer.index * kChunkBytes, place.row, place.col);
    if (first_lane) {
      ptx::bulk_commit();
      ptx::bulk_wait_read<1>();
    }
    __syncwarp();
    if (previous >= 0) ptx::barrier_arrive(&control.chunk_free[group][previous]);
    previous = buffer.index;
    buffer.next();
  }
  if (previous < 0) return;
  if (first_lane) ptx::bulk_wait_read<0>();
  __syncwarp();
  ptx::barrier_arrive(&control.chunk_free[group][previous]);
}

/// Post for a tile when both parts are in memory, by the second storing warp. Where the team leaves, a partner in the
/// cluster may have loaded too early, so that nothing is posted any more.
template <class Body>
__device__ inline void post_tile(const Cta<Body>& cta, const Slot& task, int group, const Ring<kSlots>& slot) {
  const TileRecord& tile = task.tile;
  if (tile.num_posts != 0 && threadIdx.x % 32 == 0) finish_tensor_stores();
  __syncwarp();  // with the release of the post, orders each lane's stores by pointer
  if (group == 0) {
    ptx::barrier_arrive(&cta.control.stored[slot.index]);
    return;
  }
  ptx::barrier_wait(&cta.control.stored[slot.index], slot.phase);
  __syncwarp();
  if (threadIdx.x % 32 != 0 || tile.num_posts == 0 || task.abandoned) return;
  if (cta.launch.walk.watch.abort != nullptr && is_aborted(cta.launch.walk.watch)) return;
  post_signals(cta.launch.table.posts + tile.first_post, tile.num_posts);
}

/// By the second storing warp, when a tile is stored and posted: so has ended the sum that it completes.
template <class Body>
__device__ inline void note_tile(const Cta<Body>& cta, const Slot& task) {
  const GemmLaunch& launch = cta.launch;
  if (launch.walk.spans == nullptr || threadIdx.x % 32 != 0) return;
  note_whole(launch.walk, task.tile.task, task.taken, task.start);
  if (!Body::kDefer || task.tile.num_parts == 0) return;
  note_whole(launch.walk, launch.table.parts[task.tile.first_part].task, task.parts_taken, task.parts_start);
}

/// The storing warp of a consumer warpgroup.
template <class Body>
__device__ void store_tiles(const Cta<Body>& cta, int group) {
  Control<Body>& control = cta.control;
  Ring<kSlots> slot;
  Ring<Body::kBuffers> buffer;
  for (;;) {
    ptx::barrier_wait(&control.record_full[slot.index], slot.phase);
    __syncwarp();
    const Slot& task = control.slots[slot.index];
    if (task.tile.k_steps == 0) break;
    ptx::barrier_wait(&control.decided[slot.index], slot.phase);
    if (task.tile.flags & kOutputFp32) {
      store_part<Body, float>(cta, task, group, buffer);
    } else {
      store_part<Body, typename Body::In>(cta, task, group, buffer);
    }
    post_tile(cta, task, group, slot);
    if (group == 1) note_tile(cta, task);
    __syncwarp();
    ptx::barrier_arrive(&control.record_empty[slot.index]);
    slot.next();
  }
}

}  // namespace tilewire::cuda
