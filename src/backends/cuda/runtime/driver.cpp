// Checks of CUDA's results, and the look-up of the driver's entry points.
// Called by every other file of this folder.
#include "backends/cuda/runtime/driver.hpp"

#include <algorithm>
#include <cstring>

#include "core/text.hpp"

namespace tilewire::cuda {
namespace {

ErrorKind error_kind_of(cudaError_t result) {
  switch (result) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::invalid_input;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorNotSupported:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
    case cudaErrorCompatNotSupportedOnDevice:
      return ErrorKind::unsupported;
    default:
      return ErrorKind::internal;
  }
}

ErrorKind error_kind_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorKind::invalid_input;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
      return ErrorKind::unsupported;
    default:
      return ErrorKind::internal;
  }
}

template <class Function>
void look_up(Function& function, const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status), name);
  if (status != cudaDriverEntryPointSuccess || found == nullptr) {
    fail(ErrorKind::unsupported, "the NVIDIA driver has no {} of CUDA {}.{}", name, version / 1000,
         version % 1000 / 10);
  }
  function = reinterpret_cast<Function>(found);
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  // Clear the error, so that the next CUDA call does not return it.
  static_cast<void>(cudaGetLastError());
  const char* hint = result == cudaErrorInitializationError
                         ? "; was CUDA started before this process was forked? Launch ranks before using CUDA"
                         : "";
  fail(error_kind_of(result), "{}: {} ({}){}", call, cudaGetErrorName(result), cudaGetErrorString(result), hint);
}

void Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  const char* words = "no words for it";
  get_error_name(result, &name);
  get_error_string(result, &words);
  fail(error_kind_of(result), "{}: {} ({})", call, name, words);
}

Driver load_driver() {
  Driver driver;
  look_up(driver.get_error_name, "cuGetErrorName", 6000);
  look_up(driver.get_error_string, "cuGetErrorString", 6000);
  look_up(driver.device_get_attribute, "cuDeviceGetAttribute", 2000);
  look_up(driver.mem_get_allocation_granularity, "cuMemGetAllocationGranularity", 10020);
  look_up(driver.mem_address_reserve, "cuMemAddressReserve", 10020);
  look_up(driver.mem_address_free, "cuMemAddressFree", 10020);
  look_up(driver.mem_create, "cuMemCreate", 10020);
  look_up(driver.mem_release, "cuMemRelease", 10020);
  look_up(driver.mem_map, "cuMemMap", 10020);
  look_up(driver.mem_unmap, "cuMemUnmap", 10020);
  look_up(driver.mem_set_access, "cuMemSetAccess", 10020);
  look_up(driver.mem_export, "cuMemExportToShareableHandle", 10020);
  look_up(driver.mem_import, "cuMemImportFromShareableHandle", 10020);
  look_up(driver.stream_wait_value_32, "cuStreamWaitValue32", 11070);
  look_up(driver.stream_write_value_32, "cuStreamWriteValue32", 11070);
  look_up(driver.tensor_map_encode_tiled, "cuTensorMapEncodeTiled", 12000);
  look_up(driver.primary_context_state, "cuDevicePrimaryCtxGetState", 7000);
  return driver;
}

int attribute_of(const Driver& driver, int device, CUdevice_attribute attribute) {
  int value = 0;
  driver.check(driver.device_get_attribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

CurrentDevice::CurrentDevice(const Driver& driver, int device) {
  int before = device;
  check(cudaGetDevice(&before), "cudaGetDevice");
  check(cudaSetDevice(device), "cudaSetDevice");
  if (before == device) return;
  unsigned flags = 0;
  int active = 0;
  driver.check(driver.primary_context_state(before, &flags, &active), "cuDevicePrimaryCtxGetState");
  if (active != 0) before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
}

namespace {

Stream new_stream(bool urgent) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least),
        "cudaStreamCreateWithPriority");
  return Stream(stream);
}

}  // namespace

Stream new_urgent_stream() { return new_stream(true); }
Stream new_patient_stream() { return new_stream(false); }

HostMemory new_host_memory(size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  HostMemory owned(static_cast<std::byte*>(memory));
  std::memset(memory, 0, bytes);
  return owned;
}

Event new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(event);
}

void wait_for(cudaStream_t stream, const Event& event, unsigned flags) {
  check(cudaStreamWaitEvent(stream, event.get(), flags), "cudaStreamWaitEvent");
}

Event new_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  return Event(event);
}

Graph capture_graph(cudaStream_t stream, cudaStreamCaptureMode mode, const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
  try {
    body();
  } catch (...) {
    // NOTE: end the capture, as a stream in capture is useless.
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t ready = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&ready, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(result, "cudaGraphInstantiate");
  Graph owned(ready);
  check(cudaGraphUpload(ready, stream), "cudaGraphUpload");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return owned;
}

void launch_graph(const Graph& graph, cudaStream_t stream) {
  check(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch");
}

void copy_now(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

std::shared_ptr<std::byte> new_device_memory(int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kLeast = 256;
  // NOTE: cudaMalloc and cudaFree wait for running kernels; with several ranks on a device these wait for each other.
  void* memory = nullptr;
  check(cudaMallocAsync(&memory, static_cast<size_t>(std::max(bytes, kLeast)), stream), "cudaMallocAsync");
  std::shared_ptr<std::byte> owner(static_cast<std::byte*>(memory),
                                   [stream](std::byte* p) { cudaFreeAsync(p, stream); });
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return owner;
}

}  // namespace tilewire::cuda
