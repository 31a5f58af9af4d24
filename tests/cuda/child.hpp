// Tests that start CUDA do so in a child process: the parent can still fork ranks, and survives failures.
// Used by group_test.cpp.
#pragma once

#include <functional>
#include <string>

namespace tilewire::testing {

/// Fork, run `body` in the child, and return its result. A child's Error, or its death by a signal, fails the test.
std::string in_child(const std::function<std::string()>& body);

/// Number of GPUs of this machine, 0 if the backend is not available.
[[nodiscard]] int num_gpus_here();

/// In a child, before CUDA starts: make only the first of the visible GPUs visible.
void see_one_gpu();

}  // namespace tilewire::testing
