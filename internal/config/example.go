package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/storageclass"
)

// Example writes a configuration file with every key at its default, commented
// out, and with its help.
func Example(classes []storageclass.Kind) string {
	var b strings.Builder
	b.WriteString(`# Configuration of HDMLP.
#
# Arguments of a job beat HDMLP_* variables, which beat this file, which beats
# what is derived or measured. "hdmlp config" shows what is in force, and why.
`)
	for _, scope := range []struct {
		scope Scope
		title string
	}{
		{Job, "Every job"},
		{Daemon, "The daemon, as whoever starts it has it"},
	} {
		fmt.Fprintf(&b, "\n# --- %s\n", scope.title)
		for _, p := range parameters {
			if p.Scope != scope.scope {
				continue
			}
			b.WriteByte('\n')
			comment(&b, p.Help+".")
			switch {
			case p.Kind == Enum:
				comment(&b, "One of: "+strings.Join(p.Values, ", ")+".")
			case p.Default == Auto:
				comment(&b, Auto+": "+p.Derived+".")
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
		if k.Directory {
			fmt.Fprintf(&b, "#path = %q\n#capacity = \"500GB\"\n#threads = 4\n",
				"/nvme/hdmlp-"+k.Name)
		} else {
			b.WriteString("#capacity = \"64GiB\"\n#threads = 8\n")
		}
	}
	b.WriteString(`
# --- The performance model's numbers, MB/s; what is missing is measured

#[environment]
#compute = 640.0          # what the training consumes
#preprocess = 2000.0      # what one node transforms
#network = 1200.0         # between two nodes
#source_network = 1200.0  # between a node and the source
#source = { 1 = 330.0, 4 = 1000.0, 8 = 1200.0 }  # the source, by the number of nodes that read
`)
	return b.String()
}

func tomlValue(p Parameter) string {
	if p.Kind == Int && p.Default != Auto {
		return p.Default
	}
	return strconv.Quote(p.Default)
}

// comment writes text as lines of at most 78 characters.
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
