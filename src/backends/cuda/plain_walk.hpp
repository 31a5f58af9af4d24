// The host's view of the plain walkers: kernels for lanes of plain copies, or of plain sums, and nothing else. They are
// short: what runs between a call of the library and its peers comes from memory, and of a long kernel that takes
// longer than the work does. Called by programs, around calls that stand in line.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/walk_table.hpp"

namespace tilewire::cuda {

struct HostWalk;

/// What all heavy lanes of a kernel have in common.
enum class Plain : uint8_t {
  no,      ///< other steps too, steps that CTAs share, epilogues, other types: the walker takes them
  copies,  ///< the same bytes, in units of 16
  sums,    ///< of one 16-bit type, not weighted, in units of eight elements, stored as that type
};
/// Of the lanes that come `after` a call in line, or of the others.
[[nodiscard]] Plain plain_steps(const HostWalk& walk, bool after);

/// Load the kernels into the current device: the first launch of one that is not there waits for all that run.
void load_plain_walk_kernels();

/// As launch_walk. `kind`: not Plain::no.
void launch_plain_walk(const WalkLaunch& launch, Plain kind, const Opening& opening, bool ends_call,
                       cudaStream_t stream);

}  // namespace tilewire::cuda
