// How processes of one host find each other by a job name and come to share memory.
// Called by join; the door stays open so that a second job of the same name hears why it cannot start.
#pragma once

#include <memory>
#include <string>

#include "backends/host/segment.hpp"
#include "core/descriptor.hpp"
#include "tilewire/group.hpp"

namespace tilewire::host {

/// What start-up gives a rank.
struct Membership {
  std::shared_ptr<Segment> segment;
  Descriptor door;  ///< rank 0: where later processes of the same job name knock
};

/// Throw Error(invalid_input) unless it is a time to wait.
void require_timeout(double timeout_s);
/// Throw Error(invalid_input) unless it is a number of SMs, or 0.
void require_sms(int sms);

/// Collective: returns when all ranks are here and have mapped the shared memory, or throws on all of them:
/// Error(timeout) that names the silent ranks, Error(invalid_input) for ranks that disagree, Error(rank_lost) for one
/// that died, Error(unsupported) for one that the system refused something, or that is in another pid namespace.
[[nodiscard]] Membership meet(const JoinOptions& options);

}  // namespace tilewire::host
