package modelserver

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Keys are the bearer tokens of TorchServe: one for inference and one for
// management, which expire, and one with which clients renew them. They are in a
// file that only its owner can read.
type Keys struct {
	path string
	life time.Duration
	now  func() time.Time

	mu   sync.Mutex // protects the fields below
	file keyFile
}

type key struct {
	Key     string `json:"key"`
	Expires string `json:"expiration time,omitempty"`
	until   time.Time
}

type keyFile struct {
	Management key `json:"management"`
	Inference  key `json:"inference"`
	API        key `json:"API"`
}

// NewKeys makes keys and writes them to a file, in place of older ones.
func NewKeys(path string, life time.Duration) (*Keys, error) {
	k := &Keys{path: path, life: life, now: time.Now}
	k.file = keyFile{Management: k.newKey(), Inference: k.newKey(), API: key{Key: random()}}
	return k, k.write()
}

func random() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // does not fail
	return base64.URLEncoding.EncodeToString(b[:])
}

func (k *Keys) newKey() key {
	until := k.now().Add(k.life)
	return key{Key: random(), until: until, Expires: until.UTC().Format("2006-01-02T15:04:05.000000000Z")}
}

func (k *Keys) write() error {
	b, err := json.MarshalIndent(k.file, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(k.path), ".key_file-") // readable for its owner only
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), k.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Remove removes the file.
func (k *Keys) Remove() { _ = os.Remove(k.path) }

// bearer returns the token of a request, "" when there is none.
func bearer(header string) string {
	token, ok := strings.CutPrefix(header, "Bearer ")
	if !ok {
		return ""
	}
	return strings.TrimSpace(token)
}

// Opens reports whether the value of a header Authorization opens an API.
func (k *Keys) Opens(header string, api API) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range []struct {
		api API
		key *key
	}{{Inference, &k.file.Inference}, {Management, &k.file.Management}} {
		if api&c.api != 0 && same(bearer(header), c.key.Key) && k.now().Before(c.key.until) {
			return true
		}
	}
	return false
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// renew replaces a key.
func (k *Keys) renew(header, kind string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !same(bearer(header), k.file.API.Key) {
		return false
	}
	switch kind {
	case "management":
		k.file.Management = k.newKey()
	case "inference":
		k.file.Inference = k.newKey()
	default:
		return false
	}
	return k.write() == nil
}

const (
	kindKey      = "InvalidKeyException"
	textNoAccess = " failed. Token either incorrect, expired, or not provided correctly"
)

// authorize checks the token of a request.
func (c *call) authorize() error {
	k := c.h.opt.Keys
	if k == nil || c.h.apis == Metrics || c.at(1) == "token" && c.h.apis&Management != 0 {
		return nil
	}
	if k.Opens(string(c.x.Header.Peek("Authorization")), c.h.apis) {
		return nil
	}
	return fault(400, kindKey, "Token Authorization"+textNoAccess)
}

// token renews a key.
func (c *call) token() error {
	kind, _ := c.param("type")
	if c.method != "GET" || !c.h.opt.Keys.renew(string(c.x.Header.Peek("Authorization")), kind) {
		return fault(400, kindKey, "Token Authentication"+textNoAccess)
	}
	c.reply(200, nil)
	return nil
}
