// A library with NCCL's entry points whose ranks are threads and whose devices are memory of the host.
// Loaded by nccl_test.cpp, which tells it how to misbehave.
#pragma once

namespace tilewire::testing {

/// What the fake does from now on.
enum class FakeNccl {
  works,
  hangs_in_init,   ///< on rank 1, until the test ends it
  fails_in_init,   ///< on rank 1, at once
  hangs_in_calls,  ///< of rank 1, until the communicator is aborted
};

/// Communicators so far.
struct FakeNcclUse {
  int made = 0;
  int destroyed = 0;
  int aborted = 0;
};

}  // namespace tilewire::testing

extern "C" {
/// Found by name in the loaded library.
void fake_nccl_does(tilewire::testing::FakeNccl what);
tilewire::testing::FakeNcclUse fake_nccl_use();
}
