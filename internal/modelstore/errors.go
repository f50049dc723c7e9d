package modelstore

import (
	"fmt"
	"strings"
)

// An Error is an error in the words of the original servers: the status that it
// has over HTTP, the name of its kind and a text. Protocols show all three.
type Error struct {
	Status int
	Type   string
	Text   string
	Cause  error // for the log; nil when the text is complete
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Text + ": " + e.Cause.Error()
	}
	return e.Text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func errorf(status int, kind, format string, args ...any) *Error {
	return &Error{Status: status, Type: kind, Text: fmt.Sprintf(format, args...)}
}

// because returns e with a cause for the log.
func (e *Error) because(cause error) *Error {
	e.Cause = cause
	return e
}

// The kinds of errors.
const (
	kindBadRequest   = "BadRequestException"
	kindNotFound     = "ModelNotFoundException"
	kindNoVersion    = "ModelVersionNotFoundException"
	kindInvalid      = "InvalidModelException"
	kindConflict     = "ConflictStatusException"
	kindInternal     = "InternalServerException"
	kindUnavailable  = "ServiceUnavailableException"
	kindTimeout      = "RequestTimeoutException"
	kindDefault      = "InvalidModelVersionException"
	kindDownload     = "DownloadModelException"   // of Multi Model Server
	kindDownloadTS   = "DownloadArchiveException" // of TorchServe
	kindOutOfBounds  = "IndexOutOfBoundsException"
	textWorkersBelow = "max_worker cannot be less than min_worker."
)

func errNotFound(name string) *Error { return errorf(404, kindNotFound, "Model not found: %s", name) }

func errNoVersion(name, version string) *Error {
	return errorf(404, kindNoVersion, "Model version: %s does not exist for model: %s", version, name)
}

// NoWorker returns the error of a request for a model without workers, or whose
// queue is full. Version is the one that the client named, if it named one.
func (s *Store) NoWorker(name, version string) *Error {
	if s.opt.Dialect == MMS {
		return errorf(503, kindUnavailable, "No worker is available to serve request for model: %s. Consider increasing job queue size.", name)
	}
	if version != "" {
		version = "\" Version " + version
	}
	return errorf(503, kindUnavailable, "Model \"%s%s\" has no worker to serve inference request. Please use scale workers API to add workers. "+
		"If this is a sequence inference, please check if it is closed, or expired; or exceeds maxSequenceJobQueueSize", name, version)
}

// WorkerDied is the error of a request whose worker ended.
func WorkerDied() *Error { return errorf(500, kindInternal, "Worker died.") }

// Internal returns an error of a handler, with its status.
func Internal(status int, text string) *Error { return errorf(status, kindInternal, "%s", text) }

func (s *Store) errStart(name, version string, cause error) *Error {
	code := 500
	if text := cause.Error(); strings.Contains(text, "MemoryError") || s.opt.Dialect == TorchServe && strings.Contains(text, "CUDA") {
		code = 507
	}
	if s.opt.Dialect == MMS {
		return errorf(code, kindInternal, "Failed to start workers").because(cause)
	}
	if version == "" {
		version = "null" // as clients of the original see it
	}
	return errorf(code, kindInternal, "Failed to start workers for model %s version: %s", name, version).because(cause)
}
