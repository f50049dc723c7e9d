package grpcserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"shoal/internal/reject"
)

// A request is the header of a call. It does not change once it is parsed, so
// that calls with the same header share one.
type request struct {
	fields []hpack.HeaderField
	path   string
	method *method // nil when refusal or failure says why

	subtype      string // of the content type
	encoding     string // compression of messages; empty for none
	decompressor encoding.Compressor
	accept       string // the client's list of accepted compressions
	timeout      time.Duration
	timed        bool
	length       int64 // content-length; -1 when there is none

	malformed bool     // violates HTTP/2: the stream is reset
	refusal   *refusal // violates gRPC: answered at once
	failure   *rejection
	once      sync.Once
	md        metadata.MD
}

// maxAccept is how long a list of compressions may be; the rest is ignored.
const maxAccept = 1 << 10

// A refusal is the answer to a request that is not valid gRPC.
type refusal struct {
	http   int
	status *status.Status
	reason reject.Reason
}

// parseRequest parses the fields, in the order of grpc-go's checks.
func (s *Server) parseRequest(fields []hpack.HeaderField) *request {
	r := &request{fields: fields, length: -1}
	var p requestParse
	for i := range fields {
		p.field(r, &fields[i])
	}
	r.malformed = p.malformed || p.httpMethod == "" || p.scheme == "" || r.path == ""
	if authorities := p.authorities; authorities > 1 || p.hosts > 1 {
		r.refuse(http.StatusBadRequest, codes.Internal, "num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec", authorities, p.hosts)
		return r
	}
	switch {
	case r.malformed:
	case !p.grpc:
		r.refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument, "invalid gRPC request content-type %q", p.contentType)
	case p.fault != "":
		r.refuse(http.StatusBadRequest, codes.Internal, "%s", p.fault)
	case p.authorities+p.hosts == 0:
		r.refuse(http.StatusBadRequest, codes.Internal, "no host or :authority header present")
	case p.httpMethod != http.MethodPost:
		r.refuse(http.StatusMethodNotAllowed, codes.Internal, "Received a HEADERS frame with :method %q which should be POST", p.httpMethod)
	default:
		r.failure = s.route(r)
	}
	return r
}

func (r *request) refuse(httpStatus int, code codes.Code, format string, args ...any) {
	reason := reject.Malformed
	if httpStatus == http.StatusRequestHeaderFieldsTooLarge {
		reason = reject.TooLarge
	}
	r.refusal = &refusal{httpStatus, status.Newf(code, format, args...), reason}
}

// route finds the method and the compression of its messages, or returns why
// not.
func (s *Server) route(r *request) *rejection {
	if r.method = s.methods[r.path]; r.method == nil {
		return s.unknown(r.path)
	}
	if permit := s.opt.Permit; permit != nil {
		if st := permit(r.path, r.values); st != nil {
			r.refusal = &refusal{http.StatusOK, st, reject.Restricted}
			return nil
		}
	}
	if r.encoding == "" || r.encoding == encoding.Identity {
		return nil
	}
	if r.decompressor = encoding.GetCompressor(r.encoding); r.decompressor == nil {
		r.method = nil
		return rejectf(reject.Unsupported, codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", r.encoding)
	}
	return nil
}

// unknown returns what is wrong with a path.
func (s *Server) unknown(path string) *rejection {
	rest, ok := strings.CutPrefix(path, "/")
	at := strings.LastIndex(rest, "/")
	if !ok || at < 0 {
		return rejectf(reject.UnknownRoute, codes.Unimplemented, "malformed method name: %q", path)
	}
	name, m := rest[:at], rest[at+1:]
	if _, ok := s.services[name]; !ok {
		return rejectf(reject.UnknownRoute, codes.Unimplemented, "unknown service %v", name)
	}
	return rejectf(reject.UnknownRoute, codes.Unimplemented, "unknown method %v for service %v", m, name)
}

// requestParse is the state of parsing a header.
type requestParse struct {
	httpMethod, scheme, contentType string
	authorities, hosts              int
	grpc, malformed                 bool
	fault                           string
}

func (p *requestParse) field(r *request, f *hpack.HeaderField) {
	switch f.Name {
	case ":method":
		p.httpMethod = f.Value
	case ":scheme":
		p.scheme = f.Value
	case ":path":
		r.path = f.Value
	case ":authority":
		p.authorities++
	case "host":
		p.hosts++
	case "content-type":
		if subtype, ok := contentSubtype(f.Value); ok {
			r.subtype, p.grpc = subtype, true
		} else {
			p.contentType = f.Value
		}
	case "grpc-accept-encoding":
		if r.accept != "" && f.Value != "" {
			r.accept += ","
		}
		if len(r.accept)+len(f.Value) <= maxAccept {
			r.accept += f.Value
		}
	case "grpc-encoding":
		r.encoding = f.Value
	case "grpc-timeout":
		d, err := parseTimeout(f.Value)
		if err != nil {
			p.fault = fmt.Sprintf("malformed grpc-timeout: %v", err)
		}
		r.timeout, r.timed = d, true
	case "content-length":
		n, err := strconv.ParseInt(f.Value, 10, 64)
		r.length, p.malformed = n, p.malformed || err != nil || n < 0
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		p.malformed = true
	case "te":
		p.malformed = p.malformed || f.Value != "trailers"
	default:
		if strings.HasSuffix(f.Name, binarySuffix) {
			if _, err := decodeBinary(f.Value); err != nil {
				p.fault = fmt.Sprintf("malformed binary metadata %q in header %q: %v", f.Value, f.Name, err)
			}
		}
	}
}

// contentSubtype returns what follows "application/grpc" in a content type, and
// whether it is one of gRPC's.
func contentSubtype(s string) (string, bool) {
	rest, ok := strings.CutPrefix(s, contentType)
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "", true
	case rest[0] == '+' || rest[0] == ';':
		return rest[1:], true
	}
	return "", false
}

// contentType is the content type of every gRPC message.
const contentType = "application/grpc"

// metadata returns the header in the form for handlers. They must not change
// it.
func (r *request) metadata() metadata.MD {
	r.once.Do(func() {
		md := make(metadata.MD, len(r.fields))
		for _, f := range r.fields {
			if v, ok := visible(f); ok {
				md[f.Name] = append(md[f.Name], v)
			}
		}
		host := md["host"]
		delete(md, "host")
		if len(md[":authority"]) == 0 && len(host) > 0 {
			md[":authority"] = host
		}
		r.md = md
	})
	return r.md
}

// values returns the values of a header in the form for handlers.
func (r *request) values(name string) []string {
	var list []string
	for _, f := range r.fields {
		if f.Name != name {
			continue
		}
		if v, ok := visible(f); ok {
			list = append(list, v)
		}
	}
	return list
}

// visible returns a field's value in the form for handlers, and whether they
// get it.
func visible(f hpack.HeaderField) (string, bool) {
	switch f.Name {
	case ":authority", "user-agent", "content-type":
		return f.Value, true
	}
	if reservedHeader(f.Name) {
		return "", false
	}
	if strings.HasSuffix(f.Name, binarySuffix) {
		b, err := decodeBinary(f.Value)
		return string(b), err == nil
	}
	return f.Value, true
}
