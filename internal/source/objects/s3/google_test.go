package s3_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/objectstest"
	"github.com/hdmlp/hdmlp/internal/source/objects/s3"
)

const googleHost = "storage.googleapis.com"

// google imitates what differs at Google Cloud Storage from the store behind it, by its
// documentation. It is reached as a proxy, so that requests name Google's host.
type google struct {
	t                       *testing.T
	server                  http.Handler
	virtual, paths, wrongly atomic.Int64 // requests by the style of their URLs
}

func (g *google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Host {
	case googleHost:
		g.paths.Add(1)
	case bucket + "." + googleHost:
		g.virtual.Add(1)
		r.URL.Path = "/" + bucket + r.URL.Path
		r.URL.RawPath = ""
	default:
		g.wrongly.Add(1)
	}
	q := r.URL.Query()
	signed := r.Header.Get("Authorization")
	if i := strings.Index(signed, "SignedHeaders="); i < 0 ||
		strings.Contains(signed[i:], "accept-encoding") || !strings.Contains(signed, "/auto/s3/") {
		g.refuse(w, http.StatusForbidden, "SignatureDoesNotMatch")
		return
	}
	if q.Has("location") { // who may read objects may not read the bucket's metadata
		g.refuse(w, http.StatusForbidden, "AccessDenied")
		return
	}
	gzipped := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	answer := httptest.NewRecorder()
	g.server.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("X-Goog-Generation", "1360887697105000")
	switch {
	case q.Has("list-type"):
		// Elements of its own, which readers of S3's interface have to pass over.
		body = bytes.ReplaceAll(body, []byte("<Contents>"), []byte("<Contents>"+
			"<Generation>1360887697105000</Generation><MetaGeneration>1</MetaGeneration>"))
		w.Header().Del("Content-Length")
	case strings.HasSuffix(r.URL.Path, ".gz") && answer.Code < 300:
		w.Header().Set("X-Goog-Stored-Content-Encoding", "gzip")
		if gzipped {
			w.Header().Set("Content-Encoding", "gzip")
			break
		}
		// Decompressive transcoding: neither a range, nor a length, nor the tag of what is stored.
		w.Header().Del("Content-Length")
		w.Header().Del("Content-Range")
		w.Header().Set("ETag", "W/"+w.Header().Get("ETag"))
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "decompressed ")
		w.(http.Flusher).Flush()
		return
	case answer.Code == http.StatusPreconditionFailed:
		g.refuse(w, answer.Code, "PreconditionFailed")
		return
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body)
}

func (*google) refuse(w http.ResponseWriter, status int, code string) {
	text := "<?xml version='1.0' encoding='UTF-8'?><Error><Code>" + code + "</Code>" +
		"<Message>Refused.</Message><Details>By the test.</Details></Error>"
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// atGoogle returns a server of the tests as Google's.
func atGoogle(t *testing.T) (*server, *google) {
	g := &google{t: t}
	return serve(t, func(h http.Handler) http.Handler {
		g.server = h
		return g
	}), g
}

// googleAccess returns how it is reached: over http, so that the proxy sees the requests.
func (s *server) googleAccess(style string) *source.Access {
	return &source.Access{
		Endpoint: "http://" + googleHost, HTTPProxy: s.URL, Style: style,
		Keys: &source.Keys{ID: "GOOG1EXAMPLE", Secret: "the-secret"},
	}
}

// TestGoogle reads objects by Google's S3 interface: its styles of URLs, with a signature that its
// proxies do not break, and without permissions that reading does not need.
func TestGoogle(t *testing.T) {
	for _, style := range []string{"", "path", "virtual"} {
		t.Run("style "+style, func(t *testing.T) {
			objectstest.Run(t, func(t *testing.T) objectstest.Fixture {
				s, g := atGoogle(t)
				t.Cleanup(func() {
					virtual, paths := g.virtual.Load() > 0, g.paths.Load() > 0
					if g.wrongly.Load() > 0 || virtual && style == "path" || paths && style != "path" {
						t.Errorf("%d requests to %s, %d to its bucket, %d to others", g.paths.Load(),
							googleHost, g.virtual.Load(), g.wrongly.Load())
					}
				})
				return objectstest.Fixture{
					Objects: open(t, "s3://"+bucket, &source.View{Access: s.googleAccess(style)}),
					Put:     func(name string, data []byte) { s.put(t, name, data) },
					Remove: func(name string) {
						if _, err := s.backend.DeleteObject(bucket, name); err != nil {
							t.Fatal(err)
						}
					},
					UTF8: true,
				}
			})
		})
	}
}

// TestGoogleDecompressesNothing: objects that are stored with Content-Encoding are read as they are
// stored, by ranges.
func TestGoogleDecompressesNothing(t *testing.T) {
	s, _ := atGoogle(t)
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	_, _ = z.Write(bytes.Repeat([]byte("text "), 1000))
	_ = z.Close()
	s.put(t, "a.gz", stored.Bytes())
	o := open(t, "s3://"+bucket, &source.View{Access: s.googleAccess("")})
	defer o.Close() //nolint:errcheck // it was only read
	object, err := o.Stat(t.Context(), "a.gz")
	if err != nil || object.Size != int64(stored.Len()) || object.Tag == [16]byte{} {
		t.Fatal(object, err)
	}
	part := make([]byte, 10)
	if _, err := o.Read(t.Context(), &object, 5, [][]byte{part}); err != nil ||
		!bytes.Equal(part, stored.Bytes()[5:15]) {
		t.Errorf("%q, %v", part, err)
	}
	s.put(t, "a.gz", append([]byte{0}, stored.Bytes()[1:]...)) // of the same length
	if _, err := o.Read(t.Context(), &object, 5, [][]byte{part}); !errors.Is(err,
		source.ErrChanged) {
		t.Error(err)
	}
	var listed []source.Object
	if err := o.List(t.Context(), "", func(o source.Object) error {
		listed = append(listed, o)
		return nil
	}); err != nil || len(listed) != 1 || listed[0].Size != int64(stored.Len()) {
		t.Error(listed, err)
	}
	now, err := o.Stat(t.Context(), "a.gz")
	if kind, _ := objects.Compare(&listed[0], &now); err != nil || kind != nil {
		t.Error("a listing and HEAD name different versions:", listed[0], now, err)
	}
}

// TestGoogleWhatCannotBeHonoured is an error at once.
func TestGoogleWhatCannotBeHonoured(t *testing.T) {
	a := &source.Access{Endpoint: "https://" + googleHost, RequesterPays: true}
	if _, err := s3.New(s3.Options{Bucket: bucket, Access: a}); err == nil ||
		!strings.Contains(err.Error(), "AWS_REQUEST_PAYER") {
		t.Error(err)
	}
	a = &source.Access{Endpoint: "https://" + bucket + "." + googleHost}
	if _, err := s3.New(s3.Options{Bucket: bucket, Access: a}); err == nil ||
		!strings.Contains(err.Error(), googleHost) {
		t.Error(err)
	}
}
