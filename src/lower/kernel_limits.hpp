// Limits of worker kernels: constants that passes share with them.
// Used by passes and by the cuda backend.
#pragma once

namespace tilewire {

/// Most posts in the preamble of a kernel.
inline constexpr int kMostPreamblePosts = 16;

}  // namespace tilewire
