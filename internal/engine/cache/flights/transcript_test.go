package flights

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

// errFull is what a cache fails with for a class that has no capacity.
var errFull = errors.New("the sample's storage class is full, and there is no buffer for it")

// fetcher is a fetch in a transcript.
type fetcher struct {
	fl     *Flight[int, int]
	leads  bool
	buffer []byte
}

// TestTranscript runs the transcripts in testdata/flights step by step:
//
//	join NAME [buffer] [peer] [remote]  NAME asks for sample 7: with a buffer; in a job whose other
//	                                    node owns the sample; on behalf of another node
//	land NAME DATA|ERROR                NAME ends its flight
//	queue NAME                          NAME begins to wait for its turn
//	enter NAME                          NAME's turn has come
//	oldest                              prints whether a flight does not wait for its turn
//	give-up                             the watchdog takes away all flights that do not
//	tell                                the watchdog closes the flights that it took away
//	look NAME...                        prints the state and the result of each fetch
func TestTranscript(t *testing.T) {
	results := map[string]error{
		"cancelled": context.Canceled, "full": errFull, "missing": errors.New("missing"),
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
	table, all := New[int, int](), map[string]*fetcher{}
	var late []*Flight[int, int]
	for _, line := range strings.Split(d.Input, "\n") {
		words := strings.Fields(line)
		has := func(word string) bool { return slices.Contains(words, word) }
		switch words[0] {
		case "join":
			f := &fetcher{}
			if has("buffer") {
				f.buffer = []byte("----")
			}
			var copied bool
			f.fl, f.leads, copied = table.Join(Fetch[int]{
				ID: 7, Buffer: f.buffer, Urgent: has("remote"), Remote: has("remote"),
				Asks: has("peer"),
			})
			all[words[1]] = f
			how := map[bool]string{true: "leads", false: "follows"}[f.leads]
			if copied {
				how += ", and gets a copy"
			}
			fmt.Fprintf(out, "%s %s\n", words[1], how)
		case "land":
			f := all[words[1]]
			data := []byte(words[2])
			tier := 0
			err := results[words[2]]
			if f.fl.Asks {
				tier = 1
			}
			if f.buffer != nil && err == nil {
				copy(f.buffer, data)
			}
			if !table.Land(f.fl, f.buffer, tier, err) {
				fmt.Fprintf(out, "%s had been given up: %v\n", words[1], f.fl.state)
			}
		case "queue":
			fmt.Fprintf(out, "its turn may come: %v\n", table.Queue(all[words[1]].fl))
		case "enter":
			table.Enter(all[words[1]].fl, true)
		case "oldest":
			fl, _ := table.Oldest()
			fmt.Fprintf(out, "%v, of %d that were given up\n", fl != nil, table.Hung())
		case "give-up":
			late = table.GiveUp(time.Now().Add(time.Hour))
			fmt.Fprintf(out, "%d taken away\n", len(late))
		case "tell":
			for _, fl := range late {
				fl.Tell(errors.New("hangs"))
			}
		case "look":
			for _, name := range words[1:] {
				f := all[name]
				select {
				case <-f.fl.done:
					fmt.Fprintf(out, "%s: %v, from tier %d, error %v, tries again %v, buffer %q\n",
						name, f.fl.state, f.fl.found, f.fl.err,
						errors.Is(f.fl.err, ErrLeader) || errors.Is(f.fl.err, errFull),
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
