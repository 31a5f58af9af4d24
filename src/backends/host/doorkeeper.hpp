// Rank 0's side of start-up: it keeps the door, collects everybody's hello and hands out the shared memory.
// Called by rendezvous.cpp, and by monitors for late knocks.
#pragma once

#include <optional>
#include <string>

#include "backends/host/rendezvous.hpp"
#include "backends/host/wire.hpp"

namespace tilewire::host {

/// "rank 1 (process 77)".
[[nodiscard]] std::string name_of(int rank, pid_t pid);
/// The exception that is being handled, named after this rank: "rank 1 (process 77): ...".
[[nodiscard]] Error error_of_rank(int rank);
/// "job 'x' did not start: ...".
[[nodiscard]] std::string did_not_start(const std::string& job, const std::string& why);

/// What meet promises, for rank 0. Nothing where another process holds the name.
[[nodiscard]] std::optional<Membership> keep_door(const JoinOptions& options, const Hello& mine);

/// Tell whoever knocks that the job is running already. `ending`: a rank has left, and may be who knocks; then they are
/// told nothing, and knock until the door is the next job's. Says whether that was possible: it is not where this
/// process has no room for a socket.
bool turn_away(const Descriptor& door, const std::string& job, int num_ranks, bool ending);

}  // namespace tilewire::host
