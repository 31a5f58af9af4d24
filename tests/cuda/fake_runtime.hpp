// A CUDA runtime on the fake driver, linked in place of the real one, so that groups can be tested without a GPU.
// Used by join_test.cpp and nccl_test.cpp.
#pragma once

namespace tilewire::testing {

/// GPUs that this process sees: H200s of 132 SMs. Two at start.
void set_fake_gpus(int count);
/// What GPUs are from now on in this process: of which compute capability, "9.0", and whether they add to each other's
/// memory. As H200s at start.
void set_fake_kind(int major, bool atomics);
/// Pages, and streams and events, that were handed out and not given back, in this process.
[[nodiscard]] int fake_pages();
[[nodiscard]] int fake_streams();

}  // namespace tilewire::testing
