// Chunks of device memory, mapped one after another, for every rank.
// Called by CudaGroup.
#include "backends/cuda/runtime/symmetric_memory.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "backends/cuda/runtime/chunks.hpp"
#include "backends/host/exchange.hpp"
#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

constexpr auto kDescriptorHandle = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp properties_of(const Driver& driver, int device, bool shareable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = shareable ? kDescriptorHandle : CU_MEM_HANDLE_TYPE_NONE;
  // For network cards that may address the arena later.
  properties.allocFlags.gpuDirectRDMACapable =
      attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  return properties;
}

/// Where ranks that are threads find the addresses of a memory, and each other's mappings. It keeps none of them alive.
struct Board {
  std::mutex mutex;
  std::weak_ptr<const AddressRange> addresses;
  std::vector<std::weak_ptr<Mapping>> mappings;
};

std::shared_ptr<Board> board_of(const host::HostGroup& group, SymmetricMemory::Use use) {
  using Boards = std::array<Board, SymmetricMemory::kUses>;
  const auto make = [&] {
    auto boards = std::make_shared<Boards>();
    for (Board& board : *boards) board.mappings.resize(group.segment().num_ranks());
    return boards;
  };
  const auto boards = std::static_pointer_cast<Boards>(group.segment().common(make));
  return {boards, &(*boards)[static_cast<size_t>(use)]};
}

}  // namespace

Memory Memory::create(const Driver& driver, int device, int64_t bytes, bool shareable) {
  const CUmemAllocationProp properties = properties_of(driver, device, shareable);
  size_t granularity = 0;
  driver.check(driver.mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity");
  ensure(kGranularity % static_cast<int64_t>(granularity) == 0,
         "CUDA's allocation granularity is {} bytes, want a divisor of {}", granularity, kGranularity);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver.mem_create(&handle, static_cast<size_t>(bytes), &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0;
    size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    fail(ErrorKind::invalid_input,
         "GPU {} has no room for {} more bytes of arena, workspace or LL data: {} of {} are free", device, bytes, free,
         total);
  }
  driver.check(result, "cuMemCreate");
  return {driver, handle, bytes};
}

Memory Memory::import(const Driver& driver, const Descriptor& descriptor, int64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get()));
  driver.check(driver.mem_import(&handle, os_handle, kDescriptorHandle), "cuMemImportFromShareableHandle");
  return {driver, handle, bytes};
}

Memory::Memory(Memory&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_), bytes_(other.bytes_) {}

Memory::~Memory() {
  if (driver_ != nullptr) driver_->mem_release(handle_);
}

Descriptor Memory::exported() const {
  int descriptor = -1;
  driver_->check(driver_->mem_export(&descriptor, handle_, kDescriptorHandle, 0), "cuMemExportToShareableHandle");
  NewDescriptor taken = take_descriptor({descriptor, 0});
  require_granted(taken.call, "cuMemExportToShareableHandle");
  return std::move(taken.descriptor);
}

AddressRange::AddressRange(const Driver& driver, int num_ranks, int64_t limit)
    : driver_(driver), limit_(limit), bytes_(num_ranks * limit) {
  driver_.check(driver_.mem_address_reserve(&base_, static_cast<size_t>(bytes_), kGranularity, 0, 0),
                "cuMemAddressReserve");
}

AddressRange::~AddressRange() { driver_.mem_address_free(base_, static_cast<size_t>(bytes_)); }

Mapping::~Mapping() { truncate(0); }

void Mapping::append(const Memory& memory, std::span<const int> devices) {
  const CUdeviceptr begin = base_ + static_cast<CUdeviceptr>(backed_);
  const auto bytes = static_cast<size_t>(memory.bytes());
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  chunks_.reserve(chunks_.size() + 1);
  driver_.check(driver_.mem_map(begin, bytes, 0, memory.handle(), 0), "cuMemMap");
  chunks_.push_back(memory.bytes());
  backed_ += memory.bytes();
  const CUresult result = driver_.mem_set_access(begin, bytes, access.data(), access.size());
  if (result == CUDA_SUCCESS) return;
  truncate(backed_ - memory.bytes());
  driver_.check(result, "cuMemSetAccess, which lets GPUs address a peer's memory");
}

void Mapping::truncate(int64_t bytes) {
  while (backed_ > bytes) {
    backed_ -= chunks_.back();
    driver_.mem_unmap(base_ + static_cast<CUdeviceptr>(backed_), static_cast<size_t>(chunks_.back()));
    chunks_.pop_back();
  }
}

SymmetricMemory::SymmetricMemory(host::HostGroup& group, const Driver& driver, std::vector<int> devices, int64_t limit,
                                 Use use)
    : group_(group),
      driver_(driver),
      devices_(std::move(devices)),
      use_(use),
      by_descriptors_(group.separate() && devices_.size() > 1),
      shareable_(attribute_of(driver, devices_[group.rank()],
                              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0),
      limit_(std::max(kGranularity, round_up_to_granularity(limit))),
      mappings_(devices_.size()) {
  const int rank = group_.rank();
  const auto reserve = [&] {
    return std::make_shared<const AddressRange>(driver_, static_cast<int>(mappings_.size()), limit_);
  };
  agree(group_, [&] {
    if (by_descriptors_) {
      const auto addresses = reserve();
      for (int of = 0; of < std::ssize(mappings_); ++of)
        mappings_[of] = std::make_shared<Mapping>(driver_, addresses, of);
      return std::string();
    }
    const auto board = board_of(group_, use_);
    const std::lock_guard lock(board->mutex);
    auto addresses = board->addresses.lock();
    if (!addresses) board->addresses = addresses = reserve();
    ensure(addresses->limit() == limit_ && board->mappings[rank].expired(), "rank {} has addresses already", rank);
    mappings_[rank] = std::make_shared<Mapping>(driver_, addresses, rank);
    board->mappings[rank] = mappings_[rank];
    return std::string();
  });
  if (!by_descriptors_) share_mappings();
}

void SymmetricMemory::share_mappings() {
  const auto board = board_of(group_, use_);
  const std::lock_guard lock(board->mutex);
  for (int peer = 0; peer < std::ssize(mappings_); ++peer) {
    mappings_[peer] = board->mappings[peer].lock();
    if (!mappings_[peer]) fail(ErrorKind::rank_lost, "rank {} left while the others joined", peer);
  }
}

void SymmetricMemory::grow_to(int64_t bytes) {
  // NOTE: LL data are small.
  const bool small = use_ == Use::first_copy || use_ == Use::second_copy;
  const int64_t chunk = next_chunk(backed_, bytes, limit_, small ? kGranularity : kFirstChunk);
  if (chunk == 0) return;
  try {
    by_descriptors_ ? add_by_processes(chunk) : add_by_threads(chunk);
  } catch (const Error&) {
    for (int of = 0; of < std::ssize(mappings_); ++of) {
      if (by_descriptors_ || of == group_.rank()) mappings_[of]->truncate(backed_);
    }
    throw;
  }
  backed_ += chunk;
}

void SymmetricMemory::add_by_threads(int64_t bytes) {
  const int rank = group_.rank();
  std::vector<int> all = devices_;
  std::ranges::sort(all);
  const auto rest = std::ranges::unique(all);
  all.erase(rest.begin(), rest.end());
  agree(group_, [&] {
    mappings_[rank]->append(Memory::create(driver_, devices_[rank], bytes, shareable_), all);
    return std::string();
  });
}

void SymmetricMemory::add_by_processes(int64_t bytes) {
  const int rank = group_.rank();
  const std::span<const int> mine(&devices_[rank], 1);
  Descriptor descriptor;
  agree(group_, [&] {
    const Memory memory = Memory::create(driver_, devices_[rank], bytes, shareable_);
    descriptor = memory.exported();
    mappings_[rank]->append(memory, mine);
    return std::string();
  });
  const std::vector<Descriptor> theirs = exchange_descriptors(group_, descriptor.get());
  agree(group_, [&] {
    for (int peer = 0; peer < std::ssize(theirs); ++peer) {
      if (peer != rank) mappings_[peer]->append(Memory::import(driver_, theirs[peer], bytes), mine);
    }
    return std::string();
  });
}

}  // namespace tilewire::cuda
