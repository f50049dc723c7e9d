// Package backend defines the interfaces through which models are run. ONNX
// Runtime, Python workers and the built-in test backends implement them; the
// engine and the schedulers use them.
package backend

import (
	"context"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// A Backend opens models of one kind. Its methods may be called from several
// goroutines.
type Backend interface {
	// Name is the backend's name in a configuration's backend field.
	Name() string

	// Probe returns the model in src. Its configuration can then be completed,
	// and it can be opened. It must be closed.
	Probe(src Source) Probed
}

// A Probed is a model that is not loaded yet. It belongs to one goroutine.
type Probed interface {
	// Complete fills in what cfg leaves out. It may set max_batch_size, inputs,
	// outputs, the scheduling choice, the transaction policy and, where cfg has
	// none, the instance groups, and nothing else. Backends that have no such
	// information do not change cfg.
	Complete(ctx context.Context, cfg *modelpb.ModelConfig) error

	// Open loads the model with a complete, normalised and valid configuration.
	// It uses what Complete has read. The model calls other models through
	// host.
	Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error)

	// Close frees what Complete has read and Open has not used.
	Close()
}

// An Opener is a Probed with nothing to add to a configuration: the function is
// its Open.
type Opener func(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error)

// Complete implements Probed.
func (Opener) Complete(context.Context, *modelpb.ModelConfig) error { return nil }

// Open implements Probed.
func (o Opener) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error) {
	return o(ctx, cfg, sig, host)
}

// Close implements Probed.
func (Opener) Close() {}

// A Host is the server as seen by its models. Its methods may be called from
// many goroutines.
type Host interface {
	// Infer runs r on the model and version that r names and fills in its
	// Response. The model must not be decoupled. Whatever Infer returns, the
	// caller must Release r, and must have done so before its own instance is
	// closed.
	Infer(ctx context.Context, r *infer.Request) error

	// InferStream is Infer for any model: it calls each with every response in
	// turn, and with final for the last, which may be nil. A response with Err
	// set is an error that the model sent. each may block, and must Take a
	// response to keep it; r must not be released before that response is. An
	// error from each ends the request.
	InferStream(ctx context.Context, r *infer.Request, each func(resp *infer.Response, final bool) error) error

	// Decoupled reports whether a model is ready and may answer a request any
	// number of times.
	Decoupled(model string, version int64) (decoupled, ready bool)

	// Load loads a model as a client does, with a configuration and files that
	// override the repository's unless they are empty.
	Load(ctx context.Context, model, config string, files map[string][]byte) error

	// Unload unloads a model as a client does.
	Unload(ctx context.Context, model string, dependents bool) error
}

// A Source is the location of a version of a model.
type Source struct {
	Model   string
	Version int64
	Dir     string // the version's folder
	Root    string // the model's folder
}

// A Model is a loaded version, from which instances are made.
type Model interface {
	// Start returns a new instance. Each instance must be closed before the
	// model is.
	Start(ctx context.Context, p Placement) (Instance, error)
	Close() error
}

// A Fallible model can stop working after it was loaded, for example when its
// workers no longer start, and may work again later.
type Fallible interface {
	// Trouble returns why the model cannot serve now, nil when it can.
	Trouble() error
}

// A Placement says which instance to start and where it runs.
type Placement struct {
	Name  string // for logs and errors, such as "resnet_0_1"
	Kind  modelpb.ModelInstanceGroup_Kind
	GPU   int // the device of a KIND_GPU instance
	Share int // how many instances the model has on that device
	Count int // how many instances the model has on this machine in all
	Group *modelpb.ModelInstanceGroup
}

// An Instance is one runnable copy of a model. It runs one batch at a time.
type Instance interface {
	// Run gathers the inputs of the batch's requests, runs the model once and
	// fills in each request's Response, whose owner keeps the outputs' memory
	// until it is released. Responses may outlive later runs of the same
	// instance. Run returns when nothing uses the requests' data any more.
	//
	// An error fails the whole batch. When only a single request is at fault,
	// the instance sets that request's Err, runs the others and returns nil.
	// Inputs are in the order of the model's signature, possibly without
	// optional ones: Input.Index is their position. The engine has checked
	// them: their data has the size of their type and shape, strings are
	// complete and contiguous. Shapes are the client's; the instance applies
	// Reshape. Outputs are those that the request asks for, or all.
	Run(b *infer.Batch) error

	// Close frees the instance. No response may be outstanding.
	Close() error
}

// An Intermittent instance cannot run at times, such as while its worker is
// restarted. Schedulers give it no batch then.
type Intermittent interface {
	// Watch calls changed whenever the instance can no longer run and whenever
	// it can again, and at once if it cannot now. It must not block, and may be
	// called from any goroutine until the instance is closed.
	Watch(changed func(available bool))
}

// An Ahead instance accepts batches while it runs another, to prepare their
// inputs.
type Ahead interface {
	// Ahead is how many more calls of Run there may be at a time. If their
	// batches have a Turn, Run awaits it after the inputs are ready.
	Ahead() int
}

// An Overlapping instance computes on a device, which goes on while the processor
// prepares the next batch.
type Overlapping interface {
	Ahead
	// Overlaps does nothing; it says that the instance is such a one.
	Overlaps()
}

// A model that StartsInParallel may start several instances at the same time.
type StartsInParallel interface {
	// StartsInParallel does nothing; it says that the model is such a one.
	StartsInParallel()
}

// An OnThread instance computes on the thread of the system that calls Run. Many
// runs in a row are faster when they are all on one.
type OnThread interface {
	// ComputesOnThread does nothing; it says that the instance is such a one.
	ComputesOnThread()
}

// An Abortable instance can be ended while it runs a batch.
type Abortable interface {
	// Abort ends the process or run behind the instance at once, for good.
	// Calls of Run fail with why in their errors. It does not wait. The
	// instance must still be closed.
	Abort(why error)
}

// A Trimmer is an instance that keeps memory of past batches for later ones.
type Trimmer interface {
	// Trim frees the memory that no batch uses. It may be called at any time,
	// also while a batch runs.
	Trim()
}

// A Supervised instance runs in its own process.
type Supervised interface {
	// Worker returns the state of that process. It may be called at any time,
	// also while a batch runs.
	Worker() Worker
}

// A Worker is the state of the process behind an instance.
type Worker struct {
	Name     string // the instance's
	PID      int    // of the process, 0 when it is not there
	Restarts int    // how often it was started again
	Resident int64  // bytes of its memory that are resident, 0 when it is not there
	// Handler is the total time of the model's own code, in all processes of
	// the instance.
	Handler time.Duration
}

// An OnGPU instance may run on a GPU.
type OnGPU interface {
	// GPU returns the instance's GPU; ok is false when it runs on the CPU. It
	// may be called at any time.
	GPU() (use GPUUse, ok bool)
}

// A GPUUse is how instances use a GPU.
type GPUUse struct {
	ID   int
	UUID string // as NVIDIA's tools show it; empty when it is not known
	// Bytes is the GPU's memory that was reserved when the instance was ready:
	// weights, the library's arena and tensors. It is 0 for instances that run
	// in their own process.
	Bytes int64
}

// An Accelerated backend can place instances on GPUs; others run on the CPU.
type Accelerated interface {
	// GPUs is the number of GPUs for instances.
	GPUs() int
	// WhyNoGPUs is why there are none, and what would help.
	WhyNoGPUs() string
}
