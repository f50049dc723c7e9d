package kservehttp

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"shoal/internal/backend/cuda"
	"shoal/internal/backend/cuda/cudatest"
	"shoal/internal/engine"
	"shoal/internal/shm"
)

func TestMemoryOfAGPUIsRegisteredListedAndGivenBack(t *testing.T) {
	gpus := cudatest.New(1)
	registry := shm.NewRegistry(4)
	registry.OpenCUDA = func(gpu int, handle []byte) (shm.Memory, error) { return cuda.OpenShared(gpus, gpu, handle) }
	addr := start(t, engine.New(engine.Options{Log: slog.New(slog.DiscardHandler), SharedMemory: registry}), Options{})
	register := func(device, size int) string {
		return fmt.Sprintf(`{"raw_handle":{"b64":%q},"device_id":%d,"byte_size":%d}`, base64.StdEncoding.EncodeToString(gpus[0].Lend(make([]byte, 64))), device, size)
	}
	for _, c := range []struct {
		method, path, body, want string
		code                     int
	}{
		{"POST", "region/g/register", register(3, 64), "failed to register CUDA shared memory region 'g': there is no GPU 3", 400},
		{"POST", "region/g/register", register(0, 65), "65 bytes of memory that has 64", 400},
		{"POST", "region/g/register", register(0, 64), "", 200},
		{"POST", "region/g/register", register(0, 64), "already in manager", 400},
		{"POST", "region/h/register", register(0, 32), "", 200},
		{"GET", "status", "", `[{"name":"g","device_id":0,"byte_size":64},{"name":"h","device_id":0,"byte_size":32}]`, 200},
		{"GET", "region/h/status", "", `[{"name":"h","device_id":0,"byte_size":32}]`, 200},
		{"POST", "region/g/unregister", "", "", 200},
		{"GET", "region/g/status", "", "Unable to find cuda shared memory region: 'g'", 404},
		{"POST", "unregister", "", "", 200},
		{"GET", "status", "", "[]", 200},
	} {
		r, err := http.NewRequest(c.method, "http://"+addr+"/v2/cudasharedmemory/"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.code || !strings.Contains(string(body), c.want) {
			t.Errorf("%s %s: got %d %s, %v, want %d ...%s", c.method, c.path, resp.StatusCode, body, err, c.code, c.want)
		}
	}
	if left := gpus[0].Left(); left != "" {
		t.Errorf("left on the GPU: %s", left)
	}
}
