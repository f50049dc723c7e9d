// Package python has the Python side of Shoal as files: the worker that runs
// users' models, and the package that they import. backend/python unpacks it.
package python

import "embed"

// Files are the folder's Python files, with the mark that they have types. The
// folder handlers has what handlers of model archives import.
//
//go:embed *.py shoal/*.py shoal/py.typed SimpleDBI/*.py handlers/*/*.py handlers/*/*/*.py
var Files embed.FS
