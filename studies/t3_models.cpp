// The models of T3's Table 2 and the GEMMs of their layers that an all-reduce follows.
// Called by t3_study.cpp, t3_verb.cpp and tests.
#include "core/text.hpp"
#include "studies/t3.hpp"

namespace tilewire {
namespace {

// Widths relative to `hidden`.
constexpr int64_t kFeedForward = 4;
constexpr int64_t kQkv = 3;

int64_t widths_of(SubLayerKind kind) {
  switch (kind) {
    case SubLayerKind::output_projection:
      return 1;
    case SubLayerKind::fc2:
    case SubLayerKind::fc1:
      return kFeedForward;
    case SubLayerKind::input_projection:
      return kQkv;
  }
  fail(ErrorKind::internal, "SubLayerKind {} has no width", static_cast<int>(kind));
}

}  // namespace

// NOTE: the paper's "12K" is 12 x 1024: then 12 layers hidden^2 is the known size of the model.
const std::vector<T3Model>& t3_models() {
  static const std::vector<T3Model> models{
      {.name = "Mega-GPT-2", .hidden = 3072, .layers = 74, .tokens = 16384, .sequence = 1024, .tp = {8, 16}},
      {.name = "T-NLG", .hidden = 4256, .layers = 78, .tokens = 8192, .sequence = 1024, .tp = {8, 16}},
      {.name = "GPT-3", .hidden = 12288, .layers = 96, .tokens = 2048, .sequence = 1024, .tp = {32}},
      {.name = "PALM", .hidden = 18432, .layers = 118, .tokens = 2048, .sequence = 1024, .tp = {32}},
      {.name = "MT-NLG", .hidden = 20480, .layers = 105, .tokens = 2048, .sequence = 1024, .tp = {32}},
  };
  return models;
}

std::vector<SubLayer> sub_layers_of(const T3Model& model, int tp) {
  require(tp >= 1, "{}: tp = {} is below 1", model.name, tp);
  std::vector<SubLayer> layers;
  for (const SubLayerKind kind :
       {SubLayerKind::output_projection, SubLayerKind::fc2, SubLayerKind::fc1, SubLayerKind::input_projection}) {
    const int64_t k = widths_of(kind) * model.hidden;
    require(k % tp == 0, "{}: tp = {} does not divide {}, the K of {}", model.name, tp, k, short_name(kind));
    layers.push_back({.model = model.name, .kind = kind, .tp = tp, .m = model.tokens, .n = model.hidden, .k = k / tp});
  }
  return layers;
}

std::string short_name(SubLayerKind kind) {
  switch (kind) {
    case SubLayerKind::output_projection:
      return "OP";
    case SubLayerKind::fc2:
      return "FC-2";
    case SubLayerKind::fc1:
      return "FC-1";
    case SubLayerKind::input_projection:
      return "IP";
  }
  fail(ErrorKind::internal, "SubLayerKind {} has no name", static_cast<int>(kind));
}

}  // namespace tilewire
