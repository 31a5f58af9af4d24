// Messages of the ranks' exchange: a verb, which says what the rank is doing, and a text.
// Called by what is collective: make_op, barrier, allocate. Group::all_gather carries them, and compares the verbs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tilewire/backend.hpp"

namespace tilewire {

/// What the sender of a message is doing, "make_op"; "all_gather" where the message has no verb.
[[nodiscard]] std::string_view verb_of(std::string_view message);

/// Everybody's texts, by rank, for a step that all ranks must be at. Throws Error(invalid_input) on all of them where
/// some are at another one. Collective.
[[nodiscard]] std::vector<std::string> exchange(Group& group, std::string_view verb, std::string_view mine);

/// Throw Error(invalid_input) unless all messages, by rank, have the same verb.
void require_one_verb(const std::vector<std::string>& messages);

}  // namespace tilewire
