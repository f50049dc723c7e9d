package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/net/http2"

	"shoal/bench/internal/peer"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// Sizes of the sparse region: it takes no memory until it is read.
const (
	regionSize  = 100 << 30
	regionInput = 1 << 30 // that a request names
)

var shmFlags = []string{"--allow-client-shm=true"}

// SharedMemory returns the attacks through memory that clients register. They
// need a region from [MakeRegion].
func SharedMemory() []Class {
	return []Class{
		{Name: "shm-http", Conns: 4, Act: shmHTTP, Shared: true, Flags: shmFlags, About: "inputs of 1 GB in a sparse region of 100 GB, over HTTP"},
		{Name: "shm-grpc", Conns: 4, Act: shmGRPC, Shared: true, Flags: shmFlags, About: "inputs of 1 GB in a sparse region of 100 GB, over gRPC"},
	}
}

// MakeRegion makes a sparse file of 100 GB in /dev/shm and returns its key.
// The caller must call remove.
func MakeRegion() (key string, remove func(), err error) {
	f, err := os.CreateTemp("/dev/shm", "shoal-attack-*")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.Remove(f.Name()) }
	if err := errors.Join(f.Truncate(regionSize), f.Close()); err != nil {
		remove()
		return "", nil, err
	}
	return "/" + filepath.Base(f.Name()), remove, nil
}

// post sends JSON to the server and returns its status.
func post(ctx context.Context, url string, tally *Tally, body string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return 0, err
	}
	tally.Bytes.Add(int64(len(body)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// register registers the whole region under its key. Another may have done so.
func register(ctx context.Context, t Target, tally *Tally) (name string, err error) {
	name = t.Region[1:]
	_, err = post(ctx, fmt.Sprintf("http://%s/v2/systemsharedmemory/region/%s/register", t.HTTP, name), tally,
		fmt.Sprintf(`{"key":%q,"byte_size":%d}`, t.Region, int64(regionSize)))
	return name, err
}

func shmHTTP(ctx context.Context, t Target, tally *Tally) error {
	name, err := register(ctx, t, tally)
	if err != nil {
		return err
	}
	place := `"parameters":{"shared_memory_region":` + strconv.Quote(name) + `,"shared_memory_byte_size":` + strconv.Itoa(regionInput)
	body := fmt.Sprintf(`{"inputs":[{"name":%q,"shape":[1,%d],"datatype":"FP32",%s}}],"outputs":[{"name":%q,"parameters":{"binary_data":true}}]}`,
		peer.Input, regionInput/4, place, peer.Output)
	for ctx.Err() == nil {
		if _, err := post(ctx, fmt.Sprintf("http://%s/v2/models/%s/infer", t.HTTP, Model), tally, body); err != nil {
			return err
		}
	}
	return nil
}

func shmGRPC(ctx context.Context, t Target, tally *Tally) error {
	name, err := register(ctx, t, tally)
	if err != nil {
		return err
	}
	text := func(s string) *inferencepb.InferParameter {
		return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: s}}
	}
	size := &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: regionInput}}
	message := marshal(&inferencepb.ModelInferRequest{
		ModelName: Model,
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{
			Name: peer.Input, Datatype: "FP32", Shape: []int64{1, regionInput / 4},
			Parameters: map[string]*inferencepb.InferParameter{"shared_memory_region": text(name), "shared_memory_byte_size": size},
		}},
	})
	c, err := open(ctx, t, tally, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	if err != nil {
		return err
	}
	defer c.Close()
	c.framer.WriteWindowUpdate(0, 1<<31-1-65535)
	for {
		if err := c.send(c.call(inferPath), message, false, true); err != nil {
			return err
		}
		if err := c.answers(1); err != nil {
			return err
		}
	}
}
