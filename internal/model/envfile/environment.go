package envfile

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model"
)

// Suffix is appended to the name of a dataset's index for the name of the file beside it.
const Suffix = ".environment.toml"

// MaxBytes is the largest file, in bytes.
const MaxBytes = 64 << 10

// File is the contents of a file.
type File struct {
	Node model.Node
	Size model.Size // the jobs that it holds for
	// Threads is p_0: how many samples are transformed at the same time; 0 means 1.
	Threads int
	// Work is what a read of the source takes of a processor, in seconds; 0: it was not measured.
	Work float64
}

// Encode returns the file's text.
func Encode(f File) []byte {
	n := &f.Node
	env := n.Environment(f.Size)
	var b bytes.Buffer
	b.WriteString(`# What HDMLP has measured of this machine: rates in MB/s, sizes in MB, times in seconds.
# What was not measured is missing. A later job on the dataset begins with it, except for compute
# and preprocess, which are those of a training script; hdmlp simulate SCENARIO --environment FILE
# simulates it. It may be removed.
[environment]
`)
	fmt.Fprintf(&b, "nodes = %d\nsample_size = %s\n", max(f.Size.Nodes, 1),
		number(max(f.Size.Sample, 1e-6)))
	write := func(key string, known bool, text string) {
		if known {
			fmt.Fprintf(&b, "%s = %s\n", key, text)
		}
	}
	write("compute", n.Compute.Number > 0, rate(env.Compute))
	write("preprocess", n.Preprocess.Number > 0, rate(env.Preprocess))
	write("network", n.Network.IsKnown(), rate(env.PeerBandwidth))
	write("source_network", n.SourceNetwork.Number > 0, rate(env.SourceBandwidth))
	write("source", n.Source.IsKnown(), curve(env.SourceThroughput))
	write("source_latency", n.Source.IsKnown(), number(env.SourceLatency))
	write("source_work", f.Work > 0, number(f.Work))
	for j, c := range env.Classes {
		name := "staging"
		path := ""
		read := true
		written := true
		threads := max(f.Threads, 1)
		if j > 0 {
			k := &n.Classes[j-1]
			name = k.Name
			path = k.Path
			threads = c.Threads
			read, written = k.Read.IsKnown(), k.Write.IsKnown()
		}
		fmt.Fprintf(&b, "\n[[environment.storage_class]]\nname = %s\n", quote(name))
		write("path", path != "", quote(path))
		fmt.Fprintf(&b, "capacity = %s\nthreads = %d\n", number(c.Capacity), threads)
		write("read", read, curve(c.Read))
		write("write", written, curve(c.Write))
	}
	return b.Bytes()
}

func number(v float64) string {
	text := strconv.FormatFloat(v, 'g', 7, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // TOML's floats have a point or an exponent
	}
	return text
}

// rate formats MB/s, within what Decode takes.
func rate(v float64) string {
	return number(min(max(v, LeastRate), MostRate))
}

func curve(c model.Curve) string {
	if len(c) == 1 && c[0].Clients == 1 {
		return rate(c[0].MBps)
	}
	points := make([]string, len(c))
	for i, p := range c {
		points[i] = fmt.Sprintf("%d = %s", p.Clients, rate(p.MBps))
	}
	return "{ " + strings.Join(points, ", ") + " }"
}

// quote returns a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
