// Cluster split-K: the CTAs of a cluster make one tile, each over a part of K, and send chunks to the CTAs that add.
// Used by the producer, the consumers and the storing warps.
#pragma once

#include "backends/cuda/kernels/gemm_cta.cuh"

namespace tilewire::cuda {

/// The number of CTAs that share the additions of a tile's chunks. It is 1 if the tile completes a sum or posts: then
/// one CTA must wait for the partials, or post.
template <class Body>
__device__ inline uint32_t adders_of(const Cta<Body>& cta, const TileRecord& tile) {
  if (tile.num_partials > 0 || tile.num_posts > 0 || tile.rows == 0) return 1;
  constexpr uint32_t kAll = 2 * Body::kChunks;
  const uint32_t adders = min(cta.size, kAll);
  const uint32_t turns = (kAll + adders - 1) / adders;
  // NOTE: all chunks that a CTA receives must fit into its stages at once, so that no sender waits for an adder.
  return (cta.size - 1) * turns <= Body::kStages ? adders : 1;
}

/// The number of a consumer's chunk among all chunks of the tile.
template <class Body>
__device__ inline uint32_t number_of(int group, int chunk) {
  return static_cast<uint32_t>(group * Body::kChunks + chunk);
}

/// The CTA (rank in the cluster) that adds this chunk.
template <class Body>
__device__ inline uint32_t adder_of(uint32_t number, uint32_t adders) {
  if (adders == 1) return 0;
#pragma unroll
  for (int turn = 1; turn < Body::kChunks; ++turn) {
    if (number >= adders) number -= adders;  // adders >= 2, so these subtractions suffice
  }
  return number;
}

/// NOTE: tiles with one adder and tiles with several have separate Rooms. Otherwise CTA 0, which runs ahead, could
/// overwrite another CTA's offer for the previous tile before the receiver of the offer has read it.
template <class Body>
__device__ inline Rooms<Body>& rooms_of(const Cta<Body>& cta, uint32_t adders) {
  return cta.control.rooms[adders > 1 ? 1 : 0];
}

/// Whether this CTA hands a chunk to its storing warp. If not, neither the consumer nor the storing warp uses a buffer.
template <class Body, typename Out>
__device__ inline bool sends(const Cta<Body>& cta, const TileRecord& tile, int group, int index) {
  using Place = ChunkPlace<Body, Out>;
  if (!Place(group, index).in(tile)) return false;
  if (!Body::kSplitsK || cta.launch.cluster.k == 1) return true;
  return adder_of<Body>(number_of<Body>(group, index / Place::kPieces), adders_of(cta, tile)) == cta.rank;
}

/// The producer, after a tile's loads: offer a free stage for each chunk that this CTA adds and each other CTA. Its
/// number goes to that CTA's Rooms.
template <class Body>
__device__ inline void offer_stages(const Cta<Body>& cta, const TileRecord& tile, Fill<Body>& fill) {
  constexpr uint32_t kBytes = 64 * 64 * sizeof(float);
  Control<Body>& control = cta.control;
  const uint32_t adders = adders_of(cta, tile);
  Rooms<Body>& rooms = rooms_of(cta, adders);
#pragma unroll 1
  for (uint32_t number = 0; number < 2 * Body::kChunks; ++number) {
    if (adder_of<Body>(number, adders) != cta.rank) continue;
#pragma unroll 1
    for (uint32_t from = 0; from < cta.size; ++from) {
      if (from == cta.rank) continue;
      ptx::barrier_wait(&control.empty[fill.index()], fill.phase());
      ptx::barrier_arrive_expect(&control.full[fill.stage.index], kBytes);
      ptx::store_in(ptx::address_in(&rooms.stage[number], from), static_cast<uint32_t>(fill.stage.index),
                    ptx::address_in(&rooms.ready[number], from));
      fill.next();
    }
  }
}

/// A consumer: send its sums of chunks that other CTAs add to the offered stages, 16 bytes per thread and store.
/// `given`: one bit per room, the parity of its mbarrier's phase.
template <class Body>
__device__ inline void give_parts(const Cta<Body>& cta, uint32_t adders, int group,
                                  const float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint32_t& given) {
  static_assert(Body::kBlocksM == 1);
  Rooms<Body>& rooms = rooms_of(cta, adders);
  const uint32_t thread = ptx::thread_here() % 128;
#pragma unroll
  for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
    const uint32_t number = number_of<Body>(group, chunk);
    const uint32_t adder = adder_of<Body>(number, adders);
    if (adder == cta.rank) continue;
    const uint32_t bit = chunk + (adders > 1 ? Body::kChunks : 0);
    if (thread == 0) ptx::barrier_arrive_expect(&rooms.ready[number], sizeof(rooms.stage[number]));
    ptx::barrier_wait(&rooms.ready[number], given >> bit & 1);
    given ^= 1U << bit;
    const uint32_t stage = *static_cast<volatile uint32_t*>(&rooms.stage[number]);
    const uint32_t to = ptx::address_in(cta.stages + stage * Body::kStageBytes, adder) + thread * 16;
    const uint32_t there = ptx::address_in(&cta.control.full[stage], adder);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* v = sums[0] + 32 * chunk + 4 * i;
      ptx::store_in(to + i * 128 * 16, v[0], v[1], v[2], v[3], there);
    }
  }
}

/// Add a thread's elements of a chunk that another CTA has sent to a stage.
__device__ inline void add_from(const uint8_t* stage, float (&total)[32]) {
  const uint32_t from = ptx::shared_address(stage) + ptx::thread_here() % 128 * 16;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 v = ptx::load_quad(from + i * 128 * 16);
    total[4 * i] = __fadd_rn(total[4 * i], v.x);
    total[4 * i + 1] = __fadd_rn(total[4 * i + 1], v.y);
    total[4 * i + 2] = __fadd_rn(total[4 * i + 2], v.z);
    total[4 * i + 3] = __fadd_rn(total[4 * i + 3], v.w);
  }
  ptx::fence_async_shared();
}

/// A consumer: in the chunks that this CTA adds, `sums` becomes the sum over all CTAs. The additions are in the order
/// of the CTAs, so that the bits do not depend on the adder.
template <class Body>
__device__ inline void add_parts(const Cta<Body>& cta, uint32_t adders, int group,
                                 float (&sums)[Body::kBlocksM][Body::kGroupN / 2], Ring<Body::kStages>& stage) {
#pragma unroll 1
  for (int taker = 0; taker < 2; ++taker) {
#pragma unroll
    for (int chunk = 0; chunk < Body::kChunks; ++chunk) {
      if (adder_of<Body>(number_of<Body>(taker, chunk), adders) != cta.rank) continue;
      float total[32];
#pragma unroll
      for (float& x : total) x = -0.0F;  // -0 + x = x, to the bit
#pragma unroll 1
      for (uint32_t part = 0; part < cta.size; ++part) {
        if (part == cta.rank) {
#pragma unroll
          for (int i = 0; i < 32; ++i) total[i] = __fadd_rn(total[i], sums[0][32 * chunk + i]);
          continue;
        }
        ptx::barrier_wait(&cta.control.full[stage.index], stage.phase);
        if (taker == group) add_from(cta.stages + stage.index * Body::kStageBytes, total);
        __syncwarp();
        release_stage(cta, stage.index);
        stage.next();
      }
#pragma unroll
      for (int i = 0; taker == group && i < 32; ++i) sums[0][32 * chunk + i] = total[i];
    }
  }
}

/// A consumer, after a tile's products: exchange chunks. Returns whether this CTA adds some of the tile's chunks.
template <class Body>
__device__ inline bool join_parts(const Cta<Body>& cta, const TileRecord& tile, int group,
                                  float (&sums)[Body::kBlocksM][Body::kGroupN / 2], uint32_t& given,
                                  Ring<Body::kStages>& stage) {
  const uint32_t adders = adders_of(cta, tile);
  give_parts(cta, adders, group, sums, given);
  if (cta.rank >= adders) return false;
  add_parts(cta, adders, group, sums, stage);
  return true;
}

}  // namespace tilewire::cuda
