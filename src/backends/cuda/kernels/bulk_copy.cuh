// Copies by few threads of a CTA, through its shared memory: the copy engine of the SM brings pieces and sends them on,
// many at a time, where loads and stores of threads would wait for each other. Used by copy_op.cuh.
#pragma once

#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

inline constexpr uint32_t kBulkPieces = 8;         // of a thread, in shared memory
inline constexpr uint32_t kBulkAhead = 5;          // of these on their way here; the others leave
inline constexpr uint32_t kBulkPieceBytes = 8192;  // at most
inline constexpr uint32_t kBulkBytes = kMostWarpgroups * kBulkPieces * kBulkPieceBytes;

/// Where a thread's pieces lie, or nowhere: then all threads copy. The first thread of every kWarpgroupThreads has
/// some. NOTE: one thread alone takes 60 to 110 ns for each load or store that it begins, and does not keep the engine
/// busy.
struct BulkRoom {
  uint8_t* pieces = nullptr;
  uint64_t* here = nullptr;  ///< a barrier for each piece
  uint32_t brought = 0;      ///< pieces so far
};

/// Whether this thread has pieces where its CTA has.
__device__ inline bool copies_in_bulk() { return threadIdx.x % kWarpgroupThreads == 0; }

/// This thread's part of a CTA's room of kBulkBytes, and of its barriers, which are made.
__device__ inline BulkRoom make_bulk_room(uint8_t* pieces, uint64_t* here) {
  const uint32_t index = threadIdx.x / kWarpgroupThreads;
  if (pieces == nullptr) return {};
  here += index * kBulkPieces;
  if (copies_in_bulk()) {
    for (uint32_t i = 0; i < kBulkPieces; ++i) ptx::barrier_init(&here[i], 1);
    ptx::barrier_init_fence();
  }
  return {pieces + index * kBulkPieces * kBulkPieceBytes, here};
}

/// Whether rows, or a dense whole, are long, and enough bytes to be worth the way through shared memory.
__device__ inline bool bulk_is_worth_it(const BulkRoom& room, int64_t row_bytes, int64_t rows) {
  constexpr int64_t kLeastRow = 1024;
  constexpr int64_t kLeast = 16384;
  return room.pieces != nullptr && row_bytes >= kLeastRow && row_bytes * rows >= kLeast;
}

/// A piece of rows: columns of a long row, or several short rows.
struct BulkPiece {
  uint32_t row;
  int64_t column;  ///< bytes
};

/// Rows to copy, dense or not.
struct BulkRows {
  int64_t bytes;  ///< of a row
  int64_t from_pitch;
  int64_t to_pitch;
  uint32_t count;
  uint32_t per_row;   ///< pieces of a row
  uint32_t together;  ///< rows of a piece

  __device__ BulkRows(int64_t row_bytes, int64_t rows, int64_t from_bytes, int64_t to_bytes)
      : bytes(row_bytes),
        from_pitch(from_bytes),
        to_pitch(to_bytes),
        count(static_cast<uint32_t>(rows)),
        per_row(static_cast<uint32_t>((row_bytes + kBulkPieceBytes - 1) / kBulkPieceBytes)),
        together(kBulkPieceBytes / static_cast<uint32_t>(min(max(row_bytes, int64_t{1}), int64_t{kBulkPieceBytes}))) {}

  [[nodiscard]] __device__ uint32_t pieces() const { return (count + together - 1) / together * per_row; }
  [[nodiscard]] __device__ BulkPiece piece(uint32_t index) const {
    return {index / per_row * together, int64_t{index % per_row} * kBulkPieceBytes};
  }
  [[nodiscard]] __device__ BulkPiece next(BulkPiece piece) const {
    piece.column += kBulkPieceBytes;
    return piece.column < bytes ? piece : BulkPiece{piece.row + together, 0};
  }
  [[nodiscard]] __device__ uint32_t rows(const BulkPiece& piece) const { return min(together, count - piece.row); }
  /// Bytes of each of a piece's rows.
  [[nodiscard]] __device__ uint32_t width(const BulkPiece& piece) const {
    return static_cast<uint32_t>(min(int64_t{kBulkPieceBytes}, bytes - piece.column));
  }
};

/// Where copies go: targets that differ in their address alone.
struct AlikeTargets {
  const TargetRecord* first = nullptr;
  uint32_t count = 0;
};

/// Bring a piece to `place`.
__device__ inline void fetch_piece(const BulkRows& rows, const BulkPiece& piece, const std::byte* from, uint8_t* place,
                                   uint64_t* here) {
  const uint32_t width = rows.width(piece);
  const uint32_t count = rows.rows(piece);
  from += piece.row * rows.from_pitch + piece.column;
  ptx::barrier_arrive_expect(here, width * count);
#pragma unroll 1
  for (uint32_t row = 0; row < count; ++row, place += width, from += rows.from_pitch)
    ptx::bulk_load(place, from, width, here);
}

/// Send it to all targets.
__device__ inline void send_piece(const BulkRows& rows, const BulkPiece& piece, const AlikeTargets& to,
                                  const uint8_t* place) {
  const uint32_t width = rows.width(piece);
  const uint32_t count = rows.rows(piece);
  const int64_t at = piece.row * rows.to_pitch + piece.column;
#pragma unroll 1
  for (uint32_t i = 0; i < to.count; ++i) {
    std::byte* target = to.first[i].data + at;
    const uint8_t* from = place;
#pragma unroll 1
    for (uint32_t row = 0; row < count; ++row, from += width, target += rows.to_pitch)
      ptx::bulk_store(target, from, width);
  }
  ptx::bulk_commit();
}

/// Pieces `first` to `end` of rows, each brought once. Bytes of a row, pitches and addresses are multiples of 16. By a
/// thread that has room; what it reads was acquired; when it returns all is written, and may be posted.
__device__ inline void bulk_copy(BulkRoom& room, const BulkRows& rows, const std::byte* from, const AlikeTargets& to,
                                 uint32_t first, uint32_t end) {
  BulkPiece brings = rows.piece(first);
  BulkPiece sends = brings;
  const uint32_t count = end - first;
  ptx::fence_async();
#pragma unroll 1
  for (uint32_t i = 0; i < count + kBulkAhead; ++i) {
    if (i < count) {
      const uint32_t number = room.brought + i;
      if (number >= kBulkPieces) ptx::bulk_wait_read<kBulkPieces - kBulkAhead - 1>();
      fetch_piece(rows, brings, from, room.pieces + number % kBulkPieces * kBulkPieceBytes,
                  &room.here[number % kBulkPieces]);
      brings = rows.next(brings);
    }
    if (i < kBulkAhead) continue;
    const uint32_t number = room.brought + i - kBulkAhead;
    ptx::barrier_wait(&room.here[number % kBulkPieces], number / kBulkPieces % 2);
    send_piece(rows, sends, to, room.pieces + number % kBulkPieces * kBulkPieceBytes);
    sends = rows.next(sends);
  }
  room.brought += count;
  finish_tensor_stores();
}

}  // namespace tilewire::cuda
