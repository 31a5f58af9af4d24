// A CUDA runtime on the fake driver, linked in place of the real one, to test groups without a GPU.
// Used by join_test.cpp and nccl_test.cpp.
#pragma once

namespace tilewire::testing {

/// GPUs that this process sees: H200s of 132 SMs. Two at start.
void set_fake_gpus(int count);
/// The GPUs of this process from now on: compute capability `major`.0, and whether they have atomics in each other's
/// memory. At start as H200s.
void set_fake_kind(int major, bool atomics);
/// Status pages, streams and events that were handed out and not given back, in this process.
[[nodiscard]] int fake_pages();
[[nodiscard]] int fake_streams();

}  // namespace tilewire::testing
