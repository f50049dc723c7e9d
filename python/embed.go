// Package python has the Python side of Shoal as files: the worker that runs
// users' models, and the package that they import. backend/python unpacks it.
package python

import "embed"

// Files are the folder's Python files, with the mark that they have types.
//
//go:embed *.py shoal/*.py shoal/py.typed
var Files embed.FS
