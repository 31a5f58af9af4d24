// Limits of worker kernels: constants that passes share with them.
// Used by passes and by the cuda backend.
#pragma once

namespace tilewire {

/// Most posts in the preamble of a kernel.
inline constexpr int kMostPreamblePosts = 16;

/// The largest tile of the GEMV kernel; columns and K are multiples of kGemvUnit.
inline constexpr int kMostGemvRows = 16;
inline constexpr int kMostGemvCols = 128;
inline constexpr int kGemvUnit = 8;
/// SMs without a tile of it: for sync-only lanes, and for sums where tensors are not aligned.
inline constexpr int kBesideGemv = 4;

/// Most columns of a row that one CTA sums or normalises: a row, weight and bias lie in its shared memory.
inline constexpr int kMostRowCols = 16384;

}  // namespace tilewire
