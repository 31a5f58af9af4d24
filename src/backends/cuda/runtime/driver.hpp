// CUDA's runtime and driver for the backend: failures become Errors, libcuda is looked up at run time.
// Used by every other file of this folder.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace tilewire::cuda {

/// Throw an Error with the call and CUDA's name and text, unless `result` is success: invalid_input if memory is short,
/// unsupported if there is no usable GPU, else internal.
void check(cudaError_t result, const char* call);

/// Entry points of the driver. They are not linked, so that a program starts on machines without a driver.
struct Driver {
  PFN_cuGetErrorName_v6000 get_error_name = nullptr;
  PFN_cuGetErrorString_v6000 get_error_string = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 mem_get_allocation_granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 mem_address_reserve = nullptr;
  PFN_cuMemAddressFree_v10020 mem_address_free = nullptr;
  PFN_cuMemCreate_v10020 mem_create = nullptr;
  PFN_cuMemRelease_v10020 mem_release = nullptr;
  PFN_cuMemMap_v10020 mem_map = nullptr;
  PFN_cuMemUnmap_v10020 mem_unmap = nullptr;
  PFN_cuMemSetAccess_v10020 mem_set_access = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 mem_export = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 mem_import = nullptr;
  PFN_cuStreamWaitValue32_v11070 stream_wait_value_32 = nullptr;
  PFN_cuStreamWriteValue32_v11070 stream_write_value_32 = nullptr;
  PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encode_tiled = nullptr;
  PFN_cuDevicePrimaryCtxGetState_v7000 primary_context_state = nullptr;

  /// The same for results of the driver.
  void check(CUresult result, const char* call) const;
};

/// Throws Error(unsupported) if there is no driver, or if it lacks an entry point.
[[nodiscard]] Driver load_driver();

/// An attribute of a device, from the driver.
[[nodiscard]] int attribute_of(const Driver& driver, int device, CUdevice_attribute attribute);

/// Makes a device the calling thread's current one. The destructor restores the device before, if this process has a
/// context there: otherwise the restoration would create one.
class CurrentDevice {
 public:
  CurrentDevice(const Driver& driver, int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

 private:
  int before_ = -1;  ///< device to restore, or -1
};

struct StreamDestroyer {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, StreamDestroyer>;
/// A stream of the current device with the greatest priority. It does not synchronise with the legacy default stream.
[[nodiscard]] Stream new_urgent_stream();
/// The same with the least priority.
[[nodiscard]] Stream new_patient_stream();

struct EventDestroyer {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, EventDestroyer>;
/// An event of the current device without timing.
[[nodiscard]] Event new_event();
/// Order later work of the stream after the event.
void wait_for(cudaStream_t stream, const Event& event, unsigned flags = 0);
/// An event with timing.
[[nodiscard]] Event new_timing_event();

struct GraphDestroyer {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
/// An instantiated graph.
using Graph = std::unique_ptr<CUgraphExec_st, GraphDestroyer>;
/// Capture what `body` enqueues in the stream, in this mode. The stream is empty afterwards.
[[nodiscard]] Graph capture_graph(cudaStream_t stream, cudaStreamCaptureMode mode, const std::function<void()>& body);
void launch_graph(const Graph& graph, cudaStream_t stream);

struct HostMemoryFreer {
  void operator()(std::byte* memory) const { cudaFreeHost(memory); }
};
using HostMemory = std::unique_ptr<std::byte, HostMemoryFreer>;
/// Zeroed host memory that all devices of this process address by the same pointer.
[[nodiscard]] HostMemory new_host_memory(size_t bytes);

/// Copy between any memories, in `stream`; complete on return. NOTE: cudaMemcpy returns before the last part of
/// pageable memory is on the device.
void copy_now(void* to, const void* from, int64_t bytes, cudaStream_t stream = cudaStreamPerThread);

/// Memory of the current device with undefined content. It is allocated and freed in `stream`, which must outlive it.
/// Throws Error(invalid_input) if there is not enough.
[[nodiscard]] std::shared_ptr<std::byte> new_device_memory(int64_t bytes, cudaStream_t stream = cudaStreamPerThread);

}  // namespace tilewire::cuda
