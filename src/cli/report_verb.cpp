// tilewire report: one page with the timelines of traces.
// Called by main.
#include <memory>

#include "cli/flag_files.hpp"
#include "cli/options.hpp"
#include "cli/report.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"

namespace tilewire::cli {
namespace {

struct Report {
  std::vector<std::string> traces;
  std::string out = "report.html";
};

void write_report(const Report& report) {
  std::vector<FlagFile> inputs;
  for (const std::string& path : report.traces) inputs.push_back({"the trace", path});
  const std::vector<FlagFile> outputs{{"--out", report.out}};
  check_apart(outputs, inputs);
  check_files(outputs, inputs);
  std::vector<ReportCall> calls;
  for (const std::string& path : report.traces) {
    for (ReportCall& call : report_calls(path, read_json(path))) calls.push_back(std::move(call));
  }
  write_file(report.out, report_page("", calls));
  if (report.out != "-") print(report_table(calls) + fmt::format("timelines: {}\n", report.out));
}

}  // namespace

void add_report(CLI::App& app) {
  auto report = std::make_shared<Report>();
  CLI::App* verb = app.add_subcommand("report", "Draw traces: one self-contained HTML page");
  verb->footer(
      R"(A trace is a file that --trace of bench, run or sim wrote. hidden: the part of the exchange and the sums
during which the same rank multiplies.

Examples:
  tilewire bench gemm_reduce_scatter -m 1024 -n 1024 -k 256 --ranks 2 --trace trace.json
  tilewire report trace.json --out report.html)");
  verb->add_option("trace", report->traces, "Traces")->type_name("FILE")->required();
  verb->add_option("--out", report->out, "The page, or - for standard output (default: report.html)")
      ->type_name("FILE");
  verb->callback([report] { write_report(*report); });
}

}  // namespace tilewire::cli
