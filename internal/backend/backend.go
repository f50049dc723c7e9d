// Package backend says how a model is run: the interfaces that ONNX Runtime,
// Python workers and the built-in test backends implement, and that the engine
// and the schedulers use.
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
	// Name is what a configuration's backend field calls it.
	Name() string

	// Probe returns the model in src, from which its configuration can be
	// completed and which can then be opened. It must be closed.
	Probe(src Source) Probed
}

// A Probed is a model that is not loaded yet. It belongs to one goroutine.
type Probed interface {
	// Complete fills in what cfg leaves out. It may set max_batch_size,
	// inputs, outputs, the scheduling choice, the transaction policy and, where
	// cfg has none, the instance groups, and nothing else. Backends that cannot
	// tell leave cfg alone.
	Complete(ctx context.Context, cfg *modelpb.ModelConfig) error

	// Open loads the model under a complete, normalised and valid
	// configuration, or says why that cannot be done. It uses what Complete
	// has read. The model calls other models through host.
	Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error)

	// Close frees what Complete has read and Open has not used.
	Close()
}

// An Opener is a Probed that has nothing to add to a configuration: only Open
// does something, and that is the function.
type Opener func(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error)

// Complete implements Probed.
func (Opener) Complete(context.Context, *modelpb.ModelConfig) error { return nil }

// Open implements Probed.
func (o Opener) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host Host) (Model, error) {
	return o(ctx, cfg, sig, host)
}

// Close implements Probed.
func (Opener) Close() {}

// A Host is the server as its models see it. Its methods may be called from
// many goroutines.
type Host interface {
	// Infer runs r on the model and version that r names and fills in its
	// Response. The model must not be decoupled. Whatever Infer returns, the
	// caller must Release r, and must have done so before its own instance is
	// closed.
	Infer(ctx context.Context, r *infer.Request) error
}

// A Source says where a version of a model lies.
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

// A Fallible model can cease to work after it was loaded, such as when its
// workers no longer start, and may work again later.
type Fallible interface {
	// Trouble returns why the model cannot serve now, nil when it can.
	Trouble() error
}

// A Placement says which instance is wanted and where it is to run.
type Placement struct {
	Name  string // for logs and errors, such as "resnet_0_1"
	Kind  modelpb.ModelInstanceGroup_Kind
	GPU   int // the device of a KIND_GPU instance
	Count int // how many instances the model has on this machine in all
	Group *modelpb.ModelInstanceGroup
}

// An Instance is one runnable copy of a model. It runs one batch at a time.
type Instance interface {
	// Run gathers the inputs of the batch's requests, runs the model once and
	// fills in each request's Response, whose owner keeps the outputs' memory
	// until it is released. Responses may outlive later runs of the same
	// instance. Run returns when nothing touches the requests' data any more.
	//
	// An error fails the whole batch. When only a single request is at fault
	// the instance sets that request's Err, runs the others and returns nil.
	// Inputs are in the order of the model's signature, possibly with gaps for
	// optional ones: Input.Index tells. The engine has checked them: their data
	// is what their type and shape take, strings are whole and in one piece.
	// Shapes are the client's; the instance applies Reshape. Outputs are those
	// that the request wants, or all.
	Run(b *infer.Batch) error

	// Close frees the instance. No response may be outstanding.
	Close() error
}

// An Intermittent instance cannot run at times, such as while its worker is
// restarted. Schedulers give it no batch then.
type Intermittent interface {
	// Watch has changed called whenever the instance can no longer run and
	// whenever it can again, beginning with now if it cannot. It must not block,
	// and may be called from any goroutine until the instance is closed.
	Watch(changed func(available bool))
}

// An Ahead instance takes batches before the one that it runs has ended, to have
// their inputs ready when it has.
type Ahead interface {
	// Ahead is how many more calls of Run there may be at a time. Where their
	// batches have a Turn, Run awaits it after the inputs are ready.
	Ahead() int
}

// An OnThread instance computes on the thread of the system that calls Run. Many
// runs in a row are faster when they are all on one.
type OnThread interface {
	// ComputesOnThread does nothing; it says that the instance is such a one.
	ComputesOnThread()
}

// An Abortable instance can be ended while it runs a batch.
type Abortable interface {
	// Abort ends at once what runs the instance's batches, for good. Calls of
	// Run fail with why in their errors. It does not wait. The instance must
	// still be closed.
	Abort(why error)
}

// A Trimmer is an instance that keeps memory of past batches for the next.
type Trimmer interface {
	// Trim gives back the memory that no batch uses. It may be called at any
	// time, also while a batch runs.
	Trim()
}

// A Supervised is an instance that runs in a process of its own.
type Supervised interface {
	// Worker tells how that process is doing. It may be called at any time,
	// also while a batch runs.
	Worker() Worker
}

// A Worker is how the process behind an instance is doing.
type Worker struct {
	Name     string // the instance's
	Restarts int    // how often it was started again
	Resident int64  // bytes of its memory that are resident, 0 when it is not there
	// Handler is the time that the model's own code has taken, in all
	// processes that the instance has had.
	Handler time.Duration
}

// An Accelerated backend can place instances on GPUs; others run on the CPU.
type Accelerated interface {
	// GPUs is how many there are to place instances on.
	GPUs() int
}
