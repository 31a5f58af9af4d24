// The table of knobs: which schedule honours a knob, for which operators, and with which values.
// Called by `tilewire info --knobs`; docs/schedules.md has a copy, which a test compares.
#pragma once

#include <string>

namespace tilewire::cli {

/// A table in Markdown, a row for each field of Config, from the tables of knobs of all schedules.
[[nodiscard]] std::string knob_table();

}  // namespace tilewire::cli
