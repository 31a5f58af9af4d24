// The normalisation of an output's rows.
// Used by problems, which request it, and by plans, whose tasks apply it.
#pragma once

namespace tilewire {

enum class NormKind {
  rms,    ///< row / sqrt(mean of its squares + eps) * weight (torch.nn.functional.rms_norm)
  layer,  ///< (row - mean) / sqrt(variance + eps) * weight + bias (torch.nn.functional.layer_norm)
};

struct Norm {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;

  bool operator==(const Norm&) const = default;
};

}  // namespace tilewire
