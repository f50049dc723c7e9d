package kservehttp

import (
	"bytes"

	"shoal/internal/infer"
	"shoal/internal/protocol/kserve"
)

// An action is what a route does.
type action uint8

const (
	actNone action = iota
	actLive
	actReady
	actServer
	actModel
	actModelReady
	actConfig
	actInfer
	actGenerate
	actGenerateStream
	actStats
	actIndex
	actLoad
	actUnload
	actLogging
	actTrace
	actShmStatus
	actShmRegister
	actShmUnregister
	actionCount
)

// A demand is what an action must be asked with and what class it is of.
type demand struct {
	method string // empty: GET shows something and POST changes it
	api    kserve.API
}

// takes reports whether the action can be asked with a method.
func (d *demand) takes(method string) bool {
	return method == d.method || d.method == "" && (method == "GET" || method == "POST")
}

var actions = [actionCount]demand{
	actLive:           {"GET", kserve.Health},
	actReady:          {"GET", kserve.Health},
	actServer:         {"GET", kserve.Metadata},
	actModel:          {"GET", kserve.Metadata},
	actModelReady:     {"GET", kserve.Health},
	actConfig:         {"GET", kserve.ModelConfig},
	actInfer:          {"POST", kserve.Inference},
	actStats:          {"GET", kserve.Statistics},
	actGenerate:       {"POST", kserve.Inference},
	actGenerateStream: {"POST", kserve.Inference},
	actIndex:          {"POST", kserve.ModelRepository},
	actLoad:           {"POST", kserve.ModelRepository},
	actUnload:         {"POST", kserve.ModelRepository},

	actLogging: {"", kserve.Logging},
	actTrace:   {"", kserve.Trace},

	actShmStatus:     {"GET", kserve.SharedMemory},
	actShmRegister:   {"POST", kserve.SharedMemory},
	actShmUnregister: {"POST", kserve.SharedMemory},
}

// A route is a path taken apart. Its strings alias the path.
type route struct {
	action     action
	model      string // empty in actStats for all models
	version    int64
	repository bool // the path names a repository
	region     string
	cuda       bool // the memory is a GPU's
}

// parseRoute takes a request's path apart, which is not percent-decoded. The
// action is actNone when there is no such path.
func parseRoute(uri []byte) route {
	path, ok := cutPath(uri)
	if !ok {
		return route{}
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/models/")); ok {
		return modelRoute(rest)
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/repository/")); ok {
		return repositoryRoute(rest)
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/systemsharedmemory/")); ok {
		return memoryRoute(rest, false)
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/cudasharedmemory/")); ok {
		return memoryRoute(rest, true)
	}
	switch string(path) {
	case "":
		return route{action: actServer}
	case "/trace/setting":
		return route{action: actTrace}
	case "/logging":
		return route{action: actLogging}
	case "/health/live":
		return route{action: actLive}
	case "/health/ready":
		return route{action: actReady}
	}
	return route{}
}

// cutPath returns what follows /v2 in the path of a request's target.
func cutPath(uri []byte) ([]byte, bool) {
	if len(uri) > 0 && uri[0] != '/' { // the form with a scheme and a host
		_, rest, _ := bytes.Cut(uri, []byte("://"))
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			return nil, false
		}
		uri = rest[slash:]
	}
	if query := bytes.IndexByte(uri, '?'); query >= 0 {
		uri = uri[:query]
	}
	return bytes.CutPrefix(uri, []byte("/v2"))
}

// modelRoute takes "M[/versions/V][/action]" apart.
func modelRoute(path []byte) route {
	name, rest, more := cutSlash(path)
	if len(name) == 0 {
		return route{}
	}
	r := route{model: alias(name), version: infer.LatestVersion}
	if !more {
		if r.model == "stats" { // statistics win over a model of that name
			return route{action: actStats, version: infer.LatestVersion}
		}
		r.action = actModel
		return r
	}
	if after, ok := bytes.CutPrefix(rest, []byte("versions/")); ok {
		var digits []byte
		digits, rest, more = cutSlash(after)
		if r.version, ok = parseVersion(digits); !ok {
			return route{}
		}
		if !more {
			r.action = actModel
			return r
		}
	}
	switch string(rest) {
	case "ready":
		r.action = actModelReady
	case "config":
		r.action = actConfig
	case "infer":
		r.action = actInfer
	case "generate":
		r.action = actGenerate
	case "generate_stream":
		r.action = actGenerateStream
	case "stats":
		r.action = actStats
	case "trace/setting":
		if r.version == infer.LatestVersion {
			r.action = actTrace
		}
	}
	return r
}

// repositoryRoute takes "[R/]index" and "[R/]models/M/load" apart. How many
// segments there are tells whether a repository is named, which may be called
// models too.
func repositoryRoute(path []byte) route {
	r := route{}
	if n := bytes.Count(path, []byte("/")); n == 1 || n == 3 {
		var name []byte
		if name, path, _ = cutSlash(path); len(name) == 0 {
			return route{}
		}
		r.repository = true
	}
	if string(path) == "index" {
		r.action = actIndex
		return r
	}
	rest, ok := bytes.CutPrefix(path, []byte("models/"))
	name, verb, _ := cutSlash(rest)
	if !ok || len(name) == 0 {
		return route{}
	}
	r.model = alias(name)
	switch string(verb) {
	case "load":
		r.action = actLoad
	case "unload":
		r.action = actUnload
	}
	return r
}

// memoryRoute takes "[region/R/]status", register and unregister apart.
func memoryRoute(path []byte, cuda bool) route {
	r := route{cuda: cuda}
	if rest, ok := bytes.CutPrefix(path, []byte("region/")); ok {
		var name []byte
		if name, path, _ = cutSlash(rest); len(name) == 0 {
			return route{}
		}
		r.region = alias(name)
	}
	switch string(path) {
	case "status":
		r.action = actShmStatus
	case "register":
		r.action = actShmRegister
	case "unregister":
		r.action = actShmUnregister
	}
	return r
}

func cutSlash(path []byte) (before, after []byte, found bool) {
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:], true
	}
	return path, nil, false
}

// parseVersion reads a version, which is all digits.
func parseVersion(digits []byte) (int64, bool) {
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	var v int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}
