package scale

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	sizes = flag.String("sizes", "4,12", "numbers of nodes")
	out   = flag.String("out", "", "a file that figures are written to, JSON")
)

func init() { runtime.MemProfileRate = 4096 }

func TestScale(t *testing.T) {
	var all []*Figures
	for _, text := range strings.Split(*sizes, ",") {
		nodes, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			f, err := Run(nodes, func(p Phase) {
				t.Logf("%4d %-32s %7.2f s  messages %9d (%7d, %6d)  MB %9.2f (%8.2f, %6.2f) got %8.2f  MB memory %7.1f (%6.1f, %6.2f) peak %6.1f  %6.1f s CPU",
					nodes, p.Name, p.Seconds, p.Messages.All, p.Messages.Zero, p.Messages.Other,
					mb(p.Bytes.All), mb(p.Bytes.Zero), mb(p.Bytes.Other), mb(p.ReceivedBytes.Zero),
					mb(p.Memory.All), mb(p.Memory.Zero), mb(p.Memory.Other), mb(p.Peak), p.Processor)
			})
			if err != nil {
				t.Error(err)
			}
			all = append(all, f)
		})
	}
	if *out != "" {
		text, err := json.MarshalIndent(all, "", "  ")
		if err == nil {
			err = os.WriteFile(*out, append(text, '\n'), 0o666)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func mb(b int64) float64 { return float64(b) / 1e6 }
