// The instruction sets for which the kernels are compiled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringworld {

// Those that this machine can run, fastest first: "AVX3" (AVX-512), "AVX2", "SCALAR", "NEON".
std::vector<std::string> available_instruction_sets();

// From now on kernels run on this one, for tests that compare them; an empty name goes back to the
// fastest. No kernel may be running. Throws std::invalid_argument when it is not available.
void use_instruction_set(std::string_view name);

}  // namespace ringworld
