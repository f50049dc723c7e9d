package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// A probing backend is the identity backend that notes the life of what was
// probed.
type probing struct {
	identity.Backend
	fail   string // the step that fails
	events []string
}

type noted struct {
	backend.Probed
	of      *probing
	version int64
}

func (b *probing) Probe(src backend.Source) backend.Probed {
	return noted{b.Backend.Probe(src), b, src.Version}
}

func (p noted) note(step string) error {
	p.of.events = append(p.of.events, step+string(rune('0'+p.version)))
	if p.of.fail == step {
		return errors.New("broken")
	}
	return nil
}

func (p noted) Complete(context.Context, *modelpb.ModelConfig) error { return p.note("complete") }

func (p noted) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
	if err := p.note("open"); err != nil {
		return nil, err
	}
	return p.Probed.Open(ctx, cfg, sig, host)
}

func (p noted) Close() { _ = p.note("close") }

func TestWhatWasProbedIsOpenedAndClosed(t *testing.T) {
	const wrong = "input { name: \"X\" data_type: TYPE_FP32 dims: [ -7 ] }"
	for _, c := range []struct {
		name, config, fail string
		noComplete         bool
		want               []string
	}{
		{"a good model", "", "", false, []string{"complete1", "open1", "open2", "close2", "close1"}},
		{"no completion", "", "", true, []string{"open1", "open2", "close2", "close1"}},
		{"completion fails", "", "complete", false, []string{"complete1", "close1"}},
		{"the configuration is invalid", wrong, "", false, []string{"complete1", "close1"}},
		{"its labels are missing", `output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "none" }`, "", false, []string{"complete1", "close1"}},
		{"opening fails", "", "open", false, []string{"complete1", "open1", "open2", "close2", "close1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &probing{fail: c.fail}
			e, err := Start(t.Context(), Options{
				Repositories: []string{repo(t, map[string]string{
					"one/config.pbtxt": oneInput + c.config + " version_policy { all {} }", "one/1/": "", "one/2/": "",
				})},
				NoAutoComplete: c.noComplete, LoadThreads: 1, Backends: []backend.Backend{b}, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			if !slices.Equal(b.events, c.want) {
				t.Errorf("got %v, want %v", b.events, c.want)
			}
		})
	}
}
