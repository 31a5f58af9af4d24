// LL data: stores, polls and resets of elements that are their own flags (core/ll.hpp).
// Used by all kernels that access such workspace. NOTE: data that are written 16 bytes at a time may be read one
// element
// at a time, and the other way round. Only the elements, which are aligned, must arrive whole.
#pragma once

#include "backends/cuda/kernels/elements.cuh"
#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/task_span.hpp"

namespace tilewire::cuda {

/// Store LL data. Relaxed at system scope: no order is needed, as the reader polls the words themselves.
/// NOTE: double-buffered data rest on more. A word that is reset in one call is stored by a peer two calls later.
/// Between the two, the grid of the reset has ended (griddepcontrol.wait, too, waits for its memory operations), and
/// the peer has polled data of the next grid.
__device__ inline void publish(void* to, const uint4& words) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ inline void publish(void* to, uint32_t word) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ inline void publish(void* to, uint16_t half) {
  asm volatile("st.relaxed.sys.global.b16 [%0], %1;" ::"l"(to), "h"(half) : "memory");
}

/// Poll LL data, if `wanted`. Relaxed at system scope, as publish. NOTE: a predicated load, no jump.
__device__ inline void poll_words(const void* from, bool wanted, uint4& words) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.u32 p, %5, 0;\n"
      "@p ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted))
      : "memory");
}
/// Poll one element. It is in the low bits; the bits above a 16-bit element are zero.
__device__ inline uint32_t look_at_element(const void* from, DType dtype) {
  uint32_t word = 0;
  if (element_bytes(dtype) == 4) {
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
  }
  uint16_t half = 0;
  asm volatile("ld.relaxed.sys.global.b16 %0, [%1];" : "=h"(half) : "l"(from) : "memory");
  return half;
}

/// Whether a polled element has arrived.
__device__ inline bool has_come(uint32_t element, DType dtype) {
  return element != (element_bytes(dtype) == 4 ? 0xFFFFFFFF : 0xFFFF);
}
/// Not 0 if a 16-bit half of the words is missing. (A half of all ones is a zero half of the complement.)
__device__ inline uint32_t missing_halves(const uint4& words) {
  const auto missing = [](uint32_t word) { return (0xFFFEFFFE - word) & word & 0x80008000; };
  return missing(words.x) | missing(words.y) | missing(words.z) | missing(words.w);
}

/// The bits to publish. A NaN becomes 0x7FFFFFFF, as arithmetic makes it: all ones would mean a missing element.
__device__ inline uint32_t bits_to_publish(float value) { return isnan(value) ? 0x7FFFFFFF : __float_as_uint(value); }

/// As store_element, for LL data.
__device__ inline void publish_element(std::byte* to, DType dtype, float value) {
  if (element_bytes(dtype) == 4) return publish(to, bits_to_publish(value));
  uint16_t half = 0;
  store_element(reinterpret_cast<std::byte*>(&half), dtype, value);
  publish(to, half);
}

/// One thread's polls during an op. They end at the deadline, or when the team breaks.
struct Patience {
  const WaitWatch& watch;
  uint32_t task;
  uint64_t epoch;
  bool first = false;        ///< first thread of its warpgroup: also polls WaitWatch::stop
  TaskSpan* span = nullptr;  ///< gets the time when the first data are there
  uint64_t begin = 0;
  uint32_t polls = 0;
  bool told = false;  ///< the team broke
  bool over = false;

  /// Whether to poll again. NOTE: no sleep between polls: a sleep takes as long as the data.
  __device__ bool lasts() {
    if (polls == 0) begin = ptx::global_time_ns();
    if (++polls % 32 != 0) return true;
    told = first ? must_leave(watch, polls) : is_aborted(watch);
    over = told || ptx::global_time_ns() - begin > watch.timeout_ns;
    return !over;
  }

  /// Report that source number `source` of the op has not arrived. The op must not go on.
  __device__ void give_up(uint32_t source) const {
    report_failure(watch, {.task = task, .wait = kDataOfPeers, .seen = source, .epoch = epoch, .told = told});
  }

  __device__ void has_begun() {
    if (span != nullptr) span->start = ptx::global_time_ns();
    span = nullptr;
  }
};

/// Set taken data back to ones. No other thread may take the same data.
__device__ inline void clear_words(std::byte* from) {
  *reinterpret_cast<uint4*>(from) = make_uint4(~0u, ~0u, ~0u, ~0u);
}

/// Poll an element until it arrives, take it and set it back to ones. Returns 0 if the polls end without it.
__device__ inline float take_element(std::byte* from, DType dtype, uint32_t source, Patience& patience) {
  uint32_t element = look_at_element(from, dtype);
  while (!has_come(element, dtype)) {
    if (!patience.lasts()) {
      patience.give_up(source);
      return 0;
    }
    element = look_at_element(from, dtype);
  }
  patience.has_begun();
  if (element_bytes(dtype) == 4) {
    *reinterpret_cast<uint32_t*>(from) = 0xFFFFFFFF;
  } else {
    *reinterpret_cast<uint16_t*>(from) = 0xFFFF;
  }
  return load_element(reinterpret_cast<const std::byte*>(&element), dtype);
}

}  // namespace tilewire::cuda
