// The rows of bench and sim: schedules of --schedule, or a list of configs in the file of --configs.
// Called by bench and sim.
#include "cli/entries.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/flag_files.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

using nlohmann::json;

Options with_set(const Options& options, const std::vector<std::string>& set) {
  Options with = options;
  with.set = set;
  return with;
}

std::string text_field(const json& item, const char* field, const std::string& by_default) {
  if (!item.contains(field)) return by_default;
  require(item[field].is_string(), "'{}' = {}: want text", field, shown(item[field]));
  return item[field].get<std::string>();
}

Entry entry_of(const json& item, const Options& options) {
  require(item.is_object(), "want {{\"name\": .., \"schedule\": .., \"set\": {{..}}}}, got {}", shown(item));
  for (const auto& [key, value] : item.items()) {
    require(key == "name" || key == "schedule" || key == "set", "unknown field '{}'; known: name, schedule, set",
            shown_name(key));
  }
  Entry entry{.name = text_field(item, "name", ""),
              .schedule = text_field(item, "schedule", "fused"),
              .set = options.set,
              .may_be_refused = true};
  require(!entry.name.empty(), "no 'name'");
  entry.schedule = find_schedule(entry.schedule).name;
  const json knobs = item.value("set", json::object());
  require(knobs.is_object(), "'set' = {}: want {{knob: value}}", shown(knobs));
  for (const auto& [knob, value] : knobs.items()) {
    entry.set.push_back(knob + "=" + plain_text(value));
  }
  static_cast<void>(with_knobs({}, with_set(options, entry.set)));
  return entry;
}

std::vector<Entry> entries_of_file(const Options& options) {
  const std::string& path = options.configs;
  const json list = read_json(path);
  require(list.is_array() && !list.empty(), "{}: want a list of {{\"name\": .., \"schedule\": .., \"set\": {{..}}}}",
          path);
  std::vector<Entry> entries;
  for (size_t i = 0; i < list.size(); ++i) {
    try {
      Entry entry = entry_of(list[i], options);
      require(std::ranges::find(entries, entry.name, &Entry::name) == entries.end(), "a second config named '{}'",
              entry.name);
      entries.push_back(std::move(entry));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}[{}]: {}", path, i, error.what()));
    }
  }
  return entries;
}

}  // namespace

void add_configs_flag(CLI::App& verb, Options& options) {
  verb.add_option("--configs", options.configs,
                  "JSON file with a list of {name, schedule, set: {knob: value}}: a row for each, in turn; those that "
                  "are refused are named")
      ->type_name("FILE")
      ->group("Schedule");
}

std::vector<Entry> entries_of(const Options& options) {
  if (!options.configs.empty()) return entries_of_file(options);
  std::vector<Entry> entries;
  for (const std::string& schedule : schedules_of(options)) {
    entries.push_back(
        {.name = schedule, .schedule = schedule, .set = options.set, .may_be_refused = options.schedule == "all"});
  }
  return entries;
}

Config config_of(const Options& options, const Entry& entry, const Problem& problem, const Team& team) {
  return config_of(with_set(options, entry.set), entry.schedule, problem, team);
}

}  // namespace tilewire::cli
