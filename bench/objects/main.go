// Command objects serves the files of a directory as the objects of a bucket, by the parts of S3's
// interface that readers need, and slowly on purpose: with a bandwidth that all requests share, a
// latency, and a share of requests that are late. It counts what it is asked and sends.
//
// It stands in for an object store in measurements and tests. With --key, requests need one of
// those keys; a token "until=SECONDS" has expired at that Unix time. Signatures are not verified.
//
// The same objects are served to readers without keys below /-/plain/. /-/counts returns the counts
// as JSON, a POST to /-/down?for=20s has it answer nothing for that time, and one to
// /-/hold?object=NAME has it send nothing of an object until one to /-/release?object=NAME.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// piece is how many bytes are sent at once.
const piece = 32 << 10

// options are what the server is started with.
type options struct {
	listen, root, bucket string
	latency, late        time.Duration
	lateShare            float64
	megabits             float64
	drip                 time.Duration
	page, names          int
	keys                 keyFlags
}

// keyFlags are the IDs of the keys that are accepted.
type keyFlags []string

func (k *keyFlags) String() string { return strings.Join(*k, " ") }

// Set implements flag.Value.
func (k *keyFlags) Set(id string) error {
	*k = append(*k, id)
	return nil
}

// counts are what the server was asked and has sent.
type counts struct {
	Gets    int64            `json:"gets"`
	Heads   int64            `json:"heads"`
	Lists   int64            `json:"lists"`
	Bytes   int64            `json:"bytes"` // of objects
	Late    int64            `json:"late"`
	Refused int64            `json:"refused"`
	Open    int64            `json:"open"`    // requests in progress
	Most    int64            `json:"most"`    // the same at most
	Objects map[string]int64 `json:"objects"` // bytes sent by object
}

// server is the server.
type server struct {
	options
	limit *rate.Limiter // nil: none
	made  []string      // names of objects that are only listed; nil: files
	down  atomic.Int64  // until when, in Unix nanoseconds
	held  sync.Map      // of objects of which nothing is sent: channels, closed when they are again

	mu     sync.Mutex // guards the following
	counts counts
	draw   *rand.Rand
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address")
	flag.StringVar(&o.root, "root", "", "directory whose files are the objects")
	flag.StringVar(&o.bucket, "bucket", "data", "name of the bucket")
	flag.DurationVar(&o.latency, "latency", 0, "time before each answer")
	flag.DurationVar(&o.late, "late", 0, "more time before some answers")
	flag.Float64Var(&o.lateShare, "late-share", 0, "share of answers that are late")
	flag.Float64Var(&o.megabits, "megabits", 0, "bandwidth of all answers, Mbit/s; 0: no limit")
	flag.DurationVar(&o.drip, "drip", 0, "send objects byte by byte, and pause so long after each")
	flag.IntVar(&o.page, "page", 1000, "names in a page of a listing")
	flag.IntVar(&o.names, "names", 0, "list so many names that are made up, in place of the files")
	flag.Var(&o.keys, "key", "ID of a key; may be given again; none: all are accepted")
	flag.Parse()
	if err := run(o); err != nil {
		log.Fatal(err)
	}
}

func run(o options) error {
	// It ends with the process that started it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return err
	}
	s := &server{options: o, draw: rand.New(rand.NewPCG(1, 2))}
	s.counts.Objects = map[string]int64{}
	const classes = 1000
	for i := range o.names {
		s.made = append(s.made, fmt.Sprintf("train/n%08d/%08d.jpg", i%classes*7919, i))
	}
	slices.Sort(s.made)
	if o.megabits > 0 {
		const bytesPerMegabit = 125_000
		s.limit = rate.NewLimiter(rate.Limit(o.megabits*bytesPerMegabit), 2*piece)
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String()) // what the starter waits for
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = web.Close()
	}()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/-/counts":
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(&s.counts) // the asker may have gone
		return
	case r.URL.Path == "/-/down":
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.down.Store(time.Now().Add(d).UnixNano())
		return
	case r.URL.Path == "/-/hold":
		s.held.Store(r.URL.Query().Get("object"), make(chan struct{}))
		return
	case r.URL.Path == "/-/release":
		if held, ok := s.held.LoadAndDelete(r.URL.Query().Get("object")); ok {
			close(held.(chan struct{}))
		}
		return
	}
	if time.Now().UnixNano() < s.down.Load() {
		panic(http.ErrAbortHandler) // which closes the connection
	}
	s.begin()
	defer s.end()
	if !s.wait(r.Context()) {
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/-/plain/"); ok {
		s.object(w, r, name)
		return
	}
	if code := s.refused(r); code != "" {
		s.count(func(c *counts) { c.Refused++ })
		fail(w, http.StatusForbidden, code)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+s.bucket)
	switch {
	case !ok || name != "" && name[0] != '/':
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case r.URL.Query().Has("list-type"):
		s.list(w, r)
	case r.URL.Query().Has("location"):
		answer(w, locationResult{})
	default:
		s.object(w, r, name[1:])
	}
}

func (s *server) begin() {
	s.count(func(c *counts) {
		c.Open++
		c.Most = max(c.Most, c.Open)
	})
}

func (s *server) end() { s.count(func(c *counts) { c.Open-- }) }

func (s *server) count(do func(c *counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.counts)
}

// wait waits until an answer is due, and reports whether the asker is still there.
func (s *server) wait(ctx context.Context) bool {
	takes := s.latency
	s.mu.Lock()
	if s.lateShare > 0 && s.draw.Float64() < s.lateShare {
		takes += s.late
		s.counts.Late++
	}
	s.mu.Unlock()
	if takes == 0 {
		return true
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refused returns why a request's keys are refused, as S3 calls it; "": they are not.
func (s *server) refused(r *http.Request) string {
	if len(s.keys) == 0 {
		return ""
	}
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	id, _, _ := strings.Cut(rest, "/")
	if id == "" {
		return "AccessDenied"
	}
	if !slices.Contains(s.keys, id) {
		return "InvalidAccessKeyId"
	}
	text, limited := strings.CutPrefix(r.Header.Get("X-Amz-Security-Token"), "until=")
	end, err := strconv.ParseInt(text, 10, 64)
	if limited && (err != nil || time.Now().Unix() >= end) {
		return "ExpiredToken"
	}
	return ""
}
