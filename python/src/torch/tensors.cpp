// Reads PyTorch's tensors through its C functions.
// Called by torch/operators.cpp.
#include "torch/tensors.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace tilewire::python {

void* TorchTensor::data() const {
  void* data = nullptr;
  check_torch(shim_->get_data_ptr(handle(), &data), "get_data_ptr");
  return data;
}

std::span<const int64_t> TorchTensor::sizes() const {
  int64_t dim = 0;
  int64_t* sizes = nullptr;
  check_torch(shim_->get_dim(handle(), &dim), "get_dim");
  check_torch(shim_->get_sizes(handle(), &sizes), "get_sizes");
  return {sizes, static_cast<size_t>(dim)};
}

std::span<const int64_t> TorchTensor::strides() const {
  int64_t dim = 0;
  int64_t* strides = nullptr;
  check_torch(shim_->get_dim(handle(), &dim), "get_dim");
  check_torch(shim_->get_strides(handle(), &strides), "get_strides");
  return {strides, static_cast<size_t>(dim)};
}

TorchDevice TorchTensor::device() const {
  TorchDevice device;
  check_torch(shim_->get_device_type(handle(), &device.type), "get_device_type");
  check_torch(shim_->get_device_index(handle(), &device.index), "get_device_index");
  return device;
}

int32_t TorchTensor::torch_dtype() const {
  int32_t dtype = 0;
  check_torch(shim_->get_dtype(handle(), &dtype), "get_dtype");
  return dtype;
}

DType TorchTensor::dtype() const {
  const int32_t dtype = torch_dtype();
  if (dtype == shim_->bf16) return DType::bf16;
  if (dtype == shim_->fp16) return DType::fp16;
  if (dtype == shim_->fp8_e4m3) return DType::fp8_e4m3;
  if (dtype == shim_->int8) return DType::int8;
  if (dtype == shim_->int32) return DType::int32;
  require(dtype == shim_->fp32, "a tensor of PyTorch's type {}: want bfloat16, float16 or float32", dtype);
  return DType::fp32;
}

TorchTensor TorchTensor::new_empty(std::span<const int64_t> sizes) const { return new_empty(sizes, torch_dtype()); }

TorchTensor TorchTensor::new_empty(std::span<const int64_t> sizes, int32_t torch_dtype) const {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, sizes[d]);
  }
  const TorchDevice where = device();
  AtenTensor* made = nullptr;
  check_torch(shim_->empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), torch_dtype,
                                   where.type, where.index, &made),
              "empty_strided");
  return {*shim_, made};
}

TorchTensor TorchTensor::copy() const {
  TorchTensor made = new_empty(sizes());
  check_torch(shim_->copy_into(made.handle(), handle(), 0), "copy_");
  return made;
}

std::optional<Tensor> rows_where_they_lie(const TorchTensor& x) {
  const std::span<const int64_t> sizes = x.sizes();
  const std::span<const int64_t> strides = x.strides();
  const size_t last = sizes.size() - 1;
  if (sizes[last] > 1 && strides[last] != 1) return std::nullopt;
  int64_t rows = 1;
  int64_t row_stride = sizes[last];
  // Visit the row dimensions from the innermost outwards: each must continue where the one inside it ends.
  for (size_t d = last; d-- > 0;) {
    if (sizes[d] > 1 && rows > 1 && strides[d] != row_stride * rows) return std::nullopt;
    if (sizes[d] > 1 && rows == 1) row_stride = strides[d];
    rows *= sizes[d];
  }
  if (rows > 1 && row_stride < sizes[last]) return std::nullopt;
  return Tensor{x.data(), x.dtype(), rows, sizes[last], row_stride};
}

TorchMatrix rows_of(const TorchTensor& x) {
  if (const std::optional<Tensor> lies = rows_where_they_lie(x)) return {x, *lies};
  const TorchTensor copy = x.copy();
  return {copy, *rows_where_they_lie(copy)};
}

std::optional<TorchTensor> TorchStack::maybe_tensor() {
  // PyTorch allocates an optional value; the kernel must free it.
  const std::unique_ptr<StableValue> value(reinterpret_cast<StableValue*>(next()));
  if (value == nullptr) return std::nullopt;
  return TorchTensor{*shim_, reinterpret_cast<AtenTensor*>(*value)};
}

std::vector<TorchTensor> TorchStack::maybe_tensors() {
  const std::unique_ptr<StableValue> value(reinterpret_cast<StableValue*>(next()));
  return value == nullptr ? std::vector<TorchTensor>{} : tensors_of(*value);
}

std::vector<TorchTensor> TorchStack::tensors_of(StableValue value) const {
  const std::unique_ptr<TorchList, decltype(shim_->delete_list)> list(reinterpret_cast<TorchList*>(value),
                                                                      shim_->delete_list);
  size_t size = 0;
  check_torch(shim_->list_size(list.get(), &size), "list_size");
  std::vector<TorchTensor> all;
  for (size_t i = 0; i < size; ++i) {
    StableValue item = 0;
    check_torch(shim_->list_item(list.get(), i, &item), "list_get_item");
    all.emplace_back(*shim_, reinterpret_cast<AtenTensor*>(item));
  }
  return all;
}

std::string TorchStack::text() {
  const std::unique_ptr<TorchString, decltype(shim_->delete_string)> string(reinterpret_cast<TorchString*>(next()),
                                                                            shim_->delete_string);
  const char* text = nullptr;
  check_torch(shim_->string_text(string.get(), &text), "string_c_str");
  return text;
}

void TorchStack::give(const std::vector<TorchTensor>& results) {
  TorchList* made = nullptr;
  check_torch(shim_->new_list(results.size(), &made), "new_list_reserve_size");
  std::unique_ptr<TorchList, decltype(shim_->delete_list)> list(made, shim_->delete_list);
  for (const TorchTensor& result : results) check_torch(shim_->add_to_list(made, reference(result)), "list_push_back");
  // NOTE: PyTorch frees the list and its elements.
  values_[given_++] = reinterpret_cast<StableValue>(list.release());
}

void TorchStack::give_or_none(const std::optional<TorchTensor>& result) {
  // NOTE: PyTorch frees it.
  values_[given_++] = result ? reinterpret_cast<StableValue>(new StableValue(reference(*result))) : 0;
}

StableValue TorchStack::reference(const TorchTensor& tensor) const {
  AtenTensor* made = nullptr;
  check_torch(shim_->new_reference(tensor.handle(), &made), "new_tensor_handle");
  return reinterpret_cast<StableValue>(made);
}

}  // namespace tilewire::python
