// Activations of experts, between their two products.
// Used by problems, which request them, and by plans, whose grouped GEMMs apply them.
#pragma once

namespace tilewire {

enum class Activation {
  none,
  relu,
  gelu,
  silu,
  swiglu,        ///< silu(gate) * up: the first half of the columns are the gate, the second half up
  swiglu_pairs,  ///< the same; columns 2i and 2i + 1 are gate and up
};

/// Whether an activation makes one column of two.
[[nodiscard]] constexpr bool is_gated(Activation activation) {
  return activation == Activation::swiglu || activation == Activation::swiglu_pairs;
}

}  // namespace tilewire
