// Carving and addressing of a program's memory.
// Called by HostProgram.
#include "backends/host/workspace.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "backends/host/rules.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kAlignment = 256;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t bytes_of_buffer(const Buffer& buffer) { return aligned(buffer.rows * buffer.cols * bytes_of(buffer.dtype)); }

/// Call `visit(buffer index, tensor)` for the callers' tensors in the order of the plan's buffers.
template <class Visit>
void for_each_tensor(const Plan& plan, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const Visit& visit) {
  size_t input = 0;
  size_t output = 0;
  for (int buffer = 0; buffer < std::ssize(plan.buffers); ++buffer) {
    if (plan.buffers[buffer].scope == Scope::input) visit(buffer, inputs[input++]);
    if (plan.buffers[buffer].scope == Scope::output) visit(buffer, outputs[output++]);
  }
}

}  // namespace

Workspace::Workspace(HostGroup& group, const Plan& whole, const Plan& plan)
    : group_(group), plan_(plan), addresses_(plan) {
  announced_offset_ = aligned(int64_t{num_signals(plan)} * static_cast<int64_t>(sizeof(Slot)));
  symmetric_offset_ = announced_offset_ + aligned(std::ssize(plan.buffers) * 8);
  extent_ = group.carve(
      fmt::format("a plan for {} with {} (hash {:x})", to_string(plan.problem), to_string(plan.config), hash_of(whole)),
      symmetric_offset_ + symmetric_bytes(plan));
  std::memset(start(group.rank()), 0, static_cast<size_t>(symmetric_offset_));
  local_bytes_ = local_bytes(plan);
  if (local_bytes_ > 0) {
    void* memory = mmap(nullptr, static_cast<size_t>(local_bytes_), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, "local workspace of {} bytes: {}", local_bytes_, std::strerror(errno));
    local_ = static_cast<std::byte*>(memory);
  }
  place_buffers();
}

Workspace::~Workspace() {
  if (local_ != nullptr) munmap(local_, static_cast<size_t>(local_bytes_));
  group_.give_back(extent_);
}

void Workspace::place_buffers() {
  int64_t local = 0;
  int64_t symmetric = symmetric_offset_;
  for (int index = 0; index < std::ssize(plan_.buffers); ++index) {
    const Buffer& buffer = plan_.buffers[index];
    for (int rank = 0; rank < plan_.team.num_ranks; ++rank) {
      Base& base = addresses_.base(rank, index);
      base.stride = shape_on(buffer, rank).cols;
      if (buffer.scope == Scope::symmetric) base.data = start(rank) + symmetric;
      if (buffer.scope == Scope::local && rank == group_.rank()) base.data = local_ + local;
      if (buffer.in_arena && rank != group_.rank()) {
        base.data = group_.segment().arena(rank);
        base.announced = announced(rank, index);
      }
    }
    if (buffer.scope == Scope::symmetric) symmetric += bytes_of_buffer(buffer);
    if (buffer.scope == Scope::local) local += bytes_of_buffer(buffer);
  }
}

Slot& Workspace::slot(const Signal& signal) const { return reinterpret_cast<Slot*>(start(signal.rank))[signal.index]; }

std::atomic<int64_t>* Workspace::announced(int rank, int buffer) const {
  return reinterpret_cast<std::atomic<int64_t>*>(start(rank) + announced_offset_) + buffer;
}

void Workspace::check(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  size_t want_inputs = 0;
  size_t want_outputs = 0;
  for (const Buffer& buffer : plan_.buffers) {
    want_inputs += buffer.scope == Scope::input;
    want_outputs += buffer.scope == Scope::output;
  }
  require(inputs.size() == want_inputs && outputs.size() == want_outputs,
          "{}: want {} inputs and {} outputs, got {} and {}", plan_.problem.op, want_inputs, want_outputs,
          inputs.size(), outputs.size());
  for_each_tensor(plan_, inputs, outputs,
                  [&](int buffer, const Tensor& tensor) { check_tensor(plan_.buffers[buffer], tensor); });
}

void Workspace::check_tensor(const Buffer& buffer, const Tensor& tensor) const {
  const Shape shape = shape_on(buffer, group_.rank());
  require(tensor.dtype == buffer.dtype && tensor.rows == shape.rows && tensor.cols == shape.cols,
          "{}: buffer {} of rank {} is {} x {} {}, got {} x {} {}", plan_.problem.op, buffer.name, group_.rank(),
          shape.rows, shape.cols, to_string(buffer.dtype), tensor.rows, tensor.cols, to_string(tensor.dtype));
  if (shape.rows == 0 || shape.cols == 0) return;
  require(tensor.data != nullptr, "{}: buffer {} has no data", plan_.problem.op, buffer.name);
  require(tensor.rows <= 1 || tensor.row_stride >= tensor.cols, "{}: buffer {}: a row stride of {} for {} columns",
          plan_.problem.op, buffer.name, tensor.row_stride, tensor.cols);
  if (!buffer.in_arena) return;
  const std::byte* arena = group_.segment().arena(group_.rank());
  const auto* data = static_cast<const std::byte*>(tensor.data);
  const int64_t bytes = tensor.rows * tensor.cols * bytes_of(tensor.dtype);
  require(data >= arena && data + bytes <= arena + group_.segment().arena_bytes(),
          "{}: buffer {} must lie in the arena (Group::allocate)", plan_.problem.op, buffer.name);
  require(tensor.rows <= 1 || tensor.row_stride == tensor.cols,
          "{}: buffer {} lies in the arena and must be dense, got a row stride of {}", plan_.problem.op, buffer.name,
          tensor.row_stride);
}

void Workspace::bind(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const int rank = group_.rank();
  for_each_tensor(plan_, inputs, outputs, [&](int buffer, const Tensor& tensor) {
    Base& base = addresses_.base(rank, buffer);
    base.data = static_cast<std::byte*>(tensor.data);
    base.stride = tensor.rows <= 1 ? tensor.cols : tensor.row_stride;
    if (plan_.buffers[buffer].in_arena) {
      announced(rank, buffer)->store(base.data - group_.segment().arena(rank), std::memory_order_relaxed);
    }
  });
}

}  // namespace tilewire::host
