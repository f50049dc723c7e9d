package infer

// A ParamKind says which field of a Param holds its value.
type ParamKind uint8

// The kinds of parameter that the protocols know.
const (
	ParamString ParamKind = iota
	ParamInt
	ParamUint
	ParamFloat
	ParamBool
)

// A Param is one named value from a client to a model or from a model to a
// client.
type Param struct {
	Name   string
	Kind   ParamKind
	String string
	Int    int64
	Uint   uint64
	Float  float64
	Bool   bool
}
