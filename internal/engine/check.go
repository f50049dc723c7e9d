package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// check checks a request against the model's signature, in the order in which
// clients expect the errors. It sets Rows, gives every input its index and
// sorts the inputs by it.
func check(sig *model.Signature, r *infer.Request) error {
	if err := checkNames(sig, r); err != nil {
		return err
	}
	if err := checkRows(sig, r); err != nil {
		return err
	}
	for i := range r.Inputs { // from the last one on, as checkRows
		if err := checkShape(sig, r, &r.Inputs[len(r.Inputs)-1-i]); err != nil {
			return err
		}
	}
	for i := range r.Inputs {
		if err := checkContent(sig, r, &r.Inputs[i]); err != nil {
			return err
		}
	}
	if err := checkClasses(sig, r); err != nil {
		return err
	}
	return checkNotEmpty(sig, r)
}

// A lateFault is an error that Triton leaves to its backends. Its text has no
// request id, and the request counts as failed rather than refused.
type lateFault struct{ error }

// checkNotEmpty fails a batch of no rows.
func checkNotEmpty(sig *model.Signature, r *infer.Request) error {
	if sig.MaxBatch == 0 || len(r.Inputs) == 0 || r.Inputs[0].Shape[0] > 0 {
		return nil
	}
	return lateFault{status.Errorf(status.InvalidArgument, "input '%s' batch size does not match other inputs for '%s'", r.Inputs[0].Name, sig.Name)}
}

// checkNames finds every input and output of the request in the signature. The
// usual request passes in one sweep; nameFault finds the error in one that does
// not.
func checkNames(sig *model.Signature, r *infer.Request) error {
	if !uniqueOutputs(sig, r) {
		return nameFault(sig, r)
	}
	if n := len(r.Inputs); n > len(sig.Inputs) || n < sig.Required {
		return nameFault(sig, r)
	}
	sorted := true
	for i := range r.Inputs {
		in := &r.Inputs[i]
		if i < len(sig.Inputs) && sig.Inputs[i].Name == in.Name {
			in.Index = i
		} else {
			in.Index = sig.Input(in.Name)
		}
		if in.Index < 0 {
			return nameFault(sig, r)
		}
		sorted = sorted && (i == 0 || r.Inputs[i-1].Index < in.Index)
	}
	if !sorted {
		slices.SortStableFunc(r.Inputs, func(a, b infer.Input) int { return a.Index - b.Index })
	}
	required := 0
	for i := range r.Inputs {
		if i > 0 && r.Inputs[i-1].Index == r.Inputs[i].Index {
			return nameFault(sig, r)
		}
		if !sig.Inputs[r.Inputs[i].Index].Optional {
			required++
		}
	}
	if required < sig.Required {
		return nameFault(sig, r)
	}
	return nil
}

// uniqueOutputs drops repeated outputs and reports whether the model has all of
// them.
func uniqueOutputs(sig *model.Signature, r *infer.Request) bool {
	kept := r.Outputs[:0]
next:
	for _, w := range r.Outputs {
		if sig.Output(w.Name) < 0 {
			return false
		}
		for i := range kept {
			if kept[i].Name == w.Name {
				continue next
			}
		}
		kept = append(kept, w)
	}
	r.Outputs = kept
	return true
}

// nameFault returns the error in the names of a request: a duplicate, an
// unknown output, too few or too many inputs, an unknown input.
func nameFault(sig *model.Signature, r *infer.Request) error {
	given := make(map[string]bool, len(r.Inputs))
	for i := range r.Inputs {
		name := r.Inputs[i].Name
		if given[name] {
			return invalid(r, "input '%s' already exists in request", name)
		}
		given[name] = true
	}
	unknown := -1 // Triton names the first in the order of the alphabet
	for i := range r.Outputs {
		if sig.Output(r.Outputs[i].Name) < 0 && (unknown < 0 || r.Outputs[i].Name < r.Outputs[unknown].Name) {
			unknown = i
		}
	}
	if unknown >= 0 {
		return status.Errorf(status.InvalidArgument, "unexpected inference output '%s' for model '%s'", r.Outputs[unknown].Name, sig.Name)
	}
	counted := len(r.Inputs) <= len(sig.Inputs) && len(r.Inputs) >= sig.Required
	if counted {
		for i := range r.Inputs {
			if sig.Input(r.Inputs[i].Name) < 0 {
				return status.Errorf(status.InvalidArgument, "unexpected inference input '%s' for model '%s'", r.Inputs[i].Name, sig.Name)
			}
		}
	}
	return inputCountFault(sig, r, given)
}

func inputCountFault(sig *model.Signature, r *infer.Request, given map[string]bool) error {
	var got, missing []string
	for i := range r.Inputs {
		if i == maxNamesInError {
			got = append(got, "...")
			break
		}
		got = append(got, "'"+r.Inputs[i].Name+"'")
	}
	for i := range sig.Inputs {
		if !sig.Inputs[i].Optional && !given[sig.Inputs[i].Name] {
			missing = append(missing, "'"+sig.Inputs[i].Name+"'")
		}
	}
	const tail = "but got %d inputs for model '%s'. Got input(s) [%s], but missing required input(s) [%s]. Please provide all required input(s)."
	gotText, missingText := strings.Join(got, ","), strings.Join(missing, ",")
	if sig.Required == len(sig.Inputs) {
		return invalid(r, "expected %d inputs "+tail, len(sig.Inputs), len(r.Inputs), sig.Name, gotText, missingText)
	}
	return invalid(r, "expected number of inputs between %d and %d "+tail, sig.Required, len(sig.Inputs), len(r.Inputs), sig.Name, gotText, missingText)
}

// maxNamesInError bounds the names in an error to a client with thousands of
// inputs.
const maxNamesInError = 64

// checkRows finds the batch dimension of the request. It looks at the last input
// first: Triton's map of two or three inputs runs backwards, and its clients know
// the error of the input that it finds first.
func checkRows(sig *model.Signature, r *infer.Request) error {
	r.Rows = 1
	if sig.MaxBatch == 0 {
		return nil
	}
	rows := int64(-1)
	for i := range r.Inputs {
		in := &r.Inputs[len(r.Inputs)-1-i]
		if len(in.Shape) == 0 {
			return invalid(r, "input '%s' has no shape but model requires batch dimension for '%s'", in.Name, sig.Name)
		}
		if i > 0 && (in.Shape[0] != rows || rows < 0) { // Triton takes a negative one for a large one
			return invalid(r, "input '%s' batch size does not match other inputs for '%s'", in.Name, sig.Name)
		}
		rows = in.Shape[0]
	}
	if rows > int64(sig.MaxBatch) {
		return invalid(r, "inference request batch-size must be <= %d for '%s'", sig.MaxBatch, sig.Name)
	}
	r.Rows = int(max(rows, 1))
	return nil
}

const batchDimNote = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. " +
	"If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. " +
	"See the model configuration docs for more info on max_batch_size."

func checkShape(sig *model.Signature, r *infer.Request, in *infer.Input) error {
	want := &sig.Inputs[in.Index]
	if in.Type != want.Type {
		return invalid(r, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", in.Name, in.Type, sig.Name, want.Type)
	}
	if want.Full.Accepts(in.Shape) && in.Shape.Fixed() {
		return nil
	}
	skip := 0
	if sig.MaxBatch > 0 {
		skip = 1
	}
	if len(want.Full) == len(in.Shape) && openBeforeMismatch(want.Full[skip:], in.Shape[skip:]) {
		return invalid(r, "All input dimensions should be specified for input '%s' for model '%s', got %s", in.Name, sig.Name, in.Shape)
	}
	note := ""
	if sig.MaxBatch > 0 {
		note = batchDimNote
	}
	return invalid(r, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s", in.Name, sig.Name, want.Full, in.Shape, note)
}

// openBeforeMismatch reports whether a shape that does not fit leaves a dimension
// open before one that has another size.
func openBeforeMismatch(want, got tensor.Shape) bool {
	for i := range want {
		if got[i] == -1 {
			return true
		}
		if want[i] >= 0 && want[i] != got[i] {
			return false
		}
	}
	return true // a negative one, where any size fits
}

// checkContent compares the bytes of an input with its shape, so that instances
// can rely on the shape. A batch of no rows counts as one row, as it does in
// Triton.
func checkContent(sig *model.Signature, r *infer.Request, in *infer.Input) error {
	elements, ok := in.Shape.Elements()
	if !ok {
		return invalid(r, "invalid shape for input '%s': shape %s causes total element count to exceed maximum size of 9223372036854775807", in.Name, in.Shape)
	}
	if sig.MaxBatch > 0 && in.Shape[0] == 0 {
		if elements, ok = in.Shape[1:].Elements(); !ok {
			return invalid(r, "invalid shape for input '%s': shape %s causes total element count to exceed maximum size of 9223372036854775807", in.Name, in.Shape)
		}
	}
	if in.Type == tensor.Bytes {
		return checkStrings(sig, r, in, elements)
	}
	return checkSize(sig, r, in, elements)
}

// checkSize compares the bytes of an input with the number of its elements.
func checkSize(sig *model.Signature, r *infer.Request, in *infer.Input, elements int64) error {
	size := int64(in.Type.Size())
	if elements > (1<<63-1)/size {
		return invalid(r, "byte size overflow for input '%s': element count (%d) * data type size (%d) exceeds maximum allowed size (9223372036854775807)", in.Name, elements, size)
	}
	got := uint64(in.Data.Size())
	if in.From != nil {
		got = in.From.Size()
	}
	if got != uint64(elements*size) {
		return invalid(r, "input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", in.Name, sig.Name, elements*size, got)
	}
	return read(r, in)
}

// maxSource bounds the bytes of an input outside its request, like those of one
// inside.
const maxSource = math.MaxInt32

// read reads the content of an input from outside the request. After that it
// cannot change any more.
func read(r *infer.Request, in *infer.Input) error {
	if in.From == nil {
		return nil
	}
	n := in.From.Size()
	if n > maxSource {
		return invalid(r, "input '%s' has %d bytes, more than the maximum of %d", in.Name, n, int64(maxSource))
	}
	memory, err := r.GrowWithin(int(n))
	if err != nil {
		return err
	}
	in.Data = infer.Data{First: memory, Private: true}
	return in.From.Read(in.Data.First)
}

// checkStrings checks that a Bytes tensor has that many complete elements, and
// joins its pieces.
func checkStrings(sig *model.Signature, r *infer.Request, in *infer.Input, want int64) error {
	if err := read(r, in); err != nil {
		return err
	}
	if len(in.Data.Rest) > 0 { // elements may cross the pieces
		memory, err := r.GrowWithin(in.Data.Size())
		if err != nil {
			return err
		}
		joined := in.Data.Contiguous(memory)
		in.Data = infer.Data{First: joined}
	}
	data, count := in.Data.First, int64(0)
	var cut error
	for len(data) > 0 {
		if len(data) < 4 {
			return invalid(r, "incomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. "+
				"Please make sure the string length indicator is in one buffer.", in.Name, sig.Name, len(data))
		}
		if count == want {
			return invalid(r, "unexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", count+1, in.Name, sig.Name, want)
		}
		n := uint64(binary.LittleEndian.Uint32(data))
		if data = data[4:]; n > uint64(len(data)) {
			cut = lateFault{status.Errorf(status.InvalidArgument, "incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available", in.Name, n, len(data))}
			n = uint64(len(data))
		}
		data = data[n:]
		count++
	}
	if count < want {
		return invalid(r, "expected %d string elements for inference input '%s' for model '%s', got %d", want, in.Name, sig.Name, count)
	}
	return cut
}

// invalid returns the error of a request, with the request's id in front.
func invalid(r *infer.Request, format string, args ...any) error {
	id := r.ID
	if id == "" {
		id = "<id_unknown>"
	}
	return status.Errorf(status.InvalidArgument, "[request id: %s] "+format, append([]any{id}, args...)...)
}
