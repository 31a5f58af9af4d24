// The storing warps of a GEMM CTA: store each chunk of a finished tile at all its destinations, and post.
// Used by gemm_tiles.cuh.
#pragma once

#include "backends/cuda/kernels/gemm_cluster_split_k.cuh"
#include "backends/cuda/kernels/ll_protocol.cuh"
#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/spans.cuh"

namespace tilewire::cuda {

/// store_unit for LL data.
template <typename Out>
__device__ inline void publish_unit(Out* to, const uint8_t* from, int count) {
  constexpr int kPerUnit = 16 / sizeof(Out);
  uint4 words = *reinterpret_cast<const uint4*>(from);
  if constexpr (kPerUnit == 4) {
    for (uint32_t* word : {&words.x, &words.y, &words.z, &words.w}) *word = bits_to_publish(__uint_as_float(*word));
  }
  if (count >= kPerUnit && reinterpret_cast<uintptr_t>(to) % 16 == 0) return publish(to, words);
#pragma unroll 1
  for (int i = 0; i < min(count, kPerUnit); ++i) {
    if constexpr (kPerUnit == 4) {
      publish(to + i, bits_to_publish(reinterpret_cast<const float*>(from)[i]));
    } else {
      publish(to + i, reinterpret_cast<const uint16_t*>(from)[i]);
    }
  }
}

/// Store one unit of 16 bytes of a row; `count` of its elements are in the tile.
template <typename Out>
__device__ inline void store_unit(Out* to, const uint8_t* from, int count, StoreMode mode) {
  constexpr int kPerUnit = 16 / sizeof(Out);
  if (mode == StoreMode::publish) return publish_unit(to, from, count);
  if (count >= kPerUnit && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    if (mode == StoreMode::accumulate) return add_here(to, words);
    *reinterpret_cast<uint4*>(to) = words;
    return;
  }
  const Out* values = reinterpret_cast<const Out*>(from);
#pragma unroll 1
  for (int i = 0; i < min(count, kPerUnit); ++i) {
    if (mode == StoreMode::accumulate) {
      add_here(to + i, values[i]);
    } else {
      to[i] = values[i];
    }
  }
}

/// One warp: store a chunk's part of `write` by 16-byte stores. (row, col): the chunk's first element in the tile. Skip
/// its first `again` columns, which the chunk before has stored.
template <typename Out>
__device__ inline void store_by_pointer(const uint8_t* chunk, uint32_t swizzle, const WriteRecord& write, int row,
                                        int col, int again) {
  constexpr int kPerUnit = 16 / sizeof(Out);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = max(0, write.first_row - row);
  const int end = min(64, write.first_row + write.rows - row);
  const int unit = lane % 8;
  const int at_col = col + unit * kPerUnit;
  if (unit * kPerUnit < again) return;
  Out* base = static_cast<Out*>(write.to) + at_col;
#pragma unroll 4
  for (int r = first + lane / 8; r < end; r += 4) {
    Out* to = base + static_cast<int64_t>(row + r) * write.ld;
    store_unit(to, chunk + r * 128 + (unit ^ (r & swizzle)) * 16, write.cols - at_col, write.mode);
  }
}

/// The same by bulk copies, one for each row of the chunk.
template <typename Out>
__device__ inline void store_by_bulk(const uint8_t* chunk, const WriteRecord& write, int row, int col, int again) {
  const int end = min(64, write.first_row + write.rows - row);
  const int skipped = again * static_cast<int>(sizeof(Out));
  const int bytes = min(128, (write.cols - col) * static_cast<int>(sizeof(Out))) - skipped;
  if (bytes <= 0) return;
  col += again;
  chunk += skipped;
#pragma unroll 1
  for (int r = max(0, write.first_row - row) + static_cast<int>(threadIdx.x % 32); r < end; r += 32) {
    Out* to = static_cast<Out*>(write.to) + static_cast<int64_t>(row + r) * write.ld + col;
    if (write.mode == StoreMode::accumulate) {
      ptx::bulk_add(to, chunk + r * 128, bytes);
    } else {
      ptx::bulk_store(to, chunk + r * 128, bytes);
    }
  }
}

/// One thread: store rows of a chunk through a tensor map, as one box. (row, col): its first element in the tile.
__device__ inline void store_box(const CUtensorMap* map, const uint8_t* from, const WriteRecord& write, int row,
                                 int col) {
  if (write.mode == StoreMode::accumulate) {
    ptx::tensor_add(map, from, write.col + col, write.row + row);
  } else {
    ptx::tensor_store(map, from, write.col + col, write.row + row);
  }
}

/// Store the first `rows` rows of a chunk through a map with boxes of kRestRows, one box per lane.
__device__ inline void store_rest(const CUtensorMap* map, const uint8_t* chunk, const WriteRecord& write, int row,
                                  int col, int rows) {
  const int first = static_cast<int>(threadIdx.x % 32) * kRestRows;
  if (first < rows) store_box(map, chunk + first * 128, write, row + first, col);
}

/// One warp: store one chunk at all destinations of the tile. (row, col): the chunk's first element in the tile.
template <class Body, typename Out>
__device__ inline void store_chunk(const Cta<Body>& cta, const TaskSlot& task, const uint8_t* chunk, int row, int col,
                                   int again) {
#pragma unroll 1
  for (int i = 0; i < task.tile.num_writes; ++i) {
    const WriteRecord& write = task.writes[i];
    if (row >= write.first_row + write.rows || row + 64 <= write.first_row) continue;
    const int rest = write.first_row + write.rows - row;
    if (write.via == StoreVia::pointer) {
      store_by_pointer<Out>(chunk, swizzle_of(task.tile), write, row, col, again);
    } else if (write.via == StoreVia::bulk) {
      store_by_bulk<Out>(chunk, write, row, col, again);
    } else if (Body::kSwapAb && write.rest_map != kNoMap && rest < 64) {
      store_rest(map_of(cta.launch.table, write.rest_map), chunk, write, row, col, rest);
    } else if (threadIdx.x % 32 == 0) {
      store_box(map_of(cta.launch.table, write.map), chunk, write, row, col);
    }
  }
}

/// Store all chunks of one consumer's part. Release each buffer when its chunk is read, one chunk later. `last`: the
/// chunks are in stages (send_last).
template <class Body, typename Out>
__device__ inline void store_part(const Cta<Body>& cta, const TaskSlot& task, int group, bool last,
                                  Ring<Body::kBuffers>& buffer) {
  Control<Body>& control = cta.control;
  const uint8_t* chunks = cta.chunks + group * Body::kBuffers * kChunkBytes;
  int previous = -1;
#pragma unroll 1
  for (int i = 0; i < ChunkPlace<Body, Out>::kChunks; ++i) {
    const ChunkPlace<Body, Out> place(group, i);
    if (!sends<Body, Out>(cta, task.tile, group, i)) continue;
    uint64_t* full = last ? &control.last_full[group][i] : &control.chunk_full[group][buffer.index];
    ptx::barrier_wait(full, last ? 0 : buffer.phase);
    __syncwarp();
    const uint8_t* chunk = last ? own_lines(cta, group, i) : chunks + buffer.index * kChunkBytes;
    if (!task.abandoned) store_chunk<Body, Out>(cta, task, chunk, place.row, place.col, place.again(i));
    ptx::bulk_commit();
    if (last) continue;
    ptx::bulk_wait_read<1>();
    __syncwarp();
    if (previous >= 0) ptx::barrier_arrive(&control.chunk_free[group][previous]);
    previous = buffer.index;
    buffer.next();
  }
  ptx::bulk_wait_read<0>();
  __syncwarp();
  if (previous >= 0) ptx::barrier_arrive(&control.chunk_free[group][previous]);
}

/// Whether the CTA has no task after the one in the slot, so that its consumers use send_last.
template <class Body>
__device__ inline bool is_last(const Cta<Body>& cta, Ring<kSlots> slot) {
  if (!Body::kLastApart || cta.launch.cluster.k > 1) return false;
  if ((cta.control.slots[slot.index].tile.flags & kOutputFp32) != 0) return false;
  slot.next();
  ptx::barrier_wait(&cta.control.record_full[slot.index], slot.phase);
  __syncwarp();
  return cta.control.slots[slot.index].tile.k_steps == 0;
}

/// Whether a tile of a group is the last one of its family to end. The stores of all others are then visible.
template <class Body>
__device__ inline bool ends_family(const Cta<Body>& cta, const TaskSlot& task) {
  uint32_t* ended = cta.launch.table.families[task.family].ended;
  __threadfence_system();
  if (atomicAdd(ended, 1U) + 1 != task.in_family) return false;
  __threadfence_system();
  atomicExch(ended, 0U);
  return true;
}

/// The second storing warp: post for a tile when both consumers' parts are in memory. If the team is broken, post
/// nothing: a CTA of the cluster may have loaded too early.
template <class Body>
__device__ inline void post_tile(const Cta<Body>& cta, const TaskSlot& task, int group, const Ring<kSlots>& slot) {
  const TileRecord& tile = task.tile;
  if (tile.num_posts != 0) finish_tensor_stores();
  __syncwarp();  // with the post's release, this orders the stores of all lanes
  if (group == 0) {
    ptx::barrier_arrive(&cta.control.stored[slot.index]);
    return;
  }
  ptx::barrier_wait(&cta.control.stored[slot.index], slot.phase);
  __syncwarp();
  if (threadIdx.x % 32 != 0 || tile.num_posts == 0 || task.abandoned) return;
  if (cta.launch.workers.watch.abort != nullptr && is_aborted(cta.launch.workers.watch)) return;
  if (Body::kGroups && !ends_family(cta, task)) return;
  post_signals(tile.num_posts <= kSlotPosts ? task.posts : cta.launch.table.posts + tile.first_post, tile.num_posts);
}

/// The second storing warp, after the posts: record the times of the tile, and of the sum that it completes.
template <class Body>
__device__ inline void note_tile(const Cta<Body>& cta, const TaskSlot& task) {
  const GemmLaunch& launch = cta.launch;
  if (launch.workers.spans == nullptr || threadIdx.x % 32 != 0) return;
  note_whole(launch.workers, task.tile.task, task.taken, task.start, cta.index);
  if (!Body::kSums || task.tile.num_partials == 0) return;
  note_whole(launch.workers, launch.table.parts[task.tile.first_partial].task, task.partials_taken, task.parts_start,
             cta.index);
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
    const TaskSlot& task = control.slots[slot.index];
    if (task.tile.k_steps == 0) break;
    ptx::barrier_wait(&control.to_store[slot.index], slot.phase);
    if (task.tile.flags & kOutputFp32) {
      store_part<Body, float>(cta, task, group, false, buffer);
    } else {
      store_part<Body, typename Body::In>(cta, task, group, is_last(cta, slot), buffer);
    }
    post_tile(cta, task, group, slot);
    if (group == 1) note_tile(cta, task);
    __syncwarp();
    ptx::barrier_arrive(&control.record_empty[slot.index]);
    slot.next();
  }
}

}  // namespace tilewire::cuda
