package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/status"
	"shoal/internal/tensor"
)

// An object is one of a trace file.
type object struct {
	ID         uint64 `json:"id"`
	Model      string `json:"model_name"`
	Version    int64  `json:"model_version"`
	RequestID  string `json:"request_id"`
	Parent     uint64 `json:"parent_id"`
	Timestamps []struct {
		Name string
		Ns   int64
	}
	Activity string
	Tensor   *struct{ Name, Data, Shape, Dtype string }
}

// String returns the object in short.
func (o object) String() string {
	switch {
	case o.Model != "":
		return fmt.Sprintf("%d %s/%d id=%q parent=%d", o.ID, o.Model, o.Version, o.RequestID, o.Parent)
	case o.Tensor != nil:
		return fmt.Sprintf("%d %s %s=%s[%s]%s", o.ID, o.Activity, o.Tensor.Name, o.Tensor.Dtype, o.Tensor.Shape, o.Tensor.Data)
	}
	return fmt.Sprintf("%d %s", o.ID, o.Timestamps[0].Name)
}

// read returns the objects of a trace file.
func read(t *testing.T, path string) []object {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []object
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("%s: %v in %s", path, err, b)
	}
	return list
}

// ids returns the traces of each file that was written, by its name's end.
func ids(t *testing.T, path string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, file := range found {
		var list []string
		for _, o := range read(t, file) {
			if o.Model != "" {
				list = append(list, strconv.FormatUint(o.ID, 10))
			}
		}
		all[strings.TrimPrefix(file, path)] = strings.Join(list, " ")
	}
	return all
}

// request plays a request to a model that is answered at once.
func request(t *Tracer, model string) {
	tr := t.Sample(model, HTTP, Parent{}, time.Now())
	if tr == nil {
		return
	}
	tr.ReadDone()
	tr.First().Begin(model, 1, "", time.Now())
	tr.First().Done(time.Now(), nil)
	tr.Sending()
	tr.End()
}

func TestFilesHaveWhatTritonsHave(t *testing.T) {
	for _, tt := range []struct {
		name     string
		protocol Protocol
		level    Level
		want     []string
	}{
		{"times over HTTP", HTTP, Timestamps, []string{
			"1 HTTP_RECV_START", "1 HTTP_RECV_END", `1 m/3 id="r\"1" parent=0`, "1 REQUEST_START", "1 QUEUE_START",
			"1 INFER_RESPONSE_COMPLETE", "1 COMPUTE_START", "1 COMPUTE_INPUT_END", "1 COMPUTE_OUTPUT_START", "1 COMPUTE_END", "1 REQUEST_END",
			"1 HTTP_SEND_START", "1 HTTP_SEND_END", `2 n/1 id="" parent=1`, "2 REQUEST_START", "2 REQUEST_END",
		}},
		{"times over gRPC, the protocol's last", GRPC, Timestamps, []string{
			`1 m/3 id="r\"1" parent=0`, "1 REQUEST_START", "1 QUEUE_START",
			"1 COMPUTE_START", "1 COMPUTE_INPUT_END", "1 COMPUTE_OUTPUT_START", "1 COMPUTE_END", "1 REQUEST_END",
			"1 GRPC_WAITREAD_START", "1 GRPC_WAITREAD_END", "1 INFER_RESPONSE_COMPLETE", "1 GRPC_SEND_START", "1 GRPC_SEND_END",
			`2 n/1 id="" parent=1`, "2 REQUEST_START", "2 REQUEST_END",
		}},
		{"only tensors", HTTP, Tensors, []string{
			"1 TENSOR_QUEUE_INPUT A=UINT8[2]65,7", `1 TENSOR_BACKEND_OUTPUT B=BYTES[1,1]"x\"y"`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := DefaultConfig()
			c.Level, c.Rate = tt.level, 1
			tracer, path := traced(t, c)
			begin := time.Now()
			at := func(n int) time.Time { return begin.Add(time.Duration(n)) }
			tr := tracer.Sample("m", tt.protocol, Parent{}, at(1))
			tr.ReadDone()
			run := tr.First()
			run.Begin("m", 3, `r"1`, at(3))
			run.Input("A", tensor.Uint8, tensor.Shape{2}, []byte{65, 7})
			b := &Batch{Start: at(5), InputsReady: at(6), OutputsOut: at(7), End: at(8)}
			b.Add(run)
			b.Done()
			run.Output("B", tensor.Bytes, tensor.Shape{1, 1}, []byte("\x03\x00\x00\x00x\"y"))
			run.Done(at(4), nil)
			callee := run.Call()
			callee.Begin("n", 1, "", at(6))
			callee.Done(time.Time{}, nil)
			tr.Sending()
			tr.End()
			tracer.Close()
			var got []string
			for _, o := range read(t, path) {
				got = append(got, o.String())
				for _, s := range o.Timestamps {
					if s.Name == "COMPUTE_START" && s.Ns != tracer.file.nanos(begin)+5 {
						t.Errorf("COMPUTE_START: got %d, want %d", s.Ns, tracer.file.nanos(begin)+5)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTracesGoToTheFilesThatTheSettingsName(t *testing.T) {
	level := map[string][]string{"trace_level": {"TIMESTAMPS"}}
	for _, tt := range []struct {
		name  string
		start Config
		play  func(t *Tracer, update func(model, name string, value ...string))
		want  map[string]string
	}{
		{"all at the end", Config{Rate: 1, Count: -1}, func(t *Tracer, _ func(string, string, ...string)) {
			for range 3 {
				request(t, "m")
			}
		}, map[string]string{"": "1 2 3"}},
		{"one in three", Config{Rate: 3, Count: -1}, func(t *Tracer, _ func(string, string, ...string)) {
			for range 7 {
				request(t, "m")
			}
		}, map[string]string{"": "1 2"}},
		{"a count, which ends tracing and is written then", Config{Rate: 2, Count: 2}, func(t *Tracer, update func(string, string, ...string)) {
			for range 7 {
				request(t, "m")
			}
			update("", "trace_count", "1")
			for range 7 {
				request(t, "m")
			}
		}, map[string]string{".0": "1 2", ".1": "3"}},
		{"a log frequency", Config{Rate: 1, Count: -1, LogFrequency: 2}, func(t *Tracer, _ func(string, string, ...string)) {
			for range 5 {
				request(t, "m")
			}
		}, map[string]string{".0": "1 2", ".1": "3 4", ".2": "5"}},
		{"a change, which writes what was collected", Config{Rate: 1, Count: -1, LogFrequency: 4}, func(t *Tracer, update func(string, string, ...string)) {
			request(t, "m")
			update("", "log_frequency", "0")
			request(t, "m")
		}, map[string]string{".0": "1", "": "2"}},
		{"a model of its own", Config{Rate: 1, Count: -1}, func(t *Tracer, update func(string, string, ...string)) {
			update("m", "trace_count", "2")
			for range 4 {
				request(t, "m")
				request(t, "n")
			}
		}, map[string]string{".0": "1 3", "": "2 4 5 6"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tracer, path := traced(t, tt.start)
			update := func(model, name string, value ...string) {
				t.Helper()
				if _, err := tracer.Update(model, map[string][]string{name: value}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := tracer.Update("", level); err != nil {
				t.Fatal(err)
			}
			tt.play(tracer, update)
			tracer.Close()
			if diff := cmp.Diff(tt.want, ids(t, path)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if got := tracer.Dropped(); got != 0 {
				t.Errorf("got %d dropped, want none", got)
			}
		})
	}
}

func TestATraceEndsUnderTheSettingsThatItBeganWith(t *testing.T) {
	tracer, path := traced(t, Config{Level: Timestamps, Rate: 1, Count: -1})
	tr, late := tracer.Sample("m", HTTP, Parent{}, time.Now()), tracer.Sample("m", HTTP, Parent{}, time.Now())
	if _, err := tracer.Update("", map[string][]string{"trace_level": {"OFF"}}); err != nil {
		t.Fatal(err)
	}
	if tracer.Sample("m", HTTP, Parent{}, time.Now()) != nil {
		t.Error("got a trace, want none: the level is OFF")
	}
	tr.Fail(status.Errorf(status.InvalidArgument, "bad"))
	tr.End()
	tracer.Close() // with late on its way
	got := read(t, path)
	if len(got) != 1 || got[0].String() != "1 HTTP_RECV_START" {
		t.Errorf("got %v, want what happened before it failed", got)
	}
	late.End()
	if tracer.Dropped() != 1 {
		t.Errorf("got %d dropped, want 1", tracer.Dropped())
	}
}

func TestACountHoldsForManyCallersAtOnce(t *testing.T) {
	tracer, path := traced(t, Config{Level: Timestamps, Rate: 1, Count: 20})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				request(tracer, "m")
			}
		})
	}
	wg.Wait()
	tracer.Close()
	got := ids(t, path)
	if len(got) != 1 || len(strings.Fields(got[".0"])) != 20 {
		t.Errorf("got %v, want 20 in file 0", got)
	}
}

func TestATraceThatCannotBeWrittenIsCounted(t *testing.T) {
	tracer, path := traced(t, Config{Level: Timestamps, Rate: 1, Count: -1, LogFrequency: 1})
	if err := os.Mkdir(path+".0", 0o755); err != nil {
		t.Fatal(err)
	}
	request(tracer, "m")
	request(tracer, "m")
	tracer.Close()
	if tracer.Dropped() != 1 {
		t.Errorf("got %d dropped, want 1", tracer.Dropped())
	}
	if got := len(read(t, path+".1")); got == 0 {
		t.Error("got an empty file, want the second trace")
	}
}

func TestAFileNeedsItsFolder(t *testing.T) {
	c := DefaultConfig()
	c.File = filepath.Join(t.TempDir(), "no", "trace.json")
	if _, err := Start(c, nil, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v, want the missing folder", err)
	}
}

func TestSamplingWhenOffDoesNotAllocate(t *testing.T) {
	tracer := Off()
	if n := testing.AllocsPerRun(100, func() {
		if tracer.On() {
			t.Error("on")
		}
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

func TestValuesOfAllTypes(t *testing.T) {
	le := binary.LittleEndian
	u16, u32, u64 := le.AppendUint16, le.AppendUint32, le.AppendUint64
	for _, tt := range []struct {
		typ  tensor.Type
		data []byte
		want string
	}{
		{tensor.Bool, []byte{1, 0, 7}, "1,0,1"},
		{tensor.Uint8, []byte{0, 255}, "0,255"},
		{tensor.Int8, []byte{0x80, 1}, "-128,1"},
		{tensor.Uint16, u16(nil, 65535), "65535"},
		{tensor.Int16, u16(nil, 0x8000), "-32768"},
		{tensor.Uint32, u32(nil, 1<<31), "2147483648"},
		{tensor.Int32, u32(nil, 1<<31), "-2147483648"},
		{tensor.Uint64, u64(nil, math.MaxUint64), "18446744073709551615"},
		{tensor.Int64, u64(nil, math.MaxUint64), "-1"},
		{tensor.FP32, u32(u32(u32(nil, math.Float32bits(3e10)), math.Float32bits(-0.1234567891)), math.Float32bits(100000)), "3e+10,-0.123457,100000"},
		{tensor.FP64, u64(u64(nil, math.Float64bits(math.Inf(-1))), math.Float64bits(math.NaN())), "-inf,nan"},
		{tensor.FP16, u16(u16(u16(u16(u16(nil, 0x3e00), 0xc000), 0x0001), 0x7c00), 0x7e00), "1.5,-2,5.96046e-08,inf,nan"},
		{tensor.BF16, u16(u16(nil, 0x3fc0), 0xc000), "1.5,-2"},
		{tensor.Bytes, []byte("\x01\x00\x00\x00a\x00\x00\x00\x00\x02\x00\x00\x00"), `\"a\",\"\"`},
		{tensor.FP32, []byte{0, 0, 0, 0, 1}, "0"},
	} {
		if got := string(appendValues(nil, tt.typ, tt.data)); got != tt.want {
			t.Errorf("%v of %x: got %s, want %s", tt.typ, tt.data, got, tt.want)
		}
	}
}

func TestConfigOfTheCommandLine(t *testing.T) {
	env := map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_BSP_MAX_QUEUE_SIZE": "4096"}
	c, err := ParseConfig([]string{
		"mode=OpenTelemetry", "level=timestamps", "level=TENSORS", "rate=7", "count=9", "triton,file=/tmp/a,b=c", "triton,log-frequency=3",
		"opentelemetry,url=http://x:1/v1/traces", "opentelemetry,resource=a.b=c=d", "opentelemetry,resource=e=", "opentelemetry,bsp_max_queue_size=600",
	}, func(name string) string { return env[name] })
	want := Config{
		Mode: ModeOpenTelemetry, Level: Timestamps | Tensors, Rate: 7, Count: 9, LogFrequency: 3, File: "/tmp/a,b=c",
		OpenTelemetry: OpenTelemetry{URL: "http://x:1/v1/traces", Resource: []string{"a.b=c=d", "e="}, QueueSize: 600, BatchSize: 512, Delay: 100 * time.Millisecond},
	}
	if diff := cmp.Diff(want, c); err != nil || diff != "" {
		t.Errorf("got %v (-want +got):\n%s", err, diff)
	}
	if c, err := ParseConfig([]string{"level=OFF", "level=TIMESTAMPS"}, os.Getenv); err != nil || c.Level != 0 {
		t.Errorf("OFF and another: got %v, %v, want off", c.Level, err)
	}
}

func TestBadConfigNamesWhatIsWanted(t *testing.T) {
	for arg, want := range map[string]string{
		"rate":                                "want [mode,]setting=value",
		"rate=":                               "want [mode,]setting=value",
		"rate=-1":                             "want a whole number from 0",
		"count=-2":                            "-1 for no limit",
		"level=ALL":                           "want OFF, TIMESTAMPS or TENSORS",
		"mode=jaeger":                         "want triton or opentelemetry",
		"jaeger,url=x":                        "want triton or opentelemetry",
		"triton,url=x":                        "there is no such setting",
		"opentelemetry,resource=x":            "want opentelemetry,resource=name=value",
		"opentelemetry,bsp_max_queue_size=0":  "want a whole number from 1",
		"opentelemetry,bsp_max_queue_size=10": "at most bsp_max_queue_size (10)",
	} {
		if _, err := ParseConfig([]string{arg}, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arg, err, want)
		}
	}
}
