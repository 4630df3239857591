// Package fleet keeps the live sandboxes of a host for the programs that create and use them: it starts them when their tenant may, hands
// out their processes and output, and ends them when they are idle, too old or destroyed.
//
// A sandbox is one run, with the ID of the run, and each of its processes is a step in the run's record. A caller sees only the sandboxes
// of its tenant: the ID of another tenant's sandbox is an unknown ID.
package fleet
