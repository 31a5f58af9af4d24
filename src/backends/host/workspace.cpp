// Allocates and addresses a program's memory.
// Called by HostProgram.
#include "backends/host/workspace.hpp"

#include <sys/mman.h>

#include <cstring>

#include "backends/host/rules.hpp"
#include "backends/tensors.hpp"
#include "core/system_call.hpp"
#include "tilewire/print.hpp"

namespace tilewire::host {

Workspace::Workspace(HostGroup& group, const Plan& whole, const Plan& plan)
    : group_(group), plan_(plan), addresses_(plan, group.reachable()), in_place_(in_place_pairs(whole)) {
  announced_offset_ = aligned_bytes(int64_t{num_signals(plan)} * static_cast<int64_t>(sizeof(Slot)));
  symmetric_offset_ = announced_offset_ + aligned_bytes(std::ssize(plan.buffers) * 8);
  extent_ = group.carve(fmt::format("a plan of {} (hash {:x})", plan.op, hash_of(whole)),
                        symmetric_offset_ + symmetric_bytes(plan));
  std::memset(start(group.rank()), 0, static_cast<size_t>(symmetric_offset_));
  local_bytes_ = local_bytes(plan);
  try {
    map_local();
  } catch (...) {
    release();
    throw;
  }
  place_buffers();
  // NOTE: set all bits of LL data to 1: they are missing until a task writes them (core/ll.hpp).
  for (int index = 0; index < std::ssize(plan.buffers); ++index) {
    const Buffer& buffer = plan.buffers[index];
    if (buffer.ll)
      std::memset(addresses_.base(group.rank(), index).data, 0xFF, static_cast<size_t>(workspace_bytes(buffer)));
  }
}

void Workspace::map_local() {
  // NOTE: all ranks map the same number of bytes, or none.
  if (local_bytes_ == 0) return;
  agree(group_, [&] {
    const SystemCall mapped = system_call([&] {
      return mmap(nullptr, static_cast<size_t>(local_bytes_), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    });
    require_granted(mapped, "mapping a local workspace of " + in_bytes(local_bytes_));
    local_ = reinterpret_cast<std::byte*>(mapped.value);
    return std::string();
  });
}

Workspace::~Workspace() { release(); }

void Workspace::release() {
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
      if (buffer.scope == Scope::local && rank == group_.rank())
        base.data = buffer.reuses < 0 ? local_ + local : addresses_.base(rank, buffer.reuses).data;
      if (buffer.in_arena && rank != group_.rank()) base.announced = announced(rank, index);
    }
    if (buffer.scope == Scope::symmetric) symmetric += workspace_bytes(buffer);
    if (buffer.scope == Scope::local && buffer.reuses < 0) local += workspace_bytes(buffer);
  }
}

Slot& Workspace::slot(const Signal& signal) const { return reinterpret_cast<Slot*>(start(signal.rank))[signal.index]; }

std::atomic<int64_t>* Workspace::announced(int rank, int buffer) const {
  return reinterpret_cast<std::atomic<int64_t>*>(start(rank) + announced_offset_) + buffer;
}

void Workspace::check(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  require_tensors(plan_, group_.rank(), inputs, outputs, group_.reachable(), in_place_);
}

void Workspace::bind(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const int rank = group_.rank();
  for_each_tensor(plan_, inputs, outputs, [&](int buffer, const Tensor& tensor) {
    Base& base = addresses_.base(rank, buffer);
    base.data = static_cast<std::byte*>(tensor.data);
    base.stride = tensor.rows <= 1 ? tensor.cols : tensor.row_stride;
    if (plan_.buffers[buffer].in_arena) {
      // An empty tensor has no position; no peer uses it.
      const int64_t place = group_.reachable().place_of(base.data, 1).value_or(0);
      announced(rank, buffer)->store(place, std::memory_order_relaxed);
    }
  });
}

}  // namespace tilewire::host
