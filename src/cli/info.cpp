// tilewire info: this machine, this build, what is available and why not.
// Called by main.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/facts.hpp"
#include "cli/models.hpp"
#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "tilewire/backend.hpp"
#include "tilewire/env.hpp"
#include "tilewire/operator.hpp"
#include "tilewire/schedule.hpp"

namespace tilewire::cli {
namespace {

nlohmann::json info_json() {
  nlohmann::json json = {{"machine", machine_facts()}, {"tuner_file", env::tuner_file()}};
  for (const Backend& backend : backends()) {
    const auto reason = backend.unavailable();
    json["backends"].push_back({{"name", backend.name},
                                {"summary", backend.summary},
                                {"unavailable", reason ? nlohmann::json(*reason) : nullptr}});
  }
  for (const Operator& op : operators()) json["operators"].push_back({{"name", op.name}, {"summary", op.summary}});
  for (const Schedule& schedule : schedules()) {
    json["schedules"].push_back({{"name", schedule.name}, {"summary", schedule.summary}});
  }
  for (const Model& model : models()) json["models"].push_back(model.name);
  return json;
}

void print_info(const nlohmann::json& json) {
  const auto value_text = [](const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::string text;
  for (const auto& [key, value] : json["machine"].items()) text += fmt::format("{:<13} {}\n", key, value_text(value));
  text += fmt::format("{:<13} {}\n", "tuner_file", json["tuner_file"].get<std::string>());
  for (const char* table : {"backends", "operators", "schedules"}) {
    text += fmt::format("{}\n", table);
    for (const auto& row : json[table]) {
      text += fmt::format("  {:<20} {}\n", row["name"].get<std::string>(), row["summary"].get<std::string>());
      if (row.contains("unavailable") && !row["unavailable"].is_null()) {
        text += fmt::format("  {:<20} not available: {}\n", "", row["unavailable"].get<std::string>());
      }
    }
  }
  text += "models\n ";
  for (const auto& name : json["models"]) text += " " + name.get<std::string>();
  print(text + "\n");
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("info", "Show machine, build, and what is available");
  verb->footer("Example:\n  tilewire info --json -");
  add_json_flag(*verb, *options, "Write it as JSON to a file, or - for standard output (then nothing else)");
  verb->callback([options] {
    const nlohmann::json json = info_json();
    if (!options->json.empty()) write_file(options->json, json.dump(1) + "\n");
    if (options->json != "-") print_info(json);
  });
}

}  // namespace tilewire::cli
