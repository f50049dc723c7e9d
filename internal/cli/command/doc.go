// Package command has what the subcommands of the command line share: flags in
// groups and their help, errors about flags, exit codes. The cli package and its
// perfcmd use it.
package command
