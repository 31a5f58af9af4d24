// A fake library with NCCL's entry points; its ranks are threads, its devices are host memory.
// Loaded by nccl_test.cpp, which chooses its failures.
#pragma once

namespace tilewire::testing {

/// How the fake behaves from now on.
enum class FakeNccl {
  works,
  hangs_in_init,   ///< on rank 1, until the test ends it
  fails_in_init,   ///< on rank 1, at once
  hangs_in_calls,  ///< of rank 1, until the communicator is aborted
};

/// Numbers of communicators so far.
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
