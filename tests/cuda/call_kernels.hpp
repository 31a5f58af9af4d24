// Kernels before and after calls of operators: new inputs, poisoned outputs, a hash of the results, delays.
// Used by calls.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tilewire/tensor.hpp"

#ifdef __CUDACC__
#define TILEWIRE_TEST_BOTH __host__ __device__
#else
#define TILEWIRE_TEST_BOTH
#endif

namespace tilewire::testing {

/// A hash of two numbers.
TILEWIRE_TEST_BOTH constexpr uint64_t mix(uint64_t x, uint64_t y) {
  uint64_t z = x + 0x9E3779B97F4A7C15 * (y + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// The key of an input's random matrix.
constexpr uint64_t key_of(uint64_t seed, int rank, int buffer) { return mix(mix(seed, rank), buffer); }

/// Element number `at` of an input: from -1 to 127/128 in steps of 1/128, which every type has.
TILEWIRE_TEST_BOTH constexpr float input_value(uint64_t key, int64_t at) {
  return static_cast<float>(mix(key, static_cast<uint64_t>(at)) >> 56) / 128.0F - 1.0F;
}

/// Load these kernels now. NOTE: loading a kernel at its first launch would wait for all work of the device, and ranks
/// that share it wait for each other. Throws Error.
void load_call_kernels();

// The functions below enqueue in the stream, and throw Error.

/// Fill a dense tensor of fp32, bf16 or fp16 with input_value(key, 0), input_value(key, 1), ...
void fill_input(const Tensor& tensor, uint64_t key, cudaStream_t stream);
/// Set every bit.
void poison(const Tensor& tensor, cudaStream_t stream);
/// Add a hash of all bits, and of their places, to *sum. The tensor's bytes are a multiple of 4.
void add_hash(const Tensor& tensor, uint64_t* sum, cudaStream_t stream);
void delay(double us, cudaStream_t stream);

}  // namespace tilewire::testing
