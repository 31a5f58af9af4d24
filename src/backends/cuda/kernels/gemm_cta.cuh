// The shared state of a GEMM CTA: sizes that follow from the body, mbarriers and tasks in shared memory.
// Used by the other gemm_*.cuh.
#pragma once

#include "backends/cuda/kernels/blocks.cuh"
#include "backends/cuda/kernels/gemm_tiles.hpp"
#include "backends/cuda/kernels/ptx.cuh"

namespace tilewire::cuda {

inline constexpr int kStepsPerChunk = 2;  // fewest steps of K between two deferred chunks
inline constexpr int kMostPerChunk = 10;  // most: over 10 steps the links transfer a chunk of every SM
inline constexpr int kSlots = 3;          // task slots in shared memory

/// Most posts in a slot; a task with more posts reads them from device memory.
inline constexpr uint32_t kSlotPosts = 4;

/// A task in shared memory.
struct TaskSlot {
  TileRecord tile;
  WriteRecord writes[kMaxWrites];
  PostRecord posts[kSlotPosts];
  uint32_t abandoned;  // a wait failed: compute from undefined data, neither store nor post
  uint32_t late;       // the partials of its sum are loaded during the CTA's next tile
  uint32_t family;     // of a group: its FamilyRecord
  uint32_t in_family;  // number of tiles of that family
  // In a traced call, the low 32 bits of %globaltimer when the producer:
  uint32_t taken;           // took the task,
  uint32_t start;           // had seen its signals,
  uint32_t partials_taken;  // began to wait for the partials of its sum,
  uint32_t parts_start;     // had seen their signals
};

/// A position in a ring of kDepth entries, and the parity of its mbarriers' phase.
template <int kDepth>
struct Ring {
  int index = 0;
  uint32_t phase = 0;

  __device__ void next() {
    if (++index == kDepth) {
      index = 0;
      phase ^= 1;
    }
  }
};

/// A compute body: dtypes, layout of B, tile shape, whether tiles may complete sums, whether their epilogue may be more
/// than a bias, and the sizes that follow.
template <typename InT, bool kBIsKN, int kTileMValue, int kTileNValue, bool kSumsValue, bool kStepsValue,
          Groups kGroupsValue = Groups::none>
struct GemmBody {
  using In = InT;
  static constexpr bool kNMajor = kBIsKN;
  static constexpr int kTileM = kTileMValue;
  static constexpr int kTileN = kTileNValue;
  static constexpr TileShape kShape{kTileM, kTileN};
  // Swap-AB: a tile has launch.tile_rows rows, at most kTileM. They are the columns of wgmma, and each consumer has 64
  // of the tile's 128 columns.
  // Tiles of groups: each has rows of its own. A consumer has half of the tile's lines of B, in blocks of 64 wgmma
  // rows. If gated, the first of its two blocks is the gate and the second one is up, of the same 64 columns.
  static constexpr bool kGroups = kGroupsValue != Groups::none;
  static constexpr bool kGated = kGroupsValue == Groups::gated;
  static constexpr bool kSwapAb = kGroups || has_runtime_rows(kShape);
  static constexpr int kLeastM = kGroups ? 8 : kSwapAb ? least_rows(kShape) : kTileM;
  static constexpr bool kSplitN =
      kTileM == 64 && !kGroups;  // the consumers split the columns of wgmma, otherwise its rows
  // A consumer's part of the tile, as rows and columns of wgmma.
  static constexpr int kGroupM = kSwapAb ? kTileN / 2 : kSplitN ? kTileM : kTileM / 2;
  static constexpr int kGroupN = kSwapAb ? chunks_across(kTileM) * 64 : kSplitN ? kTileN / 2 : kTileN;
  static constexpr int kBlocksM = kGroupM / 64;
  static constexpr int kChunksPerBlock = chunks_across(kGroupN);
  static constexpr int kBlocksOut = kGated ? 1 : kBlocksM;  // blocks of results
  static constexpr int kChunks = kBlocksOut * kChunksPerBlock;
  // Columns between the starts of two chunks. The last chunk ends with the tile, and all overlaps are equal.
  static constexpr int kChunkStep = kChunksPerBlock == 1 ? 64 : (kGroupN - 64) / (kChunksPerBlock - 1);
  static_assert(kChunkStep % 8 == 0 && kChunkStep * (kChunksPerBlock - 1) + 64 == kGroupN);
  static_assert(kChunkStep == 64 || kBlocksM == 1);
  static constexpr int kChunkWords = kChunkStep / 4;  // registers of rounded results per chunk
  static constexpr bool kDefer = holds_results(kShape);
  static constexpr bool kSums = kSumsValue;
  static constexpr bool kSteps = kStepsValue || !fills_registers(kShape);
  static constexpr bool kSplitsK = !kGroups && may_split_k_in_cluster(kShape);
  static constexpr bool kTakesSplits = !kGroups && takes_splits(kShape);
  static constexpr int kBytesA = kTileM * kTileK * 2;
  static constexpr int kBoxesB = chunks_across(kTileN);  // boxes of B stored [K,N], 64 columns each
  static constexpr int kStageBytes = stage_bytes(kShape, kNMajor);
  static constexpr int kBytesB = kStageBytes - kBytesA;
  static constexpr int kStages = num_stages(kShape, kNMajor);
  static constexpr int kBuffers = std::min(4, (kStageRoom - kStages * kStageBytes) / (2 * kChunkBytes));
  static constexpr int kPartialsPerStage = partials_per_stage(kShape);
  /// The chunks of a CTA's last tile go to stages, since no loads follow. So consumers need not wait for buffers if
  /// these are fewer than the chunks. Not with cluster split-K, whose chunks use stages, too.
  static constexpr bool kLastApart = kDefer && !kSums && kChunks > kBuffers;
  static_assert(!kLastApart || (kChunks <= kStages && !kSplitN));
  static constexpr int kSharedBytes = kControlBytes + kStages * kStageBytes + 2 * kBuffers * kChunkBytes;
};

/// The place of a consumer's chunk in the tile. Chunks follow each other along the columns, or along the rows with
/// swap-AB. Two fp32 chunks side by side take the place of one of 16 bits.
template <class Body, typename Out>
struct ChunkPlace {
  static constexpr int kCols = 128 / sizeof(Out);
  static constexpr int kPieces = sizeof(Out) / 2;
  static constexpr int kPerBlock = Body::kChunksPerBlock * kPieces;
  static constexpr int kChunks = Body::kBlocksOut * kPerBlock;
  int row;
  int col;

  __device__ ChunkPlace(int group, int index)
      : row(Body::kSwapAb ? index % kPerBlock / kPieces * 64
                          : (Body::kSplitN ? 0 : group * Body::kGroupM) + index / kPerBlock * 64),
        col(Body::kSwapAb ? (group * Body::kBlocksOut + index / kPerBlock) * 64 + index % kPieces * kCols
                          : (Body::kSplitN ? group * Body::kGroupN : 0) + col_of(index)) {}
  /// The chunk's first column in the consumer's part.
  __host__ __device__ static constexpr int col_of(int index) {
    return index % kPerBlock / kPieces * Body::kChunkStep + index % kPieces * kCols;
  }
  /// The index of the chunk's first value among a thread's sums of a block. With swap-AB, two fp32 chunks side by side
  /// have the same index, in different warps.
  __host__ __device__ static constexpr int value_of(int index) {
    return Body::kSwapAb ? index % kPerBlock / kPieces * 32 : col_of(index) / 2;
  }
  /// Whether the chunk holds real elements.
  __device__ bool in(const TileRecord& tile) const { return row < tile.rows && col < tile.cols; }
  /// Number of the chunk's first columns that the chunk before contains, too.
  __device__ static int again(int index) {
    return index % kPerBlock < kPieces || index % kPieces > 0 ? 0 : 64 - Body::kChunkStep;
  }
};

/// The swizzle of a chunk: the bits of the row that are XORed with the number of a 16-byte unit, against bank
/// conflicts. NOTE: bulk copies need rows without swizzle, so the writes of such chunks have bank conflicts.
__device__ inline uint32_t swizzle_of(const TileRecord& tile) { return (tile.flags & kPlain) != 0 ? 0 : 7; }

/// Steps of K between two deferred chunks. Stores to other GPUs are spread over the whole tile, up to the speed of the
/// links. So are sums, since their partials take stages from the steps of K.
template <class Body>
__device__ inline int steps_per_chunk(const TaskSlot& before, int steps) {
  const bool evenly = before.late != 0 || (before.tile.flags & kLeavesFar) != 0;
  return evenly ? min(max(kStepsPerChunk, (steps - 1) / Body::kChunks), kMostPerChunk) : kStepsPerChunk;
}

/// Steps of K before the first chunk of a sum whose partials are loaded during this tile. Other CTAs may have made them
/// in the same wave. Then they store them during their next tiles, as this CTA does, and the stores take time to
/// arrive.
template <class Body>
__device__ inline int steps_before_sum(const TaskSlot& before, int steps) {
  constexpr int kOnTheirWay = 8;
  const int interval = steps_per_chunk<Body>(before, steps);
  const int left = interval * Body::kChunks + kOnTheirWay;
  return left + interval * Body::kChunks <= steps ? left : interval;
}

/// For each chunk: the stage that the adding CTA offers for this CTA's sums, valid when the mbarrier completes.
template <class Body>
struct Rooms {
  uint64_t ready[2 * Body::kChunks];
  uint32_t stage[2 * Body::kChunks];
};

/// Barriers and tasks in shared memory, before the stages.
template <class Body>
struct Control {
  uint64_t full[Body::kStages];
  uint64_t empty[Body::kStages];
  uint64_t record_full[kSlots];
  uint64_t record_empty[kSlots];
  uint64_t to_store[kSlots];  // the slot has the task's writes, and the producer has begun the task
  uint64_t going[kSlots];     // all CTAs of the cluster load the task without a further wait
  uint64_t stored[kSlots];    // the first storing warp's stores are complete
  Rooms<Body> rooms[2];       // of tiles with one adder, and of tiles with several
  uint64_t chunk_full[2][Body::kBuffers];
  uint64_t chunk_free[2][Body::kBuffers];
  uint64_t last_full[2][Body::kLastApart ? Body::kChunks : 1];
  TaskSlot slots[kSlots];
};

/// The stage of the next load. With few rows, a CTA loads only `depth` steps ahead: it fills `stage` when the consumers
/// release `room`, which was filled `depth` steps before.
template <class Body>
struct Fill {
  static constexpr bool kLags = Body::kSplitN && !Body::kSums;
  Ring<Body::kStages> stage;
  Ring<Body::kStages> room;

  __device__ explicit Fill(uint32_t depth) { room = {Body::kStages - static_cast<int>(depth), 1}; }
  __device__ void next() {
    stage.next();
    if constexpr (kLags) room.next();
  }
  /// The `empty` mbarrier to wait for, and its parity.
  __device__ int index() const { return kLags ? room.index : stage.index; }
  __device__ uint32_t phase() const { return kLags ? room.phase : stage.phase ^ 1; }
};

/// Tensor map number `index` of a table in the kernel's parameters.
__device__ __forceinline__ const CUtensorMap* map_of(const GemmTable& table, uint32_t index) {
  return index < kMapsAtHand ? table.at_hand + index : table.maps + (index - kMapsAtHand);
}

/// The state that all warps of a CTA share.
template <class Body>
struct Cta {
  const GemmLaunch& launch;
  Control<Body>& control;
  uint8_t* stages;
  uint8_t* chunks;
  uint32_t index;   // among the compute CTAs
  uint32_t rank;    // in the cluster
  uint32_t size;    // of the cluster
  uint32_t a_ctas;  // bit mask of the CTAs that use the same A
  uint32_t b_ctas;  // and of those that use the same B
  uint32_t a_part;  // the part of A that this CTA loads for them
  uint32_t b_part;  // and the part of B
};

template <class Body>
__device__ inline Cta<Body> make_cta(const GemmLaunch& launch, uint32_t index, uint8_t* shared) {
  const uint32_t rank = ptx::cluster_rank();
  const uint32_t n = launch.cluster.n;
  uint32_t a_ctas = 1U << rank;
  uint32_t b_ctas = 1U << rank;
  uint32_t row = 0;
  uint32_t col = 0;
  // NOTE: this delays every launch, so it is skipped if CTAs share no operand, as in cluster split-K.
  if (launch.cluster.m * n > 1) {
    row = rank / n;
    col = rank - row * n;
    a_ctas = ((1U << n) - 1) << (row * n);
#pragma unroll 1
    for (uint32_t i = 0; i < launch.cluster.m; ++i) b_ctas |= 1U << (i * n + col);
  }
  uint8_t* stages = shared + kControlBytes;
  return {launch,
          *reinterpret_cast<Control<Body>*>(shared),
          stages,
          stages + Body::kStages * Body::kStageBytes,
          index,
          rank,
          ptx::cluster_size(),
          a_ctas,
          b_ctas,
          col,
          row};
}

template <class Body>
__device__ inline void init_control(const Cta<Body>& cta) {
  Control<Body>& c = cta.control;
  for (int i = 0; i < Body::kStages; ++i) {
    ptx::barrier_init(&c.full[i], 1);
    ptx::barrier_init(&c.empty[i], 8 * __popc(cta.a_ctas | cta.b_ctas));
  }
  for (int i = 0; i < kSlots; ++i) {
    ptx::barrier_init(&c.record_full[i], 32);
    ptx::barrier_init(&c.record_empty[i], 1 + 256 + 64);  // loader, consumers, storing warps
    ptx::barrier_init(&c.to_store[i], 32 + 1);
    ptx::barrier_init(&c.going[i], cta.size);
    ptx::barrier_init(&c.stored[i], 32);
  }
  if (Body::kSplitsK && cta.launch.cluster.k > 1) {
    for (Rooms<Body>& rooms : c.rooms) {
      for (uint64_t& ready : rooms.ready) ptx::barrier_init(&ready, 1);
    }
  }
  for (int i = 0; i < 2 * Body::kBuffers; ++i) {
    ptx::barrier_init(&c.chunk_full[0][i], 128);
    ptx::barrier_init(&c.chunk_free[0][i], 32);
  }
  for (int i = 0; Body::kLastApart && i < 2 * Body::kChunks; ++i) ptx::barrier_init(&c.last_full[0][i], 128);
  ptx::barrier_init_fence();
}

}  // namespace tilewire::cuda
