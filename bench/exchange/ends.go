package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/lib/digest"
	"github.com/hdmlp/hdmlp/internal/peers/auth"
	"github.com/hdmlp/hdmlp/internal/peers/exchange"
)

const (
	exchangePort = 7461
	grpcPort     = 7462
	tlsPort      = 7463
)

func member(node int, tls *tls.Config) exchange.Identity {
	return exchange.Identity{
		Job:    "bench",
		Node:   node,
		Nodes:  2,
		Secret: []byte("not a secret, only a benchmark's"),
		TLS:    tls,
	}
}

// arena is samples of one size, in memory outside the Go heap.
type arena struct {
	bytes   []byte
	size    int
	digests []uint32 // taken once, as in a cache
}

func newArena(total int64, size int) (*arena, error) {
	b, err := unix.Mmap(-1, 0, int(total), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	r := rand.NewPCG(1, 2)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	a := &arena{bytes: b, size: size}
	for id := range a.count() {
		a.digests = append(a.digests, digest.Of(b[id*size:][:size]))
	}
	return a, nil
}

func (a *arena) count() int { return len(a.bytes) / a.size }

func (a *arena) Held(id int32, _ exchange.Want) (c exchange.Copy, held bool) {
	if int(id) >= a.count() {
		return c, false
	}
	return exchange.Copy{Data: a.sample(id), Digest: a.digests[id]}, true
}

func (a *arena) sample(id int32) []byte {
	return a.bytes[int(id)*a.size:][:a.size:a.size]
}

func (a *arena) Sample(context.Context, int32, exchange.Want,
	func(exchange.Copy, bool) error,
) error {
	return exchange.ErrNotHeld
}

// serve serves samples of the first size, over exchange and gRPC, until its standard input ends.
func serve(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sizes, err := o.sizeList()
	if err != nil {
		return err
	}
	a, err := newArena(o.data, sizes[0])
	if err != nil {
		return err
	}
	own, err := net.Listen("tcp", fmt.Sprintf("%s:%d", o.listen, exchangePort))
	if err != nil {
		return err
	}
	other, err := net.Listen("tcp", fmt.Sprintf("%s:%d", o.listen, grpcPort))
	if err != nil {
		return err
	}
	sealed, err := net.Listen("tcp", fmt.Sprintf("%s:%d", o.listen, tlsPort))
	if err != nil {
		return err
	}
	drawn, err := auth.DrawTLS()
	if err != nil {
		return err
	}
	rpc := newRPC(o, a)
	var all sync.WaitGroup
	all.Go(func() {
		exchange.NewServer(member(0, nil), a, exchange.ServerOptions{}).Serve(ctx, own)
	})
	all.Go(func() {
		exchange.NewServer(member(0, drawn), a, exchange.ServerOptions{}).Serve(ctx, sealed)
	})
	all.Go(func() { rpc.Serve(other) })
	defer profile(o, "server")()
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	cancel()
	rpc.Stop()
	all.Wait()
	return nil
}

func profile(o options, name string) (stop func()) {
	if o.profile == "" {
		return func() {}
	}
	f, err := os.Create(filepath.Join(o.profile, name+".pprof"))
	if err != nil {
		return func() {}
	}
	pprof.StartCPUProfile(f)
	return func() { pprof.StopCPUProfile(); f.Close() }
}

// fetched is the result that a client prints.
type fetched struct {
	Bytes   int64
	Seconds float64
	CPU     float64       // seconds, of the client
	Median  time.Duration // of one fetch
	P99     time.Duration
}

// fetch fetches random samples for the measurement's duration, and prints a fetched.
func fetch(ctx context.Context, o options) error {
	sizes, err := o.sizeList()
	if err != nil {
		return err
	}
	size := sizes[0]
	get, end, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	callers := o.callersFor(size)
	const own = 4 // buffers per caller
	room, err := newArena(int64(callers*own*size), size)
	if err != nil {
		return err
	}
	count := int(o.data) / size
	var stop atomic.Bool
	var total atomic.Int64
	times := make([][]time.Duration, callers)
	errs := make(chan error, callers)
	var all sync.WaitGroup
	defer profile(o, "client")()
	used := ownProcessorTime()
	began := time.Now()
	timer := time.AfterFunc(o.duration(), func() { stop.Store(true) })
	defer timer.Stop()
	for i := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			for n := 0; !stop.Load(); n++ {
				dst := room.sample(int32(i*own + n%own))
				var since time.Time
				if n%16 == 0 {
					since = time.Now()
				}
				if err := get(ctx, int32(r.IntN(count)), dst); err != nil {
					errs <- err
					return
				}
				if n%16 == 0 {
					times[i] = append(times[i], time.Since(since))
				}
				total.Add(int64(size))
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	used = ownProcessorTime() - used
	select {
	case err := <-errs:
		return err
	default:
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(times...)))
	return json.NewEncoder(os.Stdout).Encode(fetched{
		Bytes: total.Load(), Seconds: took.Seconds(), CPU: used.Seconds(),
		Median: sorted[len(sorted)/2], P99: sorted[len(sorted)*99/100],
	})
}

// ownProcessorTime returns the processor time of this process.
func ownProcessorTime() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// processorTime returns the processor time of a process and its threads.
func processorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
