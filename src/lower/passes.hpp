// The passes, each in the file of its name. Listed in lower.cpp.
#pragma once

#include <string>

#include "tilewire/spi/lower.hpp"

namespace tilewire::lowering {

/// Assign SMs (worker CTAs) to copy lanes with small or partial copies, and to library lanes that the library does not
/// take. Other copy and library lanes keep their engine.
[[nodiscard]] std::string assign_engines(Plan& plan, const Target& target);
/// Make grouped GEMMs stream-ordered: stages for routing and groups, for the products, and for the sums of experts.
[[nodiscard]] std::string stage_experts(Plan& plan, const Target& target);
/// Give buffers of local workspace the memory of buffers that only earlier stages use.
[[nodiscard]] std::string reuse_memory(Plan& plan, const Target& target);
/// Give tiles that tensor cores do not take, or that need another kernel than most tiles, lanes and kernels of their
/// own.
[[nodiscard]] std::string part_slow_tiles(Plan& plan, const Target& target);
/// Set cluster_m and cluster_n to 1 on ranks where a pair of tiles could wait for ever: a tile waits for a post that
/// needs a tile near its own position, on any rank.
[[nodiscard]] std::string unpair_tiles(Plan& plan, const Target& target);
/// Set L2 eviction priorities of A and B for products that have none.
[[nodiscard]] std::string hint_caches(Plan& plan, const Target& target);
/// Let tiles wait for columns of A at the first load that needs them, and for ready handshakes at the last load.
[[nodiscard]] std::string defer_waits(Plan& plan, const Target& target);
/// Let the tile that makes the last partial of a sum complete the sum, if no other task reads that partial.
[[nodiscard]] std::string fuse_sums(Plan& plan, const Target& target);
/// Form pairs of neighbouring tiles with a common operand; other tiles of such lanes load alone. Keep cluster split-K
/// if there is room for its CTAs.
[[nodiscard]] std::string form_clusters(Plan& plan, const Target& target);
/// Let tiles load a rank's own rows of A from the input, and drop the copies that only put them beside other ranks'
/// rows.
[[nodiscard]] std::string take_local_rows(Plan& plan, const Target& target);
/// Set Write::via of each tile: tensor copies, bulk copies or threads.
[[nodiscard]] std::string choose_stores(Plan& plan, const Target& target);
/// Make a rank's only library GEMM stream-ordered: cut its lanes into stages before, at and after the call.
[[nodiscard]] std::string stage_gemm_call(Plan& plan, const Target& target);
/// Remove waits for LL data by tasks that poll them, and posts that no other task waits for.
[[nodiscard]] std::string elide_signals(Plan& plan, const Target& target);
/// Give LL data two copies, which calls use in turn, and drop the ready handshakes before them, if each rank gets LL
/// data from all ranks.
[[nodiscard]] std::string double_buffer(Plan& plan, const Target& target);
/// Cut sums of LL data by rows where norms follow; in the sums' lane each sum of whole rows is followed by their norm.
[[nodiscard]] std::string sum_whole_rows(Plan& plan, const Target& target);
/// Let the CTAs that make tiles of few rows, or copy parts of rows, also sum and normalise these columns, where a rank
/// has tiles or copies, their sums by LL data, norms of these or none, and nothing else: the GEMV kernel, the kernel of
/// rows.
[[nodiscard]] std::string join_sums(Plan& plan, const Target& target);
/// Give data lanes beside library calls, or beside a lane with its own kernel, kernels of their own. Such a kernel
/// starts when the waits of its first task are over, and holds no SMs before.
[[nodiscard]] std::string split_kernels(Plan& plan, const Target& target);
/// Set the CTAs of each lane, all resident at once, and the SMs that library calls can count on.
[[nodiscard]] std::string share_sms(Plan& plan, const Target& target);

}  // namespace tilewire::lowering
