// What every backend asks of the callers' tensors before a call, and of their copies.
// Called by programs and groups.
#include "backends/tensors.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

void require_tensor(const Plan& plan, int rank, const Buffer& buffer, const Tensor& tensor,
                    std::span<const std::byte> arena) {
  const Shape shape = shape_on(buffer, rank);
  const std::string& op = plan.problem.op;
  require(tensor.dtype == buffer.dtype && tensor.rows == shape.rows && tensor.cols == shape.cols,
          "{}: buffer {} of rank {} is {} x {} {}, got {} x {} {}", op, buffer.name, rank, shape.rows, shape.cols,
          to_string(buffer.dtype), tensor.rows, tensor.cols, to_string(tensor.dtype));
  if (shape.rows == 0 || shape.cols == 0) return;
  require(tensor.data != nullptr, "{}: buffer {} has no data", op, buffer.name);
  require(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes_of(tensor.dtype)) == 0,
          "{}: buffer {} lies at {}, want a multiple of the {} bytes of an element", op, buffer.name,
          fmt::ptr(tensor.data), bytes_of(tensor.dtype));
  require(tensor.rows <= 1 || tensor.row_stride >= tensor.cols, "{}: buffer {}: a row stride of {} for {} columns", op,
          buffer.name, tensor.row_stride, tensor.cols);
  if (!buffer.in_arena) return;
  const auto* data = static_cast<const std::byte*>(tensor.data);
  const int64_t bytes = tensor.rows * tensor.cols * bytes_of(tensor.dtype);
  require(data >= arena.data() && data + bytes <= arena.data() + arena.size(),
          "{}: buffer {} must lie in the arena (Group::allocate)", op, buffer.name);
  require(tensor.rows <= 1 || tensor.row_stride == tensor.cols,
          "{}: buffer {} lies in the arena and must be dense, got a row stride of {}", op, buffer.name,
          tensor.row_stride);
}

}  // namespace

void require_tensors(const Plan& plan, int rank, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     std::span<const std::byte> arena) {
  const auto want_inputs = static_cast<size_t>(std::ranges::count(plan.buffers, Scope::input, &Buffer::scope));
  const auto want_outputs = static_cast<size_t>(std::ranges::count(plan.buffers, Scope::output, &Buffer::scope));
  require(inputs.size() == want_inputs && outputs.size() == want_outputs,
          "{}: want {} inputs and {} outputs, got {} and {}", plan.problem.op, want_inputs, want_outputs, inputs.size(),
          outputs.size());
  for_each_tensor(plan, inputs, outputs, [&](int buffer, const Tensor& tensor) {
    require_tensor(plan, rank, plan.buffers[buffer], tensor, arena);
  });
}

void require_copy(const void* to, const void* from, int64_t bytes) {
  require(bytes >= 0, "copy: {} bytes", bytes);
  require(bytes == 0 || (to != nullptr && from != nullptr), "copy: {} bytes {} a null pointer", bytes,
          to == nullptr ? "to" : "from");
}

}  // namespace tilewire
