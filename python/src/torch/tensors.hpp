// PyTorch's tensors as kernels hold and read them, and the stack on which PyTorch passes them.
// Used by torch/operators.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/tilewire.hpp"
#include "torch/shim.hpp"

namespace tilewire::python {

/// What PyTorch calls a device.
struct TorchDevice {
  int32_t type = 0;
  int32_t index = 0;

  bool operator==(const TorchDevice&) const = default;
};

/// A tensor of PyTorch, held until its last copy goes.
class TorchTensor {
 public:
  TorchTensor(const TorchShim& shim, AtenTensor* handle)
      : shim_(&shim), handle_(handle, [&shim](AtenTensor* it) { shim.delete_tensor(it); }) {}

  [[nodiscard]] AtenTensor* handle() const { return handle_.get(); }
  [[nodiscard]] void* data() const;
  [[nodiscard]] std::span<const int64_t> sizes() const;
  [[nodiscard]] std::span<const int64_t> strides() const;
  [[nodiscard]] TorchDevice device() const;
  /// Number of PyTorch's, and the type that it is; Error(invalid_input) where tilewire has none such.
  [[nodiscard]] int32_t torch_dtype() const;
  [[nodiscard]] DType dtype() const;
  /// A dense one of these sizes, of the same type and on the same device, undefined at first.
  [[nodiscard]] TorchTensor new_empty(std::span<const int64_t> sizes) const;
  /// The same elements, dense.
  [[nodiscard]] TorchTensor copy() const;
  [[nodiscard]] const TorchShim& shim() const { return *shim_; }

 private:
  const TorchShim* shim_;
  std::shared_ptr<AtenTensor> handle_;
};

/// A matrix, and the tensor that has its memory.
struct TorchMatrix {
  TorchTensor owner;
  Tensor view{};
};

/// All but the last dimension as rows, where they lie, or nothing where they do not lie like rows of one matrix.
[[nodiscard]] std::optional<Tensor> rows_where_they_lie(const TorchTensor& x);

/// The same, or of a copy.
[[nodiscard]] TorchMatrix rows_of(const TorchTensor& x);

/// Arguments of a call in their order, each taken once; then its results.
class TorchStack {
 public:
  TorchStack(const TorchShim& shim, StableValue* values) : shim_(&shim), values_(values) {}

  [[nodiscard]] TorchTensor tensor() { return {*shim_, reinterpret_cast<AtenTensor*>(next())}; }
  [[nodiscard]] std::optional<TorchTensor> maybe_tensor();
  [[nodiscard]] std::vector<TorchTensor> tensors() { return tensors_of(next()); }
  /// None where the list is missing.
  [[nodiscard]] std::vector<TorchTensor> maybe_tensors();
  [[nodiscard]] std::string text();
  [[nodiscard]] bool flag() { return (next() & 0xff) != 0; }
  /// Results, after all arguments have been taken. The first takes the first argument's place.
  void give(const TorchTensor& result) { values_[given_++] = reference(result); }
  void give(const std::vector<TorchTensor>& results);
  /// One that the schema lets be missing.
  void give_or_none(const std::optional<TorchTensor>& result);

 private:
  StableValue next() { return values_[taken_++]; }
  [[nodiscard]] std::vector<TorchTensor> tensors_of(StableValue value) const;
  [[nodiscard]] StableValue reference(const TorchTensor& tensor) const;

  const TorchShim* shim_;
  StableValue* values_;
  int taken_ = 0;
  int given_ = 0;
};

}  // namespace tilewire::python
