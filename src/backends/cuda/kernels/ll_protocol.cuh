// Elements that say themselves that they have arrived (see core/ll.hpp): publish, look, take.
// Used by whoever writes or reads such workspace. NOTE: what is written 16 bytes at a time may be read an element at a
// time, and the other way round: only the elements, which are aligned, have to come whole.
#pragma once

#include "backends/cuda/kernels/elements.cuh"
#include "backends/cuda/kernels/signal_device.cuh"
#include "backends/cuda/kernels/task_spans.hpp"

namespace tilewire::cuda {

/// Store where somebody looks. Relaxed at system scope: orders nothing, the words are all that there is to see.
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

/// Look at what somebody publishes, if at all. Relaxed at system scope: see publish. NOTE: a predicate, no jump.
__device__ inline void poll_words(const void* from, bool wanted, uint4& words) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.u32 p, %5, 0;\n"
      "@p ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)
      : "l"(from), "r"(static_cast<uint32_t>(wanted))
      : "memory");
}
/// One element in the low bits; above those of a short one, zeros.
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

/// Whether an element is here.
__device__ inline bool has_come(uint32_t element, DType dtype) {
  return element != (element_bytes(dtype) == 4 ? 0xFFFFFFFF : 0xFFFF);
}
/// Not 0 if a half of the words is missing. (A half of all ones is a zero half of the complement.)
__device__ inline uint32_t missing_halves(const uint4& words) {
  const auto missing = [](uint32_t word) { return (0xFFFEFFFE - word) & word & 0x80008000; };
  return missing(words.x) | missing(words.y) | missing(words.z) | missing(words.w);
}

/// A number of 32 bits that is NaN has the bits that arithmetic gives it, not those of one that somebody passed on.
__device__ inline uint32_t bits_to_publish(float value) { return isnan(value) ? 0x7FFFFFFF : __float_as_uint(value); }

/// As store_element, where somebody looks.
__device__ inline void publish_element(std::byte* to, DType dtype, float value) {
  if (element_bytes(dtype) == 4) return publish(to, bits_to_publish(value));
  uint16_t half = 0;
  store_element(reinterpret_cast<std::byte*>(&half), dtype, value);
  publish(to, half);
}

/// One thread's looks during a step, which end when the deadline passes or the team leaves.
struct Patience {
  const WaitWatch& watch;
  uint32_t task;
  uint64_t epoch;
  bool first = false;        ///< of its warpgroup: looks at the host's word
  TaskSpan* span = nullptr;  ///< takes the time when the first of it is here
  uint64_t begin = 0;
  uint32_t polls = 0;
  bool told = false;  ///< by others to leave
  bool over = false;

  /// Whether to look again. NOTE: no sleep between looks: it lasts as long as the data takes.
  __device__ bool lasts() {
    if (polls == 0) begin = ptx::global_time_ns();
    if (++polls % 32 != 0) return true;
    told = first ? must_leave(watch, polls) : is_aborted(watch);
    over = told || ptx::global_time_ns() - begin > watch.timeout_ns;
    return !over;
  }

  /// Say that the step's source of this number has not come. The step must not go on.
  __device__ void give_up(uint32_t source) const {
    report_failure(watch, {.task = task, .wait = kDataOfPeers, .seen = source, .epoch = epoch, .told = told});
  }

  __device__ void has_begun() {
    if (span != nullptr) span->start = ptx::global_time_ns();
    span = nullptr;
  }
};

/// Put what was taken back to what it was. Nobody else may take it.
__device__ inline void clear_words(std::byte* from) {
  *reinterpret_cast<uint4*>(from) = make_uint4(~0u, ~0u, ~0u, ~0u);
}

/// Wait for an element, take it and clear it; or nothing, if patience is over.
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
