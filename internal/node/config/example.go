package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/store"
)

// Example returns a configuration file with every key at its default, commented out, together with
// its help.
func Example(classes []store.Kind) string {
	var b strings.Builder
	b.WriteString(`# Configuration of HDMLP.
#
# Arguments of a job override HDMLP_* variables, which override this file, which
# overrides derived and measured defaults. "hdmlp config" shows the values in force
# and their origins.
`)
	for _, scope := range []struct {
		scope Scope
		title string
	}{
		{Job, "Each job"},
		{Daemon, "The daemon; read when it starts"},
	} {
		fmt.Fprintf(&b, "\n# --- %s\n", scope.title)
		for _, p := range parameters {
			if p.Scope != scope.scope {
				continue
			}
			b.WriteByte('\n')
			comment(&b, p.Help+".")
			switch {
			case p.Kind == option.Enum && p.Default == option.Auto:
				comment(&b, option.Auto+": "+p.Derived+". Or: "+strings.Join(p.Values, ", ")+".")
			case p.Kind == option.Enum:
				comment(&b, "One of: "+strings.Join(p.Values, ", ")+".")
			case p.Default == option.Auto:
				comment(&b, option.Auto+": "+p.Derived+".")
			}
			fmt.Fprintf(&b, "#%s = %s\n", p.Key, tomlValue(p))
		}
	}
	b.WriteString(`
# --- Storage classes, fastest first, instead of memory, cache_dir and cache_size
`)
	for _, k := range classes {
		b.WriteByte('\n')
		comment(&b, "Samples in "+k.Help+".")
		fmt.Fprintf(&b, "#[[storage_class]]\n#kind = %q\n", k.Name)
		for _, o := range k.Options {
			if !o.Shared {
				fmt.Fprintf(&b, "#%s = %q\n", o.Key, o.Example)
			}
		}
		threads := 4
		if k.Memory {
			threads = 8
		}
		fmt.Fprintf(&b, "#threads = %d\n", threads)
		b.WriteString("#read = 2000.0   # MB/s, measured if missing; or { 1 = 500.0, 8 = 2000.0 }, " +
			"by samples\n#write = 1000.0  # read or written at the same time\n")
	}
	b.WriteString(`
# --- Numbers of the performance model, in MB/s or with units; missing ones are measured

#[environment]
#compute = 640.0          # consumed by the training on one node
#preprocess = 200.0       # transformed by one thread
#network = 1200.0         # between two nodes
#source_network = 1200.0  # between a node and the source
#source = { 1 = 330.0, 4 = 1000.0, 8 = 1200.0 }  # of the source, by the number of reading nodes
#source_latency = "5ms"   # of each read from the source, besides its bytes
`)
	return b.String()
}

func tomlValue(p Parameter) string {
	if p.Kind == option.Int && p.Default != option.Auto {
		return p.Default
	}
	return strconv.Quote(p.Default)
}

// comment writes text as comment lines of at most 78 characters.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 78 {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
