package instrument

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// LearnOptions say which script's datasets are looked at.
type LearnOptions struct {
	Command []string // a program and its arguments
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Items   int // of each dataset
	// Package is the directory that has the Python package hdmlp, for scripts that cannot import it
	// otherwise; "": there is none.
	Package  string
	Progress func(what string)
	// Take is called with each line of JSON that describes an item or an expression, from one
	// goroutine at a time.
	Take func(line []byte) error
}

// Learn runs the command to its end, and passes on what its processes send of the items of their
// datasets. refused is why a process could not look at them; "": none refused. The error is ctx's
// cause, or why the command could not be started; a script that fails is no error here.
func Learn(ctx context.Context, o LearnOptions) (exit Exit, pythons int, refused string,
	err error,
) {
	r := &run{ended: make(chan struct{}), options: Options{
		Command: o.Command, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Progress: o.Progress,
	}}
	r.take = func(conn io.Reader) error {
		return eachWhole(conn, func(line []byte) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				return fmt.Errorf("a message of the script's processes: %w", err)
			}
			switch m.Event {
			case "python":
				r.record.Pythons++
			case "refused":
				r.record.Refused = m.Text
			default:
				return o.Take(line)
			}
			return nil
		})
	}
	exit, err = r.whole(ctx, map[string]any{
		"command": "learn", "items": o.Items, "package": o.Package,
	})
	if err != nil {
		return exit, 0, "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return exit, r.record.Pythons, r.record.Refused, errors.Join(r.failed, context.Cause(ctx))
}

// eachWhole calls take for each line that ends: one that is cut is of a process that was killed, as
// loaders do with their workers.
func eachWhole(in io.Reader, take func(line []byte) error) error {
	for s := bufio.NewReader(in); ; {
		line, err := s.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(line) > longest {
			return fmt.Errorf("a message of the script's processes has %d bytes", len(line))
		}
		if err := take(line); err != nil {
			return err
		}
	}
}
