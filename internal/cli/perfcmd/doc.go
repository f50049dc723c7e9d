// Package perfcmd is the perf command: its flags, what they ask of the perf package,
// the files that it writes and its exit codes. The cli package adds it to the
// command line.
package perfcmd
