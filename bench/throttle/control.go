package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The control socket exchanges lines. A request is one of
//
//	counters
//	set KEY=VALUE ...
//
// with the keys bandwidth, latency, fail-rate, fail-seed, fail, fail-names, stale, hang and
// hang-names, in the format of the command line. The answer is one line of JSON: the snapshot after
// the request, or {"error": "..."} with nothing changed.

// snapshot is the answer of the socket.
type snapshot struct {
	Opens     int64  `json:"opens"`
	Reads     int64  `json:"reads"`
	Bytes     int64  `json:"bytes"`
	Failed    int64  `json:"failed"`
	Hung      int64  `json:"hung"`
	Bandwidth int64  `json:"bandwidth"`
	Latency   int64  `json:"latency_ns"`
	CPU       int64  `json:"cpu_ns"` // processor time of the server
	Priority  string `json:"priority"`
}

// control answers on a socket until close.
type control struct {
	listener net.Listener
	path     string
}

// listen starts to answer on the path; its goroutines end with close, and with the connections.
func listen(path string, src *source, priority string) (*control, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on --stats-socket: %w", err)
	}
	c := &control{listener: l, path: path}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, src, priority)
		}
	}()
	return c, nil
}

func (c *control) close() {
	_ = c.listener.Close()
	_ = os.Remove(c.path)
}

func answer(conn net.Conn, src *source, priority string) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	reply := json.NewEncoder(conn)
	for lines.Scan() {
		var value any
		if err := command(src, lines.Text()); err != nil {
			value = map[string]string{"error": err.Error()}
		} else {
			value = src.snapshot(priority)
		}
		if reply.Encode(value) != nil {
			return
		}
	}
}

func (s *source) snapshot(priority string) snapshot {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage) // fails for no valid first argument
	now := s.settings.Load()
	return snapshot{
		Opens:     s.counts.opens.Load(),
		Reads:     s.counts.reads.Load(),
		Bytes:     s.counts.bytes.Load(),
		Failed:    s.counts.failed.Load(),
		Hung:      s.counts.hung.Load(),
		Bandwidth: now.bandwidth,
		Latency:   now.latency.Nanoseconds(),
		CPU:       usage.Utime.Nano() + usage.Stime.Nano(),
		Priority:  priority,
	}
}

func command(src *source, line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 1 && words[0] == "counters":
		return nil
	case len(words) > 1 && words[0] == "set":
	default:
		return fmt.Errorf("%q is neither \"counters\" nor \"set KEY=VALUE ...\"", line)
	}
	to := src.settings.Load().settings
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is not KEY=VALUE", word)
		}
		if err := to.assign(key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if err := to.validate(); err != nil {
		return err
	}
	src.set(to)
	return nil
}

func (s *settings) assign(key, value string) (err error) {
	switch key {
	case "bandwidth":
		s.bandwidth, err = parseBytes(value)
	case "loss":
		s.loss, err = strconv.ParseFloat(value, 64)
	case "latency":
		s.latency, err = time.ParseDuration(value)
	case "fail-rate":
		s.failRate, err = strconv.ParseFloat(value, 64)
	case "fail-seed":
		s.failSeed, err = strconv.ParseUint(value, 10, 64)
	case "fail":
		s.fail = value
	case "fail-names":
		s.failNames = value
	case "stale":
		s.stale, err = strconv.ParseBool(value)
	case "hang":
		s.hang = value
	case "hang-names":
		s.hangNames = value
	default:
		err = errors.New("unknown key")
	}
	return err
}
