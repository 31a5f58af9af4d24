// The state that all kernels of torch.ops.tilewire share.
// Used by operators.cpp and experts.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "torch/teams.hpp"

namespace tilewire::python {

struct TorchLayer {
  TorchShim shim;
  TorchTeams teams;
};

/// The layer, once register_torch has made it.
[[nodiscard]] TorchLayer& torch_layer();

/// PyTorch's current stream of a device, or null for CPUs.
[[nodiscard]] void* stream_of(TorchDevice device);

/// "[2, 3]".
[[nodiscard]] std::string sizes_text(const TorchTensor& x);

/// Run the body of a kernel that PyTorch calls. Its exceptions pass through PyTorch; raise_torch_error finds its Error.
void run_kernel(StableValue* values, const std::function<void(TorchStack&)>& body);

/// An operator with a kernel of its own.
struct TorchKernel {
  std::string name{};
  std::string schema{};
  StableKernel function = nullptr;
};

/// The operators moe and moe_dropping, and those of its steps.
[[nodiscard]] std::vector<TorchKernel> experts_kernels();
/// The operators moe_dispatch, moe_combine, moe_dispatch_gemm and moe_gemm_combine.
[[nodiscard]] std::vector<TorchKernel> expert_steps_kernels();

}  // namespace tilewire::python
