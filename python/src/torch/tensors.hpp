// PyTorch's tensors in kernels, and the stack on which PyTorch passes arguments and results.
// Used by torch/operators.cpp.
#pragma once

#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/tilewire.hpp"
#include "torch/shim.hpp"

namespace tilewire::python {

/// A device by PyTorch's numbers.
struct TorchDevice {
  int32_t type = 0;
  int32_t index = 0;

  bool operator==(const TorchDevice&) const = default;
};

/// A tensor of PyTorch, released with its last copy.
class TorchTensor {
 public:
  TorchTensor(const TorchShim& shim, AtenTensor* handle)
      : shim_(&shim), handle_(handle, [&shim](AtenTensor* it) { shim.delete_tensor(it); }) {}

  [[nodiscard]] AtenTensor* handle() const { return handle_.get(); }
  [[nodiscard]] void* data() const;
  [[nodiscard]] std::span<const int64_t> sizes() const;
  [[nodiscard]] std::span<const int64_t> strides() const;
  [[nodiscard]] TorchDevice device() const;
  /// PyTorch's number of the element type, and tilewire's type; Error(invalid_input) if tilewire has no such type.
  [[nodiscard]] int32_t torch_dtype() const;
  [[nodiscard]] DType dtype() const;
  /// A dense tensor of these sizes, with the same type and device; undefined contents.
  [[nodiscard]] TorchTensor new_empty(std::span<const int64_t> sizes) const;
  /// The same of another element type, by PyTorch's number.
  [[nodiscard]] TorchTensor new_empty(std::span<const int64_t> sizes, int32_t torch_dtype) const;
  /// A dense copy.
  [[nodiscard]] TorchTensor copy() const;
  [[nodiscard]] const TorchShim& shim() const { return *shim_; }

 private:
  const TorchShim* shim_;
  std::shared_ptr<AtenTensor> handle_;
};

/// A matrix, and the tensor that owns its memory.
struct TorchMatrix {
  TorchTensor owner;
  Tensor view{};
};

/// View all dimensions but the last as rows; nothing if their memory is not that of one matrix.
[[nodiscard]] std::optional<Tensor> rows_where_they_lie(const TorchTensor& x);

/// The same; of a copy if necessary.
[[nodiscard]] TorchMatrix rows_of(const TorchTensor& x);

/// The arguments of a call, taken in order, each once; then the results.
class TorchStack {
 public:
  TorchStack(const TorchShim& shim, StableValue* values) : shim_(&shim), values_(values) {}

  [[nodiscard]] TorchTensor tensor() { return {*shim_, reinterpret_cast<AtenTensor*>(next())}; }
  [[nodiscard]] std::optional<TorchTensor> maybe_tensor();
  [[nodiscard]] std::vector<TorchTensor> tensors() { return tensors_of(next()); }
  /// Empty if the list is missing.
  [[nodiscard]] std::vector<TorchTensor> maybe_tensors();
  [[nodiscard]] std::string text();
  [[nodiscard]] double number() { return std::bit_cast<double>(next()); }
  [[nodiscard]] int64_t integer() { return static_cast<int64_t>(next()); }
  [[nodiscard]] bool flag() { return (next() & 0xff) != 0; }
  /// Pass results, after all arguments have been taken. The first result takes the place of the first argument.
  void give(const TorchTensor& result) { values_[given_++] = reference(result); }
  void give(const std::vector<TorchTensor>& results);
  /// Pass a result that the schema declares optional.
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
