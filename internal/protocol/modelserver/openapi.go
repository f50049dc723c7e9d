package modelserver

import (
	"bytes"
	"encoding/json"
	"strings"

	"shoal/internal/modelstore"
)

// An object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// An operation is a route for the API's description: its path, method and name, its
// parameters as name:type=default (in the query, * for required ones), and the
// statuses of its answers.
type operation struct {
	path, method, id, text string
	params                 string
	body                   bool
	statuses               string
}

const (
	scaleParams = "min_worker:integer=1 max_worker:integer=1 number_gpu:integer=0 synchronous:boolean=false timeout:integer=-1"
	endParams   = "synchronous:boolean=false timeout:integer=-1"
	regParams   = "model_name:string handler:string runtime:string batch_size:integer=1 max_batch_delay:integer=100 response_timeout:integer=2 "
)

var describeOp = operation{path: "/", method: "options", id: "apiDescription", text: "Describe this API.", statuses: "200 500"}

var inferenceMMS = []operation{
	describeOp,
	{"/{model_name}/predict", "post", "predict", "Send a request to a model, as in version 0.4.", "", true, "200 404 500 503"},
	{"/ping", "get", "ping", "Ask how the server is doing.", "", false, "200 500"},
	{"/predictions/{model_name}", "post", "predictions", "Send a request to a model.", "", true, "200 404 500 503"},
	{"/predictions/{model_name}", "options", "predictionsApi", "Describe a model's API.", "", false, "200"},
	{"/api-description", "get", "apiDescription", "Describe this API.", "", false, "200 500"},
	{"/invocations", "post", "invocations", "Send a request to a model.", "model_name:string", true, "200 400 404 500 503"},
	{"/models/{model_name}/invoke", "post", "invocations", "Send a request to a model.", "", true, "200 400 404 500 503"},
}

var managementMMS = []operation{
	describeOp,
	{"/models", "get", "listModels", "List the models.", "limit:integer=100 next_page_token:string model_name_pattern:string", false, "200 500"},
	{"/models", "post", "registerModel", "Register a model.", "*model_url:string " + regParams + "initial_workers:integer=0 synchronous:boolean=false preload_model:boolean=false", false, "200 202 210 400 404 409 500"},
	{"/models/{model_name}", "get", "describeModel", "Describe a model.", "", false, "200 500"},
	{"/models/{model_name}", "put", "setAutoScale", "Change the number of a model's workers.", scaleParams, false, "200 202 210 400 404 500"},
	{"/models/{model_name}", "delete", "unregisterModel", "Unregister a model.", endParams, false, "200 202 404 408 500"},
}

var metricsTS = operation{"/metrics", "get", "metrics", "Metrics in Prometheus' text format.", "name[]:string", false, "200 500"}

var inferenceTS = []operation{
	describeOp,
	{"/ping", "get", "ping", "Ask how the server is doing.", "", false, "200 500"},
	{"/v1/models/{model_name}:predict", "post", "predictions", "Send a request to a model.", "", true, "200 404 500 503"},
	{"/v2/models/{model_name}/infer", "post", "predictions", "Send a request to a model.", "", true, "200 404 500 503"},
	{"/predictions/{model_name}", "post", "predictions", "Send a request to a model.", "", true, "200 404 500 503"},
	{"/predictions/{model_name}/{model_version}", "post", "version_predictions", "Send a request to a version of a model.", "", true, "200 404 500 503"},
	{"/api-description", "get", "api-description", "Describe this API.", "", false, "200 500"},
	metricsTS,
}

var modelTS = []operation{
	{"/models/{model_name}", "get", "describeModel", "Describe a model.", "", false, "200 404 500"},
	{"/models/{model_name}", "put", "setAutoScale", "Change the number of a model's workers.", scaleParams, false, "200 202 210 400 404 500"},
	{"/models/{model_name}", "delete", "unregisterModel", "Unregister a model.", endParams, false, "200 202 404 408 500"},
	{"/models/{model_name}/{model_version}", "get", "version_describeModel", "Describe a version of a model.", "", false, "200 404 500"},
	{"/models/{model_name}/{model_version}", "put", "version_setAutoScale", "Change the number of a version's workers.", scaleParams, false, "200 202 210 400 404 500"},
	{"/models/{model_name}/{model_version}", "delete", "version_unregisterModel", "Unregister a version of a model.", endParams, false, "200 202 404 408 500"},
	{"/models/{model_name}/{model_version}/set-default", "put", "setDefault", "Make a version the default.", "", false, "200 404 500"},
}

var managementTS = append(append([]operation{
	describeOp,
	{"/models", "get", "listModels", "List the models.", "limit:integer=100 next_page_token:string", false, "200 500"},
	{"/models", "post", "registerModel", "Register a model.", "*url:string " + regParams + "startup_timeout:integer=120 initial_workers:integer=0 synchronous:boolean=false s3_sse_kms:boolean=false", false, "200 202 210 400 404 409 500"},
}, modelTS...),
	operation{"/api-description", "get", "api-description", "Describe this API.", "", false, "200 500"}, metricsTS)

// description answers OPTIONS / and /api-description; done says that it is one of
// them.
func (c *call) description() (done bool, err error) {
	switch {
	case c.path == "/" && c.method == "OPTIONS":
	case len(c.seg) == 0:
		return true, errMethod()
	case len(c.seg) >= 2 && c.seg[1] == "api-description":
		if len(c.seg) > 2 {
			if c.h.ts {
				return true, errNoRoute()
			}
			return true, errMethod()
		}
	default:
		return false, nil
	}
	c.reply(200, c.h.opt.Store.Encode(c.h.document()))
	return true, nil
}

// document describes the listener's APIs.
func (h *handler) document() object {
	var ops []operation
	add := func(api API, list []operation) {
		if h.apis&api != 0 {
			ops = append(ops, list...)
		}
	}
	title, version := "Model Server APIs", "1.0.0"
	if h.ts {
		title, version = "TorchServe APIs", modelstore.TorchServe.ServerVersion()
		add(Inference, inferenceTS)
		add(Management, managementTS)
		if h.apis == Metrics {
			ops = []operation{metricsTS}
		}
	} else {
		add(Inference, inferenceMMS)
		add(Management, managementMMS)
	}
	return object{
		{"openapi", "3.0.1"},
		{"info", object{{"title", title}, {"description", "Serves models of deep learning over HTTP."}, {"version", version}}},
		{"paths", paths(ops)},
	}
}

// modelDescription answers OPTIONS for a model.
func (c *call) modelDescription(t target) error {
	v, err := c.h.opt.Store.Find(t.model, "")
	if err != nil {
		return err
	}
	if !c.h.ts {
		c.reply(200, c.h.opt.Store.Encode(modelDocumentMMS(v.Name())))
		return nil
	}
	c.reply(200, c.h.opt.Store.Encode(modelDocument(v.Name(), false)))
	return nil
}

func predictOp(path, model string) operation {
	return operation{path, "post", model, "Send a request to model: " + model + ".", "", false, "200 500"}
}

func modelDocumentMMS(model string) object {
	return object{
		{"openapi", "3.0.1"},
		{"info", object{{"title", "RESTful API for: " + model}, {"version", "1.0.0"}}},
		{"paths", paths([]operation{predictOp("/prediction/"+model, model)})},
	}
}

// modelDocument describes a model's API, or its management.
func modelDocument(model string, management bool) object {
	if management {
		return object{
			{"openapi", "3.0.1"},
			{"info", object{{"title", "RESTful Management API for: " + model}, {"version", modelstore.TorchServe.ServerVersion()}}},
			{"paths", paths(modelTS)},
		}
	}
	ops := []operation{predictOp("/prediction/"+model, model), predictOp("/v1/models/{model_name}:predict", model), predictOp("/v2/models/{model_name}/infer", model)}
	for i := range ops[1:] {
		ops[i+1].params = "-" // the path's are left out
	}
	return object{
		{"openapi", "3.0.1"},
		{"info", object{{"title", "RESTful API for: " + model}, {"version", "1.0.0"}}},
		{"paths", paths(ops)},
	}
}

// paths returns the member paths of a description.
func paths(ops []operation) object {
	var list object
	for _, op := range ops {
		o := object{{op.method, op.describe()}}
		if n := len(list); n > 0 && list[n-1].name == op.path {
			list[n-1].value = append(list[n-1].value.(object), o...)
			continue
		}
		list = append(list, member{op.path, o})
	}
	return list
}

// texts describe statuses.
var texts = map[string]string{
	"200": "OK", "202": "Accepted: it is done later", "210": "Some of the workers are there", "400": "Bad request", "404": "Not found",
	"408": "It took too long", "409": "There is one of that name", "500": "Internal Server Error", "503": "There is no worker for it",
}

func (op *operation) describe() object {
	params := []object{}
	if op.params != "-" {
		for _, name := range []string{"model_name", "model_version"} {
			if strings.Contains(op.path, "{"+name+"}") {
				params = append(params, object{{"in", "path"}, {"name", name}, {"required", true}, {"schema", object{{"type", "string"}}}})
			}
		}
		for _, p := range strings.Fields(op.params) {
			p, required := strings.CutPrefix(p, "*")
			name, kind, _ := strings.Cut(p, ":")
			kind, value, hasValue := strings.Cut(kind, "=")
			schema := object{{"type", kind}}
			if hasValue {
				schema = append(schema, member{"default", value})
			}
			params = append(params, object{{"in", "query"}, {"name", name}, {"required", required}, {"schema", schema}})
		}
	}
	o := object{{"description", op.text}, {"operationId", op.id}, {"parameters", params}}
	if op.body {
		o = append(o, member{"requestBody", object{{"description", "What the model's handler takes."}, {"content", object{{"*/*", object{{"schema", object{{"type", "string"}, {"format", "binary"}}}}}}}}})
	}
	answers := object{}
	for _, code := range strings.Fields(op.statuses) {
		a := object{{"description", texts[code]}}
		if code >= "400" {
			field := func(kind string) object { return object{{"type", kind}} }
			a = append(a, member{"content", object{{jsonType, object{{"schema", object{
				{"type", "object"},
				{"required", []string{"code", "type", "message"}},
				{"properties", object{{"code", field("integer")}, {"type", field("string")}, {"message", field("string")}}},
			}}}}}})
		}
		answers = append(answers, member{code, a})
	}
	return append(o, member{"responses", answers})
}
