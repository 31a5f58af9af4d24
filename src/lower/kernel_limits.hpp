// What kernels of workers have room for: constants that passes share with them.
// Used by passes and by the cuda backend.
#pragma once

namespace tilewire {

/// Signals to which a kernel can post as it begins.
inline constexpr int kMostPreamblePosts = 16;

}  // namespace tilewire
