// PyTorch's stable C functions that the kernels call, looked up in the libraries that `import torch` has loaded. One
// binary thus serves all releases from 2.10 on, also without CUDA, and the build needs no PyTorch. Used by the other
// files of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tilewire::python {

/// PyTorch's at::Tensor, torch::Library, std::string, list and at::RecordFunction.
struct AtenTensor;
struct TorchLibrary;
struct TorchString;
struct TorchList;
struct TorchRecord;
/// An argument or result of a kernel as PyTorch passes it, and the kernel's type.
using StableValue = uint64_t;
using StableKernel = void (*)(StableValue* stack, uint64_t num_arguments, uint64_t num_outputs);

/// Names and types as in PyTorch's torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h, without the
/// prefixes aoti_torch_ and torch_. A function returns 0, or another number after an exception; PyTorch has printed the
/// exception's text to stderr.
struct TorchShim {
  int32_t (*get_data_ptr)(AtenTensor*, void**);
  int32_t (*get_dim)(AtenTensor*, int64_t*);
  int32_t (*get_sizes)(AtenTensor*, int64_t**);
  int32_t (*get_strides)(AtenTensor*, int64_t**);
  int32_t (*get_dtype)(AtenTensor*, int32_t*);
  int32_t (*get_device_type)(AtenTensor*, int32_t*);
  int32_t (*get_device_index)(AtenTensor*, int32_t*);
  int32_t (*empty_strided)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensor**);
  int32_t (*copy_into)(AtenTensor* to, AtenTensor* from, int32_t non_blocking);
  int32_t (*new_reference)(AtenTensor*, AtenTensor**);
  int32_t (*delete_tensor)(AtenTensor*);
  int32_t (*string_text)(TorchString*, const char**);
  int32_t (*delete_string)(TorchString*);
  int32_t (*new_list)(size_t, TorchList**);
  int32_t (*list_size)(TorchList*, size_t*);
  int32_t (*list_item)(TorchList*, size_t index, StableValue*);
  int32_t (*add_to_list)(TorchList*, StableValue);
  int32_t (*delete_list)(TorchList*);
  int32_t (*new_definitions)(const char* space, const char* file, uint32_t line, TorchLibrary**);
  int32_t (*new_kernels)(const char* space, const char* key, const char* file, uint32_t line, TorchLibrary**);
  int32_t (*define)(TorchLibrary*, const char* schema);
  int32_t (*set_kernel)(TorchLibrary*, const char* name, StableKernel, uint64_t version);
  int32_t (*begin_range)(const char* name, void* keywords, void* const* inputs, uint64_t num_inputs, TorchRecord**);
  int32_t (*end_range)(TorchRecord*);
  /// Null if PyTorch has no CUDA.
  int32_t (*get_current_cuda_stream)(int32_t device, void** stream);
  /// PyTorch's numbers for these devices and types in this release.
  int32_t cpu, cuda, bf16, fp16, fp32, fp8_e4m3, int8, int32;
};

/// A range in torch.profiler, from construction to destruction.
class TorchRange {
 public:
  TorchRange(const TorchShim& shim, const std::string& name) : shim_(shim) {
    if (shim_.begin_range(name.c_str(), nullptr, nullptr, 0, &record_) != 0) record_ = nullptr;
  }
  TorchRange(const TorchRange&) = delete;
  TorchRange& operator=(const TorchRange&) = delete;
  ~TorchRange() {
    if (record_ != nullptr) shim_.end_range(record_);
  }

 private:
  const TorchShim& shim_;
  TorchRecord* record_ = nullptr;
};

/// Look up the functions. Throws Error(unsupported) if PyTorch is not loaded, or with the missing function if PyTorch
/// is older than 2.10.
[[nodiscard]] TorchShim load_torch_shim();

/// Throw Error(internal) with the function's name unless `status` is 0.
void check_torch(int32_t status, const char* function);

}  // namespace tilewire::python
