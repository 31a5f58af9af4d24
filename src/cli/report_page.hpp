// The text of the page that `tilewire report` fills. CMake makes its source from report_page.html.
// Used by report.cpp.
#pragma once

#include <string_view>

namespace tilewire::cli {

/// HTML with the placeholders CALLS and SUMMARY.
[[nodiscard]] std::string_view report_page_template();

}  // namespace tilewire::cli
