// The op `copy` of worker CTAs: the same bytes to one or several targets, by threads or by bulk copies.
// Used by ops.cuh.
#pragma once

#include "backends/cuda/kernels/bulk_copy.cuh"
#include "backends/cuda/kernels/elements.cuh"

namespace tilewire::cuda {

/// Part `index` of `count` equal parts of an op, and this thread's number among the threads that execute the part.
struct Slice {
  uint32_t index = 0;
  uint32_t count = 1;
  uint32_t thread = 0;
  uint32_t threads = 1;

  [[nodiscard]] __device__ uint64_t begin(uint64_t total) const { return total * index / count; }
  [[nodiscard]] __device__ uint64_t end(uint64_t total) const { return total * (index + 1) / count; }
};

/// Whether rows of `ld` elements can be accessed in aligned units of 16 bytes from `data`.
__device__ inline bool in_eights(const void* data, int64_t ld, DType dtype, int rows) {
  const bool rows_fit = rows <= 1 || ld * element_bytes(dtype) % 16 == 0;
  return reinterpret_cast<uint64_t>(data) % 16 == 0 && rows_fit;
}

/// Copy in units of 16 bytes. Each warp takes pieces of one row, or of eight narrow rows. A dense copy is one long row.
/// NOTE: keep this code short: before a short copy, a CTA fetches it from memory.
__device__ inline void copy_vectors(const SourceRecord& from, const AlikeTargets& all, int64_t row_bytes,
                                    const Slice& slice) {
  constexpr uint32_t kInFlight = 8;  // loads in flight per thread
  const TargetRecord& to = *all.first;
  const int64_t from_pitch = from.ld * element_bytes(from.dtype);
  const int64_t to_pitch = to.ld * element_bytes(to.dtype);
  const bool dense = from_pitch == row_bytes && to_pitch == row_bytes;
  const auto rows = static_cast<uint32_t>(dense ? 1 : to.rows);
  const auto per_row = static_cast<uint32_t>((dense ? row_bytes * to.rows : row_bytes) / 16);
  const bool narrow = per_row < 32 * kInFlight;
  const uint32_t tall = narrow ? kInFlight : 1;
  const uint32_t wide = narrow ? 32 : 32 * kInFlight;
  const uint32_t pieces = (per_row + wide - 1) / wide;  // in a row
  const uint64_t total = uint64_t{pieces} * ((rows + tall - 1) / tall);
  const auto end = static_cast<uint32_t>(slice.end(total));
  auto piece = static_cast<uint32_t>(slice.begin(total)) + slice.thread / 32;
#pragma unroll 1
  for (; piece < end; piece += slice.threads / 32) {
    const uint32_t row = piece / pieces * tall;
    const uint32_t col = piece % pieces * wide + slice.thread % 32;
    const std::byte* source = from.data + (to.first_row + row) * from_pitch + int64_t{col} * 16;
    const int64_t at = row * to_pitch + int64_t{col} * 16;
    const auto is_here = [&](uint32_t i) { return narrow ? row + i < rows && col < per_row : col + 32 * i < per_row; };
    uint4 words[kInFlight];
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i) {
      if (is_here(i)) words[i] = *reinterpret_cast<const uint4*>(source + i * (narrow ? from_pitch : 512));
    }
#pragma unroll 1
    for (uint32_t each = 0; each < all.count; ++each) {
      std::byte* target = all.first[each].data + at;
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) {
        if (is_here(i)) *reinterpret_cast<uint4*>(target + i * (narrow ? to_pitch : 512)) = words[i];
      }
    }
  }
}

/// Whether the op moves unchanged bytes, in units of 16.
__device__ inline bool copies_vectors(const WorkerTable& table, const OpRecord& step) {
  const SourceRecord& from = table.sources[step.first_source];
  const int64_t row_bytes = int64_t{step.cols} * element_bytes(from.dtype);
  bool vectors = !step.polls && step.num_epilogue == 0 && row_bytes % 16 == 0 &&
                 in_eights(from.data, from.ld, from.dtype, step.rows);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets; ++i) {
    const TargetRecord& to = table.targets[step.first_target + i];
    vectors = vectors && to.mode == StoreMode::store && to.dtype == from.dtype &&
              in_eights(to.data, to.ld, to.dtype, to.rows);
  }
  return vectors;
}

/// The rows of a copy; one long row if source and target are dense.
__device__ inline BulkRows rows_to_copy(const SourceRecord& from, const TargetRecord& to, int64_t row_bytes) {
  const int64_t from_pitch = from.ld * element_bytes(from.dtype);
  const int64_t to_pitch = to.ld * element_bytes(to.dtype);
  if (from_pitch != row_bytes || to_pitch != row_bytes) return {row_bytes, to.rows, from_pitch, to_pitch};
  return {row_bytes * to.rows, to.rows > 0 ? 1 : 0, from_pitch, to_pitch};
}

/// The first target, and those directly after it that differ from it only in their address.
__device__ inline AlikeTargets targets_alike(const TargetRecord* targets, uint32_t count) {
  uint32_t alike = 1;
  while (alike < count && targets[alike].ld == targets->ld && targets[alike].rows == targets->rows &&
         targets[alike].first_row == targets->first_row) {
    ++alike;
  }
  return {targets, alike};
}

__device__ inline void copy_op(const WorkerTable& table, const OpRecord& step, const Slice& slice, BulkRoom& room) {
  const SourceRecord& from = table.sources[step.first_source];
  const int64_t row_bytes = int64_t{step.cols} * element_bytes(from.dtype);
#pragma unroll 1
  for (uint32_t i = 0; i < step.num_targets;) {
    const AlikeTargets to = targets_alike(table.targets + step.first_target + i, step.num_targets - i);
    const BulkRows rows = rows_to_copy(from, *to.first, row_bytes);
    i += to.count;
    if (!bulk_is_worth_it(room, rows.bytes, rows.count)) {
      copy_vectors(from, to, row_bytes, slice);
    } else if (copies_in_bulk()) {
      const uint32_t warpgroups = slice.threads / kWarpgroupThreads;
      const Slice mine{slice.index * warpgroups + slice.thread / kWarpgroupThreads, slice.count * warpgroups};
      bulk_copy(room, rows, from.data + to.first->first_row * rows.from_pitch, to,
                static_cast<uint32_t>(mine.begin(rows.pieces())), static_cast<uint32_t>(mine.end(rows.pieces())));
    }
  }
}

}  // namespace tilewire::cuda
