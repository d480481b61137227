// A pipeline's timeline as text, as a picture and as a trace.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/pipeline_chart.h"
#include "cli/pipeline_text.h"
#include "cli/pipeline_trace.h"
#include "tests/support/xml.h"

namespace ringworld {
namespace {

PipelineSchedule emit(std::string_view name, const PipelineShape& shape) {
  return emit_pipeline(find_pipeline(name), shape);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> timeline_lines(std::string_view name, const PipelineShape& shape,
                                        const PipelineTimes& times, int columns) {
  const PipelineSchedule schedule = emit(name, shape);
  return lines_of(timeline_text(schedule, simulate(schedule, times), columns));
}

TEST(PipelineText, AColumnForEachUnitOfTime) {
  EXPECT_EQ(timeline_lines("1f1b", {2, 3, 1}, {1, 1, 1}, 80),
            (std::vector<std::string>{"time     0     2     4     6     8     10",
                                      "stage 0  F0 F1 .. .. B0--- F2 B1--- .. B2---",
                                      "stage 1  .. F0 B0--- F1 B1--- F2 B2--- .. ..", "",
                                      "F0 is forward of micro-batch 0, B0 its backward; . is idle.",
                                      "3 characters are 1 of time."}));
}

TEST(PipelineText, WithoutBlanksWhereThereIsLessRoom) {
  const auto lines = timeline_lines("zb-h1", {2, 3, 1}, {2, 2, 1}, 45);
  EXPECT_EQ(lines[1], "stage 0  F0--F1--....B0--W0F2--B1--W1..B2--W2");
  EXPECT_EQ(lines[2], "stage 1  ....F0--B0--F1--B1--W0F2--B2--W1W2..");
  EXPECT_EQ(
      lines[4],
      "F0 is forward of micro-batch 0, B0 its backward for the input, W0 for the weights; . is "
      "idle.");
  EXPECT_EQ(lines[5], "2 characters are 1 of time.");
}

// Half units, since a chunk is half a stage, in bands of 8 columns of 3 characters.
TEST(PipelineText, InBandsWhereOneRowIsTooShort) {
  const auto lines = timeline_lines("interleaved-1f1b", {2, 2, 2}, {1, 1, 1}, 33);
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "time     0     1     2     3",
                "stage 0  F0aF1aF0bF1b......B0b---",
                "stage 1  ...F0aF1aF0bB0b---F1bB1b",
                "",
                "time     4     5     6     7",
                "stage 0  ...B1b---B0a---B1a---",
                "stage 1  ---B0a---B1a---......",
                "",
                "F0 is forward of micro-batch 0, B0 its backward, a to b the chunk; . is idle.",
                "3 characters are 0.5 of time.",
            }));
}

TEST(PipelineText, LettersWhereActionsHaveNoRoom) {
  const auto one = timeline_lines("1f1b", {40, 3, 1}, {1, 1, 1}, 140);
  EXPECT_EQ(one[40], "stage 39  " + std::string(39, '.') + "FBBFBBFBB" + std::string(78, '.'));
  EXPECT_EQ(one[42], "F is forward, B backward; . is idle.");
  // No common unit: a column shows what is under way in its middle.
  const auto scaled = timeline_lines("zb-h1", {1, 2, 1}, {3.14159, 2.71828, 1.41421}, 29);
  EXPECT_EQ(scaled[1], "stage 0  FFFFBBBBWWFFFFBBBBWW");
}

TEST(PipelineText, FitsWhateverTheShape) {
  for (const PipelineKind& kind : pipeline_kinds()) {
    for (const int stages : {1, 2, 7, 64}) {
      for (const int micro_batches : {1, 14, 128}) {
        for (const int columns : {40, 80, 100}) {
          const bool groups = kind.usual_chunks > 1;  // of as many micro-batches as stages
          const int rounded = (micro_batches + stages - 1) / stages * stages;
          const PipelineShape shape{stages, groups ? rounded : micro_batches, kind.usual_chunks};
          for (const std::string& line :
               timeline_lines(kind.name, shape, {1.1, 1.3, 0.7, 0.1}, columns)) {
            if (line.starts_with("stage")) {
              EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
            }
          }
        }
      }
    }
  }
}

TEST(PipelineText, CommonUnit) {
  const auto unit = [](const PipelineTimes& times) {
    return common_unit(simulate(emit("zb-h1", {2, 3, 1}), times), 512);
  };
  EXPECT_DOUBLE_EQ(unit({1, 1, 1}), 1);
  EXPECT_NEAR(unit({0.3, 0.2, 0.1}), 0.1, 1e-9);
  EXPECT_DOUBLE_EQ(unit({6, 4, 2, 2}), 2);
  EXPECT_EQ(unit({18.522, 18.086, 9.337}), 0);
}

TEST(PipelineChart, HasABoxForEachActionAndIsWellFormed) {
  for (const PipelineKind& kind : pipeline_kinds()) {
    const PipelineSchedule schedule = emit(kind.name, {4, 8, kind.usual_chunks});
    std::size_t actions = 0;
    for (const auto& of_stage : schedule.actions) {
      actions += of_stage.size();
    }
    const std::string svg = to_svg(schedule, simulate(schedule, {}), needs_of(schedule),
                                   "a <title> & more", "a subtitle");
    EXPECT_EQ(malformed(svg), "");
    EXPECT_EQ(occurrences(svg, "class=\"action\""), actions) << kind.name;
    EXPECT_EQ(occurrences(svg, ">stage 3</text>"), 1u);
    EXPECT_EQ(occurrences(svg, "backward, for the weights"), kind.name.starts_with("zb") ? 1u : 0u);
    EXPECT_NE(svg.find("stage 3, forward of micro-batch 7"), svg.npos);
  }
}

// On two stages: forward 0 to 3 and 3 to 6, backward 6 to 15 and 15 to 24, over 1000 pixels.
TEST(PipelineChart, BoxesStandWhereTheirTimeIs) {
  const PipelineSchedule schedule = emit("1f1b", {2, 1, 1});
  const std::string svg =
      to_svg(schedule, simulate(schedule, {3, 4, 5}), needs_of(schedule), "", "");
  for (const char* box :
       {"x=\"84.00\" y=\"116.0\" width=\"125.00\"", "x=\"209.00\" y=\"150.0\" width=\"125.00\"",
        "x=\"334.00\" y=\"150.0\" width=\"375.00\"", "x=\"709.00\" y=\"116.0\" width=\"375.00\""}) {
    EXPECT_NE(svg.find(fmt::format("<rect class=\"action\" {}", box)), svg.npos) << box;
  }
}

TEST(PipelineTrace, HasATrackForEachStageAndAnEventForEachAction) {
  const PipelineSchedule schedule = emit("1f1b", {2, 2, 1});
  const auto json =
      nlohmann::json::parse(to_trace(schedule, simulate(schedule, {1, 1, 1, 1}), "t"));
  std::vector<std::string> tracks;
  std::vector<nlohmann::json> actions;
  std::vector<nlohmann::json> messages;
  std::vector<nlohmann::json> arrows;
  for (const auto& event : json["traceEvents"]) {
    if (event["name"] == "thread_name") {
      tracks.push_back(event["args"]["name"]);
    } else if (event["ph"] == "X") {
      actions.push_back(event);
    } else if (event["ph"] == "b" || event["ph"] == "e") {
      messages.push_back(event);
    } else if (event["ph"] == "s" || event["ph"] == "f") {
      arrows.push_back(event);
    }
  }
  EXPECT_EQ(tracks, (std::vector<std::string>{"stage 0", "stage 1"}));
  ASSERT_EQ(actions.size(), 8u);
  EXPECT_EQ(actions[2]["name"], "backward, stage 0, micro-batch 0");
  EXPECT_EQ(actions[2]["tid"], 0);
  EXPECT_EQ(actions[2]["ts"], 6000);
  EXPECT_EQ(actions[2]["dur"], 2000);
  EXPECT_EQ(actions[2]["cat"], "backward");
  ASSERT_EQ(messages.size(), 8u);
  EXPECT_EQ(messages[0]["name"], "gradients of micro-batch 0, stage 1 to 0");
  EXPECT_EQ(messages[0]["ts"], 5000);
  EXPECT_EQ(messages[1]["ts"], 6000);
  ASSERT_EQ(arrows.size(), 8u);
  EXPECT_EQ(arrows[0]["tid"], 1);
  EXPECT_EQ(arrows[0]["ts"], 3000);
  EXPECT_EQ(arrows[1]["tid"], 0);
  EXPECT_EQ(arrows[1]["ts"], 6000);
}

// What stands in the trace gives the bubble that is printed.
TEST(PipelineTrace, HoldsTheBubble) {
  const auto idle_share = [](std::string_view name, int chunks) {
    const PipelineSchedule schedule = emit(name, {4, 8, chunks});
    const auto json = nlohmann::json::parse(to_trace(schedule, simulate(schedule, {}), "t"));
    double busy = 0;
    double last = 0;
    for (const auto& event : json["traceEvents"]) {
      if (event["ph"] == "X") {
        busy += event["dur"].get<double>();
        last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
      }
    }
    return fmt::format("{:.1f} %", 100 * (1 - busy / (4 * last)));
  };
  EXPECT_EQ(idle_share("1f1b", 1), "27.3 %");
  EXPECT_EQ(idle_share("interleaved-1f1b", 2), "15.8 %");
}

}  // namespace
}  // namespace ringworld
