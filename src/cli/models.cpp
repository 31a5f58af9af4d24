// The table of models, with the sources of their shapes.
// Called by the flags of all verbs (options.cpp) and by info.
#include "cli/models.hpp"

#include <array>

#include "core/text.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cli {
namespace {

// Sources: config.json of the published weights (hidden_size, intermediate_size, heads and key-value heads
// of head_dim columns each), else the paper. qkv = (heads + 2 * key-value heads) * head_dim; up = 2 * ffn for
// gated FFNs.
constexpr std::array kModels{
    // meta-llama/Meta-Llama-3-8B: 32 heads, 8 key-value heads of 128.
    Model{"llama3-8b", 4096, 6144, 4096, 14336, 28672},
    // meta-llama/Meta-Llama-3-70B: 64 heads, 8 key-value heads of 128.
    Model{"llama3-70b", 8192, 10240, 8192, 28672, 57344},
    // meta-llama/Llama-3.1-405B: 128 heads, 8 key-value heads of 128.
    Model{"llama3-405b", 16384, 18432, 16384, 53248, 106496},
    // meta-llama/Llama-2-70b: 64 heads, 8 key-value heads of 128.
    Model{"llama2-70b", 8192, 10240, 8192, 28672, 57344},
    // Brown et al. 2020, table 2.1: 96 heads of 128, FFN 4 x hidden, no gate.
    Model{"gpt3-175b", 12288, 36864, 12288, 49152, 49152},
    // mistralai/Mixtral-8x7B: 32 heads, 8 key-value heads of 128; ffn of one expert.
    Model{"mixtral-8x7b", 4096, 6144, 4096, 14336, 28672},
    // Qwen/Qwen2.5-72B: 64 heads, 8 key-value heads of 128.
    Model{"qwen2.5-72b", 8192, 10240, 8192, 29568, 59136},
    // Qwen/Qwen3-32B: 64 heads, 8 key-value heads of 128, so attention is wider than hidden.
    Model{"qwen3-32b", 5120, 10240, 8192, 25600, 51200},
    // Shoeybi et al. 2019 (hidden 3072), FFN 4 x hidden, no gate.
    Model{"mega-gpt-2", 3072, 9216, 3072, 12288, 12288},
    // Microsoft 2020: hidden 4256, FFN 4 x hidden, no gate.
    Model{"t-nlg", 4256, 12768, 4256, 17024, 17024},
};

}  // namespace

std::span<const Model> models() { return kModels; }

const Model& find_model(const std::string& name) {
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  fail(ErrorKind::invalid_input, "unknown model '{}'; known: {}", name, known);
}

std::vector<LayerShape> layer_shapes(const Model& model, const std::string& op) {
  const Structure& structure = find_operator(op).structure;
  if (!structure.multiplies) return {{model.hidden, 0}};
  // A layer's half ends with an operator that sums or returns rows to their owners; it begins with one that gathers or
  // exchanges columns.
  const bool sums = structure.after == Collective::reduce_scatter || structure.after == Collective::all_reduce;
  if (sums || has_own_b(structure)) return {{model.hidden, model.attention}, {model.hidden, model.ffn}};
  return {{model.qkv, model.hidden}, {model.up, model.hidden}};
}

}  // namespace tilewire::cli
