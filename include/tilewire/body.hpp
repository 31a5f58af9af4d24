// Compute bodies and their parameters.
// Used by plans; core/bodies.hpp has the table of their properties.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/dtype.hpp"
#include "tilewire/norm.hpp"

namespace tilewire {

enum class Body {
  gemm,          ///< reads[0] = A [M,K]; reads[1] = B in `GemmParams::b_layout`; reads[2...] = rows of A below reads[0]
  pool,          ///< reads[0] = table; reads[1] = int32 indices, one row of them per row of the result; -1 ends a row.
                 ///< reads[2], if any = fp32 weights of the listed rows
  norm,          ///< reads[0] = rows; reads[1] = weight, one row; reads[2] = bias, one row, of NormKind::layer
  route,         ///< reads[0] = int32 experts of each token; reads[1] = their fp32 weights; see RouteParams
  grouped_gemm,  ///< reads[0] = groups of A; reads[1] = a B for each group, one below the other; Task::activation
  select,        ///< reads[0] = rows; reads[1] = an int32 list for each row. Rows whose list begins with -1 are not
                 ///< written: these rows of the destination stay undefined
};

/// A group of tokens: those of an expert, or of a replica of an expert. Experts from RouteParams::experts on are
/// shared.
struct ExpertGroup {
  int64_t expert = 0;
  int64_t replica =
      0;  ///< takes tokens t with t % replicas == replica; of a shared expert: all tokens of this shard of
  int64_t replicas = 1;  ///< so many (`shard_of`)

  bool operator==(const ExpertGroup&) const = default;
};

/// How `route` makes groups of tokens: for each shard of the tokens (`shard_of`) the `groups`, those of the first shard
/// first. Its writes are, in this order, all int32 but the weights:
/// - extents, 2 x groups: the first row and the end of each group, in the memory of grouped buffers (Buffer::extents).
///   In memory the shards of a group follow each other;
/// - tokens, a grouped buffer of one column: the number of the token of each row, counted from the shard's first token,
///   ascending in each group;
/// - places, tokens x (k + shared groups): the rows of a token, in the order of the groups; -1 after the last;
/// - weights, of the same shape: the weights of these rows, fp32; of a shared expert 1;
/// - if `drops`: the number of rows that were left out, 1 x 1.
struct RouteParams {
  std::vector<ExpertGroup> groups{};
  int64_t first_group = 0;  ///< number of the first of these groups among those of all ranks
  int64_t experts = 0;      ///< a token's experts are below it; others are an error
  int64_t align = 1;        ///< groups begin at multiples of so many rows
  int64_t shards = 1;       ///< of the tokens
  /// Most rows of the groups, those of shared experts apart; 0 = any number. Rows in the order of the tokens, then of
  /// the groups; further ones are an error, or if `drops` they are left out and counted.
  int64_t max_rows = 0;
  bool drops = false;
  /// The tokens that each expert is expected to take, relative to the others; empty: equal numbers. For estimates only.
  std::vector<double> load{};

  bool operator==(const RouteParams&) const = default;
};

/// L2 eviction priority of the lines that a tile loads.
enum class CacheHint {
  automatic,  ///< the backend's choice
  none,
  evict_first,
  evict_normal,
};

/// How a product is computed, by `gemm_call` or by `compute` with the bodies gemm and grouped_gemm.
struct GemmParams {
  BLayout b_layout = BLayout::nk;
  bool allow_tf32 = false;  ///< the library may round fp32 operands to TF32
  int64_t tile_m = 128;     ///< rows and columns of the kernel's tile; the result may be smaller
  int64_t tile_n = 256;
  int cluster_m = 1;  ///< CTAs that share loads of B (cluster_m) and of A (cluster_n)
  int cluster_n = 1;
  int cluster_split_k = 1;  ///< CTAs of a cluster that make one tile, each over a part of K
  CacheHint a_hint = CacheHint::automatic;
  CacheHint b_hint = CacheHint::automatic;

  bool operator==(const GemmParams&) const = default;
};

}  // namespace tilewire
