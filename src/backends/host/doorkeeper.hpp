// Rank 0's side of start-up: listens under the job's name, receives all hellos, and sends the shared memory.
// Called by rendezvous.cpp, and by monitors for late connections.
#pragma once

#include <optional>
#include <string>

#include "backends/host/rendezvous.hpp"
#include "backends/host/wire.hpp"

namespace tilewire::host {

/// "rank 1 (process 77)".
[[nodiscard]] std::string name_of(int rank, pid_t pid);
/// The exception that is being handled, with the name of this rank: "rank 1 (process 77): ...".
[[nodiscard]] Error error_of_rank(int rank);
/// "job 'x' did not start: ...".
[[nodiscard]] std::string did_not_start(const std::string& job, const std::string& why);

/// `meet` for rank 0. Nothing if another process listens under the name.
[[nodiscard]] std::optional<Membership> keep_door(const JoinOptions& options, const Hello& mine);

/// Answer one connection: the job is already running. `ending`: a rank has left, and the connection may come from the
/// next job of the same name; it then gets no answer and tries again until the name is free. False if this process has
/// no room for a socket.
bool turn_away(const Descriptor& door, const std::string& job, int num_ranks, bool ending);

}  // namespace tilewire::host
