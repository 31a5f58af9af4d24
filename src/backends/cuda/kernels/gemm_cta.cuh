// What the warps of a GEMM CTA share: sizes that follow from the body, barriers and tasks in shared memory.
// Used by the other gemm_*.cuh.
#pragma once

#include "backends/cuda/kernels/blocks.cuh"
#include "backends/cuda/kernels/gemm_tiles.hpp"
#include "backends/cuda/kernels/ptx.cuh"

namespace tilewire::cuda {

inline constexpr int kStepsPerChunk = 2;  // fewest steps of K between chunks of the tile before
inline constexpr int kMostPerChunk = 10;  // and most: in so many steps links take a chunk from every SM
inline constexpr int kSlots = 3;          // records in shared memory

/// Posts of a task that are in shared memory with it, at most.
inline constexpr uint32_t kSlotPosts = 4;

/// A task in shared memory.
struct TaskSlot {
  TileRecord tile;
  WriteRecord writes[kMaxWrites];
  PostRecord posts[kSlotPosts];
  uint32_t abandoned;  // a wait failed: computed from whatever is there, neither stored nor posted
  uint32_t late;       // the other parts of its sum come during the next tile of the CTA
  // Of a traced call, low words of the device's time, when the loading warp:
  uint32_t taken;           // took the task,
  uint32_t start;           // had its signals,
  uint32_t partials_taken;  // began to wait for the other parts of its sum,
  uint32_t parts_start;     // had them
};

/// Position in a ring of kDepth places, and the parity of the round.
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
/// than a bias, and what follows from them.
template <typename InT, bool kBIsKN, int kTileMValue, int kTileNValue, bool kSumsValue, bool kStepsValue>
struct GemmBody {
  using In = InT;
  static constexpr bool kNMajor = kBIsKN;
  static constexpr int kTileM = kTileMValue;
  static constexpr int kTileN = kTileNValue;
  static constexpr TileShape kShape{kTileM, kTileN};
  // Its operands have changed places, and launch.tile_rows says how many of kTileM rows a tile has: rows of the tile
  // are columns of the matrix instruction, and each consumer has 64 of its 128 columns.
  static constexpr bool kSwapAb = has_runtime_rows(kShape);
  static constexpr int kLeastM = kSwapAb ? least_rows(kShape) : kTileM;
  static constexpr bool kSplitN = kTileM == 64;  // the consumers share the instruction's columns, otherwise its rows
  // A consumer's part, as rows and columns of the matrix instruction.
  static constexpr int kGroupM = kSwapAb ? kTileN / 2 : kSplitN ? kTileM : kTileM / 2;
  static constexpr int kGroupN = kSwapAb ? chunks_across(kTileM) * 64 : kSplitN ? kTileN / 2 : kTileN;
  static constexpr int kBlocksM = kGroupM / 64;
  static constexpr int kChunksPerBlock = chunks_across(kGroupN);
  static constexpr int kChunks = kBlocksM * kChunksPerBlock;
  // Columns from chunk to chunk: the last one ends with the tile, and chunks overlap evenly.
  static constexpr int kChunkStep = kChunksPerBlock == 1 ? 64 : (kGroupN - 64) / (kChunksPerBlock - 1);
  static_assert(kChunkStep % 8 == 0 && kChunkStep * (kChunksPerBlock - 1) + 64 == kGroupN);
  static_assert(kChunkStep == 64 || kBlocksM == 1);
  static constexpr int kChunkWords = kChunkStep / 4;  // of a thread's rounded results, from chunk to chunk
  static constexpr bool kDefer = holds_results(kShape);
  static constexpr bool kSums = kSumsValue;
  static constexpr bool kSteps = kStepsValue || !fills_registers(kShape);
  static constexpr bool kSplitsK = may_split_k_in_cluster(kShape);
  static constexpr bool kTakesSplits = takes_splits(kShape);
  static constexpr int kBytesA = kTileM * kTileK * 2;
  static constexpr int kBoxesB = chunks_across(kTileN);  // of B stored [K,N], 64 columns each
  static constexpr int kStageBytes = stage_bytes(kShape, kNMajor);
  static constexpr int kBytesB = kStageBytes - kBytesA;
  static constexpr int kStages = num_stages(kShape, kNMajor);
  static constexpr int kBuffers = std::min(4, (kStageRoom - kStages * kStageBytes) / (2 * kChunkBytes));
  static constexpr int kPartialsPerStage = partials_per_stage(kShape);
  /// The chunks of a CTA's last tile have room of their own: stages, into which nothing is loaded any more. Where
  /// buffers are fewer, consumers then need not wait for them. Not where K is shared: parts come to stages, too.
  static constexpr bool kLastApart = kDefer && !kSums && kChunks > kBuffers;
  static_assert(!kLastApart || (kChunks <= kStages && !kSplitN));
  static constexpr int kSharedBytes = kControlBytes + kStages * kStageBytes + 2 * kBuffers * kChunkBytes;
};

/// Where a chunk of a consumer's part starts in the tile. Chunks go along the rows, or down the columns where the body
/// flips; of fp32, two beside each other take the place of one of 16 bits.
template <class Body, typename Out>
struct ChunkPlace {
  static constexpr int kCols = 128 / sizeof(Out);
  static constexpr int kPieces = sizeof(Out) / 2;
  static constexpr int kPerBlock = Body::kChunksPerBlock * kPieces;
  static constexpr int kChunks = Body::kBlocksM * kPerBlock;
  int row;
  int col;

  __device__ ChunkPlace(int group, int index)
      : row(Body::kSwapAb ? index / kPieces * 64
                          : (Body::kSplitN ? 0 : group * Body::kGroupM) + index / kPerBlock * 64),
        col(Body::kSwapAb ? group * Body::kGroupM + index % kPieces * kCols
                          : (Body::kSplitN ? group * Body::kGroupN : 0) + col_of(index)) {}
  /// In the consumer's part.
  __host__ __device__ static constexpr int col_of(int index) {
    return index % kPerBlock / kPieces * Body::kChunkStep + index % kPieces * kCols;
  }
  /// The first of a thread's sums, of those of a block, that the chunk has; where the body flips, both pieces' threads
  /// have theirs at the same place.
  __host__ __device__ static constexpr int value_of(int index) {
    return Body::kSwapAb ? index / kPieces * 32 : col_of(index) / 2;
  }
  /// Whether the chunk holds real elements.
  __device__ bool in(const TileRecord& tile) const { return row < tile.rows && col < tile.cols; }
  /// Columns at its start that the chunk before holds, too.
  __device__ static int again(int index) {
    return index % kPerBlock < kPieces || index % kPieces > 0 ? 0 : 64 - Body::kChunkStep;
  }
};

/// Bits of a row in a chunk that change the places of its units of 16 bytes: threads, and tensor copies, then meet few
/// bank conflicts. NOTE: bulk copies need rows as they are, and pay for it when chunks are written.
__device__ inline uint32_t swizzle_of(const TileRecord& tile) { return (tile.flags & kPlain) != 0 ? 0 : 7; }

/// Steps of K between the chunks of the tile before. What goes to other GPUs leaves evenly over the tile, as fast as
/// links take it; so do sums, whose parts take the place of a step.
template <class Body>
__device__ inline int steps_per_chunk(const TaskSlot& before, int steps) {
  const bool evenly = before.late != 0 || (before.tile.flags & kLeavesFar) != 0;
  return evenly ? min(max(kStepsPerChunk, (steps - 1) / Body::kChunks), kMostPerChunk) : kStepsPerChunk;
}

/// Steps of K before the first chunk of a sum whose parts come during this tile. Other CTAs may have made them in the
/// same turn: they leave during those CTAs' next tiles, as this one's would, and have a way to go.
template <class Body>
__device__ inline int steps_before_sum(const TaskSlot& before, int steps) {
  constexpr int kOnTheirWay = 8;
  const int interval = steps_per_chunk<Body>(before, steps);
  const int left = interval * Body::kChunks + kOnTheirWay;
  return left + interval * Body::kChunks <= steps ? left : interval;
}

/// Where the CTAs that add a tile's chunks have room for what this one has of them: a stage there, when the barrier
/// says so.
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
  uint64_t to_store[kSlots];  // what the task writes is here, and the loading warp has begun it
  uint64_t going[kSlots];     // all CTAs of the cluster load the task without waiting for anybody
  uint64_t stored[kSlots];    // the first storing warp's part is in memory
  Rooms<Body> rooms[2];       // of tiles that the first CTA adds, and of those that all add in turns
  uint64_t chunk_full[2][Body::kBuffers];
  uint64_t chunk_free[2][Body::kBuffers];
  uint64_t last_full[2][Body::kLastApart ? Body::kChunks : 1];
  TaskSlot slots[kSlots];
};

/// Where the next loads go. With few rows, a CTA loads `depth` steps ahead only: the next stage is filled when `room`,
/// which was filled so many steps before, is given back.
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
  /// The barrier of a stage that must be free, and the parity to wait for.
  __device__ int index() const { return kLags ? room.index : stage.index; }
  __device__ uint32_t phase() const { return kLags ? room.phase : stage.phase ^ 1; }
};

/// Tensor map number `index` of a table that is a parameter of the kernel.
__device__ __forceinline__ const CUtensorMap* map_of(const GemmTable& table, uint32_t index) {
  return index < kMapsAtHand ? table.at_hand + index : table.maps + (index - kMapsAtHand);
}

/// What all warps of a CTA share.
template <class Body>
struct Cta {
  const GemmLaunch& launch;
  Control<Body>& control;
  uint8_t* stages;
  uint8_t* chunks;
  uint32_t index;   // among the compute CTAs
  uint32_t rank;    // in the cluster
  uint32_t size;    // of the cluster
  uint32_t a_ctas;  // bits of the CTAs that use the same A
  uint32_t b_ctas;  // and B
  uint32_t a_part;  // which part of A this one loads for them
  uint32_t b_part;  // and of B
};

template <class Body>
__device__ inline Cta<Body> make_cta(const GemmLaunch& launch, uint32_t index, uint8_t* shared) {
  const uint32_t rank = ptx::cluster_rank();
  const uint32_t n = launch.cluster.n;
  uint32_t a_ctas = 1U << rank;
  uint32_t b_ctas = 1U << rank;
  uint32_t row = 0;
  uint32_t col = 0;
  // NOTE: a launch begins with this: where no operand is shared, as where K is cut, nothing is computed.
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

/// Where the lines of a stage begin that are the rows of a consumer's matrix instructions: rows of A, or columns of B
/// where the body flips. No other consumer uses them, but where both share the instruction's columns.
template <class Body>
__device__ inline uint8_t* own_lines(const Cta<Body>& cta, int group, int stage) {
  const int first = (Body::kSwapAb ? Body::kBytesA : 0) + (Body::kSplitN ? 0 : group * Body::kGroupM * 128);
  return cta.stages + stage * Body::kStageBytes + first;
}

/// Bytes that a step of K brings to a stage.
template <class Body>
__device__ inline uint32_t step_bytes(const Cta<Body>& cta) {
  return (Body::kSwapAb ? cta.launch.tile_rows * kTileK * 2 : Body::kBytesA) + Body::kBytesB;
}

/// Whether tiles have rows in a chunk of their consumers.
template <class Body>
__device__ inline bool has_chunk(const Cta<Body>& cta, int chunk) {
  return !Body::kSwapAb || chunk * 64 < cta.launch.tile_rows;
}

/// Tell the producers that fill a stage that this warp is done with it.
template <class Body>
__device__ inline void release_stage(const Cta<Body>& cta, int stage) {
  const uint32_t lane = threadIdx.x % 32;
  if (cta.size == 1) {
    if (lane == 0) ptx::barrier_arrive(&cta.control.empty[stage]);
  } else if ((cta.a_ctas | cta.b_ctas) >> lane & 1) {
    ptx::barrier_arrive_at(&cta.control.empty[stage], lane);
  }
}

}  // namespace tilewire::cuda
