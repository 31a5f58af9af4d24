// The lines of the bench's table, from the rows of its JSON, and the meaning of its columns.
// Called by bench and sim.
#include "cli/bench_table.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/options.hpp"
#include "tilewire/json.hpp"

namespace tilewire::cli {

namespace {

std::string name_of(const nlohmann::json& row) {
  return row.contains("name") ? row["name"].get<std::string>() : row["schedule"].get<std::string>();
}

// The columns that exist on devices only.
std::string limits_text(const nlohmann::json& row) {
  if (!row.contains("free_us")) return "";
  const auto text = [](const nlohmann::json& us) {
    return us.is_null() ? std::string("-") : fmt::format("{:.1f}", us.get<double>());
  };
  const double free = row["free_us"].is_null() ? 0 : row["free_us"].get<double>();
  const std::string ratio = free > 0 ? fmt::format("{:.2f}", row["total_us"].get<double>() / free) : "-";
  return fmt::format("{:>9} {:>9} {:>7} ", text(row["link_us"]), text(row["free_us"]), ratio);
}

// The error of a result relative to the reference.
std::string result_text(const nlohmann::json& row) {
  const std::string error = row["rel_error"].is_number() ? fmt::format("{:.1e}", row["rel_error"].get<double>()) : "-";
  return fmt::format("{:>9}  {}", error, row["ok"].is_null() ? "not verified" : row["ok"].get<bool>() ? "ok" : "WRONG");
}

}  // namespace

std::string table_head(bool device, size_t name_width, bool verified) {
  const std::string limits = device ? fmt::format("{:>9} {:>9} {:>7} ", "link us", "free us", "/ free") : "";
  return fmt::format("{:<20} {:<{}} {:>6} {:>6} {:>6} {:>11} {:>11} {:>11} {:>11} {:>8} {:>7} {}{}\n", "operator",
                     "schedule", name_width, "m", "n", "k", "total us", "gemm us", "comm us", "seq us", "speedup",
                     "overlap", limits, verified ? fmt::format("{:>9}  ok", "error") : "");
}

std::string table_line(const nlohmann::json& row, size_t name_width) {
  const double total = row["total_us"];
  const double sequential = row["sequential_us"];
  const double hidden = row["overlap"].is_null() ? std::nan("") : row["overlap"].get<double>();
  const std::string overlap = std::isfinite(hidden) ? fmt::format("{:.2f}", hidden) : "-";
  std::string result;
  if (row.contains("ok")) result = result_text(row);
  return fmt::format("{:<20} {:<{}} {:>6} {:>6} {:>6} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>7.2f}x {:>7} {}{}\n",
                     row["operator"].get<std::string>(), name_of(row), name_width, row["m"].get<int64_t>(),
                     row["n"].get<int64_t>(), row["k"].get<int64_t>(), total, row["gemm_us"].get<double>(),
                     row["comm_us"].get<double>(), sequential, total > 0 ? sequential / total : 1.0, overlap,
                     limits_text(row), result);
}

nlohmann::json sizes_json(const Problem& problem) {
  // n: the columns of all outputs together, as a rank computes all of them.
  return {{"operator", problem.op}, {"m", problem.m}, {"n", all_columns(problem)}, {"k", problem.k}};
}

nlohmann::json config_json(const Config& config) {
  nlohmann::json json = config;
  json["schedule"] = config.schedule;
  return json;
}

const char* const kBenchFooter = R"(Columns:
  total us  median over the iterations of the slowest rank
  gemm us   the GEMM tasks of `sequential` alone
  comm us   `sequential` without its GEMM;
            on GPUs the faster of copy engines with our sums and, where it can do it, NCCL
  seq us    `sequential`, measured in turn with the others; on GPUs the fastest of our tiles, cuBLASLt's GEMM, and
            cuBLASLt's GEMM with NCCL. gemm us is the faster of the two GEMMs
  speedup   seq / total
  overlap   1 - (total - gemm) / (seq - gemm): 0 = nothing hidden, 1 = all of it
  link us   on GPUs: the bytes that a rank must send at the peak of its links
  free us   on GPUs: the GEMM beside copies of these bytes that have nothing to do with it
  error     |out - reference| / |reference|
With --trace a table of every lane follows: the time in which its workers were busy and waiting, all
together, and its span; there overlap is the share of the time of the other tasks in which a GEMM task of the
same rank ran too.
Every result is verified against the reference in double unless --no-verify is given; one that is
wrong makes the exit code 1.

Examples:
  tilewire bench all_gather_gemm gemm_reduce_scatter --model llama3-70b --tokens 512
  tilewire bench gemm_all_reduce -m 1024 -n 8192 -k 8192 --schedule fused --set tile_m=64 --trace t.json
  tilewire bench all_gather_gemm -m 4096 -n 4096 -k 4096 --ranks 2 --configs configs.json
  tilewire bench gemm_reduce_scatter --shapes shapes.json --dtype fp32 --ranks 2 --json result.json
  mpirun -n 4 tilewire bench all_reduce -m 64 -n 8192)";

void TablePrinter::print(const std::string& text) {
  try {
    cli::print(text);
  } catch (const Error& error) {
    if (!lost_) lost_ = error;
  }
}

void TablePrinter::finish() const {
  if (lost_) throw Error(*lost_);
}

}  // namespace tilewire::cli
