// The text of the page that `tilewire report` fills: made by CMake from report_page.html.
// Used by report.cpp.
#pragma once

#include <string_view>

namespace tilewire::cli {

/// HTML with CALLS and SUMMARY where its data go.
[[nodiscard]] std::string_view report_page_template();

}  // namespace tilewire::cli
