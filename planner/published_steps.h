// Training throughput as it was published, with the setting it was measured in: what the planner's
// step times are held against, and what the one fitted constant of a device is fitted to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/hardware.h"
#include "planner/layout.h"
#include "planner/step.h"
#include "planner/transformer.h"

namespace ringworld {

// In what a publication gives throughput.
enum class ThroughputMeasure : std::uint8_t {
  megatron_full_tflops,  // TFLOP/s and GPU, FLOPs by Narayanan et al., Eq. 3
  causal_tflops,         // TFLOP/s and GPU, attention over what a token may see
  tokens,                // per second and GPU
};

struct PublishedStep {
  std::string label;
  std::string model;    // a preset
  std::string machine;  // of the built-in table
  double between = 0;   // bytes per second and GPU, where the network is not the table's; 0: it is
  Software software;
  // One for each choice that the publication does not tell, micro-batch or chunks: the fastest that
  // fits counts.
  std::vector<Layout> layouts;
  ThroughputMeasure measure = ThroughputMeasure::tokens;
  double value = 0;
};

struct PublishedStepTable {
  std::string name;
  std::string source;
  std::string note;
  bool required = false;  // its errors have a limit; the others are shown
  bool fitted = false;    // its rows fit the constant of their machine
  std::vector<PublishedStep> rows;
};
const std::vector<PublishedStepTable>& published_step_tables();

// The machine of the row.
Machine machine_of(const Machines& machines, const PublishedStep& row);
// Which of the row's layouts is the fastest among those that fit, or of all where none fits.
std::size_t best_layout(const PublishedStep& row, const Machine& machine);
// In the row's measure.
double predict(const PublishedStep& row, const Layout& layout, const Machine& machine);

// Machine::sustained that makes the sum of squared logarithms of ours over published least, for the
// rows given, each with its layout; between 0.3 and 1.
struct FittedRow {
  const PublishedStep* row = nullptr;
  Layout layout;
};
double fit_sustained(const Machines& machines, const std::vector<FittedRow>& rows);

}  // namespace ringworld
