// What the kernels of mixture of experts share.
// Used by experts.cpp and expert_steps.cpp.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "torch/layer.hpp"

namespace tilewire::python {

using NamedTensor = std::pair<const TorchTensor*, const char*>;

/// Throw Error(invalid_input) unless a tensor has these sizes.
void require_sizes(const TorchTensor& tensor, const char* name, const std::vector<int64_t>& wanted);
/// The same unless tokens, their experts and weights fit together, on one device.
void require_routed(const TorchTensor& x, const TorchTensor& ids, const TorchTensor& weights);
/// The same unless it has so many dimensions.
void require_dimensions(const TorchTensor& tensor, const char* name, size_t wanted);
/// The same unless weights are of x's type and on its device.
void require_weights(const TorchTensor& x, std::span<const NamedTensor> weights);
/// Weights where they lie: a copy would take as much memory, in every call.
[[nodiscard]] TorchMatrix weights_of(const NamedTensor& weights);
/// The views of matrices.
[[nodiscard]] std::vector<Tensor> views_of(const std::vector<TorchMatrix>& matrices);

}  // namespace tilewire::python
