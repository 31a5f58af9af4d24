// Messages of collective functions: a verb, which names the function, and a text.
// Called by all collective functions (make_op, barrier, allocate). Group::all_gather sends them and compares the verbs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewire/group.hpp"

namespace tilewire {

/// The function that sent a message, "make_op"; "all_gather" if the message has no verb.
[[nodiscard]] std::string_view verb_of(std::string_view message);

/// Exchange texts; returns them by rank. Throws Error(invalid_input) on all ranks if ranks are at different functions.
/// Collective.
[[nodiscard]] std::vector<std::string> exchange(Group& group, std::string_view verb, std::string_view mine);

/// Call `step` on every rank, and return the texts by rank. If it throws on some ranks, all ranks throw the Error of
/// the lowest, "rank 1: ..." (without a rank if all failed with the same text), even if other ranks are at another
/// function. The group stays usable. Collective.
std::vector<std::string> agree(Group& group, std::string_view verb, const std::function<std::string()>& step);

/// Throw the Error of a rank that failed, or Error(invalid_input) unless all messages, by rank, have the same verb.
void require_one_step(const std::vector<std::string>& messages);

}  // namespace tilewire
