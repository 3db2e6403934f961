// Command exchange measures how fast samples arrive from a peer: over internal/peers/exchange,
// over gRPC in Go, and what iperf3 reaches on the same path.
//
//	go run ./bench/exchange                          loopback
//	go run ./bench/exchange --netns                  two network namespaces, joined by a veth pair
//	go run ./bench/exchange --netns --rate 1gbit     the same, with the link limited by tc
//
// It starts itself twice, as server and as client, so that the processor time of both is known, and
// alternates between the peers, round by round, so that other load on the machine affects all of
// them. Namespaces need root, and are removed at the end.
//
// Samples are random bytes in shared memory, together many times as large as the CPU caches; the
// client's callers fetch random ones into buffers of their own, as the engine does. exchange-tls,
// if --peers names it, is exchange over TLS 1.3; grpc is unary calls with protobuf's BytesValue and
// gRPC's default settings; grpc-raw has a codec without copies, and large windows. Neither has a
// checksum; exchange does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

type options struct {
	role    string
	listen  string
	peers   string
	sizes   string
	data    int64
	seconds float64
	rounds  int
	callers int
	conns   int
	netns   bool
	rate    string
	json    bool
	profile string
}

func main() {
	var o options
	flag.StringVar(&o.peers, "peers", "exchange,grpc,grpc-raw,iperf3",
		"comma-separated peers to measure")
	flag.StringVar(&o.sizes, "sizes", "112640,3072", "comma-separated sizes of a sample in bytes")
	flag.Int64Var(&o.data, "data", 256<<20, "total bytes of all samples")
	flag.Float64Var(&o.seconds, "seconds", 3, "seconds per measurement")
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds; the table shows their medians")
	flag.IntVar(&o.callers, "callers", 0,
		"concurrent fetches; 0: 64 of large samples, 256 of small ones")
	flag.IntVar(&o.conns, "conns", 1, "number of connections of exchange and of gRPC")
	flag.BoolVar(&o.netns, "netns", false, "run in two network namespaces instead of on loopback")
	flag.StringVar(&o.rate, "rate", "",
		"rate limit of the link between them, as tc writes it: 1gbit")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.StringVar(&o.profile, "profile", "",
		"write CPU profiles of exchange's server and client to this directory")
	flag.StringVar(&o.role, "role", "", "internal: server or client")
	flag.StringVar(&o.listen, "listen", "127.0.0.1", "internal: the server's address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	switch o.role {
	case "server":
		return serve(ctx, o)
	case "client":
		return fetch(ctx, o)
	}
	if o.rate != "" && !o.netns {
		return errors.New("--rate limits the link between namespaces and needs --netns")
	}
	results, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	table(os.Stdout, results)
	return nil
}

func (o options) sizeList() ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--sizes %s: %q is not a number of bytes", o.sizes, word)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

func (o options) callersFor(size int) int {
	switch {
	case o.callers > 0:
		return o.callers
	case size >= 32<<10:
		return 64
	}
	return 256
}

func (o options) duration() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }
