// Times of launches on the device's clock: in bursts with warm caches, or one by one with cold caches.
// Used by cuda_gemm.cu.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#define CHECK(call)                                                                         \
  do {                                                                                      \
    if (const auto status_ = (call); status_) {                                             \
      std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, (int)status_); \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (0)

namespace tilewire::bench {

/// Keeps the device busy while the host enqueues further work.
static __global__ void pause() {
  for (int i = 0; i < 50; ++i) __nanosleep(1000);
}

using Launch = std::function<void()>;
inline constexpr size_t kCacheBytes = 128u << 20;  // more than any L2 cache

struct Timer {
  cudaStream_t stream{};
  cudaEvent_t start{};
  cudaEvent_t stop{};
  void* cache{};  // kCacheBytes to overwrite before each launch; null: launches come in bursts

  /// us per launch: of `count` in a burst, or of a single one with cold caches.
  double sample(const Launch& launch, int count) const {
    return cache != nullptr ? cold(launch) : burst(launch, count);
  }

  double cold(const Launch& launch) const {
    CHECK(cudaStreamSynchronize(stream));
    pause<<<1, 1, 0, stream>>>();
    CHECK(cudaMemsetAsync(cache, 0, kCacheBytes, stream));
    CHECK(cudaEventRecord(start, stream));
    launch();
    CHECK(cudaEventRecord(stop, stream));
    return elapsed();
  }

  /// us per launch of `count` in a burst, after a pause.
  double burst(const Launch& launch, int count) const {
    CHECK(cudaStreamSynchronize(stream));
    usleep(15000);
    launch();
    CHECK(cudaEventRecord(start, stream));
    for (int i = 0; i < count; ++i) launch();
    CHECK(cudaEventRecord(stop, stream));
    return elapsed() / count;
  }

  double elapsed() const {
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    return 1e3 * ms;
  }
};

}  // namespace tilewire::bench
