// The host's view of the plain walkers: kernels for lanes of plain copies, or of plain sums and copies, and nothing
// else. They are short: what runs between a call of the library and its peers comes from memory, and of a long kernel
// that takes longer than the work does. Called by programs, around calls that stand in line.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

struct HostWalk;

/// What all heavy lanes of a kernel have in common.
enum class Plain : uint8_t {
  no,      ///< other steps too, steps that CTAs share, epilogues, other types: the walker takes them
  copies,  ///< the same bytes, in units of 16
  sums,    ///< of one 16-bit type, not weighted, in units of eight elements, stored as that type; and copies
};
/// Of the lanes that come `after` a call in line, or of the others.
[[nodiscard]] Plain plain_steps(const HostWalk& walk, bool after);

/// Most records of a kind that a step of the plain walkers has.
inline constexpr uint32_t kPlainRecords = 8;

/// A step with all that it needs, in one place: records that lie apart come from memory one after another, and the
/// first ones of a kernel are what peers wait for. `first_...` of the step count from its own records.
struct alignas(128) PlainStep {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  StepRecord step{};
  uint32_t next = kNone;  ///< of the same CTA
  WaitRecord waits[kPlainRecords]{};
  SourceRecord sources[kPlainRecords]{};
  TargetRecord targets[kPlainRecords]{};
  PostRecord posts[kPlainRecords]{};
};

/// The steps of lanes that plain_steps allows: the first one of each CTA of the kernel, then the others.
[[nodiscard]] std::vector<PlainStep> lay_out_steps(const HostWalk& walk, bool after);

/// What a plain walker is launched with beside what all walkers are.
struct PlainWalk {
  Plain kind = Plain::no;
  const PlainStep* steps = nullptr;
};

/// Load the kernels into the current device: the first launch of one that is not there waits for all that run.
void load_plain_walk_kernels();

/// As launch_walk. `plain.kind`: not Plain::no.
void launch_plain_walk(const WalkLaunch& launch, const PlainWalk& plain, const Opening& opening, bool ends_call,
                       cudaStream_t stream);

}  // namespace tilewire::cuda
