// Copies by one thread of a CTA, through its shared memory: the copy engine of the SM brings pieces and sends them on,
// many at a time, where loads and stores of threads would wait for each other. Used by steps.cuh.
#pragma once

#include "backends/cuda/signal_device.cuh"
#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

inline constexpr uint32_t kBulkPieces = 12;         // in shared memory
inline constexpr uint32_t kBulkAhead = 8;           // of these on their way here; the others leave
inline constexpr uint32_t kBulkPieceBytes = 16384;  // at most
inline constexpr uint32_t kBulkBytes = kBulkPieces * kBulkPieceBytes;

/// Where a CTA's pieces lie, or nowhere: then threads copy.
struct BulkRoom {
  uint8_t* pieces = nullptr;  ///< kBulkBytes of shared memory
  uint64_t* here = nullptr;   ///< a barrier for each piece
  uint32_t brought = 0;       ///< pieces so far
};

/// By the thread that copies.
__device__ inline void init_bulk(BulkRoom& room) {
  for (uint32_t i = 0; i < kBulkPieces; ++i) ptx::barrier_init(&room.here[i], 1);
  ptx::barrier_init_fence();
}

/// Whether pieces, of rows or of a dense whole, are long, and enough of them to be worth the way through shared memory.
__device__ inline bool bulk_is_worth_it(const BulkRoom& room, int64_t row_bytes, int64_t rows) {
  constexpr int64_t kLeastRow = 4096;
  constexpr int64_t kLeast = 16384;
  return room.pieces != nullptr && row_bytes >= kLeastRow && row_bytes * rows >= kLeast;
}

/// Pieces that a row is cut into.
__device__ inline uint32_t bulk_pieces(int64_t row_bytes) {
  return static_cast<uint32_t>((row_bytes + kBulkPieceBytes - 1) / kBulkPieceBytes);
}

/// Pieces `first` to `end` of rows that lie dense or not. `row_bytes`, pitches and addresses are multiples of 16. By
/// one thread, which has acquired what it reads; when it returns all is written, and may be posted.
__device__ inline void bulk_copy(BulkRoom& room, const std::byte* from, int64_t from_pitch, std::byte* to,
                                 int64_t to_pitch, int64_t row_bytes, uint32_t first, uint32_t end) {
  const uint32_t per_row = bulk_pieces(row_bytes);
  const auto column = [&](uint32_t piece) { return int64_t{piece % per_row} * kBulkPieceBytes; };
  const auto bytes = [&](uint32_t piece) {
    return static_cast<uint32_t>(min(int64_t{kBulkPieceBytes}, row_bytes - column(piece)));
  };
  const uint32_t before = room.brought - first;
  ptx::fence_async();
#pragma unroll 1
  for (uint32_t piece = first; piece < end + kBulkAhead; ++piece) {
    if (piece < end) {
      if (piece - first >= kBulkPieces) ptx::bulk_wait_read<kBulkPieces - kBulkAhead - 1>();
      const uint32_t place = (before + piece) % kBulkPieces;
      ptx::barrier_arrive_expect(&room.here[place], bytes(piece));
      ptx::bulk_load(room.pieces + place * kBulkPieceBytes, from + piece / per_row * from_pitch + column(piece),
                     bytes(piece), &room.here[place]);
    }
    if (piece < first + kBulkAhead) continue;
    const uint32_t leaves = piece - kBulkAhead;
    const uint32_t place = (before + leaves) % kBulkPieces;
    ptx::barrier_wait(&room.here[place], (before + leaves) / kBulkPieces % 2);
    ptx::bulk_store(to + leaves / per_row * to_pitch + column(leaves), room.pieces + place * kBulkPieceBytes,
                    bytes(leaves));
    ptx::bulk_commit();
  }
  room.brought += end - first;
  finish_tensor_stores();
}

}  // namespace tilewire::cuda
