// A process between the launcher and a rank, which says so when the rank is killed.
//
// Launchers kill all other processes of a job the moment one of theirs is killed. The other ranks,
// which can tell what the dead one did last and what they waited for, would never get to say it.
// What the launcher starts is therefore a keeper: it starts the rank as its child, passes signals
// on, and ends as the rank ends. Only when the rank is killed (by somebody, by the system when
// memory runs out, by a fault of its own), the keeper says by what, and ends some seconds later
// by the same signal. What ends the keeper ends its rank.
#pragma once

namespace ringworld {

// In the environment: the number of the keeper's process, for its child; 0, as set for a debugger,
// is for no keeper.
inline constexpr const char* keeper_variable = "RINGWORLD_KEEPER";

// Returns in the rank: the child of the process that calls this, or, where no launcher has started
// several, a debugger traces it, or the system does not allow it, that process itself. `argv` is as
// main got it. Called before there are threads.
void run_under_keeper(int argc, char** argv);

}  // namespace ringworld
