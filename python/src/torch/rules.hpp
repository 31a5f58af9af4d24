// The table of the operators of torch.ops.tilewire: their arguments, sizes over ranks, and results.
// Used by torch/operators.cpp.
#pragma once

#include <array>
#include <string>

namespace tilewire::python {

/// Optional arguments of an operator, besides x, b and the group.
struct TorchOptions {
  bool norm = false;       ///< also returns the normalised rows of y
  bool quantised = false;  ///< of fp8 or int8, with a scale for each row
  bool bias = false;
  bool residual = false;
  bool activation = false;
  bool average = false;
  bool gather = false;
  bool repeatable = false;
  bool allow_tf32 = false;
};

/// x is [rows, depth] on one rank, b is [depth, cols].
struct TorchRule {
  const char* name = "";      ///< name in torch.ops.tilewire
  const char* op = "";        ///< name of tilewire's operator
  bool product = true;        ///< multiplies x by b; if not, x alone, and cols are its columns
  bool several = false;       ///< lists of b, bias and y: one product per b
  bool m_by_ranks = false;    ///< m = rows x ranks; if not, m = rows
  bool n_by_ranks = false;    ///< the same for n and cols
  bool k_by_ranks = false;    ///< the same for k and depth
  bool keeps_rows = false;    ///< y has all m rows; if not, this rank's shard, or its blocks of all ranks' rows
  bool keeps_cols = false;    ///< y has all n columns; if not, this rank's shard
  bool gathers_cols = false;  ///< x has a shard of the depth of b
  TorchOptions options{};
};

// clang-format off
inline constexpr std::array kTorchRules{
    TorchRule{.name = "all_gather_matmul", .op = "all_gather_gemm", .m_by_ranks = true, .n_by_ranks = true, .keeps_rows = true,
              .options = {.bias = true, .activation = true, .gather = true, .allow_tf32 = true}},
    TorchRule{.name = "all_gather_cols_matmul", .op = "all_gather_cols_gemm", .n_by_ranks = true, .k_by_ranks = true, .keeps_rows = true, .gathers_cols = true,
              .options = {.bias = true, .activation = true, .gather = true, .allow_tf32 = true}},
    TorchRule{.name = "all_gather_matmuls", .op = "all_gather_gemm", .several = true, .m_by_ranks = true, .n_by_ranks = true, .keeps_rows = true,
              .options = {.bias = true, .activation = true, .gather = true, .allow_tf32 = true}},
    TorchRule{.name = "all_gather_cols_matmuls", .op = "all_gather_cols_gemm", .several = true, .n_by_ranks = true, .k_by_ranks = true, .keeps_rows = true, .gathers_cols = true,
              .options = {.bias = true, .activation = true, .gather = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_reduce_scatter", .op = "gemm_reduce_scatter", .k_by_ranks = true, .keeps_cols = true,
              .options = {.bias = true, .residual = true, .activation = true, .average = true, .repeatable = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_reduce_scatter_cols", .op = "gemm_reduce_scatter_cols", .k_by_ranks = true, .keeps_rows = true,
              .options = {.bias = true, .residual = true, .activation = true, .average = true, .repeatable = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_all_reduce", .op = "gemm_all_reduce", .k_by_ranks = true, .keeps_rows = true, .keeps_cols = true,
              .options = {.bias = true, .residual = true, .activation = true, .repeatable = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_all_reduce_norm", .op = "gemm_all_reduce", .k_by_ranks = true, .keeps_rows = true, .keeps_cols = true,
              .options = {.norm = true, .bias = true, .residual = true, .activation = true, .repeatable = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_all_reduce_norm_quantised", .op = "gemm_all_reduce", .k_by_ranks = true, .keeps_rows = true, .keeps_cols = true,
              .options = {.norm = true, .quantised = true, .bias = true, .residual = true, .activation = true, .repeatable = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_all_to_all", .op = "gemm_all_to_all", .m_by_ranks = true, .keeps_rows = true,
              .options = {.bias = true, .activation = true, .allow_tf32 = true}},
    TorchRule{.name = "matmul_all_to_all_rows", .op = "gemm_all_to_all_rows", .m_by_ranks = true, .keeps_cols = true,
              .options = {.bias = true, .activation = true, .allow_tf32 = true}},
    TorchRule{.name = "all_reduce", .op = "all_reduce", .product = false, .keeps_rows = true, .keeps_cols = true, .options = {.repeatable = true}},
    TorchRule{.name = "all_reduce_norm", .op = "all_reduce", .product = false, .keeps_rows = true, .keeps_cols = true,
              .options = {.norm = true, .residual = true, .repeatable = true}},
    TorchRule{.name = "all_reduce_norm_quantised", .op = "all_reduce", .product = false, .keeps_rows = true, .keeps_cols = true,
              .options = {.norm = true, .quantised = true, .residual = true, .repeatable = true}},
};
// clang-format on

/// The schema in PyTorch's syntax. `out`: of the variant that writes into given tensors.
[[nodiscard]] std::string schema_of(const TorchRule& rule, bool out);

}  // namespace tilewire::python
