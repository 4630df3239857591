// Package confine has what the drivers of machine monitors share to confine their processes: a uid of its own for each
// machine, a control group with limits, and the end of what the process wrote to its standard error.
//
// A uid is leased by a file lock and names the control group, so that Sweep can remove what a killed Custody left.
package confine
