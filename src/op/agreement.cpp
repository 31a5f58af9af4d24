// Checks that all ranks make the same request of `make_op`.
// Called by make_op.cpp.
#include "op/agreement.hpp"

#include "backends/messages.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/error.hpp"
#include "tilewire/json.hpp"

namespace tilewire {

using nlohmann::json;

namespace {

std::string value_of(const json& of, const std::string& field) {
  return of.contains(field) ? shown(of[field]) : "its default";
}

/// "m = 64 and 128, dtype = its default and "fp16"".
std::string differences(const json& x, const json& y) {
  json fields = x;
  fields.update(y);
  std::vector<std::string> texts;
  for (const auto& [field, value] : fields.items()) {
    if (value_of(x, field) == value_of(y, field)) continue;
    texts.push_back(fmt::format("{} = {} and {}", field, value_of(x, field), value_of(y, field)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

bool checks(const OpOptions& options) {
#ifdef NDEBUG
  constexpr bool kDefault = false;
#else
  constexpr bool kDefault = true;
#endif
  return options.check.value_or(kDefault);
}

json request_of(const Problem& problem, const std::optional<Config>& config, const OpOptions& options) {
  json request = problem;
  request["check"] = checks(options);
  request["config"] = config ? "given" : "auto";
  if (!config) request["tuning"] = options.tuning;
  if (!config) return request;
  const json knobs = *config;
  for (const auto& [knob, value] : knobs.items()) request[fmt::format("config.{}", knob)] = value;
  return request;
}

void require_same(Group& group, const std::function<json()>& read) {
  const std::vector<std::string> all = agree(group, "make_op", [&] { return json_text(read()); });
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require(all[rank] == all[0], "ranks 0 and {} make different requests: {}", rank,
            differences(parse_json(all[0], "a request"), parse_json(all[rank], "a request")));
  }
}

}  // namespace tilewire
