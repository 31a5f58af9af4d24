// Checks callers' tensors before a call, and arguments of copies.
// Called by programs and groups.
#include "backends/tensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/overlap.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire {
namespace {

/// Whether the tensor spans at most 2^48 bytes.
bool addressable(const Tensor& tensor) {
  constexpr int64_t kMostBytes = int64_t{1} << 48;
  return tensor.rows <= 1 ||
         tensor.row_stride <= (kMostBytes / bytes_of(tensor.dtype) - tensor.cols) / (tensor.rows - 1);
}

void require_number(const Plan& plan, Scope scope, std::span<const Tensor> tensors) {
  size_t wanted = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.scope != scope) continue;
    require(wanted++ < tensors.size(), "{} {} is missing: {} were given", to_string(buffer.scope), buffer.name,
            tensors.size());
  }
  require(wanted == tensors.size(), "{} tensors were given as {}, the operator has {}", tensors.size(),
          to_string(scope), wanted);
}

void require_in_arena(const Buffer& buffer, const Tensor& tensor, const ReachableMemory& reachable) {
  const int64_t bytes = tensor.rows * tensor.cols * bytes_of(tensor.dtype);
  require(reachable.part_of(tensor.data, bytes).has_value(), "{} {} must lie in the arena (Group::allocate)",
          to_string(buffer.scope), buffer.name);
  require(tensor.rows <= 1 || tensor.row_stride == tensor.cols,
          "{} {} lies in the arena and must be dense, its rows of {} elements are {} apart", to_string(buffer.scope),
          buffer.name, tensor.cols, tensor.row_stride);
}

void require_tensor(const Buffer& buffer, int rank, const Tensor& tensor) {
  const Shape shape = memory_shape_on(buffer, rank);
  require(tensor.dtype == buffer.dtype, "{} {} is {}, must be {}", to_string(buffer.scope), buffer.name,
          to_string(tensor.dtype), to_string(buffer.dtype));
  require(tensor.rows == shape.rows && tensor.cols == shape.cols, "{} {} is {} x {}, must be {} x {} on rank {}",
          to_string(buffer.scope), buffer.name, tensor.rows, tensor.cols, shape.rows, shape.cols, rank);
  require(tensor.rows <= 1 || tensor.row_stride >= tensor.cols, "{} {} has rows of {} elements {} apart",
          to_string(buffer.scope), buffer.name, tensor.cols, tensor.row_stride);
  require(addressable(tensor), "{} {} has {} rows {} elements apart: want at most 2^48 bytes from end to end",
          to_string(buffer.scope), buffer.name, tensor.rows, tensor.row_stride);
  if (shape.rows == 0 || shape.cols == 0) return;
  require(tensor.data != nullptr, "{} {} has no memory", to_string(buffer.scope), buffer.name);
  require(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes_of(tensor.dtype)) == 0,
          "{} {} lies at {}, want a multiple of the {} bytes of an element", to_string(buffer.scope), buffer.name,
          fmt::ptr(tensor.data), bytes_of(tensor.dtype));
}

bool coincide(const Tensor& x, const Tensor& y) {
  return x.data == y.data && x.dtype == y.dtype && x.rows == y.rows && x.cols == y.cols &&
         (x.rows <= 1 || x.row_stride == y.row_stride);
}

/// Throw if an output overlaps another tensor: it is written while other tensors are read. `may_be_one`: they may be
/// the same tensor.
void require_apart(const Buffer& buffer, const Tensor& tensor, const Buffer& output, const Tensor& written,
                   bool may_be_one) {
  if (!overlap(written, tensor) || (may_be_one && coincide(tensor, written))) return;
  const auto apart = reinterpret_cast<intptr_t>(written.data) - reinterpret_cast<intptr_t>(tensor.data);
  fail(ErrorKind::invalid_input, "{} {} overlaps {} {}: they begin {} bytes apart, rows {} and {} elements, want {}",
       to_string(output.scope), output.name, to_string(buffer.scope), buffer.name, std::abs(apart), written.row_stride,
       tensor.row_stride, may_be_one ? "one tensor, or memory of its own" : "memory of its own");
}

}  // namespace

void require_tensors(const Plan& plan, int rank, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const ReachableMemory& reachable, std::span<const InPlace> in_place) {
  require_number(plan, Scope::input, inputs);
  require_number(plan, Scope::output, outputs);
  for_each_tensor(plan, inputs, outputs, [&](int index, const Tensor& tensor) {
    const Buffer& buffer = plan.buffers[index];
    require_tensor(buffer, rank, tensor);
    if (buffer.in_arena && tensor.rows > 0 && tensor.cols > 0) require_in_arena(buffer, tensor, reachable);
  });
  for_each_tensor(plan, inputs, outputs, [&](int written, const Tensor& output) {
    if (plan.buffers[written].scope != Scope::output) return;
    for_each_tensor(plan, inputs, outputs, [&](int index, const Tensor& tensor) {
      // Of two overlapping outputs the error names the later one first.
      if (plan.buffers[index].scope == Scope::output && index >= written) return;
      const bool may_be_one = std::ranges::find(in_place, InPlace{index, written}) != in_place.end();
      require_apart(plan.buffers[index], tensor, plan.buffers[written], output, may_be_one);
    });
  });
}

void require_copy(const void* to, const void* from, int64_t bytes) {
  require(bytes >= 0, "copy: {} bytes", bytes);
  require(bytes == 0 || (to != nullptr && from != nullptr), "copy: {} bytes {} a null pointer", bytes,
          to == nullptr ? "to" : "from");
}

}  // namespace tilewire
