// The driver's entry points, by memfd and mmap. A handle is the number of a file descriptor.
// Used by memory_test.cpp, and under the fake runtime.
#include "cuda/fake_driver.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace tilewire::testing {
namespace {

std::atomic<int> handles{0};
std::atomic<int> mappings{0};
std::atomic<int> reservations{0};
std::atomic<int64_t> most_bytes{std::numeric_limits<int64_t>::max()};
std::atomic<bool> access_forbidden{false};

void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult error_name(CUresult, const char** text) {
  *text = "FAKE_ERROR";
  return CUDA_SUCCESS;
}

CUresult error_string(CUresult, const char** text) {
  *text = "an error of the fake driver";
  return CUDA_SUCCESS;
}

CUresult get_attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}

CUresult get_granularity(size_t* granularity, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *granularity = size_t{2} << 20;
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(range);
  ++reservations;
  return CUDA_SUCCESS;
}

CUresult free_addresses(CUdeviceptr address, size_t size) {
  --reservations;
  return munmap(pointer_of(address), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
  if (static_cast<int64_t>(size) > most_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return CUDA_ERROR_UNKNOWN;
  *handle = static_cast<CUmemGenericAllocationHandle>(fd);
  ++handles;
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  --handles;
  return close(static_cast<int>(handle)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult map(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  void* mapped = mmap(pointer_of(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  ++mappings;
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr address, size_t size) {
  --mappings;
  void* range =
      mmap(pointer_of(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return range == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc*, size_t count) {
  if (access_forbidden || count == 0) return CUDA_ERROR_INVALID_DEVICE;
  const bool good = mprotect(pointer_of(address), size, PROT_READ | PROT_WRITE) == 0;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult export_handle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                       unsigned long long) {
  const int copy = fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0);
  *static_cast<int*>(shareable) = copy;
  return copy >= 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult import_handle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType) {
  const int copy = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_INVALID_HANDLE;
  *handle = static_cast<CUmemGenericAllocationHandle>(copy);
  ++handles;
  return CUDA_SUCCESS;
}

CUresult write_value(CUstream, CUdeviceptr address, cuuint32_t value, unsigned) {
  std::atomic_ref(*static_cast<uint32_t*>(pointer_of(address))).store(value);
  return CUDA_SUCCESS;
}

CUresult primary_context_state(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult wait_value(CUstream, CUdeviceptr, cuuint32_t, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

cuda::Driver fake_driver() {
  cuda::Driver driver;
  driver.get_error_name = error_name;
  driver.get_error_string = error_string;
  driver.device_get_attribute = get_attribute;
  driver.mem_get_allocation_granularity = get_granularity;
  driver.mem_address_reserve = reserve;
  driver.mem_address_free = free_addresses;
  driver.mem_create = create;
  driver.mem_release = release;
  driver.mem_map = map;
  driver.mem_unmap = unmap;
  driver.mem_set_access = set_access;
  driver.mem_export = export_handle;
  driver.mem_import = import_handle;
  driver.stream_write_value_32 = write_value;
  driver.stream_wait_value_32 = wait_value;
  driver.primary_context_state = primary_context_state;
  return driver;
}

FakeUse fake_use() { return {handles, mappings, reservations}; }

void limit_fake_memory(int64_t bytes) { most_bytes = bytes; }

void forbid_fake_access(bool forbid) { access_forbidden = forbid; }

}  // namespace tilewire::testing
