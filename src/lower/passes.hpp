// The passes, each in the file of its name. Listed in lower.cpp.
#pragma once

#include <string>

#include "tilewire/spi/lower.hpp"

namespace tilewire::lowering {

/// Copy lanes whose copies are small or in parts, and library lanes without a call that the library takes, become lanes
/// of worker CTAs; the others stay with copy engines and the library.
[[nodiscard]] std::string assign_engines(Plan& plan, const Target& target);
/// Tiles that tensor cores do not take, or not the kernel that makes most of them, get lanes and kernels of their
/// own.
[[nodiscard]] std::string part_slow_tiles(Plan& plan, const Target& target);
/// Tiles load for themselves, not in clusters, on ranks where a pair could wait for ever: what a tile waits for needs a
/// tile, on any rank, near its own place.
[[nodiscard]] std::string unpair_tiles(Plan& plan, const Target& target);
/// Each product that has none gets L2 eviction priorities for A and B.
[[nodiscard]] std::string hint_caches(Plan& plan, const Target& target);
/// Tiles wait for columns of A when their loads come to these, and for what their results alone need with the last one.
[[nodiscard]] std::string defer_waits(Plan& plan, const Target& target);
/// Sums whose last part nobody else reads are completed by the tile that makes it.
[[nodiscard]] std::string fuse_sums(Plan& plan, const Target& target);
/// Tiles that follow each other and agree in an operand are pairs, the others of a cluster's lane load for themselves;
/// CTAs that share K do so where there is room for them.
[[nodiscard]] std::string form_clusters(Plan& plan, const Target& target);
/// Rows of a rank's own input that pools copy only to lie beside other ranks' rows, for tiles, are loaded where they
/// are, and not copied.
[[nodiscard]] std::string take_local_rows(Plan& plan, const Target& target);
/// Finished tiles leave by tensor copies, bulk copies or threads: each write gets a Via.
[[nodiscard]] std::string choose_stores(Plan& plan, const Target& target);
/// One call of the vendor's GEMM by each rank stands between two kernels of a stream: lanes are cut into stages.
[[nodiscard]] std::string stage_gemm_call(Plan& plan, const Target& target);
/// Waits for LL data by those who look at it go, and the posts that nobody else waits for.
[[nodiscard]] std::string elide_signals(Plan& plan, const Target& target);
/// Lanes that move data beside calls of the library, or beside a lane with a kernel of its own, get kernels of their
/// own, which begin when the waits of their first task are over: until then their SMs are free for others.
[[nodiscard]] std::string split_kernels(Plan& plan, const Target& target);
/// Each lane gets its CTAs, of which all are resident at once, and library calls the SMs that they can count on.
[[nodiscard]] std::string share_sms(Plan& plan, const Target& target);

}  // namespace tilewire::lowering
