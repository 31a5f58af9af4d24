// The normalisation of an output's rows.
// Used by problems, which request it, and by plans, whose tasks apply it.
#pragma once

#include <optional>

#include "tilewire/dtype.hpp"

namespace tilewire {

enum class NormKind {
  rms,    ///< row / sqrt(mean of its squares + eps) * weight (torch.nn.functional.rms_norm)
  layer,  ///< (row - mean) / sqrt(variance + eps) * weight + bias (torch.nn.functional.layer_norm)
};

struct Norm {
  NormKind kind = NormKind::rms;
  double eps = 1e-6;
  /// fp8_e4m3 or int8 quantise the normalised rows: the scale of a row is max |row| / largest_of(out_dtype), or 1 for a
  /// row of zeros; elements are row / scale, rounded once. Only of rms. Default: the type of the output.
  std::optional<DType> out_dtype{};

  bool operator==(const Norm&) const = default;
};

[[nodiscard]] inline bool quantises(const Norm& norm) { return norm.out_dtype && is_quantised(*norm.out_dtype); }

}  // namespace tilewire
