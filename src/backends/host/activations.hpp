// Activations of rows of fp32 values.
// Called by the tasks of the host backend.
#pragma once

#include <cmath>
#include <cstdint>

#include "tilewire/activation.hpp"

namespace tilewire::host {

inline float silu(float x) { return x / (1.0F + std::exp(-x)); }

/// Activate one row, in place. It has `n` results; a gated activation makes each of two values.
inline void activate(Activation activation, float* values, int64_t n) {
  switch (activation) {
    case Activation::none:
      return;
    case Activation::relu:
      // NOTE: this form keeps NaN.
      for (int64_t i = 0; i < n; ++i) values[i] = values[i] < 0.0F ? 0.0F : values[i];
      return;
    case Activation::gelu:
      for (int64_t i = 0; i < n; ++i) values[i] *= 0.5F * (1.0F + std::erf(values[i] * 0.70710678F));
      return;
    case Activation::silu:
      for (int64_t i = 0; i < n; ++i) values[i] = silu(values[i]);
      return;
    case Activation::swiglu:
      for (int64_t i = 0; i < n; ++i) values[i] = silu(values[i]) * values[n + i];
      return;
    case Activation::swiglu_pairs:
      for (int64_t i = 0; i < n; ++i) values[i] = silu(values[2 * i]) * values[2 * i + 1];
      return;
  }
}

}  // namespace tilewire::host
