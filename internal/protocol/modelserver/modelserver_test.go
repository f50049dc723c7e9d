package modelserver

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"shoal/internal/modelstore"
	"shoal/internal/status"
)

func TestPathsAreSplitLikeJava(t *testing.T) {
	for path, want := range map[string][]string{
		"/": {}, "": {}, "/models": {"", "models"}, "/models/x/": {"", "models", "x"}, "//ping": {"", "", "ping"}, "http://h/ping": {"http:", "", "h", "ping"},
	} {
		if got := split(path); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func TestLenientJSON(t *testing.T) {
	cases := []struct {
		text string
		want []pair
		bad  string
	}{
		{`{"url":"a.mar","batch_size":4,"synchronous":true}`, []pair{{"url", "a.mar"}, {"batch_size", "4"}, {"synchronous", "true"}}, ""},
		{`{'url':'a.mar', model_name: '1', "handler": null, x: y}`, []pair{{"url", "a.mar"}, {"model_name", "1"}}, ""},
		{`{"url":"\u0041\n\""}`, []pair{{"url", "A\n\""}}, ""},
		{``, nil, ""},
		{`null`, nil, ""},
		{`{}`, nil, ""},
		{"// a comment\n{/* another */ url => a # and one more\n}", []pair{{"url", "a"}}, ""},
		{`{"batch_size":1.0,"max_batch_delay":"7","extra":{"a":["}",2]}}`, []pair{{"batch_size", "1"}, {"max_batch_delay", "7"}}, ""},
		{`{"url":"a","url":"b","model_name":5}`, []pair{{"url", "b"}, {"model_name", "5"}}, ""},
		{`{"url":`, nil, "java.io.EOFException: End of input at line 1 column 8 path $.url"},
		{`[1]`, nil, "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was BEGIN_ARRAY at line 1 column 2 path $"},
		{`"x"`, nil, "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was STRING at line 1 column 2 path $"},
		{`nonsense`, nil, "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was STRING at line 1 column 1 path $"},
		{`{"url":{"a":1}}`, nil, "java.lang.IllegalStateException: Expected a string but was BEGIN_OBJECT at line 1 column 9 path $.url"},
		{`{"url":["ok.mar"]}`, nil, "java.lang.IllegalStateException: Expected a string but was BEGIN_ARRAY at line 1 column 9 path $.url"},
		{`{"url":"ok.mar","model_name":"k4","synchronous":1}`, nil, "java.lang.IllegalStateException: Expected a boolean but was NUMBER at line 1 column 50 path $.synchronous"},
		{`{"url":"ok.mar","model_name":"j5","batch_size":1.5}`, nil, "java.lang.NumberFormatException: Expected an int but was 1.5 at line 1 column 51 path $.batch_size"},
		{`{"url":"ok.mar","model_name":"k3","batch_size":3000000000}`, nil, "java.lang.NumberFormatException: Expected an int but was 3000000000 at line 1 column 58 path $.batch_size"},
		{`{"batch_size":"x"}`, nil, `java.lang.NumberFormatException: For input string: "x"`},
		{`{"batch_size":""}`, nil, "java.lang.NumberFormatException: empty String"},
		{`{"url":"ok.mar","model_name":"k7",}`, nil, "com.google.gson.stream.MalformedJsonException: Expected name at line 1 column 36 path $.model_name"},
		{`{"url":"ok.mar" "model_name":"k2"}`, nil, "com.google.gson.stream.MalformedJsonException: Unterminated object at line 1 column 18 path $.url"},
		{`{"url":"ok.mar","model_name":"k1"} trailing`, nil, "com.google.gson.stream.MalformedJsonException: Use JsonReader.setLenient(true) to accept malformed JSON at line 1 column 37 path $"},
		{`{"a" 1}`, nil, "Expected ':'"},
	}
	for _, c := range cases {
		got, err := parseLenient([]byte(c.text))
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%s: got %v, want %s", c.text, err, c.bad)
			}
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q and %v, want %q", c.text, got, err, c.want)
		}
	}
}

func FuzzLenientJSON(f *testing.F) {
	for _, text := range []string{`{"url":"a","b":1}`, `{'a':'b';c=d}`, `{"\u00`, "{a", `{"a":"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseLenient(b)
		if err == nil && len(list) > len(b) {
			t.Errorf("got %d members of %d bytes", len(list), len(b))
		}
	})
}

// Bodies with very many members cost no more than their bytes.
func TestMembersAndFieldsAreBounded(t *testing.T) {
	members := "{" + strings.Repeat("a:1,", 100_000) + "url:u}"
	if got, err := parseLenient([]byte(members)); err != nil || !slices.Equal(got, []pair{{"url", "u"}}) {
		t.Errorf("got %d members and %v, want the url alone", len(got), err)
	}
	for n, wantErr := range map[int]error{maxFormParts: nil, maxFormParts + 1: errFormParts} {
		plain, err := formPairs(nil, strings.Repeat("a=b&", n))
		if (err != nil) != (wantErr != nil) || err == nil && len(plain) != n {
			t.Errorf("%d pairs: got %d and %v, want %v", n, len(plain), err, wantErr)
		}
		body := strings.Repeat("--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n", n) + "--B--\r\n"
		parts, err := formParts(nil, []byte(body), "B")
		if (err != nil) != (wantErr != nil) || err == nil && len(parts) != n {
			t.Errorf("%d parts: got %d and %v, want %v", n, len(parts), err, wantErr)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add([]byte("--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"\"\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--\r\n"), "B")
	f.Fuzz(func(t *testing.T, b []byte, boundary string) {
		size := 0
		parts, _ := formParts(nil, b, boundary)
		for _, p := range parts {
			size += len(p.Value)
		}
		if size > len(b) {
			t.Errorf("got %d bytes of %d", size, len(b))
		}
	})
}

func TestFormsAreReadLikeTheOriginal(t *testing.T) {
	body := strings.ReplaceAll(`--B
Content-Disposition: form-data; name="data"; filename="f.json"
Content-Type: application/json

{"k":1}
--B
Content-Disposition: form-data; name="txt"
Content-Type: text/plain

plain
--B
Content-Disposition: form-data; name="empty"; filename=""
Content-Type: image/png

x
--B--
`, "\n", "\r\n")
	var got []string
	parts, err := formParts(nil, []byte(body), "B")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		got = append(got, p.Name+"|"+p.Type+"|"+string(p.Value))
	}
	if want := []string{`data|application/json|{"k":1}`, "txt||plain", "empty|image/png|x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	typed := "--B\r\nContent-Disposition: form-data; name=a; filename=f\r\n\r\n1\r\n--B\r\n" +
		"Content-Disposition: form-data; name=b; filename=f\r\nContent-Type: text/csv; charset=utf-8\r\n\r\n2\r\n--B--\r\n"
	if got, _ := formParts(nil, []byte(typed), "B"); len(got) != 2 || got[0].Type != "application/octet-stream" || got[1].Type != "text/csv" {
		t.Errorf("got %v, want the usual type of a file, and a type without its parameters", got)
	}
	if got, err := formParts(nil, []byte("--B\r\nnot really"), "B"); len(got) != 0 || err != nil {
		t.Errorf("got %v of a broken form", got)
	}
}

func TestPairsOfForms(t *testing.T) {
	for _, c := range []struct{ form, want, bad string }{
		{"a=b&c=d%20e+f&c=2", "a=b c=d e f c=2", ""},
		{"a&b", "a=", ""},
		{"a", "", ""},
		{"a=b=c&", "a=b=c", ""},
		{"a=b\nc=d", "a=b", ""},
		{"a=%zz", "", "Invalid hex byte at index '0' in string: '%zz'"},
		{"a=x%4", "", "Invalid hex byte at index '1' in string: 'x%4'"},
		{"=x", "", "java.lang.IllegalArgumentException: Param 'name' must not be empty"},
	} {
		list, err := formPairs(nil, c.form)
		var got []string
		for _, p := range list {
			got = append(got, p.Name+"="+string(p.Value))
		}
		text := ""
		if err != nil {
			text = asError(err).Text
		}
		if text != c.bad || c.bad == "" && strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %q and %q, want %q and %q", c.form, got, text, c.want, c.bad)
		}
	}
}

func TestQueriesAreReadLikeTheOriginal(t *testing.T) {
	for _, c := range []struct{ uri, want, bad string }{
		{"/m?a=b&c=d;e=f+g#h", "a=b c=d e=f g", ""},
		{"/m?=x&a&&b=", "x= a= b=", ""},
		{"/m", "", ""},
		{"/m?", "", ""},
		{"/m?a=%C3%A9", "a=é", ""},
		{"/m?a=%zz", "", "invalid hex byte 'zz' at index 6 of '/m?a=%zz'"},
		{"/m?a=%4&b", "", "unterminated escape sequence at index 5 of: /m?a=%4&b"},
	} {
		for _, ts := range []bool{false, true} {
			call := &call{h: &handler{Server: &Server{ts: ts}}}
			list, err := call.parseQuery(c.uri, 3)
			var got []string
			for _, p := range list {
				got = append(got, p.name+"="+p.value)
			}
			if c.bad == "" && (err != nil || strings.Join(got, " ") != c.want) {
				t.Errorf("%q: got %q and %v, want %q", c.uri, got, err, c.want)
			}
			if want := map[bool]int{false: 500, true: 403}[ts]; c.bad != "" && (asError(err).Text != c.bad || asError(err).Status != want) {
				t.Errorf("%q: got %v, want %q with %d", c.uri, err, c.bad, want)
			}
		}
	}
}

func TestHeadersAreLatin1(t *testing.T) {
	if got := string(latin1([]byte("h\xe9llo"))); got != "héllo" {
		t.Errorf("got %q", got)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("/m?a=b&c=%41;d#e")
	f.Fuzz(func(t *testing.T, uri string) {
		call := &call{h: &handler{Server: &Server{}}}
		if list, err := call.parseQuery(uri, strings.IndexByte(uri, '?')+1); err == nil && len(list) > len(uri) {
			t.Errorf("got %d pairs of %d bytes", len(list), len(uri))
		}
		if list, err := formPairs(nil, uri); err == nil && len(list) > len(uri) {
			t.Errorf("got %d pairs of %d bytes", len(list), len(uri))
		}
	})
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for code := range status.CodeCount {
		if e := asError(status.Errorf(code, "text")); e.Status < 400 || e.Type == "" || e.Text != "text" {
			t.Errorf("%v: got %d %q %q", code, e.Status, e.Type, e.Text)
		}
	}
}

func TestKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key_file.json")
	k, err := NewKeys(path, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	k.now = func() time.Time { return now }
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v and %v, want a file that only its owner reads", info.Mode(), err)
	}
	inference, management := "Bearer "+k.file.Inference.Key, "Bearer "+k.file.Management.Key
	if !k.Opens(inference, Inference) || !k.Opens(management, Management) || !k.Opens(management, Inference|Management) {
		t.Error("a key does not open its API")
	}
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic abc", "Bearer junk", management, k.file.Inference.Key} {
		if k.Opens(header, Inference) {
			t.Errorf("%q opens inference", header)
		}
	}
	if k.renew(inference, "inference") || k.renew("Bearer "+k.file.API.Key, "API") {
		t.Error("keys were renewed without the key for that")
	}
	if !k.renew("Bearer "+k.file.API.Key, "inference") || k.Opens(inference, Inference) || !k.Opens("Bearer "+k.file.Inference.Key, Inference) {
		t.Error("a renewed key does not take the place of the old one")
	}
	now = now.Add(2 * time.Hour)
	if k.Opens("Bearer "+k.file.Inference.Key, Inference) {
		t.Error("a key opens after it has expired")
	}
}

func TestMetricsAreWrittenLikeTheOriginal(t *testing.T) {
	var log []string
	c := NewMeter(MeterOptions{TorchServe: true, Log: func(line string) { log = append(log, line[:strings.LastIndex(line, ":")]) }})
	c.host = "h"
	c.Answered(200)
	c.Answered(503)
	c.Inference("m", "", 1500*time.Microsecond, 500*time.Microsecond)
	c.WorkerLoaded("W-9000-m_1.0", 250*time.Millisecond)
	c.Handler("PredictionTime.ms:1.5|#ModelName:m,Level:Model|#hostname:h,requestID:r,timestamp:1")
	c.Handler("no metric")
	text := string(c.appendText(nil, nil))
	for _, want := range []string{
		"# HELP Requests2XX Torchserve prometheus counter metric with unit: Count\n# TYPE Requests2XX counter\nRequests2XX{Level=\"Host\",Hostname=\"h\",} 1.0\n",
		"ts_inference_requests_total{model_name=\"m\",model_version=\"default\",hostname=\"h\",} 1.0\n",
		"ts_inference_latency_microseconds{model_name=\"m\",model_version=\"default\",hostname=\"h\",} 1500.0\n",
		"ts_queue_latency_microseconds{model_name=\"m\",model_version=\"default\",hostname=\"h\",} 1000.0\n",
		"# TYPE WorkerLoadTime gauge\nWorkerLoadTime{WorkerName=\"W-9000-m_1.0\",Level=\"Host\",Hostname=\"h\",} 250.0\n",
		"PredictionTime{ModelName=\"m\",Level=\"Model\",Hostname=\"h\",} 1.5\n",
		"# HELP CPUUtilization Torchserve prometheus gauge metric with unit: Percent\n# TYPE CPUUtilization gauge\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	if text := string(c.appendText(nil, []string{"Requests5XX"})); strings.Contains(text, "Requests2XX") || !strings.Contains(text, "Requests5XX{") {
		t.Errorf("got %s for one name", text)
	}
	if want := "ts_inference_requests_total.Count:1.0|#model_name:m,model_version:default|#hostname:h,timestamp"; !slices.Contains(log, want) {
		t.Errorf("got the log %q, want a line %q", log, want)
	}
}

func TestMetricsOfMultiModelServer(t *testing.T) {
	var log []string
	c := NewMeter(MeterOptions{Log: func(line string) { log = append(log, line[:strings.LastIndex(line, ":")]) }})
	c.host = "h"
	c.Answered(404)
	c.WorkerLoaded("W-9000-mlp", 113*time.Millisecond)
	c.Inference("m", "", time.Second, time.Second)
	want := []string{"Requests4XX.Count:1|#Level:Host|#hostname:h,timestamp", "W-9000-mlp.ms:113|#Level:Host|#hostname:h,timestamp"}
	if !slices.Equal(log, want) {
		t.Errorf("got %q, want %q", log, want)
	}
}

func TestTheStateOfTheMachine(t *testing.T) {
	if got, want := readCPU("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1"), (cpuTimes{100, 80}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := readMemory("MemTotal:  2048 kB\nMemAvailable: 1024 kB\n"); got["MemTotal"] != 2048 || got["MemAvailable"] != 1024 {
		t.Errorf("got %v", got)
	}
	if runtime.GOOS != "linux" {
		t.Skip("the machine's memory is read from /proc")
	}
	m := NewMeter(MeterOptions{TorchServe: true})
	m.System()
	for _, name := range []string{"MemoryUsed{", "MemoryAvailable{", "MemoryUtilization{", "DiskUsage{", "DiskAvailable{", "DiskUtilization{"} {
		if text := string(m.appendText(nil, nil)); !strings.Contains(text, name) {
			t.Errorf("got no %s in %s", name, text)
		}
	}
}

func TestDocumentsNameTheRoutes(t *testing.T) {
	store, err := modelstore.Open(modelstore.Options{Dialect: modelstore.TorchServe, Temp: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := New(Options{Store: store})
	text := string(store.Encode((&handler{Server: s, apis: Management}).document()))
	for _, want := range []string{`"title": "TorchServe APIs"`, `"/models/{model_name}/{model_version}/set-default"`, `"operationId": "registerModel"`, `"default": "100"`} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %s in %s", want, text)
		}
	}
}
