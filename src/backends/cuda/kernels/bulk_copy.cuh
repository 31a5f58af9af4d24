// Copies through shared memory by cp.async.bulk: one thread of a warpgroup issues them and keeps many in flight.
// Used by copy_op.cuh.
#pragma once

#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

inline constexpr uint32_t kBulkPieces = 8;         // buffers of an issuing thread in shared memory
inline constexpr uint32_t kBulkAhead = 5;          // of these, those being loaded; the others are being stored
inline constexpr uint32_t kBulkPieceBytes = 8192;  // of a buffer
inline constexpr uint32_t kBulkBytes = kMostWarpgroups * kBulkPieces * kBulkPieceBytes;

/// The buffers of an issuing thread; none: all threads copy by loads and stores. The first thread of every
/// kWarpgroupThreads issues. NOTE: one thread takes 60 to 110 ns to issue a load or store; one thread per CTA would not
/// keep the copy hardware busy.
struct BulkRoom {
  uint8_t* pieces = nullptr;
  uint64_t* here = nullptr;  ///< one mbarrier for each buffer
  uint32_t brought = 0;      ///< number of pieces loaded so far
};

/// Whether this thread issues bulk copies in a CTA that has buffers.
__device__ inline bool copies_in_bulk() { return threadIdx.x % kWarpgroupThreads == 0; }

/// This thread's part of a CTA's kBulkBytes of buffers and of its mbarriers. Initialises these mbarriers.
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

/// Whether the rows (or the one row of a dense copy) and the bytes are enough for a copy through shared memory.
__device__ inline bool bulk_is_worth_it(const BulkRoom& room, int64_t row_bytes, int64_t rows) {
  constexpr int64_t kLeastRow = 1024;
  constexpr int64_t kLeast = 16384;
  return room.pieces != nullptr && row_bytes >= kLeastRow && row_bytes * rows >= kLeast;
}

/// A piece of a copy, at most kBulkPieceBytes: columns of one long row, or several short rows.
struct BulkPiece {
  uint32_t row;
  int64_t column;  ///< bytes
};

/// The rows of a copy, dense or with a pitch.
struct BulkRows {
  int64_t bytes;  ///< of a row
  int64_t from_pitch;
  int64_t to_pitch;
  uint32_t count;
  uint32_t per_row;   ///< pieces in a row
  uint32_t together;  ///< rows in a piece

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
  /// Bytes of each row of a piece.
  [[nodiscard]] __device__ uint32_t width(const BulkPiece& piece) const {
    return static_cast<uint32_t>(min(int64_t{kBulkPieceBytes}, bytes - piece.column));
  }
};

/// Targets of a copy that differ only in their address.
struct AlikeTargets {
  const TargetRecord* first = nullptr;
  uint32_t count = 0;
};

/// Load a piece into buffer `place`.
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

/// Store the piece to all targets.
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

/// Copy pieces `first` to `end`; each is loaded once for all targets. Row bytes, pitches and addresses are multiples of
/// 16. The caller is an issuing thread that has acquired the source. At return all writes are complete: it may post.
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
