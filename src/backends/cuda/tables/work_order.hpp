// The order in which a rank's work is handed to its streams.
// Called when programs are made.
#pragma once

#include <cstdint>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// An order of all tasks of all ranks in which no task waits for a later one: [lane][task] is the task's place. Streams
/// that share a queue of the device (CUDA_DEVICE_MAX_CONNECTIONS) do their work in the order of the enqueues; in an
/// order like this one, ranks cannot deadlock.
[[nodiscard]] std::vector<std::vector<int64_t>> order_of_tasks(const Plan& plan);

}  // namespace tilewire::cuda
