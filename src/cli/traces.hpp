// One Chrome trace file of several calls, side by side.
// Used by bench and run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tilewire/trace.hpp"

namespace tilewire::cli {

/// Calls added one after another; in the viewer each starts at time zero and its ranks are named after it.
class TraceFile {
 public:
  void add(const std::string& title, const Plan& plan, const Trace& trace);
  void write(const std::string& path) const;

 private:
  nlohmann::json events_ = nlohmann::json::array();
  int num_calls_ = 0;
};

}  // namespace tilewire::cli
