// Layer shapes of known models, for --model.
// Used by the flags of all verbs (options.cpp) and by info.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tilewire::cli {

/// The widths of a transformer layer that decide the shapes of its tensor-parallel operators. Widths are global.
struct Model {
  const char* name;
  int64_t hidden;
  int64_t qkv;        ///< columns of the fused Q, K and V projection
  int64_t attention;  ///< columns of the attention's output: heads x head size
  int64_t ffn;        ///< rows of the down projection (of one expert)
  int64_t up;         ///< columns of the up projection; gate and up together if the FFN is gated
};

/// One operator's sizes in a layer; the caller chooses the number of tokens.
struct LayerShape {
  int64_t n = 0;
  int64_t k = 0;
};

[[nodiscard]] std::span<const Model> models();
/// Throws Error(invalid_input) that lists the known names.
[[nodiscard]] const Model& find_model(const std::string& name);
/// The shapes of an operator by its place in a layer: all_gather_gemm before attention and FFN, gemm_reduce_scatter and
/// gemm_all_reduce after them, all_reduce on the layer's output.
[[nodiscard]] std::vector<LayerShape> layer_shapes(const Model& model, const std::string& op);

}  // namespace tilewire::cli
