package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
	"github.com/hdmlp/hdmlp/internal/source/formats/classes"
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

// TestAClassOfWhichOnlyTheDirectoryIsThere is an error, as where directories are files' own:
// objects whose keys end with a slash stand for them.
func TestAClassOfWhichOnlyTheDirectoryIsThere(t *testing.T) {
	s := serve(t, nil)
	for _, key := range []string{"train/", "train/cat/", "train/cat/1.jpg", "train/cat/x.jpg/"} {
		s.put(t, key, nil)
	}
	index := func() (*source.Index, error) {
		o := open(t, "s3://"+bucket+"/train", &source.View{Access: s.access()})
		defer o.Close() //nolint:errcheck // it was only listed
		return classes.Index(t.Context(), o, nil, formats.Options{})
	}
	x, err := index()
	if err != nil || x.Len() != 1 || x.Classes()[0] != "cat" {
		t.Fatal(x, err)
	}
	s.put(t, "train/dog/", nil)
	if _, err := index(); !errors.Is(err, source.ErrEmptyClass) ||
		!strings.Contains(err.Error(), `"dog"`) {
		t.Error(err)
	}
}

func TestConformance(t *testing.T) {
	for name, prefix := range map[string]string{"Bucket": "", "Prefix": "/of all/keys"} {
		t.Run(name, func(t *testing.T) {
			objectstest.Run(t, func(t *testing.T) objectstest.Fixture {
				s := serve(t, nil)
				key := func(name string) string { return strings.TrimPrefix(prefix+"/"+name, "/") }
				if prefix != "" {
					s.put(t, "zz/another", nil)
					s.put(t, "of all/keys-/another", nil)
				}
				return objectstest.Fixture{
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

// TestOnlyListingsAreListings: what something else says with status 200 would be taken for the end
// of the listing.
func TestOnlyListingsAreListings(t *testing.T) {
	for name, text := range map[string]string{
		"HTML":  "<html><body>Please log in</body></html>",
		"error": "<?xml version=\"1.0\"?><Error><Code>Busy</Code></Error>",
		"text":  strings.Repeat("no listing ", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			s := serve(t, func(server http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if q := r.URL.Query(); q.Has("list-type") && q.Has("continuation-token") {
						_, _ = io.WriteString(w, text)
						return
					}
					server.ServeHTTP(w, r)
				})
			})
			for i := range 1001 {
				s.put(t, fmt.Sprintf("%04d", i), nil)
			}
			o := open(t, "s3://"+bucket, &source.View{Access: s.access()})
			defer o.Close() //nolint:errcheck // it was only listed
			err := o.List(t.Context(), "", func(source.Object) error { pages++; return nil })
			if err == nil || !strings.Contains(err.Error(), "with something else") {
				t.Errorf("%d objects: %v", pages, err)
			}
		})
	}
}

// TestAPageOfAListingIsBounded: a server that never ends one takes no memory.
func TestAPageOfAListingIsBounded(t *testing.T) {
	var written atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult><Contents><Key>")
		for piece := bytes.Repeat([]byte{'a'}, 1<<20); written.Load() < 1<<30; {
			n, err := w.Write(piece)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	b, err := s3.New(s3.Options{Bucket: bucket, Access: &source.Access{
		Endpoint: s.URL, Region: "us-east-1", Style: "path",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // it was only listed
	if err := b.List(t.Context(), "", "", nil); err == nil || written.Load() > 1<<27 {
		t.Errorf("%d bytes were read: %v", written.Load(), err)
	}
}

// TestErrorsOfHeadsSayWhy: an answer to HEAD has no body, so no reason.
func TestErrorsOfHeadsSayWhy(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		want   string
	}{
		"RequestTimeTooSkewed":  {http.StatusForbidden, "clock of this machine"},
		"SignatureDoesNotMatch": {http.StatusForbidden, "the secret key is not that"},
		"AccessDenied":          {http.StatusForbidden, "do not give access"},
		"PermanentRedirect":     {http.StatusMovedPermanently, "set AWS_REGION"},
		"NoSuchBucket":          {http.StatusNotFound, "there is no such bucket"},
		"NoSuchKey":             {http.StatusNotFound, "404"},
		"InvalidToken":          {http.StatusBadRequest, "InvalidToken"},
	} {
		s := serve(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				if r.Method != http.MethodHead {
					_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
				}
			})
		})
		o := open(t, "s3://"+bucket, &source.View{Access: s.access()})
		_, err := o.Stat(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", code, err)
		}
		if missing := code == "NoSuchKey"; errors.Is(err, source.ErrMissing) != missing {
			t.Errorf("%s: %v", code, err)
		}
		_ = o.Close()
	}
}
