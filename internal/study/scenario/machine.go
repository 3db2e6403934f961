package scenario

import (
	"fmt"
	"strconv"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// UseEnvironment replaces values of the scenario's [environment] by those of the file at path, as
// hdmlp probe and jobs write it. The number of nodes, and what the file does not know, remain the
// scenario's. notes are sentences for people: what the file replaces, what it does not know, and
// what is guessed.
func (f *File) UseEnvironment(path string) (notes []string, err error) {
	text, err := files.ReadText(path, envfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("read the environment: %w", err)
	}
	known, err := envfile.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.machine = text
	machine, err := envfile.Table(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var replaced, remain []string
	for _, key := range measurable {
		if machine[key] == nil {
			remain = append(remain, key)
		} else {
			replaced = append(replaced, key)
		}
	}
	notes = append(notes, fmt.Sprintf("%s replaces %s of the scenario", path,
		human.And(append(replaced, "the storage classes"))))
	if remain != nil {
		notes = append(notes, fmt.Sprintf("%s does not know %s: the scenario's values remain", path,
			human.And(remain)))
	}
	return append(notes, guesses(known.Node.Classes)...), nil
}

// measurable are the keys that an environment file has if they were measured.
var measurable = []string{"compute", "preprocess", "network", "source_network", "source"}

// guesses lists what is assumed of classes that were not measured.
func guesses(classes []model.NodeClass) (notes []string) {
	for j, c := range classes {
		for _, rate := range []struct {
			key   string
			known model.Known
		}{{"read", c.Read}, {"write", c.Write}} {
			if !rate.known.IsKnown() {
				notes = append(notes, fmt.Sprintf("storage_class.%d.%s (%s) was not measured: "+
					"%.4g MB/s per stream is a guess", j+1, rate.key, c.Name, 1/rate.known.PerMB))
			}
		}
	}
	return notes
}

// replace replaces the values of a scenario's table by those of the machine.
func (f *File) replace(table map[string]any) error {
	machine, err := envfile.Table(f.machine)
	if err != nil {
		return err
	}
	known, err := envfile.Decode(f.machine)
	if err != nil {
		return err
	}
	was, ok := table["environment"].(map[string]any)
	if !ok {
		was = map[string]any{}
		table["environment"] = was
	}
	if machine["source"] != nil { // its latency and work belong to it
		delete(was, "source_latency")
		delete(was, "source_work")
	}
	for key, value := range machine {
		if key != "nodes" || was["nodes"] == nil {
			was[key] = value
		}
	}
	env := known.Node.Environment(known.Size)
	entries, _ := machine["storage_class"].([]any)
	for j, entry := range entries {
		class, _ := entry.(map[string]any)
		for key, curve := range map[string]model.Curve{
			"read": env.Classes[j].Read, "write": env.Classes[j].Write,
		} {
			if class[key] == nil {
				class[key] = tableOf(curve)
			}
		}
	}
	return nil
}

// tableOf returns a throughput as a scenario has it.
func tableOf(c model.Curve) map[string]any {
	table := map[string]any{}
	for _, p := range c {
		table[strconv.Itoa(p.Clients)] = p.MBps
	}
	return table
}
