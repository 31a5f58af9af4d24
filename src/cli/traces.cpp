// Several calls in one Chrome trace.
// Called by bench and run.
#include "cli/traces.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include "cli/options.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

constexpr int kRanksPerCall = 100;  // distance of two calls' process numbers

}  // namespace

void TraceFile::add(const std::string& title, const Plan& plan, const Trace& trace) {
  std::ostringstream text;
  write_chrome_trace(text, plan, trace);
  nlohmann::json call = nlohmann::json::parse(text.str());
  double start = std::numeric_limits<double>::infinity();
  for (const auto& event : call["traceEvents"]) {
    if (event.contains("ts")) start = std::min(start, event["ts"].get<double>());
  }
  const int shift = kRanksPerCall * num_calls_++;
  for (auto& event : call["traceEvents"]) {
    event["pid"] = event["pid"].get<int>() + shift;
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - start;
    if (event.contains("id")) event["id"] = fmt::format("{}.{}", num_calls_, event["id"].dump());
    if (event["name"] == "process_name") {
      event["args"]["name"] = fmt::format("{}: {}", title, event["args"]["name"].get<std::string>());
    } else if (event["name"] == "process_sort_index") {
      event["args"]["sort_index"] = event["args"]["sort_index"].get<int>() + shift;
    }
    events_.push_back(std::move(event));
  }
}

void TraceFile::write(const std::string& path) const {
  write_file(path, nlohmann::json{{"displayTimeUnit", "ns"}, {"traceEvents", events_}}.dump() + "\n");
}

}  // namespace tilewire::cli
