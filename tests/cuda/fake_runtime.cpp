// The functions of CUDA's runtime that the backend calls, on host memory.
// Linked into tests in place of libcudart_static.
#include "cuda/fake_runtime.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "cuda/fake_driver.hpp"

namespace {

std::atomic<int> gpus{2};
std::atomic<int> major_of_all{9};
std::atomic<bool> peers_add{true};
std::atomic<int> pages{0};
std::atomic<int> streams{0};
thread_local int current = 0;

const std::map<std::string, void*>& entry_points() {
  static const tilewire::cuda::Driver driver = tilewire::testing::fake_driver();
  const auto address = [](auto* function) { return reinterpret_cast<void*>(function); };
  static const std::map<std::string, void*> table{
      {"cuGetErrorName", address(driver.get_error_name)},
      {"cuGetErrorString", address(driver.get_error_string)},
      {"cuDeviceGetAttribute", address(driver.device_get_attribute)},
      {"cuMemGetAllocationGranularity", address(driver.mem_get_allocation_granularity)},
      {"cuMemAddressReserve", address(driver.mem_address_reserve)},
      {"cuMemAddressFree", address(driver.mem_address_free)},
      {"cuMemCreate", address(driver.mem_create)},
      {"cuMemRelease", address(driver.mem_release)},
      {"cuMemMap", address(driver.mem_map)},
      {"cuMemUnmap", address(driver.mem_unmap)},
      {"cuMemSetAccess", address(driver.mem_set_access)},
      {"cuMemExportToShareableHandle", address(driver.mem_export)},
      {"cuMemImportFromShareableHandle", address(driver.mem_import)},
      {"cuStreamWaitValue32", address(driver.stream_wait_value_32)},
      {"cuStreamWriteValue32", address(driver.stream_write_value_32)},
      {"cuDevicePrimaryCtxGetState", address(driver.primary_context_state)},
  };
  return table;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpus;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  if (device >= gpus) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t) { return "cudaErrorFake"; }

const char* cudaGetErrorString(cudaError_t) { return "an error of the fake runtime"; }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "NVIDIA H200");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = size_t{141} << 30;
  properties->multiProcessorCount = 132;
  properties->major = major_of_all;
  properties->asyncEngineCount = 3;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int, int) {
  *value = which == cudaDevP2PAttrNativeAtomicSupported && peers_add ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  ++streams;
  *stream = reinterpret_cast<cudaStream_t>(&streams);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t) {
  --streams;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

// Events are counted as streams.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ++streams;
  *event = reinterpret_cast<cudaEvent_t>(&streams);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t) {
  --streams;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  ++pages;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  *memory = std::calloc(1, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  --pages;
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = 1;
  *total = size_t{141} << 30;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

/// For GPCs of 16 or 18 SMs, as in an H200.
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* config) {
  const int ctas = static_cast<int>(config->attrs[0].val.clusterDim.x);
  *clusters = 6 * (18 / ctas) + 16 / ctas + 8 / ctas;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const auto found = entry_points().find(name);
  *status = cudaDriverEntryPointSuccess;
  // These tests call no function that the fake driver lacks.
  *function = found == entry_points().end() ? reinterpret_cast<void*>(&cudaGetLastError) : found->second;
  return cudaSuccess;
}

}  // extern "C"

namespace tilewire::testing {

void set_fake_kind(int major, bool atomics) {
  major_of_all = major;
  peers_add = atomics;
}
void set_fake_gpus(int count) { gpus = count; }
int fake_pages() { return pages; }
int fake_streams() { return streams; }

}  // namespace tilewire::testing
