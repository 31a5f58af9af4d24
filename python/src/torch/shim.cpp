// Finds PyTorch's stable C functions.
// Called by torch/operators.cpp.
#include "torch/shim.hpp"

#include <dlfcn.h>

#include "core/text.hpp"

namespace tilewire::python {
namespace {

/// Look up a function of a loaded library; null if it is missing.
template <class Function>
void find(void* library, const char* name, Function& function) {
  function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

template <class Function>
void require_function(void* library, const char* name, Function& function) {
  find(library, name, function);
  if (function == nullptr) {
    fail(ErrorKind::unsupported, "this PyTorch has no {}: tilewire.torch needs PyTorch 2.10 or newer", name);
  }
}

int32_t number(void* library, const char* name) {
  int32_t (*get)() = nullptr;
  require_function(library, name, get);
  return get();
}

}  // namespace

TorchShim load_torch_shim() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (torch == nullptr)
    fail(ErrorKind::unsupported, "libtorch_cpu.so is not loaded: import torch before tilewire.torch");
  TorchShim shim{};
  require_function(torch, "aoti_torch_get_data_ptr", shim.get_data_ptr);
  require_function(torch, "aoti_torch_get_dim", shim.get_dim);
  require_function(torch, "aoti_torch_get_sizes", shim.get_sizes);
  require_function(torch, "aoti_torch_get_strides", shim.get_strides);
  require_function(torch, "aoti_torch_get_dtype", shim.get_dtype);
  require_function(torch, "aoti_torch_get_device_type", shim.get_device_type);
  require_function(torch, "aoti_torch_get_device_index", shim.get_device_index);
  require_function(torch, "aoti_torch_empty_strided", shim.empty_strided);
  require_function(torch, "aoti_torch_copy_", shim.copy_into);
  require_function(torch, "aoti_torch_new_tensor_handle", shim.new_reference);
  require_function(torch, "aoti_torch_delete_tensor_object", shim.delete_tensor);
  require_function(torch, "torch_string_c_str", shim.string_text);
  require_function(torch, "torch_delete_string", shim.delete_string);
  require_function(torch, "torch_new_list_reserve_size", shim.new_list);
  require_function(torch, "torch_list_size", shim.list_size);
  require_function(torch, "torch_list_get_item", shim.list_item);
  require_function(torch, "torch_list_push_back", shim.add_to_list);
  require_function(torch, "torch_delete_list", shim.delete_list);
  require_function(torch, "aoti_record_function_start", shim.begin_range);
  require_function(torch, "aoti_record_function_end", shim.end_range);
  require_function(torch, "aoti_torch_library_init_def", shim.new_definitions);
  require_function(torch, "aoti_torch_library_init_impl", shim.new_kernels);
  require_function(torch, "aoti_torch_library_def", shim.define);
  require_function(torch, "torch_library_impl", shim.set_kernel);
  find(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD), "aoti_torch_get_current_cuda_stream",
       shim.get_current_cuda_stream);
  shim.cpu = number(torch, "aoti_torch_device_type_cpu");
  shim.cuda = number(torch, "aoti_torch_device_type_cuda");
  shim.bf16 = number(torch, "aoti_torch_dtype_bfloat16");
  shim.fp16 = number(torch, "aoti_torch_dtype_float16");
  shim.fp32 = number(torch, "aoti_torch_dtype_float32");
  shim.fp8_e4m3 = number(torch, "aoti_torch_dtype_float8_e4m3fn");
  shim.int8 = number(torch, "aoti_torch_dtype_int8");
  shim.int32 = number(torch, "aoti_torch_dtype_int32");
  return shim;
}

void check_torch(int32_t status, const char* function) {
  if (status != 0) fail(ErrorKind::internal, "PyTorch's {} failed; it has said why on stderr", function);
}

}  // namespace tilewire::python
