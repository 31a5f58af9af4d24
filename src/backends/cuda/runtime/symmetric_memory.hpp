// Device memory that every rank can address, by CUDA's virtual memory management: the same offset on every rank, all
// peers'
// parts mapped into this process, addresses known on the host. Owned by CudaGroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/host/group.hpp"

namespace tilewire::cuda {

/// Physical memory of one device. It exists as long as a mapping of it, also in another process.
class Memory {
 public:
  /// Throws Error(invalid_input) if the device has no room.
  static Memory create(const Driver& driver, int device, int64_t bytes, bool shareable);
  /// Memory that another process has exported.
  static Memory import(const Driver& driver, const Descriptor& descriptor, int64_t bytes);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  [[nodiscard]] Descriptor exported() const;
  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  Memory(const Driver& driver, CUmemGenericAllocationHandle handle, int64_t bytes)
      : driver_(&driver), handle_(handle), bytes_(bytes) {}

  const Driver* driver_;
  CUmemGenericAllocationHandle handle_;
  int64_t bytes_;
};

/// Addresses of this process for the memory of all ranks, at equal distances in rank order: so a strided batch can
/// store to the same place on each rank.
class AddressRange {
 public:
  /// Reserve `limit` bytes of addresses for each of `num_ranks`.
  AddressRange(const Driver& driver, int num_ranks, int64_t limit);
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  [[nodiscard]] CUdeviceptr of(int rank) const { return base_ + static_cast<CUdeviceptr>(rank * limit_); }
  [[nodiscard]] int64_t limit() const { return limit_; }

 private:
  Driver driver_;
  CUdeviceptr base_ = 0;
  int64_t limit_;
  int64_t bytes_;
};

/// One rank's memory in this process: a range of addresses, of which the first part has memory. NOTE: ranks that are
/// threads share one mapping, because a device does not keep two mappings of the same memory coherent while a kernel
/// runs.
class Mapping {
 public:
  Mapping(const Driver& driver, std::shared_ptr<const AddressRange> addresses, int rank)
      : driver_(driver), addresses_(std::move(addresses)), base_(addresses_->of(rank)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }
  /// Map `memory` to the next addresses, for loads and stores of `devices`.
  void append(const Memory& memory, std::span<const int> devices);
  /// Unmap everything beyond the first `bytes`, where a chunk must end.
  void truncate(int64_t bytes);

 private:
  Driver driver_;
  std::shared_ptr<const AddressRange> addresses_;
  CUdeviceptr base_;
  int64_t backed_ = 0;
  std::vector<int64_t> chunks_;
};

class SymmetricMemory {
 public:
  /// The symmetric memories of a group: arena, workspace, and the copies of double-buffered LL data.
  enum class Use { arena, workspace, first_copy, second_copy };
  static constexpr size_t kUses = 4;
  /// Addresses for `limit` bytes on every rank, without memory. `devices`: of every rank, in this process's numbers; if
  /// ranks are processes, only this rank's entry is used. Collective.
  SymmetricMemory(host::HostGroup& group, const Driver& driver, std::vector<int> devices, int64_t limit,
                  Use use = Use::arena);

  /// The address of the memory of `rank`, for this rank's device and for CUDA's host functions.
  [[nodiscard]] std::byte* base(int rank) const { return mappings_[rank]->base(); }
  /// Bytes of every rank's addresses that have memory.
  [[nodiscard]] int64_t backed() const { return backed_; }
  [[nodiscard]] int64_t limit() const { return limit_; }
  /// Give memory to at least the first `bytes`, at most the limit; its content is undefined. Collective. Throws the
  /// same Error on all ranks: invalid_input that names the rank whose device has no room. Then nothing has changed.
  void grow_to(int64_t bytes);

 private:
  void share_mappings();
  void add_by_threads(int64_t bytes);
  void add_by_processes(int64_t bytes);

  host::HostGroup& group_;
  Driver driver_;
  std::vector<int> devices_;
  Use use_;
  bool by_descriptors_;  // peers' memory comes from other processes
  bool shareable_;
  int64_t limit_;
  int64_t backed_ = 0;
  std::vector<std::shared_ptr<Mapping>> mappings_;
};

}  // namespace tilewire::cuda
