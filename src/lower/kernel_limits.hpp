// Limits of worker kernels: constants that passes share with them.
// Used by passes and by the cuda backend.
#pragma once

#include "tilewire/dtype.hpp"

namespace tilewire {

/// Most posts in the preamble of a kernel.
inline constexpr int kMostPreamblePosts = 16;

/// The largest tile of the GEMV kernel; columns and K are multiples of kGemvUnit.
inline constexpr int kMostGemvRows = 16;
[[nodiscard]] constexpr int most_gemv_cols(DType dtype) { return dtype == DType::fp32 ? 64 : 128; }
inline constexpr int kGemvUnit = 8;
/// SMs without a tile of it: for sync-only lanes, and for sums where tensors are not aligned.
inline constexpr int kBesideGemv = 4;

/// Most reads or writes of a task with double-buffered LL data: an op has room for so many real addresses.
inline constexpr int kMostDoubleBuffered = 8;

/// Most CTAs that route tokens together.
inline constexpr int kMostRouteCtas = 8;

/// Most columns of a row that one CTA of the kernel of rows has, and most parts of a row with a norm: its CTAs are a
/// cluster.
inline constexpr int kMostPartCols = 16384;
inline constexpr int kMostRowParts = 8;

}  // namespace tilewire
