package s3_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/objectstest"
	"github.com/hdmlp/hdmlp/internal/source/objects/s3"
)

// bucket is the bucket of the tests' servers.
const bucket = "data"

// server is a server in this process.
type server struct {
	*httptest.Server
	backend *s3mem.Backend
	written int64 // objects
}

func serve(t *testing.T, around func(http.Handler) http.Handler) *server {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	silent := gofakes3.StdLog(log.New(io.Discard, "", 0))
	handler := gofakes3.New(backend, gofakes3.WithLogger(silent)).Server()
	if around != nil {
		handler = around(handler)
	}
	s := &server{Server: httptest.NewServer(handler), backend: backend}
	t.Cleanup(s.Close)
	return s
}

func (s *server) put(t *testing.T, key string, data []byte) {
	t.Helper()
	s.written++
	meta := map[string]string{
		"Last-Modified": time.Unix(1_700_000_000+s.written, 0).UTC().Format(http.TimeFormat),
	}
	if _, err := s.backend.PutObject(bucket, key, meta, bytes.NewReader(data), int64(len(data)),
		nil); err != nil {
		t.Fatal(err)
	}
}

// access returns how the server is reached.
func (s *server) access() *source.Access {
	return &source.Access{
		Endpoint: s.URL, Region: "us-east-1", Style: "path",
		Keys: &source.Keys{ID: "the-id", Secret: "the-secret"},
	}
}

func open(t *testing.T, url string, v *source.View) objects.Objects {
	t.Helper()
	o, err := s3.Place().Open(url, v)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestConformance(t *testing.T) {
	for name, prefix := range map[string]string{"Bucket": "", "Prefix": "/of all/keys"} {
		t.Run(name, func(t *testing.T) {
			objectstest.Run(t, func(t *testing.T) objectstest.Place {
				s := serve(t, nil)
				key := func(name string) string { return strings.TrimPrefix(prefix+"/"+name, "/") }
				if prefix != "" {
					s.put(t, "zz/another", nil)
					s.put(t, "of all/keys-/another", nil)
				}
				return objectstest.Place{
					Objects: open(t, "s3://"+bucket+prefix, &source.View{Access: s.access()}),
					Put:     func(name string, data []byte) { s.put(t, key(name), data) },
					Remove: func(name string) {
						if _, err := s.backend.DeleteObject(bucket, key(name)); err != nil {
							t.Fatal(err)
						}
					},
					UTF8: true,
				}
			})
		})
	}
}
