// In which order a rank's streams are handed their work.
// Called when programs are made.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// An order of all tasks in which none waits for a later one, on any rank: [lane][task] is the task's place. Streams
/// that share a queue of the device (CUDA_DEVICE_MAX_CONNECTIONS) do their work in the order in which it was handed to
/// them, and an order like this one cannot make ranks wait in a circle.
[[nodiscard]] std::vector<std::vector<int64_t>> order_of_tasks(const Plan& plan);

}  // namespace tilewire::cuda
