// A pipeline's timeline as text: a row for each stage, time from left to right.
#pragma once

#include <string>

#include "parallel/pipeline_simulation.h"

namespace ringworld {

// In at most `columns`, and with a last line that says how to read it. Where all times are
// multiples of one and there is room, in several bands if need be, every action is told with its
// micro-batch, "F3" for forward and "B3" and "W3" for backward; else a column shows the letter of
// what is under way in its middle. "." is idle.
std::string timeline_text(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                          int columns);

// 'F', 'B' or 'W'.
char letter_of(PipelineWork work);

// The longest time that all starts and ends are whole multiples of, up to rounding; 0 where it
// would be less than `total` / `most`.
double common_unit(const PipelineTimeline& timeline, int most);

}  // namespace ringworld
