// Tests that start CUDA do so in a child process: this one stays fit to fork ranks, and outlives whatever happens.
// Used by group_test.cpp.
#pragma once

#include <functional>
#include <string>

namespace tilewire::testing {

/// Fork, run `body` in the child, fail the test with the child's Error or with what killed it. What `body` returns.
std::string in_child(const std::function<std::string()>& body);

/// GPUs that this machine has, 0 where the backend is not available.
[[nodiscard]] int num_gpus_here();

/// In a child, before CUDA starts: see the first of the visible GPUs only.
void see_one_gpu();

}  // namespace tilewire::testing
