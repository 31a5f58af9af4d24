// How processes of one host find each other by a job name and come to share memory.
// Called by join; the door stays open so that a second job of the same name hears why it cannot start.
#pragma once

#include <memory>
#include <string>

#include "backends/host/segment.hpp"
#include "tilewire/backend.hpp"

namespace tilewire::host {

/// What start-up gives a rank.
struct Membership {
  std::shared_ptr<Segment> segment;
  Descriptor door;  ///< rank 0: where later processes of the same job name knock
};

/// Throw Error(invalid_input) unless it is a time to wait.
void require_timeout(double timeout_s);

/// Collective: returns when all ranks are here, or throws on all of them: Error(timeout) that names the
/// silent ranks, Error(invalid_input) for ranks that disagree, Error(rank_lost) for one that died.
[[nodiscard]] Membership meet(const JoinOptions& options);

/// Tell whoever knocks that the job is running already. `ending`: a rank has left, and may be who knocks; then they are
/// told nothing, and knock until the door is the next job's.
void turn_away(const Descriptor& door, const std::string& job, int num_ranks, bool ending);

}  // namespace tilewire::host
