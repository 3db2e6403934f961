package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// fetcher is a fetch in a transcript.
type fetcher struct {
	fl     *flight
	leads  bool
	buffer []byte
}

// TestFlightTranscript runs the transcripts in testdata/flights step by step:
//
//	join NAME [buffer] [peer] [remote]  NAME asks for sample 7: with a buffer; in a job whose other
//	                                    node owns the sample; on behalf of another node
//	land NAME DATA|ERROR                NAME ends its flight
//	give-up                             the watchdog takes away all flights
//	tell                                the watchdog closes the flights that it took away
//	look NAME...                        prints what each fetch knows
func TestFlightTranscript(t *testing.T) {
	results := map[string]error{
		"cancelled": context.Canceled, "full": ErrNoCapacity, "missing": errors.New("missing"),
	}
	datadriven.RunTest(t, "testdata/flights", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		switch d.Cmd {
		case "flights":
			runFlights(t, d, results, &out)
		default:
			d.Fatalf(t, "unknown command")
		}
		return out.String()
	})
}

func runFlights(t *testing.T, d *datadriven.TestData, results map[string]error,
	out *strings.Builder,
) {
	flights, all := newFlights(), map[string]*fetcher{}
	var late []*flight
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.Fields(line)
		has := func(word string) bool { return slices.Contains(words, word) }
		switch words[0] {
		case "join":
			f := &fetcher{}
			if has("buffer") {
				f.buffer = []byte("----")
			}
			r := &Request{remote: has("remote")}
			var copied bool
			f.fl, f.leads, copied = flights.join(r, 7, f.buffer, has("peer"))
			all[words[1]] = f
			how := map[bool]string{true: "leads", false: "follows"}[f.leads]
			if copied {
				how += ", and gets a copy"
			}
			fmt.Fprintf(out, "%s %s\n", words[1], how)
		case "land":
			f, data, tier := all[words[1]], []byte(words[2]), Source
			err := results[words[2]]
			if f.fl.remote {
				tier = Peer
			}
			if f.buffer != nil && err == nil {
				copy(f.buffer, data)
			}
			if !flights.land(f.fl, &Sample{Data: f.buffer, From: tier}, err) {
				fmt.Fprintf(out, "%s had been given up: %v\n", words[1], f.fl.state)
			}
		case "give-up":
			late = flights.giveUp(time.Now().Add(time.Hour))
			fmt.Fprintf(out, "%d taken away\n", len(late))
		case "tell":
			for _, fl := range late {
				fl.err = errors.New("hangs")
				close(fl.done)
			}
		case "look":
			for _, name := range words[1:] {
				f := all[name]
				select {
				case <-f.fl.done:
					fmt.Fprintf(out, "%s: %v, from tier %d, error %v, tries again %v, buffer %q\n",
						name, f.fl.state, f.fl.tier, f.fl.err, f.fl.err != nil && retry(f.fl.err),
						f.buffer)
				default:
					fmt.Fprintf(out, "%s: %v, %d copies to make, buffer %q\n", name, f.fl.state,
						len(f.fl.followers), f.buffer)
				}
			}
		default:
			d.Fatalf(t, "unknown: %s", line)
		}
	}
}
