// Calls of a program in sequence, eager or as graph replays, timed by the device's clock and by the host's.
// Called by the bench and by the tuner through Program::time_on_device.
#include <chrono>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/program.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cuda {
namespace {

/// Events around calls that are timed together.
struct Timed {
  Event start = new_timing_event();
  Event stop = new_timing_event();
};

/// Bytes of a memset that evicts everything else from the device's L2 cache.
int64_t bytes_over_cache(int device) {
  int cache = 0;
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return int64_t{4} * cache;
}

}  // namespace

const Graph& CudaProgram::replay_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool traced) {
  Bound& bound = bind(bases_of(inputs, outputs), traced, true);
  if (bound.replay && bound.replayed == bound.current) return bound.replay;
  const cudaStream_t stream = group_.call_stream();
  // NOTE: ranks may be threads of one process; a stricter capture mode would restrict the other threads.
  bound.replay =
      capture_graph(stream, cudaStreamCaptureModeRelaxed, [&] { enqueue_call(bound, stream, capture_of(stream)); });
  bound.replayed = bound.current;
  return bound.replay;
}

std::optional<BurstTime> CudaProgram::time_on_device(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                                     const Burst& burst) {
  // NOTE: if ranks share a device, several queued calls of one rank block the other ranks.
  if (group_.shares_device()) return std::nullopt;
  const CurrentDevice device(group_.driver(), group_.device());
  const BesideCapture beside;
  throw_if_failed();
  traced_ = nullptr;
  const cudaStream_t stream = group_.call_stream();
  group_.calls().follow_calls(stream);
  const RunOptions options{.trace = burst.trace, .stream = stream};
  const Graph* replay = burst.graph ? &replay_of(inputs, outputs, burst.trace) : nullptr;
  const auto call = [&] { replay == nullptr ? run(inputs, outputs, options) : launch_graph(*replay, stream); };
  const int64_t sweep = burst.cold ? bytes_over_cache(group_.device()) : 0;
  const std::shared_ptr<std::byte> swept = burst.cold ? new_device_memory(sweep, stream) : nullptr;
  const std::vector<Timed> parts(burst.cold ? burst.calls : 1);
  const int calls_of_part = burst.cold ? 1 : burst.calls;
  BurstTime time;
  call();
  for (const Timed& part : parts) {
    if (burst.cold) check(cudaMemsetAsync(swept.get(), 0, static_cast<size_t>(sweep), stream), "cudaMemsetAsync");
    check(cudaEventRecord(part.start.get(), stream), "cudaEventRecord");
    for (int i = 0; i < calls_of_part; ++i) {
      const auto before = std::chrono::steady_clock::now();
      call();
      time.enqueue_us.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count());
    }
    check(cudaEventRecord(part.stop.get(), stream), "cudaEventRecord");
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  throw_if_failed();
  for (const Timed& part : parts) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, part.start.get(), part.stop.get()), "cudaEventElapsedTime");
    time.us += 1e3 * static_cast<double>(ms) / burst.calls;
  }
  return time;
}

}  // namespace tilewire::cuda
