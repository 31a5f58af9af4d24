// The processes of one host find each other by a job name and share memory.
// Called by join. Rank 0's socket stays open, so that a second job of the same name gets an error.
#pragma once

#include <memory>
#include <string>

#include "backends/host/segment.hpp"
#include "core/descriptor.hpp"
#include "tilewire/group.hpp"

namespace tilewire::host {

/// The result of start-up for one rank.
struct Membership {
  std::shared_ptr<Segment> segment;
  Descriptor door;  ///< rank 0: the listening socket for later processes of the same job name
};

/// Throw Error(invalid_input) unless the timeout is positive.
void require_timeout(double timeout_s);
/// Throw Error(invalid_input) if the number of SMs is negative.
void require_sms(int sms);

/// Meet all ranks of the job. Collective: returns when all ranks have mapped the shared memory, or throws on all of
/// them: Error(timeout) with the silent ranks, Error(invalid_input) if ranks disagree, Error(rank_lost) if a rank died,
/// Error(unsupported) if the system refused something to a rank, or if a rank is in another PID namespace.
[[nodiscard]] Membership meet(const JoinOptions& options);

}  // namespace tilewire::host
