// A memory timeline as a chart, and both as files: areas by category, stacked, over the time of one
// step, with the budget, the peak and what was at work.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "training/memory_timeline.h"

namespace ringworld {

// An SVG page. Where several events fall on one pixel it shows the highest; categories that never
// held anything are left out, and so are labels of marks that have no room (the pointer over a mark
// tells them all).
std::string to_svg(const MemoryTimeline& timeline, std::string_view title,
                   std::string_view subtitle);

struct TimelineFiles {
  std::string json;
  std::string svg;
};
// FILE, FILE.json and FILE.svg all stand for FILE.json with FILE.svg beside it.
TimelineFiles timeline_files(std::string_view path);

// Writes both, and says which: "memory over time: FILE.json and FILE.svg". `option` is named in the
// DataError when one cannot be written.
std::string write_timeline(std::string_view option, std::string_view path,
                           const MemoryTimeline& timeline, const nlohmann::ordered_json& conditions,
                           std::string_view title, std::string_view subtitle);

}  // namespace ringworld
