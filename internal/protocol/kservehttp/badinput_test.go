package kservehttp

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/protocol/httpserver"
)

// A badInput is something that no client should send and what it gets.
type badInput struct {
	name   string
	send   []byte
	status int    // 0 when the connection is closed without an answer
	text   string // somewhere in the answer
}

// infer returns an inference request with a JSON body.
func inferRequest(model, json string, headers ...string) []byte {
	return post("/v2/models/"+model+"/infer", []byte(json), headers...)
}

// input returns the JSON of a request with one input.
func generateRequest(model, json string) []byte {
	return post("/v2/models/"+model+"/generate", []byte(json))
}

func input(members string) string { return `{"inputs":[{"name":"INPUT0",` + members + `}]}` }

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func nested(n int, inner string) string {
	return strings.Repeat("[", n) + inner + strings.Repeat("]", n)
}

func gzipOf(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// tinyChunks returns a chunked request of n chunks of one byte.
func tinyChunks(n int) []byte {
	return []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strings.Repeat("1\r\n \r\n", n) + "0\r\n\r\n")
}

const goodInput = `"shape":[2],"datatype":"FP32","data":[1,2]`

func badInputs() []badInput {
	bomb := gzipOf(make([]byte, 4<<20))
	good := gzipOf([]byte(input(goodInput)))
	return []badInput{
		// JSON that is none.
		{"the JSON ends early", inferRequest("var", `{"inputs":[{"name":"INPUT0"`), 500, "Missing a comma or '}' after an object member. at 27"},
		{"the JSON ends in a string", inferRequest("var", `{"inputs":[{"name":"INPU`), 500, "Missing a closing quotation mark in string. at 24"},
		{"text follows the JSON", inferRequest("var", input(goodInput)+"xx"), 500, "The document root must not be followed by other values."},
		{"the JSON is white space", inferRequest("var", " \n "), 500, "The document is empty. at 3"},
		{"a number lacks its fraction", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[1.]`)), 500, "Miss fraction part in number."},
		{"a number is too big", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[1e999]`)), 500, "Number too big to be stored in double."},
		{"NaN is misspelt", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[nan]`)), 500, "Invalid value."},
		{"a surrogate is alone", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[1],"x":"\ud800"`)), 500, "The surrogate pair in string is invalid."},
		{"a syntax fault follows a type fault", inferRequest("var", `{"id":7,"inputs":[}`), 500, "Invalid value. at 18"},

		// JSON that does not say what it must.
		{"the document is a list", inferRequest("var", `[1]`), 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"},
		{"the id is a number", inferRequest("var", `{"id":7,"inputs":[]}`), 500, "Unable to parse 'id': attempt to access JSON non-string as string"},
		{"an input is a number", inferRequest("var", `{"inputs":[7]}`), 400, "But no field is set"},
		{"an input has two sources", inferRequest("var", input(goodInput+`,"parameters":{"binary_data_size":8}`)), 400, "But set 'data' 'binary_data_size'"},
		{"a dimension is negative", inferRequest("var", input(`"shape":[-1],"datatype":"FP32","data":[1]`)), 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"a dimension is a fraction", inferRequest("var", input(`"shape":[1.5],"datatype":"FP32","data":[1]`)), 500, "non-unsigned-integer"},
		{"a dimension is 2^63", inferRequest("var", input(`"shape":[9223372036854775808],"datatype":"FP32","data":[1]`)), 400, "causes total element count to exceed maximum size"},
		{"the elements number 2^64", inferRequest("var", input(`"shape":[4294967296,4294967296],"datatype":"FP32","data":[1]`)), 400, "shape [4294967296,4294967296] causes total element count to exceed maximum size of 9223372036854775807"},
		{"the bytes number more than 2^63", inferRequest("var", input(`"shape":[4611686018427387904],"datatype":"FP32","data":[1]`)), 400, "byte size overflow for input 'INPUT0'"},
		{"the binary elements number 2^64", inferRequest("var", input(`"shape":[4294967296,4294967296],"datatype":"FP32","parameters":{"binary_data_size":0}`)), 400, ""},
		{"the shape calls for a gigabyte", inferRequest("var", input(`"shape":[268435456],"datatype":"FP32","data":[1]`)), 400, "JSON input 'INPUT0' has a byte_size (1073741824 bytes) that exceeds the maximum allowed value of 1048576 bytes."},
		{"the shape calls for more than there is", inferRequest("var", input(`"shape":[200000],"datatype":"FP32","data":[1]`)), 500, "Shape does not match true shape of 'data' field"},
		{"there are too many elements", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[1,2]`)), 500, "Shape does not match true shape of 'data' field"},
		{"there are too many strings", inferRequest("text", input(`"shape":[1,1],"datatype":"BYTES","data":["a","b"]`)), 400, "string elements"},
		{"an element is a string", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":["1"]`)), 500, "attempt to access JSON non-number as double"},
		{"an element is an object", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":[{"a":1}]`)), 500, "attempt to access JSON non-number as double"},
		{"an unsigned element is negative", inferRequest("var", input(`"shape":[1],"datatype":"UINT8","data":[-1]`)), 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"a string element is a number", inferRequest("text", input(`"shape":[1,1],"datatype":"BYTES","data":[1]`)), 500, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"},
		{"a truth value is a number", inferRequest("var", input(`"shape":[1],"datatype":"BOOL","data":[1]`)), 500, "attempt to access JSON non-boolean as boolean"},
		{"half floats come as JSON", inferRequest("half", input(`"shape":[1],"datatype":"FP16","data":[1]`)), 400, "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT0"},
		{"the data type is unknown", inferRequest("var", input(`"shape":[1],"datatype":"fp32","data":[1]`)), 400, "invalid datatype for input INPUT0"},
		{"data is nested 100 deep", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":`+nested(100, "1"))), 400, "JSON nesting depth exceeds maximum allowed limit (100)"},
		{"data is nested 250,000 deep", inferRequest("var", input(`"shape":[1],"datatype":"FP32","data":`+nested(250_000, "1"))), 400, "JSON nesting depth exceeds maximum allowed limit (100)"},
		{"an ignored member is nested 250,000 deep and broken", inferRequest("var", `{"x":`+nested(250_000, "")[1:]), 500, ""},
		{"the index is asked with 250,000 levels", post("/v2/repository/index", []byte(`{"ready":`+nested(250_000, "")+`}`)), 400, "Invalid value for 'ready': expected a boolean"},
		{"two inputs have one name", inferRequest("var", `{"inputs":[{"name":"INPUT0",`+goodInput+`},{"name":"INPUT0",`+goodInput+`}]}`), 400, "input 'INPUT0' already exists in request"},
		{"two inputs have one name, and the second has too little", inferRequest("var", `{"inputs":[{"name":"INPUT0",`+goodInput+`},{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1]}],"id":"7"}`), 400, "[request id: 7] input 'INPUT0' already exists in request"},
		{"the shape is empty", inferRequest("var", input(`"shape":[],"datatype":"FP32","data":[1,2]`)), 400, "unexpected shape for input 'INPUT0' for model 'var'. Expected [-1], got []. "},
		{"there are 10,000 inputs", inferRequest("var", `{"inputs":[`+many(10_000, `{"name":"I%d","shape":[1],"datatype":"FP32","data":[1]}`)+`]}`), 400, "expected 1 inputs but got 10000 inputs"},
		{"there are 10,000 outputs", inferRequest("var", `{"inputs":[{"name":"INPUT0",`+goodInput+`}],"outputs":[`+many(10_000, `{"name":"O%d"}`)+`]}`), 400, "unexpected inference output 'O0'"},
		{"the shape has 50,000 dimensions", inferRequest("var", input(`"shape":[`+strings.Repeat("1,", 49_999)+`1],"datatype":"FP32","data":[1]`)), 400, "invalid shape for input 'INPUT0': it has more than 256 dimensions"},
		{"there are 50,000 parameters", inferRequest("var", `{"parameters":{`+many(50_000, `"p%d":1`)+`},"inputs":[]}`), 400, "the request has more than 1024 parameters; send fewer"},
		{"the parameters are no object", inferRequest("var", `{"parameters":5,"inputs":[]}`), 500, "failed to get request params.: attempt to get members for non-object"},
		{"an offset without a region", inferRequest("var", input(goodInput+`,"parameters":{"shared_memory_offset":"x"}`)), 500, "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"a parameter is null", inferRequest("var", `{"parameters":{"p":null},"inputs":[]}`), 400, "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'."},
		{"a parameter is reserved", inferRequest("var", `{"parameters":{"triton_x":1},"inputs":[]}`), 400, "parameter keys starting with 'triton_' are reserved"},
		{"the priority is negative", inferRequest("var", `{"parameters":{"priority":-1},"inputs":[]}`), 500, "Unable to parse 'priority'"},
		{"the class count is a string", inferRequest("var", `{"inputs":[{"name":"INPUT0",`+goodInput+`}],"outputs":[{"name":"OUTPUT0","parameters":{"classification":"3"}}]}`), 500, "Unable to set 'classification'"},
		{"shared memory is asked for", inferRequest("var", input(`"shape":[1],"datatype":"FP32","parameters":{"shared_memory_region":"r"}`)), 501, "Client shared memory is disabled."},
		{"the model is decoupled", inferRequest("decoupled", input(goodInput)), 501, "HTTP end point doesn't support models with decoupled transaction policy"},

		// The binary extension.
		{"the header length is too large", inferRequest("var", input(goodInput), "Inference-Header-Content-Length: 999"), 400, "inference header size should be in range (0, 73), got: 999"},
		{"the header length is negative", inferRequest("var", input(goodInput), "Inference-Header-Content-Length: -1"), 400, "got: -1"},
		{"the header length is no number", inferRequest("var", input(goodInput), "Inference-Header-Content-Length: 0x10"), 400, "Unable to parse Inference-Header-Content-Length, got: 0x10"},
		{"the header length is beyond 32 bits", inferRequest("var", input(goodInput), "Inference-Header-Content-Length: 99999999999"), 400, "value is out of range [ -2147483648, 2147483647 ], got: 99999999999"},
		{"the header length cuts the JSON", inferRequest("var", input(goodInput), "Inference-Header-Content-Length: 20"), 500, "failed to parse the request JSON buffer"},
		{"the binary data is too short", inferRequest("var", input(`"shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}`)+"1234", "Inference-Header-Content-Length: 96"), 400, "unexpected size for input 'INPUT0', expecting 4 additional bytes for model 'var'"},
		{"the binary data is too long", inferRequest("var", input(`"shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}`)+"12345", "Inference-Header-Content-Length: 96"), 400, "unexpected additional input data for model 'var'"},
		{"the binary size is 2^64-1", inferRequest("var", input(`"shape":[1],"datatype":"FP32","parameters":{"binary_data_size":18446744073709551615}`)), 400, "unexpected size for input 'INPUT0'"},
		{"the binary size is negative", inferRequest("var", input(`"shape":[1],"datatype":"FP32","parameters":{"binary_data_size":-1}`)), 500, "Unable to parse 'binary_data_size'"},
		{"a raw request does not divide", inferRequest("var", "12345", "Inference-Header-Content-Length: 0"), 400, "input byte size mismatch for input 'raw_input' for model 'var'. Expected 4, got 5"},
		{"a raw request has two open dimensions", inferRequest("grid", "1234", "Inference-Header-Content-Length: 0"), 400, "can not be deduced because there are more than one variable-sized dimension"},
		{"a raw request is too large", inferRequest("var", strings.Repeat("x", 2<<20), "Inference-Header-Content-Length: 0"), 400, "Raw input has a byte_size (2097152 bytes) that exceeds the maximum allowed value of 1048576 bytes."},
		{"half floats are wanted as JSON", inferRequest("half", input(`"shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}`)+"12", "Inference-Header-Content-Length: 96"), 400, "sending FP16 data via JSON is not supported. Please use the binary data format for output"},

		// Compression.
		{"the compression is unknown", inferRequest("var", input(goodInput), "Content-Encoding: br"), 501, "Unsupported compression type"},
		{"the gzip is garbage", inferRequest("var", "garbage", "Content-Encoding: gzip"), 400, "not valid gzip"},
		{"the gzip is cut short", inferRequest("var", string(good[:len(good)-9]), "Content-Encoding: gzip"), 400, "not valid gzip"},
		{"the gzip is empty", inferRequest("var", "", "Content-Encoding: gzip"), 400, "nothing to be decompressed"},
		{"the gzip is too large", inferRequest("var", strings.Repeat("x", 2<<20), "Content-Encoding: gzip"), 400, "compressed request body of 2097152 bytes exceeds the maximum"},
		{"the gzip is a bomb", inferRequest("var", string(bomb), "Content-Encoding: gzip"), 400, "Decompressed data size exceeds the maximum allowed value of 1048576 bytes. Use --http-max-input-size to increase the limit."},

		// Sizes and HTTP itself.
		{"the JSON is too large", inferRequest("var", input(goodInput)+strings.Repeat(" ", 2<<20)), 400, "exceeds the maximum allowed input size of 1048576 bytes. Use --http-max-input-size to increase the limit."},
		{"the index is asked with too much JSON", post("/v2/repository/index", bytes.Repeat([]byte(" "), 2<<20)), 400, "request JSON size of 2097152 bytes exceeds the maximum allowed input size"},
		{"the body is larger than any may be", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n"), 413, "request body of 9000000 bytes exceeds the maximum of 8388608 bytes. Use --http-max-body-size"},
		{"the content length is beyond 32 bits", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000000\r\n\r\n"), 400, "Unable to parse Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 3000000000"},
		{"the content length is beyond 64 bits", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n"), 400, "Unable to parse Content-Length, value is out of range"},
		{"the content length is no number", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n"), 400, "Unable to parse Content-Length, got: many"},
		{"the content length is negative", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"), 400, "Content-Length"},
		{"there are two content lengths", []byte("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), 400, "no valid HTTP/1.1"},
		{"a large body is expected to be let in", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n"), 413, "--http-max-body-size"},
		{"the transfer encoding is unknown", []byte("POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"), 400, "no valid HTTP/1.1"},
		{"there are too many chunks", tinyChunks(65537), 400, "Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks."},
		{"there are as many chunks as may be", tinyChunks(65536), 500, "The document is empty. at 65536"},
		{"a chunk is too large", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), 400, "chunks"},
		{"a chunk's size is no number", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n0\r\n\r\n"), 400, "chunks"},
		{"the headers are a flood", []byte("GET /v2 HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-Flood: 0123456789\r\n", 20_000) + "\r\n"), 431, "--http-max-header-size"},
		{"the path is a flood", []byte("GET /v2/models/" + strings.Repeat("x", 100_000) + " HTTP/1.1\r\nHost: x\r\n\r\n"), 431, "--http-max-header-size"},
		{"the request line is garbage", []byte("HELLO\r\n\r\n"), 0, ""},
		{"TLS is spoken", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), 0, ""},
		{"HTTP/2 is spoken", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, "HTTP Version Not Supported"},
		{"the method is unknown", []byte("BREW /v2 HTTP/1.1\r\nHost: x\r\n\r\n"), 405, "Method Not Allowed"},

		// The short form.
		{"generate: not an object", generateRequest("var", `[1]`), 500, "attempt to get members for non-object"},
		{"generate: no JSON", generateRequest("var", `{"INPUT0":[1,2}`), 500, "failed to parse the request JSON buffer"},
		{"generate: an empty body", generateRequest("var", ``), 500, "The document is empty"},
		{"generate: an id of the wrong type", generateRequest("var", `{"id":5,"INPUT0":1}`), 500, "Unable to parse 'id': attempt to access JSON non-string as string"},
		{"generate: parameters of the wrong type", generateRequest("var", `{"INPUT0":1,"parameters":5}`), 500, "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"},
		{"generate: an object as a parameter", generateRequest("var", `{"INPUT0":1,"p":{"a":1}}`), 400, "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'."},
		{"generate: an object as an inner parameter", generateRequest("var", `{"INPUT0":1,"parameters":{"q":{}}}`), 400, "Converting keyword: 'parameters': parameter 'q' has invalid type."},
		{"generate: data of the wrong type", generateRequest("var", `{"INPUT0":"x"}`), 500, "Unable to parse 'data': attempt to access JSON non-number as double"},
		{"generate: an object as data", generateRequest("var", `{"INPUT0":{"x":1}}`), 500, "Unable to parse 'data': attempt to access JSON non-number as double"},
		{"generate: nested data that is more", generateRequest("var", `{"INPUT0":[[1,2],[3,4]]}`), 500, "Shape does not match true shape of 'data' field"},
		{"generate: data that fits no shape", generateRequest("text", `{"INPUT0":[]}`), 400, "input"},
		{"generate: FP16 data", generateRequest("half", `{"INPUT0":1}`), 400, "receiving FP16 data via JSON is not supported"},
		{"generate: an input twice", generateRequest("var", `{"INPUT0":1,"INPUT0":2}`), 400, "input 'INPUT0' already exists in request"},
		{"generate: very many inputs", generateRequest("var", "{"+many(50_000, `"INPUT0":%d`)+"}"), 400, "more than 1024 inputs"},
		{"generate: very many parameters", generateRequest("var", "{"+many(50_000, `"p%d":1`)+"}"), 400, "more than 1024 parameters"},
		{"generate: nested very deep", generateRequest("var", `{"INPUT0":`+nested(100_000, "1")+`}`), 400, "JSON nesting depth exceeds"},
		{"generate: a body that is too large", generateRequest("var", `{"INPUT0":[`+many(400_000, "%d")+`]}`), 400, "--http-max-input-size"},
		{"generate: a packed body", post("/v2/models/var/generate", []byte("{}"), "Content-Encoding: gzip"), 400, "Unsupported content-encoding, only 'identity' is supported."},
		{"generate: an unknown model", generateRequest("nosuch", `{}`), 404, "Request for unknown model: 'nosuch' is not found"},
		{"generate: no input", generateRequest("var", `{}`), 400, "expected 1 inputs but got 0 inputs"},
		{"generate_stream: no JSON", post("/v2/models/var/generate_stream", []byte("{")), 500, "Missing a name for object member"},
		{"generate_stream: no input", post("/v2/models/var/generate_stream", []byte("{}")), 400, "expected 1 inputs but got 0 inputs"},
		{"generate_stream: an unknown model", post("/v2/models/nosuch/generate_stream", []byte("{}")), 404, "is not found"},
		{"generate_stream: HTTP/1.0", bytes.Replace(post("/v2/models/var/generate_stream", []byte(`{"INPUT0":1}`)), []byte("HTTP/1.1"), []byte("HTTP/1.0"), 1), 505, "needs HTTP/1.1"},

		// Clients that never finish.
		{"the headers stop coming", []byte("GET /v2 HTTP/1.1\r\nHost: x\r\nX-More: "), 408, "--http-header-timeout-secs"},
		{"a small body stops coming", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"), 408, "--http-body-timeout-secs"},
		{"a body does not begin", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"), 408, "--http-body-timeout-secs"},
		{"a large body stops coming", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 10\r\nContent-Length: 8000000\r\n\r\n" + strings.Repeat("{", 20_000)), 408, "--http-body-timeout-secs"},
		{"a chunk stops coming", []byte("POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"), 408, "--http-body-timeout-secs"},
		{"a body for an unknown model stops coming", []byte("POST /v2/models/nosuch/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("{", 9000)), 404, "'nosuch' is not found"},
	}
}

// TestBadInput sends what no client should. Each gets its answer, or its end,
// within a second; memory stays bounded; and the next good request is answered.
func TestBadInput(t *testing.T) {
	const limit = 100 * time.Millisecond
	e := startEngine(t, oddModels)
	rejects := newRejects(e)
	addr := start(t, e, Options{
		MaxInputSize: 1 << 20,
		Server:       httpserver.Options{MaxBodySize: 8 << 20, HeaderTimeout: limit, StallTimeout: limit, Rejects: rejects},
	})
	models := slices.Collect(maps.Keys(oddModels))
	cases := badInputs()
	if len(cases) < 40 {
		t.Fatalf("got %d cases, want at least 40", len(cases))
	}
	good := inferRequest("var", input(goodInput))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rejected := sum(allRejected(rejects, models...))
			began := time.Now()
			got, body := exchange(t, addr, c.send)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			switch {
			case got == nil && c.status != 0:
				t.Errorf("got a closed connection, want %d", c.status)
			case got != nil && (got.StatusCode != c.status || !strings.Contains(string(body), c.text)):
				t.Errorf("got %d %s, want %d with %q", got.StatusCode, body, c.status, c.text)
			case got != nil && got.Header.Get("Content-Type") != "application/json":
				t.Errorf("got Content-Type %q, want application/json", got.Header.Get("Content-Type"))
			}
			want := uint64(1)
			if c.name == "half floats are wanted as JSON" { // known only when the model has run
				want = 0
			}
			if n := sum(allRejected(rejects, models...)) - rejected; n != want {
				t.Errorf("counted %d rejected requests, want %d", n, want)
			}
			if took > 5*time.Second { // on a busy machine
				t.Errorf("took %v, want much less than 5s", took)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("took %d bytes of memory, want at most 32 MiB", n)
			}
			if got, body := exchange(t, addr, good); got == nil || got.StatusCode != 200 {
				t.Errorf("next request: got %v %s, want 200", got, body)
			}
		})
	}
}

// Clients that set Transfer-Encoding themselves send both. What is behind the
// chunks must not be taken for another request.
func TestChunksCountBesideAContentLengthAndTheConnectionEnds(t *testing.T) {
	addr := start(t, startEngine(t, oddModels), Options{})
	body := input(goodInput)
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for _, length := range []int{0, 2, len(chunks), len(chunks) + 100} {
		c := dial(t, "tcp", addr)
		send(t, c, fmt.Appendf(nil, "POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%sGET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", length, chunks))
		r := bufio.NewReader(c)
		if got, text := readAnswer(t, r); got == nil || got.StatusCode != 200 || !got.Close {
			t.Errorf("Content-Length %d: got %v %s, want 200 and the connection's end", length, got, text)
		}
		if got, text := readAnswer(t, r); got != nil {
			t.Errorf("Content-Length %d: got another answer, %d %s, want the connection's end", length, got.StatusCode, text)
		}
	}
}

// A byte now and then does not help a client that never finishes.
func TestSlowClientIsCutOffAtItsLimit(t *testing.T) {
	const limit = 100 * time.Millisecond
	addr := start(t, startEngine(t, oddModels), Options{Server: httpserver.Options{HeaderTimeout: limit, StallTimeout: limit}})
	for _, begin := range []string{
		"GET /v2 HTTP/1.1\r\n",
		"POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("{", 10_000),
		"POST /v2/models/var/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n",
	} {
		c := dial(t, "tcp", addr)
		began := time.Now()
		send(t, c, []byte(begin))
		answered := make(chan int, 1)
		go func() {
			status := 0
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				status = resp.StatusCode
			}
			answered <- status
		}()
		tick := time.NewTicker(limit / 10)
		for status := -1; status < 0; {
			select {
			case <-tick.C:
				c.Write([]byte("X"))
			case status = <-answered:
				if status != 408 {
					t.Errorf("%.60q: got status %d, want 408", begin, status)
				}
			}
		}
		tick.Stop()
		if took := time.Since(began); took < limit/2 || took > 50*limit {
			t.Errorf("%.60q: cut off after %v, want about %v", begin, took, limit)
		}
	}
}
