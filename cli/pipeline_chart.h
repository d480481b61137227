// A pipeline's timeline as a picture.
#pragma once

#include <string>
#include <string_view>

#include "parallel/pipeline_proof.h"
#include "parallel/pipeline_simulation.h"

namespace ringworld {

// An SVG page: a row for each stage, a box for each action, with its micro-batch where there is
// room (the pointer over it tells everything), later chunks paler, and at the right how many
// micro-batches the stage holds at its peak.
std::string to_svg(const PipelineSchedule& schedule, const PipelineTimeline& timeline,
                   const PipelineNeeds& needs, std::string_view title, std::string_view subtitle);

}  // namespace ringworld
